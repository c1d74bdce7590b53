"""Runs to one HTML file that asks for nothing else: style, script, data and pictures are in it."""

from __future__ import annotations

import base64
import hashlib
import json
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from string import Template
from typing import Any

from experiments.benchmarks import BENCHMARKS, Benchmark
from experiments.report.collect import LeftOut, Run
from experiments.report.colours import on_both
from experiments.report.curves import history_curves, log_curves
from experiments.report.measures import CAUSAL_WORDS, causal_mark, measure_of, setting_order, settings
from experiments.report.revisions import revision_dates
from experiments.report.sections import benchmark_section, left_out_list, overview, run_list

_HERE = Path(__file__).parent
# What holds the others comes last.
_SCRIPTS = ("dom.js", "scale.js", "chart.js", "curves.js", "run.js", "filters.js", "page.js")
# Shown as curves, so not again as numbers.
_AS_CURVES = ("history", "loss_by_position")
# The page's own script runs, and no other: what an escape had missed would not.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def make_page(runs: Sequence[Run], left_out: Sequence[LeftOut] = (), figures: bool = True) -> tuple[str, list[LeftOut]]:
    """The page, and all that it had to leave out. The same runs make the same page, byte for byte.

    Args:
        runs: as `collect` orders them.
        left_out: what was left out so far; what goes wrong here is added to a copy.
        figures: whether to draw those of the benchmarks, which takes most of the time and of the file.
    """
    left_out = list(left_out)
    by_benchmark = {
        name: members for name in BENCHMARKS if (members := [run for run in runs if run.result["experiment"] == name])
    }
    parts, described, listed = [], [], []
    for name, members in by_benchmark.items():
        benchmark = BENCHMARKS[name]
        named = list(zip(settings([run.result for run in members]), members, strict=True))
        order = setting_order((setting, run.result) for setting, run in named)
        described.append({"name": name, "settings": order, "curve": measure_of(members[0].result).curve})
        listed += [(run, setting) for setting, run in named]
        parts.append(_benchmark(benchmark, members, left_out, figures))
    data = {"benchmarks": described, "causal": CAUSAL_WORDS, "runs": _runs(listed, left_out)}
    dates = revision_dates(run.result["provenance"]["git_revision"] for run in runs)
    script = "".join((_HERE / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = Template((_HERE / "page.html").read_text(encoding="utf-8")).substitute(
        policy=_POLICY.format(digest=digest),
        style=(_HERE / "page.css").read_text(encoding="utf-8"),
        links="".join(f'<a href="#{name}">{name}</a>' for name in by_benchmark),
        overview=overview(by_benchmark, dates),
        benchmarks="".join(parts),
        runs=run_list(listed),
        left_out=left_out_list(left_out),
        left_out_link='<a href="#left-out">left out</a>' if left_out else "",
        data=as_json(data),
        script=script,
    )
    return page, left_out


def as_json(data: Any) -> str:
    """JSON that can stand in a script element: it holds no character with which HTML could go on."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _benchmark(benchmark: Benchmark, runs: Iterable[Run], left_out: list[LeftOut], figures: bool) -> str:
    """A benchmark's section; where its figures can't be drawn it has none, and `left_out` says so."""
    results = [run.result for run in runs]
    drawable = figures and any(result["status"] == "finished" for result in results)
    with tempfile.TemporaryDirectory() as folder:
        pictures: list[Path] = []
        if drawable:
            try:
                pictures = benchmark.draw(results, Path(folder))
            except Exception as error:  # the tables are no worse for it
                reason = f"can't be drawn ({type(error).__name__}: {error})"
                left_out.append(LeftOut(f"figures of {benchmark.name}", reason))
        return benchmark_section(benchmark, benchmark.tables(results), pictures)


def _runs(listed: Iterable[tuple[Run, str]], left_out: list[LeftOut]) -> list[dict[str, Any]]:
    described = []
    for run, setting in listed:
        result, measure = run.result, measure_of(run.result)
        logged, problem = log_curves(run.log)
        if problem is not None:
            left_out.append(LeftOut(f"{run.name}/{run.log.name}", problem))
        described.append(
            {
                "id": run.name,
                "benchmark": result["experiment"],
                "setting": setting,
                "causal": causal_mark(result),
                "colour": on_both(result["model"]),
                "measure": measure.metric,
                "curves": [curve._asdict() for curve in (*history_curves(result), *logged)],
                "positions": result.get("loss_by_position"),
                "result": {key: value for key, value in result.items() if key not in _AS_CURVES},
            }
        )
    return described
