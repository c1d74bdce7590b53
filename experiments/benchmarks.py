"""The benchmarks that have tables and figures, and what each brings to show its results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from experiments.cub200.figures import draw_all as draw_reconstruction
from experiments.cub200.tables import reconstruction_tables
from experiments.diagnostics.figures import draw_all as draw_diagnostics
from experiments.diagnostics.tables import condition_table, diagnostics_tables, gate_table
from experiments.render import Table
from experiments.results import Result, ResultError, home_of
from experiments.ucf101.figures import draw_all as draw_classification
from experiments.ucf101.tables import classification_tables
from experiments.wikitext.figures import draw_all as draw_language
from experiments.wikitext.gap import gap_table
from experiments.wikitext.positions import position_table
from experiments.wikitext.tables import language_tables


@dataclass(frozen=True)
class Benchmark:
    """How the results of one experiment are shown.

    Attributes:
        name: the experiment, as its result files say.
        home: the package of `experiments/` that keeps its results of record.
        domain: the folder of `conf/model/` that holds its models.
        tables: sorts results into tables; none, where no result is finished.
        draw: draws all figures into a folder, and returns the files.
        pictures: draws what the runs in these folders make of some examples into a folder, and returns the files; None:
            the results say all.
        more: other views of the results, as text: `--<key>` of `experiments.tables`, where the first line of the
            function's docstring is the option's help.
    """

    name: str
    home: str
    domain: str
    tables: Callable[[list[Result]], list[Table]]
    draw: Callable[[list[Result], Path], list[Path]]
    more: Mapping[str, Callable[[list[Result]], str]] = field(default_factory=dict)
    pictures: Callable[[list[Path], Path], list[Path]] | None = None


def _language(name: str) -> Benchmark:
    views = {"by-position": position_table, "gap": gap_table}
    return Benchmark(name, home_of(name), "language", language_tables, draw_language, views)


_DIAGNOSTICS = Benchmark(
    "diagnostics",
    home_of("diagnostics"),
    "diagnostics",
    diagnostics_tables,
    draw_diagnostics,
    {"conditions": condition_table, "gates": gate_table},
)


def _bird_pictures(folders: list[Path], output: Path) -> list[Path]:
    # Unlike tables and figures, it needs torch and the models.
    from experiments.cub200.pictures import draw_runs

    return draw_runs(folders, output)


_CUB200 = Benchmark(
    "cub200", home_of("cub200"), "vision", reconstruction_tables, draw_reconstruction, pictures=_bird_pictures
)
_UCF101 = Benchmark("ucf101", home_of("ucf101"), "video", classification_tables, draw_classification)
_ALL = (_language("wikitext"), _language("quickstart"), _DIAGNOSTICS, _CUB200, _UCF101)
BENCHMARKS = {benchmark.name: benchmark for benchmark in _ALL}


def benchmark_of(results: Iterable[Result]) -> Benchmark:
    """The benchmark that results belong to.

    Raises:
        ResultError: there are no results, they are of several experiments, or of one that has no tables.
    """
    names = sorted({result["experiment"] for result in results})
    if len(names) != 1:
        raise ResultError(
            f"results are of {', '.join(names) or 'no experiment'}; tables and figures show those of one experiment"
        )
    if names[0] not in BENCHMARKS:
        raise ResultError(f"experiment {names[0]!r} has no tables or figures; those that have: {', '.join(BENCHMARKS)}")
    return BENCHMARKS[names[0]]
