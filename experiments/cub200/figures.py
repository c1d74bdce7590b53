"""Result files of masked reconstruction to figures: scores by the share of patches that is hidden."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.cub200.tables import RATIOS, measured, named_groups
from experiments.drawing import draw_means, line_style, new_figure
from experiments.results import Result, ResultError
from experiments.summary import pool_seeds


def scores_by_ratio(members: Sequence[Result], path: str | os.PathLike[str], metric: str) -> None:
    """PSNR or SSIM against the share of hidden patches: a line per model, and what learns nothing.

    Args:
        members: runs that may be compared.
        path: the file.
        metric: ``psnr`` or ``ssim``.
    """
    axes, save = new_figure("patches hidden (%)", {"psnr": "PSNR (dB)", "ssim": "SSIM"}[metric])
    percent = [100 * ratio for ratio in RATIOS]
    for number, (label, runs) in enumerate(pool_seeds(members)):
        points = [measured(runs, "memory", metric, ratio) for ratio in RATIOS]
        means, deviations = [point.mean for point in points], [point.deviation for point in points]
        draw_means(axes, percent, means, deviations, line_style(label, causal=True), number)
    control = [measured(members[:1], "control", metric, ratio).mean for ratio in RATIOS]
    axes.plot(percent, control, color="#7F7F7F", linestyle=":", label=members[0]["control"])
    axes.set_xticks(percent)
    save(path)


def draw_all(results: Iterable[Result], folder: str | os.PathLike[str]) -> list[Path]:
    """Draw each group's scores; returns the files, named by metric, target and scale.

    Raises:
        ResultError: no result is finished.
    """
    groups = named_groups(results)
    if not groups:
        raise ResultError("no finished result to draw; resume the runs with `make reproduce-cub200`")
    written: list[Path] = []
    for stem, members in groups:
        for metric in ("psnr", "ssim"):
            path = Path(folder) / f"{metric}-{stem}.png"
            scores_by_ratio(members, path, metric)
            written.append(path)
    return written
