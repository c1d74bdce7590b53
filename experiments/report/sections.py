"""The parts of a report that need no script: overview, a benchmark's tables and figures, runs, what was left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from urllib.parse import quote

from experiments.benchmarks import Benchmark
from experiments.render import Table
from experiments.report.collect import LeftOut, Run
from experiments.report.colours import on_both
from experiments.report.markup import picture_html, row_html, scrolling, table_html
from experiments.report.measures import CAUSAL_WORDS, causal_mark, measure_of
from experiments.summary import machines

_RUN_HEADER = ("run", "benchmark", "seed", "causal", "measure", "value", "setting", "status", "parameters", "minutes")
_RUN_CLASSES = ("", "num", "", "", "num", "", "", "num", "num")
_OVERVIEW_HEADER = ("benchmark", "runs", "finished", "models", "seeds", "hours of training", "hardware", "code dated")
_OVERVIEW_CLASSES = ("num", "num", "num", "num", "num", "", "")


def overview(runs: Mapping[str, Sequence[Run]], dates: Mapping[str, str]) -> str:
    """How much there is of each benchmark, on what it was measured, and how old its code is.

    Args:
        runs: by benchmark.
        dates: of git revisions.
    """
    rows = "".join(
        f"<tr>{row_html(_overview_row(name, members, dates), _OVERVIEW_CLASSES)}</tr>" for name, members in runs.items()
    )
    if len(runs) > 1:
        cells = _overview_row("all", [run for members in runs.values() for run in members], dates)
        rows += f'<tr class="total">{row_html(cells, _OVERVIEW_CLASSES)}</tr>'
    table = f"<table><thead>{_head(_OVERVIEW_HEADER, ('', *_OVERVIEW_CLASSES))}</thead><tbody>{rows}</tbody></table>"
    return scrolling(table, "overview-title")


def benchmark_section(benchmark: Benchmark, tables: Iterable[Table], pictures: Sequence[Path]) -> str:
    """A benchmark's tables, a place for its curves, and its figures."""
    name = benchmark.name
    shown = "".join(table_html(table, f"{name}-table-{number}") for number, table in enumerate(tables, start=1))
    drawn = "".join(picture_html(path, name) for path in pictures)
    figures = f'<h3>Figures</h3><div class="pictures">{drawn}</div>' if drawn else ""
    empty = '<p class="empty">No run is finished: there is nothing to put into a table.</p>'
    return (
        f'<section class="benchmark" id="{name}" data-benchmark="{name}" aria-labelledby="{name}-title">'
        f'<h2 id="{name}-title">{name}</h2>'
        f"{shown or empty}"
        f'<h3>Learning curves</h3><div class="curves" data-benchmark="{name}"></div>{figures}</section>\n'
    )


def run_list(runs: Iterable[tuple[Run, str]]) -> str:
    """A row for each run, which leads to its page.

    Args:
        runs: with the setting that each is drawn with.
    """
    rows = "".join(
        f'<tr data-run="{escape(run.name)}">{row_html(_run_row(run, setting), _RUN_CLASSES)}</tr>'
        for run, setting in runs
    )
    table = (
        f'<table id="run-list"><thead>{_head(_RUN_HEADER, ("", *_RUN_CLASSES))}</thead><tbody>{rows}</tbody></table>'
    )
    return scrolling(table, "runs-title")


def left_out_list(left_out: Sequence[LeftOut]) -> str:
    """What is not shown and why; nothing, where all is."""
    if not left_out:
        return ""
    entries = "".join(f"<li><code>{escape(left.what)}</code> {escape(left.reason)}</li>" for left in left_out)
    return (
        '<section id="left-out" aria-labelledby="left-out-title"><h2 id="left-out-title">Left out</h2>'
        f"<ul>{entries}</ul></section>\n"
    )


def _overview_row(name: str, runs: Sequence[Run], dates: Mapping[str, str]) -> list[str]:
    results = [run.result for run in runs]
    hours = sum(result["training"]["wall_seconds"] for result in results) / 3600
    title = "all" if name == "all" else f'<a href="#{name}">{name}</a>'
    return [
        title,
        str(len(results)),
        str(sum(result["status"] == "finished" for result in results)),
        str(len({result["model"] for result in results})),
        str(len({result["seed"] for result in results})),
        f"{hours:.2f}",
        escape("; ".join(machines(results))),
        _age({result["provenance"]["git_revision"] for result in results}, dates),
    ]


def _age(revisions: Iterable[str | None], dates: Mapping[str, str]) -> str:
    """From the oldest to the newest of the revisions."""
    revisions = list(revisions)
    days = sorted({dates[revision] for revision in revisions if revision is not None and revision in dates})
    unknown = sum(revision not in dates for revision in revisions)
    span = " to ".join(dict.fromkeys((days[0], days[-1]))) if days else ""
    return span + (f"{', ' if span else ''}{unknown} of unknown date" if unknown else "")


def _run_row(run: Run, setting: str) -> list[str]:
    result, measure, mark = run.result, measure_of(run.result), causal_mark(run.result)
    value = result["metrics"].get(measure.metric)
    return [
        f'<a href="#run/{quote(run.name)}"><i class="swatch" style="--model: {on_both(result["model"])}"></i>'
        f"{escape(result['model'])}</a>",
        escape(result["experiment"]),
        str(result["seed"]),
        f'<span class="mark {mark}">{CAUSAL_WORDS[mark]}</span>',
        escape(measure.metric.replace("_", " ")),
        "" if value is None else f"{value:.{measure.digits}f}",
        f'<span class="setting">{escape(setting)}</span>',
        f'<span class="status {result["status"]}">{result["status"]}</span>',
        f"{result['parameters']['total']:,}",
        f"{result['training']['wall_seconds'] / 60:.1f}",
    ]


def _head(names: Sequence[str], classes: Sequence[str]) -> str:
    cells = (f'<th scope="col" class="{kind}">{name}</th>' for name, kind in zip(names, classes, strict=True))
    return f"<tr>{''.join(cells)}</tr>"
