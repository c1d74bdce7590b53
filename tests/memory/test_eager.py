"""How the eager scan cuts its work: the axes of the grid into groups, the batch into blocks."""

from __future__ import annotations

import pytest
import torch

from tensormem.memory import eager
from tests.memory.scans import EXACT, SAVINGS, Case, assert_parity


@pytest.mark.parametrize("kind", ["factorised", "pointwise"])
@pytest.mark.parametrize(("grid", "most"), [((3, 2, 4), 1), ((2, 3, 2, 2), 1), ((2, 3, 2, 2), 4), ((2, 3, 2, 2), 6)])
def test_parity_however_the_axes_are_grouped(monkeypatch, grid, most, kind):
    monkeypatch.setattr(eager, "GROUP_POINTS", most)
    assert_parity(Case(grid, 5, 6, kind=kind), EXACT, kernel_kind="eager")


@pytest.mark.parametrize("saving", SAVINGS)
@pytest.mark.parametrize("most", [1, 40, 60])
def test_parity_however_many_sequences_a_block_has(monkeypatch, most, saving):
    monkeypatch.setattr(eager, "BLOCK_VALUES", most)
    assert_parity(Case((3, 4), 5, 6, channels=2, batch=5), EXACT, saving=saving, kernel_kind="eager")


@pytest.mark.parametrize(
    ("grid", "groups"),
    [
        ((100,), [[0]]),
        ((4, 4, 4), [[0, 1, 2]]),
        ((6, 6, 6), [[0], [1, 2]]),
        ((8, 8, 8), [[0], [1, 2]]),
        ((3, 100, 2), [[0], [1], [2]]),
        ((2, 2, 64, 32), [[0, 1], [2], [3]]),
    ],
)
def test_neighbouring_axes_share_a_group_while_it_is_small(grid, groups):
    assert eager._groups(grid) == groups


def test_blocks_hold_every_sequence_once():
    for batch in range(8):
        for most in (1, 24, 50, 1000):
            blocks = _blocks(batch, most)
            assert [sequence for start, stop in blocks for sequence in range(start, stop)] == list(range(batch))
            assert all((stop - start) * 24 <= most or stop - start == 1 for start, stop in blocks[:-1])


def _blocks(batch: int, most: int) -> list[tuple[int, int]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(eager, "BLOCK_VALUES", most)
        return eager._blocks(torch.empty(batch, 2, 3, 4))
