"""Associative recall."""

import math

import pytest
import torch

from experiments.diagnostics.recall import Recall

TASKS = [
    Recall(),
    Recall(num_pairs=4, num_symbols=4),
    Recall(num_pairs=5, num_symbols=9, num_queries=2, gap=3),
    Recall(num_pairs=1, num_symbols=2, gap=1),
]


@pytest.mark.parametrize("task", TASKS, ids=repr)
def test_targets_are_those_of_a_dictionary(task):
    batch = task.sample(40, torch.Generator().manual_seed(0))
    first_query = 2 * task.num_pairs + task.gap
    for tokens, targets in zip(batch.symbols[..., 0].tolist(), batch.targets.tolist(), strict=True):
        pairs = tokens[: 2 * task.num_pairs]
        book = dict(zip(pairs[::2], pairs[1::2], strict=True))
        queries = tokens[first_query:]
        assert len(book) == task.num_pairs
        assert all(key < task.num_symbols <= value < 2 * task.num_symbols for key, value in book.items())
        assert tokens[2 * task.num_pairs : first_query] == [2 * task.num_symbols] * task.gap
        assert len(set(queries)) == len(queries) == (task.num_queries or task.num_pairs)
        assert [book[key] - task.num_symbols for key in queries] == targets
    assert batch.answers.tolist() == [[place] for place in range(first_query, task.length)]
    assert (batch.best == 1).all()


def test_keys_values_and_queries_are_uniform():
    task = Recall(num_pairs=3, num_symbols=6, num_queries=2)
    keys, values, asked = task.draw(6000, torch.Generator().manual_seed(1))
    for drawn, choices in ((keys, 6), (values, 6), (asked, 3)):
        for place in range(drawn.shape[1]):
            counts = torch.bincount(drawn[:, place], minlength=choices)
            share = 1 / choices
            assert (counts - 6000 * share).abs().max() < 5 * math.sqrt(6000 * share * (1 - share))
    # A value may come twice; a key may not.
    assert abs(int((values[:, 0] == values[:, 1]).sum()) - 1000) < 5 * math.sqrt(6000 / 6 * 5 / 6)
    assert not (keys[:, 0] == keys[:, 1]).any()


def test_unless_told_otherwise_every_pair_is_asked_for():
    assert Recall(num_pairs=3).changed(num_pairs=5).num_asked == 5
    assert Recall(num_pairs=3, num_queries=2).changed(num_pairs=5).num_asked == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_symbols": 1}, "num_symbols=1 must be a whole number, at least 2"),
        ({"num_pairs": 0}, r"num_pairs=0 must be a whole number, from 1 to 64 \(num_symbols\)"),
        ({"num_pairs": 65}, r"num_pairs=65 must be a whole number, from 1 to 64 \(num_symbols\)"),
        ({"num_queries": 0}, r"num_queries=0 must be a whole number, from 1 to 8 \(num_pairs\)"),
        ({"num_queries": 9}, r"num_queries=9 must be a whole number, from 1 to 8 \(num_pairs\)"),
        ({"gap": -1}, "gap=-1 must be a whole number, at least 0"),
    ],
)
def test_an_impossible_task_is_named(settings, message):
    with pytest.raises(ValueError, match=message):
        Recall(**settings)
