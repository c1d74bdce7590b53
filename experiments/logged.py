"""Reading a run's `metrics.jsonl`: a line of JSON for whatever was logged; the standard library alone."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

METRICS = "metrics.jsonl"


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a file, in order; one that was cut off, as a kill leaves it, is left out."""
    return [line for _, line in numbered_lines(path) if line is not None]


def numbered_lines(path: Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """The lines by their numbers from 1; None for one that can't be read or that has no finite ``step``."""
    for number, text in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            line = json.loads(text)
        except ValueError:
            line = None
        yield number, line if isinstance(line, dict) and is_finite(line.get("step")) else None


def is_finite(value: Any) -> bool:
    """Whether it is a number, and neither NaN nor infinite."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
