"""Result files to figures: `python -m experiments.figures wikitext --output DIR [--results DIR ...]`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.benchmarks import BENCHMARKS, benchmark_of
from experiments.results import Result, ResultError, load_results


def draw_all(results: Iterable[Result], folder: str | os.PathLike[str]) -> list[Path]:
    """Draw all figures of one benchmark's results into `folder`; returns the files.

    Raises:
        ResultError: no result is finished, or they are not of one benchmark.
    """
    results = list(results)
    benchmark = benchmark_of(results)
    if all(result["status"] != "finished" for result in results):
        raise ResultError(f"no finished result to draw; resume the runs with `make reproduce-{benchmark.home}`")
    return benchmark.draw(results, Path(folder))


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m experiments.figures", description="Result files to figures.")
    parser.add_argument("benchmark", choices=tuple(BENCHMARKS))
    parser.add_argument("--results", nargs="+", metavar="DIR", help="run roots, results folders or files")
    parser.add_argument("--output", metavar="DIR", type=Path, required=True, help="folder for the figures")
    options = parser.parse_args(arguments)
    try:
        written = draw_all(load_results(options.benchmark, options.results), options.output)
    except (ResultError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for path in written:
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
