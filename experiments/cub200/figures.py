"""Result files of masked reconstruction to figures: scores by the share of patches that is hidden."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.cub200.tables import RATIOS, measured, named_groups
from experiments.drawing import line_style, new_figure
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
    for label, runs in pool_seeds(members):
        points = [measured(runs, "memory", metric, ratio) for ratio in RATIOS]
        axes.errorbar(
            [100 * ratio for ratio in RATIOS],
            [point.mean for point in points],
            yerr=[point.deviation or 0.0 for point in points],
            capsize=2,
            **line_style(label, causal=True),
        )
    control = [measured(members[:1], "control", metric, ratio).mean for ratio in RATIOS]
    axes.plot([100 * ratio for ratio in RATIOS], control, color="#7F7F7F", linestyle=":", label=members[0]["control"])
    axes.set_xticks([100 * ratio for ratio in RATIOS])
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
