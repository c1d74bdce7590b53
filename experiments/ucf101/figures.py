"""Result files of action recognition to figures: top-1 by what is hidden of the test clips."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.drawing import draw_means, line_style, new_figure
from experiments.results import Result, ResultError
from experiments.ucf101.tables import FRACTIONS, HIDDEN, measured, named_groups, pool_runs

_SHARES = (0.0, *FRACTIONS)


def accuracy_by_hidden(members: Sequence[Result], path: str | os.PathLike[str], kind: str) -> None:
    """Top-1 against the share that is hidden: a line per model, and chance.

    Args:
        members: runs that may be compared.
        path: the file.
        kind: ``frames`` or ``patch``; see `Condition`.
    """
    axes, save = new_figure(f"hidden share {HIDDEN[kind]} (%)", "top-1 (%)")
    percent = [100 * share for share in _SHARES]
    for number, (label, runs) in enumerate(pool_runs(members)):
        # Where nothing is hidden, the kind of hiding is no matter.
        points = [measured(runs, "top1", "memory", kind if share else "frames", share) for share in _SHARES]
        means, deviations = [point.mean for point in points], [point.deviation for point in points]
        draw_means(axes, percent, means, deviations, line_style(label, causal=True), number)
    chance = members[0]["metrics"]["chance"]
    axes.plot(percent, [chance] * len(percent), color="#7F7F7F", linestyle=":", label="chance")
    axes.set_xticks(percent)
    save(path)


def draw_all(results: Iterable[Result], folder: str | os.PathLike[str]) -> list[Path]:
    """Draw each group's accuracies; returns the files, named by what is hidden and by scale.

    Raises:
        ResultError: no result is finished.
    """
    groups = named_groups(results)
    if not groups:
        raise ResultError("no finished result to draw; resume the runs with `make reproduce-ucf101`")
    written: list[Path] = []
    for stem, members in groups:
        for kind in HIDDEN:
            path = Path(folder) / f"hidden_{kind}-{stem}.png"
            accuracy_by_hidden(members, path, kind)
            written.append(path)
    return written
