"""Coordinate binding."""

import math

import pytest
import torch

from experiments.diagnostics.binding import Binding


@pytest.mark.parametrize(
    "task", [Binding(), Binding(noise=0.5, num_writes=7), Binding(noise=0.3, key_dim=1, num_values=3)], ids=repr
)
def test_targets_are_those_of_a_slow_search(task):
    batch = task.sample(20, torch.Generator().manual_seed(0))
    rows = zip(batch.numbers.tolist(), batch.symbols.tolist(), batch.targets.tolist(), strict=True)
    for numbers, symbols, targets in rows:
        written = [(key, value) for key, (kind, value) in zip(numbers, symbols, strict=True) if kind == 0]
        queries = [key for key, (kind, _) in zip(numbers, symbols, strict=True) if kind == 1]
        assert len(written) == task.num_writes
        assert targets == [min(written, key=lambda pair: math.dist(pair[0], query))[1] for query in queries]


def test_the_answer_is_at_the_query_and_the_query_has_no_value():
    task = Binding(num_writes=3, num_queries=2, num_values=5)
    batch = task.sample(50, torch.Generator().manual_seed(1))
    assert batch.answers.tolist() == [[3], [4]]
    assert (batch.symbols[:, :, 0] == torch.tensor([0, 0, 0, 1, 1])).all()
    assert (batch.symbols[:, 3:, 1] == 5).all()
    assert (batch.symbols[:, :3, 1] < 5).all()
    assert (batch.best == 1).all()


def test_the_nearest_key_is_nearest_in_a_straight_line():
    task = Binding(num_writes=3, num_queries=1, key_dim=2)
    # The first is nearest along the axes, the third by its largest coordinate, the second by Euclid.
    keys, values = torch.tensor([[[0.5, 0.0], [0.4, 0.2], [0.38, 0.38]]]), torch.tensor([[7, 8, 9]])
    assert task.encode(keys, values, torch.zeros(1, 1, 2)).targets.tolist() == [[8]]


def test_of_equal_keys_the_first_counts():
    task = Binding(num_writes=3, num_queries=1, key_dim=1)
    keys, queries = torch.tensor([[[0.5], [-0.5], [-0.5]]]), torch.tensor([[[-0.5]]])
    assert task.encode(keys, torch.tensor([[1, 2, 3]]), queries).targets.tolist() == [[2]]


def test_without_noise_a_query_is_a_written_key_any_with_equal_chance():
    task = Binding(num_writes=5, noise=0.0, num_queries=3)
    batch = task.sample(3000, torch.Generator().manual_seed(2))
    keys, queries = batch.numbers[:, :5], batch.numbers[:, 5:]
    same = (queries[:, :, None] == keys[:, None]).all(-1)
    assert (same.sum(-1) == 1).all()
    counts = same.sum((0, 1))
    assert (counts - 9000 / 5).abs().max() < 5 * math.sqrt(9000 * 0.2 * 0.8)
    # The queries are drawn apart: two agree in a fifth of the sequences.
    agree = int((same[:, 0] & same[:, 1]).any(-1).sum())
    assert abs(agree - 600) < 5 * math.sqrt(3000 * 0.2 * 0.8)


def test_noise_has_the_given_deviation_in_every_coordinate():
    keys, _, queries = Binding(num_writes=1, noise=0.02).draw(5000, torch.Generator().manual_seed(3))
    inside = keys[:, 0].abs().amax(-1) < 0.9  # five deviations from where it is cut off
    offsets = (queries - keys)[inside].flatten(0, 1)
    assert ((offsets.std(0) / 0.02 - 1).abs() < 5 / math.sqrt(2 * len(offsets))).all()
    assert (offsets.mean(0).abs() < 5 * 0.02 / math.sqrt(len(offsets))).all()


def test_noise_does_not_leave_the_cube():
    _, _, queries = Binding(noise=0.5).draw(100, torch.Generator().manual_seed(4))
    assert queries.max() == 1
    assert queries.min() == -1


def test_keys_fill_the_cube_and_values_are_uniform():
    keys, values, _ = Binding(num_values=8).draw(1000, torch.Generator().manual_seed(4))
    counts = torch.histc(keys, bins=10, min=-1, max=1)
    assert counts.sum() == keys.numel()
    assert (counts - keys.numel() / 10).abs().max() < 5 * math.sqrt(keys.numel() * 0.1 * 0.9)
    counts = torch.bincount(values.flatten(), minlength=8)
    assert (counts - values.numel() / 8).abs().max() < 5 * math.sqrt(values.numel() * 0.125 * 0.875)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_writes": 0}, "num_writes=0 must be a whole number, at least 1"),
        ({"num_queries": 0}, "num_queries=0 must be a whole number, at least 1"),
        ({"num_values": 1}, "num_values=1 must be a whole number, at least 2"),
        ({"key_dim": 0}, "key_dim=0 must be a whole number, at least 1"),
        ({"noise": -0.1}, "noise=-0.1 must be a finite number, at least 0"),
        ({"noise": math.inf}, "noise=inf must be a finite number"),
        ({"noise": math.nan}, "noise=nan must be a finite number"),
    ],
)
def test_an_impossible_task_is_named(settings, message):
    with pytest.raises(ValueError, match=message):
        Binding(**settings)
