"""What the figures of all benchmarks share: axes without a display, and one look for a model wherever it is drawn.

Matplotlib is imported only where a figure is drawn.
"""

from __future__ import annotations

import csv
import io
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

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
    "tensor_layer": "#7A3E9D",
    "slots": "#E69F00",
    "registers": "#009E73",
    "tensor_time": "#009E73",
    "local": "#E69F00",
    "local_rope": "#8F6300",
    "linear": "#009E73",
    "transformer_xl": "#CC79A7",
}
# Of models that have no colour above: away from all of those.
OTHERS = ("#8B0000", "#00E5FF", "#B8E986", "#4B0FFF", "#FFB07C", "#3D6B1F")
MARKERS = "osD^vP"
_sources_only = ContextVar("sources_only", default=False)
# The label of what has no entry in the legend.
UNLISTED = "_nolegend_"
# A longer legend would lie on the lines: it stands beside them.
_MOST_INSIDE = 5


def colour(model: str) -> str:
    """The model's colour: fixed by its name alone."""
    return COLOURS.get(model, OTHERS[zlib.crc32(model.encode()) % len(OTHERS)])


def line_style(label: str, causal: bool) -> dict[str, Any]:
    """Matplotlib's keywords for the line of a table's row: one colour a model, one marker a row.

    Args:
        label: the row's name, which may go on with the settings that tell variants of the model apart.
        causal: lines of models that read the future are dashed, and say so.
    """
    return {
        "color": colour(label.split(" ")[0]),
        "marker": MARKERS[zlib.crc32(label.encode()) % len(MARKERS)],
        "markersize": 3.5,
        "linewidth": 1.4,
        "linestyle": "-" if causal else "--",
        "label": label if causal else f"{label} (reads the future)",
    }


def line_styles(label: str, causal: bool, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """`line_style` for each run of a row: one look and one entry in the legend, and names in the figure's source."""
    styles = [line_style(label, causal) for _ in seeds]
    if len(seeds) > 1:
        for style, seed in zip(styles, seeds, strict=True):
            style["gid"] = f"{style['label']}, seed {seed}"
    for style in styles[1:]:
        style["label"] = UNLISTED
    return styles


@contextmanager
def sources_only() -> Iterator[None]:
    """Figures are saved as their sources alone, for those who ask what a figure shows: the pictures take the time."""
    token = _sources_only.set(True)
    try:
        yield
    finally:
        _sources_only.reset(token)


def new_figure(xlabel: str, ylabel: str) -> tuple[Any, Callable[[str | os.PathLike[str]], None]]:
    """The axes of a new figure, and a function that adds the legend and saves the figure, making its folder."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    FigureCanvasAgg(figure)  # needs no display, and leaves pyplot's global state alone
    axes = figure.add_subplot()
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.grid(alpha=0.25)

    def save(path: str | os.PathLike[str]) -> None:
        if len(axes.get_legend_handles_labels()[0]) > _MOST_INSIDE:
            figure.set_size_inches(9.0, 4.0)
            axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        else:
            axes.legend(frameon=False)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        if not _sources_only.get():
            figure.savefig(path, dpi=150)
        Path(path).with_suffix(".csv").write_text(source(axes), encoding="utf-8")

    return axes, save


def draw_means(
    axes: Any,
    x: Sequence[float],
    means: Sequence[float],
    deviations: Sequence[float | None],
    style: Mapping[str, Any],
    number: int = 0,
) -> None:
    """A line of means, with an error bar where there is a deviation.

    Args:
        axes: Matplotlib's.
        x: where the means are.
        means: of the seeds.
        deviations: of the seeds; None where there is but one.
        style: as of `line_style`.
        number: of the line in its figure: bars that lie on one another have caps of different widths.
    """
    if any(deviations):
        bars = [deviation or 0.0 for deviation in deviations]
        axes.errorbar(x, means, yerr=bars, capsize=2 + 1.5 * number, elinewidth=0.8, **style)
    else:
        axes.plot(x, means, **style)


def source(axes: Any) -> str:
    """What axes show, as CSV: a line for each point that was drawn, and the ends of its error bar where it has one.

    A line goes by its `gid`, or by its label; without either it is a guide to the eye, and left out.

    Args:
        axes: Matplotlib's, with lines, error bars and horizontal bars.
    """
    rows: list[tuple[Any, ...]] = []
    parts_of_containers: set[Any] = set()
    for container in axes.containers:
        if hasattr(container, "patches"):
            names = {
                place: text.get_text() for place, text in zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)
            }
            for patch in container.patches:
                name = names.get(patch.get_y() + patch.get_height() / 2, "")
                rows.append((name, patch.get_width(), ""))
            continue
        line, _, bars = container.lines
        if line is None:  # of bars
            continue
        parts_of_containers.add(line)
        ends = [segment[:, 1] for bar in bars for segment in bar.get_segments()] or [()] * len(line.get_xdata())
        for x, y, end in zip(line.get_xdata(), line.get_ydata(), ends, strict=True):
            rows.append((container.get_label(), x, y, *(end if len(end) and end[0] != end[1] else ())))
    for line in axes.get_lines():
        name = line.get_gid() or line.get_label()
        if line not in parts_of_containers and not name.startswith("_"):
            rows += [(name, x, y) for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("series", axes.get_xlabel() or "x", axes.get_ylabel() or "y", "low", "high"))
    for row in rows:
        cells = [value if isinstance(value, str) else repr(float(value)) for value in row]
        writer.writerow(cells + [""] * (5 - len(cells)))
    return text.getvalue()


def panels(
    path: str | os.PathLike[str],
    xlabel: str,
    x: Sequence[float],
    rows: Mapping[str, Mapping[str, Sequence[float]]],
    labels: Mapping[str, str],
    columns: int,
    linear: Sequence[str] = (),
) -> None:
    """Draw what was measured of every model, a panel each, on logarithmic axes.

    Args:
        path: the file.
        xlabel: what the models were measured at.
        x: where.
        rows: of each model, by its name: values of each measure.
        labels: of the measures that have a panel.
        columns: panels side by side.
        linear: measures within a power of ten, whose panels start at 0.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lines = -(-len(labels) // columns)
    figure = Figure(figsize=(4.2 * columns, 3.6 * lines + 0.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes_of = figure.subplots(lines, columns, squeeze=False).flatten()
    for axes, (key, label) in zip(axes_of, labels.items(), strict=True):
        for name, row in rows.items():
            axes.plot(x, row[key], **line_style(name, causal=True))
        axes.set(xscale="log", yscale="log", xlabel=xlabel, ylabel=label)
        axes.set_xticks(x, [f"{place:,}" for place in x])
        axes.xaxis.minorticks_off()
        if key in linear:
            axes.set(yscale="linear", ylim=(0, None))
        axes.grid(alpha=0.25)
    figure.legend(*axes_of[0].get_legend_handles_labels(), loc="outside right", frameon=False)
    figure.savefig(path, dpi=150)
