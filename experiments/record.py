"""What the results of record come to, written out: tables and the sources of figures, and whether they still agree.

For each benchmark `experiments/<benchmark>/tables/` holds its tables as Markdown and CSV and its other views; beside a
figure of record lies a CSV of what it shows. All of it is a function of the committed result files.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from experiments.benchmarks import BENCHMARKS, Benchmark
from experiments.render import render_csv, render_markdown
from experiments.results import Result, find_results

TABLES = "tables"
_ROOT = Path(__file__).resolve().parent


def texts_of_record(root: Path = _ROOT) -> dict[Path, str]:
    """The content of every file that results of record come to, by its path.

    Args:
        root: the folder that holds the benchmarks.

    Raises:
        ResultError: a result file of record is broken.
    """
    texts: dict[Path, str] = {}
    for benchmark in BENCHMARKS.values():
        home = root / benchmark.home
        results = _results(benchmark, home)
        if results:
            texts |= {home / TABLES / name: text for name, text in _tables(benchmark, results)}
            texts |= dict(_sources(benchmark, results, home / "results"))
    return texts


def write_record(root: Path = _ROOT) -> list[Path]:
    """Write the files of record and remove tables that no result stands for; returns what has changed."""
    texts = texts_of_record(root)
    changed = [path for path in _tables_there(root) if path not in texts]
    for path in changed:
        path.unlink()
    for path, text in texts.items():
        if not path.exists() or path.read_bytes() != text.encode():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
            changed.append(path)
    return changed


def check_record(root: Path = _ROOT) -> tuple[int, list[str]]:
    """How many files there should be, and what is wrong with them: each must be there, byte for byte, and no other."""
    texts = texts_of_record(root)
    problems = [
        f"{path.relative_to(root)}: no result of record stands for it"
        for path in _tables_there(root)
        if path not in texts
    ]
    for path, text in texts.items():
        if not path.exists():
            problems.append(f"{path.relative_to(root)} is not there")
        elif path.read_bytes() != text.encode():
            problems.append(f"{path.relative_to(root)} is not what the result files come to")
    return len(texts), problems


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


def _sources(benchmark: Benchmark, results: list[Result], folder: Path) -> Iterator[tuple[Path, str]]:
    """Of the figures that are of record."""
    with tempfile.TemporaryDirectory() as temporary:
        for figure in benchmark.draw(results, Path(temporary)):
            if (folder / figure.name).exists():
                source = figure.with_suffix(".csv")
                yield folder / source.name, source.read_text(encoding="utf-8")


def _tables_there(root: Path) -> list[Path]:
    return sorted(path for path in root.glob(f"*/{TABLES}/*") if path.is_file())
