"""The optimiser's settings and schedule."""

import math

import pytest
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

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


def test_one_pass_over_the_parameters_takes_the_steps_of_the_plain_optimizer():
    """Its state in a checkpoint included, which holds the same entries."""
    models = [torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)]
    models[1].load_state_dict(models[0].state_dict())
    settings = {"learning_rate": 0.1, "weight_decay": 0.5}
    fused, plain = (
        Training(**settings).optimizer(models[0]),
        torch.optim.AdamW(models[1].parameters(), 0.1, weight_decay=0.5),
    )
    assert fused.defaults["fused"]
    assert not plain.defaults["fused"]
    for step in range(5):
        for optimizer, model in zip((fused, plain), models, strict=True):
            optimizer.zero_grad()
            model(torch.arange(3.0) + step).square().sum().backward()
            optimizer.step()
    torch.testing.assert_close(models[0].state_dict(), models[1].state_dict())
    torch.testing.assert_close(fused.state_dict()["state"], plain.state_dict()["state"])


@pytest.mark.parametrize(("precision", "fused"), [("32-true", True), ("bf16-true", True), ("bf16-mixed", None)])
def test_where_it_can_not_be_fused_pytorch_chooses_the_implementation(precision, fused):
    """False in place of None would also turn off the fast loop that PyTorch takes on a GPU."""
    assert Training(precision=precision).optimizer(torch.nn.Linear(2, 2)).defaults["fused"] is fused


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_gradients_are_clipped_in_every_precision(precision, tmp_path):
    """Lightning refuses to clip what a fused optimiser steps in mixed precision."""
    training = Training(steps=1, warmup_steps=0, evaluate_every=1, precision=precision, clip_norm=1e-3)

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch, index):
            return 100 * self.layer(batch[0]).square().mean()

        def on_before_optimizer_step(self, optimizer):
            self.norm = torch.nn.utils.get_total_norm([p.grad for p in self.parameters()])

        def configure_gradient_clipping(self, *arguments, **settings):
            super().configure_gradient_clipping(*arguments, **settings)
            self.clipped = torch.nn.utils.get_total_norm([p.grad for p in self.parameters()])

        def configure_optimizers(self):
            return training.optimizer(self)

    module = Module()
    trainer = pl.Trainer(
        max_steps=1,
        precision=precision,
        gradient_clip_val=training.clip_norm,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(module, DataLoader(TensorDataset(torch.ones(1, 2))))
    assert module.norm > 1
    assert module.clipped == pytest.approx(1e-3, rel=1e-2)


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
