"""What a report is about: the runs that its result files tell of, and what of the files had to be left out."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from experiments.benchmarks import BENCHMARKS
from experiments.logged import METRICS
from experiments.report.measures import settings
from experiments.results import RESULT, Result, ResultError, order_key, read_result, result_files, run_key

_CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Run:
    """A result and the file that it was read from."""

    result: Result
    path: Path

    @property
    def name(self) -> str:
        """The run's own name, which is that of its folder too."""
        return f"{self.result['model']}-seed{self.result['seed']}-{self.result['config_hash']}"

    @property
    def log(self) -> Path:
        """What the run logged on its way, which lies beside the result of a run folder only."""
        return self.path.with_name(METRICS)


@dataclass(frozen=True)
class LeftOut:
    """Something that the report does not show.

    Attributes:
        what: a file, by its place in the checkout or below the root that was given; or a part of the report.
        reason: why not, and what helps where something does.
    """

    what: str
    reason: str


def collect(roots: Iterable[str | os.PathLike[str]]) -> tuple[list[Run], list[LeftOut]]:
    """All runs under `roots`, each once, in the order of `find_results`; and the files that tell of none.

    Raises:
        FileNotFoundError: a root does not exist.
    """
    found: dict[tuple[str, str, int], Run] = {}
    left_out: dict[Path, LeftOut] = {}
    for root in map(Path, roots):
        for path in result_files([root]):
            try:
                run = Run(read_result(path), path)
                _check_showable(run.result)
            except (ResultError, OSError) as error:
                reason = str(error).removeprefix(f"{path}: ")
                left_out.setdefault(path.resolve(), LeftOut(_place(path, root), reason))
            else:
                found.setdefault(run_key(run.result), run)
        for path in sorted(root.rglob(METRICS)):
            if not path.with_name(RESULT).exists():
                reason = "has no result.json: the run goes on, or was cut off; its command, given again, resumes it"
                left_out.setdefault(path.resolve(), LeftOut(_place(path.parent, root), reason))
    runs = sorted(found.values(), key=lambda run: order_key(run.result))
    return runs, sorted(left_out.values(), key=lambda left: left.what)


def _check_showable(result: Result) -> None:
    """Raise ResultError where the result's benchmark can make nothing of it."""
    if result["experiment"] not in BENCHMARKS:
        known = ", ".join(BENCHMARKS)
        raise ResultError(f"experiment {result['experiment']!r} has no tables; those that have: {known}")
    try:
        BENCHMARKS[result["experiment"]].tables([result])
        settings([result])
    except Exception as error:  # whatever a foreign file lacks, it must not cost the others their page
        kind = type(error).__name__
        raise ResultError(f"no table can be made of it ({kind}: {error}); run the experiment again") from error


def _place(path: Path, root: Path) -> str:
    """A path without the machine's folders above the checkout or the root."""
    if path.resolve().is_relative_to(_CHECKOUT):
        return path.resolve().relative_to(_CHECKOUT).as_posix()
    folder = root if root.is_dir() else root.parent
    return (Path(folder.resolve().name) / path.relative_to(folder)).as_posix()
