"""What the results of record come to, written out: tables and the sources of figures, and whether they still agree.

For each benchmark `experiments/<benchmark>/tables/` holds its tables as Markdown and CSV and its other views; beside a
figure of record lies a CSV of what it shows, and READMEs repeat tables. All of it is a function of the committed result
files.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from experiments.benchmarks import BENCHMARKS, Benchmark
from experiments.drawing import sources_only
from experiments.readmes import filled_in, tables_by_key
from experiments.render import render_csv, render_markdown
from experiments.results import Result, find_results

TABLES = "tables"
_ROOT = Path(__file__).resolve().parent


class Record(NamedTuple):
    """What there should be.

    Attributes:
        texts: the content of every file that must be there byte for byte, by its path.
        sources: those of the figures of record, and the benchmark that draws them: a picture's bytes depend on fonts
            and libraries, so it is drawn anew where its source changes.
        problems: what only a person can put right: tables in READMEs that are none of record.
    """

    texts: dict[Path, str]
    sources: dict[Path, Benchmark]
    problems: list[str]


def make_record(root: Path = _ROOT) -> Record:
    """What the results of record come to.

    Args:
        root: the folder that holds the benchmarks; the README beside it counts as one of theirs.

    Raises:
        ResultError: a result file of record is broken.
    """
    made = Record({}, {}, [])
    for benchmark in BENCHMARKS.values():
        home = root / benchmark.home
        results = _results(benchmark, home)
        if results:
            made.texts.update({home / TABLES / name: text for name, text in _tables(benchmark, results)})
            for source, text in _sources(benchmark, results, home / "results"):
                made.texts[source], made.sources[source] = text, benchmark
    tables = tables_by_key(text for path, text in made.texts.items() if path.suffix == ".md")
    for path in (root.parent / "README.md", *sorted(root.glob("*/README.md"))):
        if path.is_file():
            made.texts[path], wrong = filled_in(path.read_text(encoding="utf-8"), tables)
            made.problems.extend(f"{_name(path, root)}: {problem}" for problem in wrong)
    return made


def write_record(root: Path = _ROOT) -> tuple[list[Path], list[str]]:
    """Write the files of record, draw figures anew whose sources change, remove tables that no result stands for.

    Returns:
        What has changed, and what only a person can put right.
    """
    texts, sources, problems = make_record(root)
    changed = [path for path in _tables_there(root) if path not in texts]
    for path in changed:
        path.unlink()
    for path, text in texts.items():
        if not path.exists() or path.read_bytes() != text.encode():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
            changed.append(path)
    stale = {path.with_suffix(".png"): sources[path] for path in changed if path in sources}
    for benchmark in {benchmark.name: benchmark for benchmark in stale.values()}.values():
        changed += _redraw(benchmark, root / benchmark.home, stale)
    return changed, problems


def check_record(root: Path = _ROOT) -> tuple[int, list[str]]:
    """How many files there should be, and what is wrong with them: each must be there, byte for byte, and no other."""
    texts, _, problems = make_record(root)
    problems += [
        f"{_name(path, root)}: no result of record stands for it" for path in _tables_there(root) if path not in texts
    ]
    for path, text in texts.items():
        if not path.exists():
            problems.append(f"{_name(path, root)} is not there")
        elif path.read_bytes() != text.encode():
            problems.append(f"{_name(path, root)} is not what the result files come to")
    return len(texts), problems


def _name(path: Path, root: Path) -> str:
    """A path as seen from the folder that holds the README of all."""
    return path.relative_to(root.parent).as_posix()


def _results(benchmark: Benchmark, home: Path) -> list[Result]:
    folder = home / "results"
    found = find_results([folder]) if folder.is_dir() else []
    return [result for result in found if result["experiment"] == benchmark.name]


def _tables(benchmark: Benchmark, results: list[Result]) -> Iterator[tuple[str, str]]:
    tables = benchmark.tables(results)
    yield f"{benchmark.name}.md", render_markdown(tables)
    yield f"{benchmark.name}.csv", render_csv(tables)
    for view, function in benchmark.more.items():
        yield f"{benchmark.name}-{view}.md", function(results)


def _sources(benchmark: Benchmark, results: list[Result], folder: Path) -> list[tuple[Path, str]]:
    """The path and the text of the source of each figure that is of record."""
    with tempfile.TemporaryDirectory() as temporary, sources_only():
        sources = [
            figure.with_suffix(".csv")
            for figure in benchmark.draw(results, Path(temporary))
            if (folder / figure.name).exists()
        ]
        return [(folder / source.name, source.read_text(encoding="utf-8")) for source in sources]


def _redraw(benchmark: Benchmark, home: Path, stale: Collection[Path]) -> list[Path]:
    """Draw a benchmark's figures, and put those that are stale in their places, which are returned."""
    with tempfile.TemporaryDirectory() as temporary:
        drawn = {
            home / "results" / figure.name: figure
            for figure in benchmark.draw(_results(benchmark, home), Path(temporary))
        }
        redrawn = [path for path in drawn if path in stale]
        for path in redrawn:
            path.write_bytes(drawn[path].read_bytes())
    return redrawn


def _tables_there(root: Path) -> list[Path]:
    return sorted(path for path in root.glob(f"*/{TABLES}/*") if path.is_file())
