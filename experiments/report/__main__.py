"""Result files to one HTML page: `python -m experiments.report --output outputs/report.html [--results DIR ...]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.report.collect import collect
from experiments.report.page import make_page
from experiments.results import folders_of_record

_LARGE = 5_000_000  # bytes


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.report",
        description="Tables, curves, figures and runs of all benchmarks as one HTML file that needs no other.",
    )
    parser.add_argument("--results", nargs="+", metavar="DIR", help="as of experiments.tables")
    parser.add_argument("--output", metavar="FILE", type=Path, required=True, help="the page")
    parser.add_argument(
        "--no-figures", dest="figures", action="store_false", help="without the figures: a smaller file, sooner made"
    )
    options = parser.parse_args(arguments)
    try:
        runs, left_out = collect(options.results or folders_of_record())
    except FileNotFoundError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    page, left_out = make_page(runs, left_out, options.figures)
    for left in left_out:
        print(f"left out: {left.what}: {left.reason}", file=sys.stderr)
    if not runs:
        print("error: no result to show; train something first, say `make quickstart`", file=sys.stderr)
        return 1
    content = page.encode()
    try:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_bytes(content)
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if len(content) > _LARGE:
        megabytes = len(content) / 1e6
        print(f"{options.output} has {megabytes:.1f} MB; --no-figures makes it smaller", file=sys.stderr)
    print(options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
