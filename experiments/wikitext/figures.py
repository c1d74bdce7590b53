"""The figures of the language models: loss by position inside a window, and by what was trained so far."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from experiments.drawing import line_style, line_styles, new_figure
from experiments.results import Result, ResultError
from experiments.wikitext.perplexity import perplexity
from experiments.wikitext.positions import mean_over, pooled
from experiments.wikitext.tables import Row, group_results

POSITION_BINS = 24


def binned_loss(
    nats: Sequence[float], targets: Sequence[int], num_bins: int = POSITION_BINS
) -> tuple[list[float], list[float]]:
    """Mean nats per target in bins that are evenly spaced in log(position).

    Args:
        nats: mean nats at each position inside the window, position 1 first.
        targets: how many targets each mean is over; positions without targets do not count.

    Returns:
        Geometric centres of the bins (positions count from 1), and the means; empty bins are left out.
    """
    centres, means = [], []
    for first, last in bins(len(nats), num_bins):
        mean = mean_over(nats, targets, first, last)
        if mean is not None:
            centres.append(math.sqrt(first * last))
            means.append(mean)
    return centres, means


def bins(length: int, num_bins: int = POSITION_BINS) -> list[tuple[int, int]]:
    """The first and last positions (from 1) of at most so many bins, evenly spaced in log(position)."""
    starts = sorted({round(length ** (index / num_bins)) for index in range(num_bins)})
    return [(first, following - 1) for first, following in itertools.pairwise([*starts, length + 1])]


def loss_by_position(results: Iterable[Result], path: str | os.PathLike[str]) -> None:
    """Mean loss (nats per token) against the position inside the window, seeds of a model pooled.

    Raises:
        ResultError: no finished result, or results that can't be compared (protocol, scale or tokens differ).
    """
    axes, save = new_figure("position in the window", "nats per token")
    for row in _comparable_rows(results):
        axes.plot(*binned_loss(*pooled(row)), **line_style(row.model, row.causal))
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")  # 1, 2, 4 and not powers written out
    save(path)


def perplexity_by_tokens(results: Iterable[Result], path: str | os.PathLike[str]) -> None:
    """Validation perplexity against the training tokens seen, one line per run.

    Raises:
        ResultError: as `loss_by_position`.
    """
    axes, save = new_figure("training tokens", "validation perplexity")
    for row in _comparable_rows(results):
        for result, style in _runs(row):
            reached = [perplexity(nats) for nats in result["history"]["validation_nats"]]
            axes.plot(result["history"]["tokens"], reached, **style)
    axes.set_yscale("log")
    for set_formatter in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        set_formatter("{x:g}")
    axes.xaxis.set_major_formatter(lambda tokens, _: f"{tokens / 1e6:g}M")
    save(path)


def loss_by_step(results: Iterable[Result], path: str | os.PathLike[str]) -> None:
    """Validation loss (nats per token) against the training step, and the floor of a generated language.

    Raises:
        ResultError: as `loss_by_position`.
    """
    axes, save = new_figure("training step", "validation nats per token")
    results = list(results)
    for row in _comparable_rows(results):
        for result, style in _runs(row):
            axes.plot(result["history"]["step"], result["history"]["validation_nats"], **style)
    (group,) = group_results(results)
    if group.floor:
        axes.axhline(group.floor["validation_nats"], color="#7F7F7F", linestyle=":", label="floor: the true source")
    save(path)


FIGURES = {
    "loss_by_position": loss_by_position,
    "perplexity_by_tokens": perplexity_by_tokens,
    "loss_by_step": loss_by_step,
}


def draw_all(results: Iterable[Result], folder: str | os.PathLike[str]) -> list[Path]:
    """Draw each figure for each comparable group of results; returns the files, named by figure and scale."""
    groups = group_results(results)
    written: list[Path] = []
    for name, draw in FIGURES.items():
        for index, group in enumerate(groups):
            if draw is loss_by_step and not group.floor:
                continue  # perplexity_by_tokens shows as much, where there is no floor to compare with
            repeated = sum(other.scale == group.scale for other in groups[:index])
            suffix = f"-{repeated + 1}" if repeated else ""
            path = Path(folder) / f"{name}-{group.scale}{suffix}.png"
            draw(group.results, path)
            written.append(path)
    return written


def _runs(row: Row) -> list[tuple[Result, dict[str, Any]]]:
    """The runs of a row and how each is drawn."""
    styles = line_styles(row.model, row.causal, [result["seed"] for result in row.results])
    return list(zip(row.results, styles, strict=True))


def _comparable_rows(results: Iterable[Result]) -> tuple[Row, ...]:
    groups = group_results(results)
    if len(groups) != 1:
        found = "; ".join(group.caption for group in groups) or "nothing finished"
        raise ResultError(f"a figure shows one protocol, scale and token budget, got {len(groups)}: {found}")
    return groups[0].rows
