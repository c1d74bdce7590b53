"""Result files to figures: `python -m experiments.figures wikitext --output DIR [--results DIR ...]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.results import ResultError, load_results
from experiments.tables import BENCHMARKS
from experiments.wikitext.figures import draw_all


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
