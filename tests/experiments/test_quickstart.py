"""The leak, seen on a language of known entropy."""

import math

import pytest

from experiments import runner
from tests.experiments.composing import composed


def quickstart(model, tmp_path, *overrides):
    return runner.run(
        composed(
            "experiment=quickstart",
            "+sweep=quickstart",
            f"model=language/{model}",
            f"runs.root={tmp_path}",
            "logger.mode=disabled",
            *overrides,
        )
    )


@pytest.mark.parametrize("model", ["base", "tensor_depth"])
def test_it_needs_no_data_and_knows_its_floor(model, tmp_path):
    short = ["training.steps=2", "training.evaluate_every=1", "training.warmup_steps=0", "data.max_eval_tokens=500"]
    result = quickstart(model, tmp_path, "data.root=nowhere", "data.download=false", *short)
    assert result["causal"] == (model == "base")
    assert 1.5 < result["floor"]["test_nats"] < math.log(24)
    assert result["metrics"]["test_nats"] > result["floor"]["test_nats"]


@pytest.mark.slow
def test_only_the_model_that_reads_the_future_ends_below_the_floor(tmp_path):
    above = {}
    for model in ("base", "tensor", "tensor_depth"):
        result = quickstart(model, tmp_path)
        above[model] = result["metrics"]["test_nats"] - result["floor"]["test_nats"]
    # The causal ones are near the floor, so they are no strawmen; the leak is far below it.
    assert 0 < above["base"] < 0.05
    assert 0 < above["tensor"] < 0.05
    assert above["tensor_depth"] < -0.05
