"""Result files of masked reconstruction to figures: scores by the share that is hidden, and the loss by step."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from experiments.cub200.tables import RATIOS, comparable
from experiments.drawing import line_style, new_figure
from experiments.results import Result, ResultError
from experiments.summary import Measured, pool_seeds


def scores_by_ratio(members: Sequence[Result], path: str | os.PathLike[str], metric: str) -> None:
    """PSNR or SSIM against the share of hidden patches: a line per model, and what learns nothing.

    Args:
        members: runs that may be compared.
        path: the file.
        metric: ``psnr`` or ``ssim``.
    """
    axes, save = new_figure("patches hidden (%)", {"psnr": "PSNR (dB)", "ssim": "SSIM"}[metric])
    for label, runs in pool_seeds(members):
        points = [_measured(runs, "memory", ratio, metric) for ratio in RATIOS]
        axes.errorbar(
            [100 * ratio for ratio in RATIOS],
            [point.mean for point in points],
            yerr=[point.deviation or 0.0 for point in points],
            capsize=2,
            **line_style(label, causal=True),
        )
    control = [_measured(members[:1], "control", ratio, metric).mean for ratio in RATIOS]
    axes.plot([100 * ratio for ratio in RATIOS], control, color="#7F7F7F", linestyle=":", label=members[0]["control"])
    axes.set_xticks([100 * ratio for ratio in RATIOS])
    save(path)


def draw_all(results: Iterable[Result], folder: str | os.PathLike[str]) -> list[Path]:
    """Draw each group's scores; returns the files, named by metric, target and scale.

    Raises:
        ResultError: no result is finished.
    """
    groups = comparable(results)
    if not groups:
        raise ResultError("no finished result to draw; resume the runs with `make reproduce-cub200`")
    written: list[Path] = []
    names: dict[str, int] = {}
    for members in groups:
        stem = f"{members[0]['protocol']['target']}-{members[0]['scale']}"
        names[stem] = names.get(stem, 0) + 1
        suffix = "" if names[stem] == 1 else f"-{names[stem]}"
        for metric in ("psnr", "ssim"):
            path = Path(folder) / f"{metric}-{stem}{suffix}.png"
            scores_by_ratio(members, path, metric)
            written.append(path)
    return written


def _measured(runs: Sequence[Result], subject: str, ratio: float, metric: str) -> Measured:
    tests: list[dict[str, Any]] = [test for run in runs for test in run["tests"]]
    return Measured.of([t[metric] for t in tests if t["subject"] == subject and t["mask_ratio"] == ratio])
