"""The optimiser's settings and schedule."""

import math

import pytest
import torch

from experiments.training import Training


def test_the_rate_rises_linearly_then_falls_by_a_cosine_to_zero():
    training = Training(steps=110, warmup_steps=10, evaluate_every=10)
    assert training.rate_factor(0) == pytest.approx(0.1)
    assert training.rate_factor(9) == pytest.approx(1.0)
    assert training.rate_factor(60) == pytest.approx(0.5)
    assert training.rate_factor(85) == pytest.approx(0.5 * (1 + math.cos(0.75 * math.pi)))
    assert training.rate_factor(110) == pytest.approx(0.0)


def test_a_constant_rate_is_the_peak_from_the_warmup_on():
    training = Training(steps=20, warmup_steps=4, evaluate_every=5, learning_rate=0.4, schedule="constant")
    assert [training.rate_factor(step) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert {training.rate_factor(step) for step in range(4, 30)} == {1.0}
    unwarmed = Training(steps=20, warmup_steps=0, evaluate_every=5, learning_rate=0.4, schedule="constant")
    optimizer = unwarmed.optimizer(torch.nn.Linear(2, 2))
    scheduler = unwarmed.scheduler(optimizer)
    for _ in range(20):
        assert optimizer.param_groups[0]["lr"] == 0.4
        optimizer.step()
        scheduler.step()


def test_an_unknown_schedule_is_refused_with_the_choices():
    with pytest.raises(ValueError, match=r"training\.schedule='linear' is unknown; choose one of .*cosine.*constant"):
        Training(schedule="linear")


def test_the_scheduler_starts_at_the_first_steps_rate():
    training = Training(steps=20, warmup_steps=4, evaluate_every=5, learning_rate=0.4)
    optimizer = training.optimizer(torch.nn.Linear(2, 2))
    training.scheduler(optimizer)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1)


def test_weight_decay_is_on_every_parameter():
    optimizer = Training().optimizer(torch.nn.LayerNorm(3))
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1]
    assert len(optimizer.param_groups[0]["params"]) == 2


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("steps", 0),
        ("evaluate_every", 0),
        ("evaluate_every", 300),
        ("patience", 0),
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("clip_norm", -1.0),
        ("weight_decay", -0.1),
        ("warmup_steps", 10_000),
        ("warmup_steps", -1),
    ],
)
def test_an_impossible_setting_is_named(setting, value):
    with pytest.raises(ValueError, match=rf"training\.{setting}={value}"):
        Training(**{setting: value})
