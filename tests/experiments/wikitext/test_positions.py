"""The loss by position inside a window."""

import pytest

from experiments.wikitext.positions import mean_over, pooled, position_table, ranges
from experiments.wikitext.tables import group_results


def test_ranges_cover_the_window_once():
    for length in (1, 2, 3, 8, 64, 256, 512):
        covered = [position for first, last in ranges(length) for position in range(first, last + 1)]
        assert covered == list(range(1, length + 1))


def test_a_mean_weighs_positions_by_their_targets():
    assert mean_over([1.0, 3.0, 9.0], [3, 1, 5], 1, 2) == pytest.approx(1.5)
    assert mean_over([1.0, 3.0], [3, 0], 2, 2) is None


def test_seeds_are_pooled(make_result):
    results = [
        make_result(
            seed=seed, config_hash=f"{seed:08x}", loss_by_position={"nats": [7.0 + seed, 5.0], "targets": [10, 10]}
        )
        for seed in (0, 1)
    ]
    (group,) = group_results(results)
    assert pooled(group.rows[0]) == ([7.5, 5.0], [20, 20])


def test_the_table_marks_what_reads_the_future(make_result):
    leaking = make_result(model="tensor_depth", causal=False, config_hash="00000001", streaming="none")
    table = position_table([make_result(), leaking])
    lines = [line for line in table.splitlines() if line.startswith("|")]
    assert lines[0] == "| test nats per token at position | 1 | 2 to 4 | 5 to 8 |"
    assert lines[2].startswith("| base | 7.000 | 5.333 | 4.")
    assert lines[3].startswith("| tensor_depth (reads the future) |")
