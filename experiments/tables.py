"""Result files to tables: `python -m experiments.tables wikitext [--results DIR ...] [--format latex]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.render import render_csv, render_latex, render_markdown
from experiments.results import Result, ResultError, load_results
from experiments.wikitext.positions import position_table
from experiments.wikitext.tables import language_tables

BENCHMARKS = ("wikitext", "quickstart")
RENDERERS = {"markdown": render_markdown, "csv": render_csv, "latex": render_latex}


def make_table(results: Iterable[Result], style: str = "markdown") -> str:
    """Render all tables of the results as `markdown`, `csv` or `latex`.

    Raises:
        ResultError: no result is finished.
        ValueError: an unknown style.
    """
    if style not in RENDERERS:
        raise ValueError(f"format is {style!r}; use one of {', '.join(RENDERERS)}")
    tables = language_tables(results)
    if not tables:
        raise ResultError("no finished result; resume the runs with `make reproduce-wikitext`")
    return RENDERERS[style](tables)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m experiments.tables", description="Result files to tables.")
    parser.add_argument("benchmark", choices=BENCHMARKS)
    parser.add_argument(
        "--results",
        nargs="+",
        metavar="DIR",
        help="run roots, results folders or files (default: the results of record)",
    )
    parser.add_argument("--format", choices=tuple(RENDERERS), default="markdown")
    parser.add_argument("--by-position", action="store_true", help="the loss by position inside a window (Markdown)")
    parser.add_argument("--output", metavar="FILE", type=Path, help="write here instead of printing")
    options = parser.parse_args(arguments)
    try:
        results = load_results(options.benchmark, options.results)
        table = position_table(results) if options.by_position else make_table(results, options.format)
    except (ResultError, FileNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if unfinished := [r for r in results if r["status"] != "finished"]:
        names = ", ".join(f"{r['model']} seed {r['seed']} ({r['status']})" for r in unfinished)
        print(f"left out, not finished: {names}", file=sys.stderr)
    if options.output is None:
        print(table, end="")
    else:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(table, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
