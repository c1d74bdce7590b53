"""The curves of a run by step: the evaluations that its result keeps, and what it logged to `metrics.jsonl`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.logged import is_finite, numbered_lines

# More points than this are not seen in a chart: every other one is left out, until they are as few.
MAX_POINTS = 1000
# Columns of a history that are places on its axis, not measurements.
_PLACES = ("step", "tokens")


class Curve(NamedTuple):
    """A measurement by step.

    Attributes:
        name: the metric.
        source: ``result`` or ``log``.
        every: 1 where each point of the file is there, n where every n-th is.
        x: steps, increasing.
        y: values, finite.
    """

    name: str
    source: str
    every: int
    x: tuple[float, ...]
    y: tuple[float, ...]


def history_curves(result: Mapping[str, Any]) -> list[Curve]:
    """The evaluations during training, a curve for each metric."""
    history = result.get("history", {})
    steps = history.get("step", ())
    names = [name for name in history if name not in _PLACES]
    return _curves("result", {name: zip(steps, history[name], strict=True) for name in names})


def log_curves(path: Path) -> tuple[list[Curve], str | None]:
    """The curves of a file of JSON lines, ``{"step": 100, "train/nats": 5.1}``, with any of the metrics in each.

    Of a step that was logged twice, as after a resume, the last value counts.

    Returns:
        The curves by name, and what is wrong with the file; None where nothing is, or there is no such file.
    """
    if not path.exists():
        return [], None
    points: dict[str, dict[float, Any]] = {}
    unread: list[int] = []
    for number, line in numbered_lines(path):
        if line is None:
            unread.append(number)
            continue
        for name, value in line.items():
            if name not in (*_PLACES, "epoch"):
                points.setdefault(name, {})[line["step"]] = value
    problem = None
    if unread:
        problem = f"{len(unread)} of its lines can't be read, the first is line {unread[0]}; the others are shown"
    return _curves("log", {name: sorted(values.items()) for name, values in sorted(points.items())}), problem


def _curves(source: str, columns: Mapping[str, Iterable[tuple[Any, Any]]]) -> list[Curve]:
    """What of the columns can be drawn."""
    curves = []
    for name, pairs in columns.items():
        points = [(x, y) for x, y in pairs if is_finite(x) and is_finite(y)]
        if points:
            every = _stride(points)
            # The last point stays: it is what a curve is read for.
            kept = [*points[:-1:every], points[-1]]
            curves.append(Curve(name, source, every, tuple(x for x, _ in kept), tuple(y for _, y in kept)))
    return curves


def _stride(points: Sequence[Any]) -> int:
    every = 1
    while len(points) > every * MAX_POINTS:
        every *= 2
    return every
