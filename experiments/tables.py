"""Result files to tables: `python -m experiments.tables wikitext [--results DIR ...] [--format latex]`.

What a table contains is the benchmark's matter, how it is written the renderer's. `all --check` makes all that the
results of record come to again and compares it byte for byte with what is committed; `all --write` writes it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.benchmarks import BENCHMARKS, benchmark_of
from experiments.record import check_record, write_record
from experiments.render import render_csv, render_latex, render_markdown
from experiments.results import Result, ResultError, load_results

RENDERERS = {"markdown": render_markdown, "csv": render_csv, "latex": render_latex}


def make_table(results: Iterable[Result], style: str = "markdown") -> str:
    """Render all tables of one benchmark's results as `markdown`, `csv` or `latex`.

    Raises:
        ResultError: no result is finished, or they are not of one benchmark.
        ValueError: an unknown style.
    """
    if style not in RENDERERS:
        raise ValueError(f"format is {style!r}; use one of {', '.join(RENDERERS)}")
    results = list(results)
    benchmark = benchmark_of(results)
    tables = benchmark.tables(results)
    if not tables:
        raise ResultError(f"no finished result; resume the runs with `make reproduce-{benchmark.home}`")
    return RENDERERS[style](tables)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.benchmark == "all":
        if options.check == options.write:
            parser.error("all takes --check, or --write")
        return _write() if options.write else _check()
    if options.check or options.write:
        parser.error(f"--check and --write are for all, not for {options.benchmark}")
    benchmark = BENCHMARKS[options.benchmark]
    if options.view is not None and options.view not in benchmark.more:
        parser.error(f"{benchmark.name} has no --{options.view}; leave it out to see its tables")
    try:
        results = load_results(benchmark.name, options.results)
        view = benchmark.more.get(options.view)
        text = make_table(results, options.format) if view is None else view(results)
        if options.output is not None:
            options.output.parent.mkdir(parents=True, exist_ok=True)
            options.output.write_text(text, encoding="utf-8")
    except (ResultError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if unfinished := [r for r in results if r["status"] != "finished"]:
        names = ", ".join(f"{r['model']} seed {r['seed']} ({r['status']})" for r in unfinished)
        print(f"left out, not finished: {names}", file=sys.stderr)
    if options.output is None:
        print(text, end="")
    return 0


def _check() -> int:
    try:
        count, problems = check_record()
    except ResultError as error:
        count, problems = 0, [str(error)]
    if not problems:
        print(f"{count} files are what the result files of record come to")
        return 0
    print(*problems, "python -m experiments.tables all --write makes them", sep="\n", file=sys.stderr)
    return 1


def _write() -> int:
    try:
        changed, problems = write_record()
    except ResultError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(*changed, f"{len(changed)} files changed", sep="\n")
    if problems:
        print(*problems, sep="\n", file=sys.stderr)
    return 1 if problems else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m experiments.tables", description="Result files to tables.")
    parser.add_argument("benchmark", choices=(*BENCHMARKS, "all"))
    parser.add_argument("--check", action="store_true", help="all: compare what is committed with the result files")
    parser.add_argument("--write", action="store_true", help="all: write what the result files of record come to")
    parser.add_argument(
        "--results",
        nargs="+",
        metavar="DIR",
        help="run roots, results folders or files (default: the results of record)",
    )
    parser.add_argument("--format", choices=tuple(RENDERERS), default="markdown")
    views = {view: function for benchmark in BENCHMARKS.values() for view, function in benchmark.more.items()}
    shown = parser.add_mutually_exclusive_group()
    for view, function in views.items():
        summary = (function.__doc__ or "").partition("\n")[0]
        shown.add_argument(f"--{view}", dest="view", action="store_const", const=view, help=summary)
    parser.add_argument("--output", metavar="FILE", type=Path, help="write here instead of printing")
    return parser


if __name__ == "__main__":
    sys.exit(main())
