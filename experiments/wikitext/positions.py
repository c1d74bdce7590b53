"""The loss at each position inside a window: where a model that reads the future betrays itself.

A causal model knows nothing at the first position but the first word; a model that reads the future may know the
rest of the window there too.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from experiments.render import Section, Table, render_markdown
from experiments.results import Result
from experiments.wikitext.tables import Group, Row, group_results

# First positions (from 1) of the ranges of the table; each reaches four times as far as the one before.
_STARTS = (1, 2, 5, 17, 65, 257, 1025)


def pooled(row: Row) -> tuple[list[float], list[int]]:
    """Mean nats and number of targets at each position, seeds of a row pooled (they share the window)."""
    blocks = [result["loss_by_position"] for result in row.results]
    targets = [sum(counts) for counts in zip(*(block["targets"] for block in blocks), strict=True)]
    totals = [0.0] * len(targets)
    for block in blocks:
        for index, (mean, count) in enumerate(zip(block["nats"], block["targets"], strict=True)):
            totals[index] += mean * count
    return [total / max(count, 1) for total, count in zip(totals, targets, strict=True)], targets


def mean_over(nats: Sequence[float], targets: Sequence[int], first: int, last: int) -> float | None:
    """Mean nats per target over positions first to last (from 1, both included); None without targets."""
    counts = targets[first - 1 : last]
    weight = sum(counts)
    if not weight:
        return None
    return sum(mean * count for mean, count in zip(nats[first - 1 : last], counts, strict=True)) / weight


def ranges(length: int) -> list[tuple[int, int]]:
    """Ranges of positions that cover a window of `length`, longer and longer."""
    starts = [start for start in _STARTS if start <= length]
    return [(first, following - 1) for first, following in itertools.pairwise([*starts, length + 1])]


def position_table(results: Iterable[Result]) -> str:
    """The loss by position inside a window (Markdown).

    Test nats per token by range of positions, one table per comparable group.
    """
    return render_markdown([_table(group) for group in group_results(results)])


def _table(group: Group) -> Table:
    spans = ranges(max(len(row.results[0]["loss_by_position"]["nats"]) for row in group.rows))
    names = [f"{first}" if first == last else f"{first} to {last}" for first, last in spans]
    rows = []
    for row in group.rows:
        nats, targets = pooled(row)
        means = [mean_over(nats, targets, first, last) for first, last in spans]
        mark = "" if row.causal else " (reads the future)"
        rows.append((row.model + mark, *("" if mean is None else f"{mean:.3f}" for mean in means)))
    header = ("test nats per token at position", *names)
    return Table(group.caption, header, num_text_columns=1, sections=(Section(None, tuple(rows)),))
