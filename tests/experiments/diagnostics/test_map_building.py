"""Map building."""

import itertools
import math

import pytest
import torch

from experiments.diagnostics.map_building import MapBuilding

TASKS = [MapBuilding(), MapBuilding(num_views=5, grid_size=5, view_size=3), MapBuilding(4, 3, 3), MapBuilding(9, 4, 1)]
each_task = pytest.mark.parametrize("task", TASKS, ids=repr)


@each_task
def test_answers_are_those_of_a_slow_surveyor(task):
    grid, corners, query = task.draw(50, torch.Generator().manual_seed(0))
    batch = task.encode(grid, corners, query)
    side, size = task.view_size, task.grid_size
    for row in range(50):
        known = {}  # read off the tokens alone
        for *cells, down, right, mark in batch.numbers[row, :-1].tolist():
            assert mark == 0
            top, left = round(down * size), round(right * size)
            for (i, j), cell in zip(itertools.product(range(side), repeat=2), cells, strict=True):
                assert known.setdefault((top + i, left + j), cell) == cell
        *cells, down, right, mark = batch.numbers[row, -1].tolist()
        assert cells == [0] * side**2
        assert mark == 1
        asked = (round(down * size), round(right * size))
        assert all(grid[(row, *place)] == cell for place, cell in known.items())
        assert asked == tuple(query[row].tolist())
        assert batch.targets[row].tolist() == [grid[(row, *asked)]]
        assert batch.groups["seen"][row].tolist() == [asked in known]
        assert batch.groups["unseen"][row].tolist() == [asked not in known]
        assert batch.best[row].tolist() == [1.0 if asked in known else 0.5]
    assert batch.answers.tolist() == [[task.num_views]]


def test_tokens_show_nothing_of_unseen_cells():
    task = MapBuilding(num_views=6)
    grid, corners, query = task.draw(200, torch.Generator().manual_seed(1))
    seen = torch.zeros_like(grid, dtype=torch.bool)
    for row, views in enumerate(corners.tolist()):
        for top, left in views:
            seen[row, top : top + 2, left : left + 2] = True
    before = task.encode(grid, corners, query)
    after = task.encode(torch.where(seen, grid, 1 - grid), corners, query)
    assert torch.equal(before.numbers, after.numbers)
    assert torch.equal(before.targets != after.targets, before.groups["unseen"])
    assert before.groups["unseen"].any()


@each_task
def test_the_share_of_seen_cells_is_exact(task):
    seen = task.sample(5000, torch.Generator().manual_seed(2)).groups["seen"].float()
    expected = task.probability_seen
    assert abs(float(seen.mean()) - expected) <= 5 * math.sqrt(expected * (1 - expected) / 5000)


@each_task
def test_the_share_of_seen_cells_is_that_of_a_slow_count(task):
    places = list(itertools.product(range(task.grid_size - task.view_size + 1), repeat=2))
    cells = list(itertools.product(range(task.grid_size), repeat=2))
    total = 0.0
    for row, column in cells:
        missing = [not (0 <= row - r < task.view_size and 0 <= column - c < task.view_size) for r, c in places]
        total += 1 - (sum(missing) / len(places)) ** task.num_views
    assert task.probability_seen == pytest.approx(total / len(cells), abs=1e-12)


def test_views_and_queries_reach_every_place_equally_often():
    task = MapBuilding(num_views=4, grid_size=5, view_size=2)
    grid, corners, query = task.draw(4000, torch.Generator().manual_seed(3))
    for places, side in ((corners.flatten(0, 1), 4), (query, 5)):
        counts = torch.bincount(places[:, 0] * side + places[:, 1], minlength=side**2)
        share = 1 / side**2
        assert len(counts) == side**2
        assert (counts - len(places) * share).abs().max() < 5 * math.sqrt(len(places) * share * (1 - share))
    assert (grid.sum(0) - 2000).abs().max() < 5 * math.sqrt(4000 / 4)
    # Neighbours are independent: they agree in half of the grids.
    assert ((grid[:, :, 1:] == grid[:, :, :-1]).sum(0) - 2000).abs().max() < 5 * math.sqrt(4000 / 4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_views": 0}, "num_views=0 must be a whole number, at least 1"),
        ({"grid_size": 0}, "grid_size=0 must be a whole number, at least 1"),
        ({"view_size": 0}, r"view_size=0 must be a whole number, from 1 to 8 \(grid_size\)"),
        ({"view_size": 9}, r"view_size=9 must be a whole number, from 1 to 8 \(grid_size\)"),
    ],
)
def test_an_impossible_task_is_named(settings, message):
    with pytest.raises(ValueError, match=message):
        MapBuilding(**settings)
