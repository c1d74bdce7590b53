"""Result files to figures: `python -m experiments.figures wikitext --output DIR [--results DIR ...]`.

Matplotlib is imported only where a figure is drawn. It draws into files without a display.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from experiments.positions import mean_over, pooled
from experiments.results import Result, ResultError, load_results
from experiments.tables import BENCHMARKS
from experiments.wikitext.tables import Row, group_results

# Okabe and Ito's palette, which stays distinct under the common colour deficiencies. A model keeps its colour
# in every figure, whatever else is drawn.
PALETTE = ("#000000", "#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7", "#7F7F7F")
# Variants of a model have a lighter or darker shade of its colour.
COLOURS = {
    "base": "#000000",
    "base_sln": "#999999",
    "base_wide": "#555555",
    "tensor": "#0072B2",
    "tensor_sln": "#7FB8DB",
    "tensor_local": "#003F63",
    "tensor_depth": "#D55E00",
    "tensor_time": "#009E73",
    "local": "#E69F00",
    "local_rope": "#8F6300",
    "linear": "#56B4E9",
    "transformer_xl": "#CC79A7",
}
MARKERS = "osD^vP"
POSITION_BINS = 24


def colour(model: str) -> str:
    """The model's colour: fixed by its name alone."""
    return COLOURS.get(model, PALETTE[zlib.crc32(model.encode()) % len(PALETTE)])


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
    edges = sorted({round(len(nats) ** (i / num_bins)) for i in range(num_bins + 1)} | {len(nats) + 1})
    centres, means = [], []
    for low, high in itertools.pairwise(edges):
        mean = mean_over(nats, targets, low, high - 1)
        if mean is not None:
            centres.append(math.sqrt(low * (high - 1)))
            means.append(mean)
    return centres, means


def loss_by_position(results: Iterable[Result], path: str | os.PathLike[str]) -> None:
    """Mean loss (nats per token) against the position inside the window, seeds of a model pooled.

    Raises:
        ResultError: no finished result, or results that can't be compared (protocol, scale or tokens differ).
    """
    axes, save = _figure("position in the window", "nats per token")
    for row in _comparable_rows(results):
        axes.plot(*binned_loss(*pooled(row)), **_style(row))
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")  # 1, 2, 4 and not powers written out
    save(path)


def perplexity_by_tokens(results: Iterable[Result], path: str | os.PathLike[str]) -> None:
    """Validation perplexity against the training tokens seen, one line per run.

    Raises:
        ResultError: as `loss_by_position`.
    """
    axes, save = _figure("training tokens", "validation perplexity")
    for row in _comparable_rows(results):
        for index, result in enumerate(row.results):
            perplexity = [math.exp(nats) for nats in result["history"]["validation_nats"]]
            style = _style(row)
            if index:  # one entry in the legend per model
                style["label"] = None
            axes.plot(result["history"]["tokens"], perplexity, **style)
    axes.set_yscale("log")
    save(path)


def loss_by_step(results: Iterable[Result], path: str | os.PathLike[str]) -> None:
    """Validation loss (nats per token) against the training step, and the floor of a generated language.

    Raises:
        ResultError: as `loss_by_position`.
    """
    axes, save = _figure("training step", "validation nats per token")
    results = list(results)
    for row in _comparable_rows(results):
        for index, result in enumerate(row.results):
            style = _style(row)
            if index:
                style["label"] = None
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
    """Draw each figure for each comparable group of results; returns the files, named by figure and scale.

    Raises:
        ResultError: no result is finished.
    """
    groups = group_results(results)
    if not groups:
        raise ResultError("no finished result to draw; resume the runs with `make reproduce-wikitext`")
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


def _comparable_rows(results: Iterable[Result]) -> tuple[Row, ...]:
    groups = group_results(results)
    if len(groups) != 1:
        found = "; ".join(group.caption for group in groups) or "nothing finished"
        raise ResultError(f"a figure shows one protocol, scale and token budget, got {len(groups)}: {found}")
    return groups[0].rows


def _style(row: Row) -> dict[str, Any]:
    # A row's name may go on with the settings that tell variants apart: one colour a model, one marker a row.
    model = row.model.split(" ")[0]
    return {
        "color": colour(model),
        "marker": MARKERS[zlib.crc32(row.model.encode()) % len(MARKERS)],
        "markersize": 3.5,
        "linewidth": 1.4,
        "linestyle": "-" if row.causal else "--",
        "label": row.model if row.causal else f"{row.model} (reads the future)",
    }


def _figure(xlabel: str, ylabel: str) -> tuple[Any, Callable[[str | os.PathLike[str]], None]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    FigureCanvasAgg(figure)  # needs no display, and leaves pyplot's global state alone
    axes = figure.add_subplot()
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.grid(alpha=0.25)

    def save(path: str | os.PathLike[str]) -> None:
        axes.legend(frameon=False)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)

    return axes, save


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m experiments.figures", description="Result files to figures.")
    parser.add_argument("benchmark", choices=BENCHMARKS)
    parser.add_argument("--results", nargs="+", metavar="DIR", help="run roots, results folders or files")
    parser.add_argument("--output", metavar="DIR", type=Path, required=True, help="folder for the figures")
    options = parser.parse_args(arguments)
    try:
        written = draw_all(load_results(options.benchmark, options.results), options.output)
    except (ResultError, FileNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for path in written:
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
