"""No harm."""

import math

import pytest
import torch

from experiments.diagnostics.no_harm import NoHarm


@pytest.mark.parametrize("task", [NoHarm(), NoHarm(num_symbols=3, sequence_length=10), NoHarm(50, 4)], ids=repr)
def test_symbols_are_those_of_slow_counting(task):
    batch = task.sample(30, torch.Generator().manual_seed(0))
    for symbols, targets in zip(batch.symbols[..., 0].tolist(), batch.targets.tolist(), strict=True):
        counted = [symbols[0]]
        while len(counted) < task.sequence_length:
            counted.append(0 if counted[-1] == task.num_symbols - 1 else counted[-1] + 1)
        assert symbols == counted
        assert targets == counted[1:]
    assert batch.answers.tolist() == [[place] for place in range(task.sequence_length - 1)]
    assert (batch.best == 1).all()


def test_the_first_symbol_is_uniform():
    counts = torch.bincount(NoHarm().sample(8000, torch.Generator().manual_seed(1)).symbols[:, 0, 0], minlength=16)
    assert (counts - 500).abs().max() < 5 * math.sqrt(500 * 15 / 16)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_symbols": 1}, "num_symbols=1 must be a whole number, at least 2"),
        ({"sequence_length": 1}, "sequence_length=1 must be a whole number, at least 2"),
    ],
)
def test_an_impossible_task_is_named(settings, message):
    with pytest.raises(ValueError, match=message):
        NoHarm(**settings)
