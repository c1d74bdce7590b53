"""Result files: what one run measured, and everything needed to judge and repeat it.

A run writes one `result.json`; tables and figures are pure functions of these files. Results of record are
copied to `experiments/<benchmark>/results/` and committed, so a file holds nothing of the machine's folders.
"""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.provenance import collect_provenance
from experiments.schema import SCHEMA_VERSION, ResultError, check_schema

__all__ = [
    "RESULT",
    "SCHEMA_VERSION",
    "ResultError",
    "check_portable",
    "collect_provenance",
    "find_results",
    "folders_of_record",
    "home_of",
    "load_results",
    "order_key",
    "portable_command",
    "publish",
    "read_result",
    "result_files",
    "run_key",
    "write_result",
]

Result = dict[str, Any]
# The file in a run's folder.
RESULT = "result.json"

# The package that keeps an experiment's results of record, where it is not the one of its name.
_HOME = {"quickstart": "wikitext"}
_ABSOLUTE = re.compile(r"^(/|~|[A-Za-z]:[\\/])")
# In a command a bare ~ is Hydra's "delete this key", so only ~/ and ~user/ are paths there.
_ABSOLUTE_IN_COMMAND = re.compile(r"(?<![^\s=,:'\"\[{(])(/|~\w*/|[A-Za-z]:[\\/])[^\s,'\"\]})]*")
_FILE_STEM = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def write_result(path: str | os.PathLike[str], result: Mapping[str, Any]) -> None:
    """Check `result` and write it to `path` atomically: a reader sees the old file or the new one, whole.

    Raises:
        ResultError: a required key is missing or of the wrong type, a number is NaN or infinite, a string
            is an absolute path, or a value has no JSON form. Nothing is written then.
    """
    target = Path(path)
    _validate(result, source=str(target))
    try:
        text = json.dumps(result, indent=1, allow_nan=False, ensure_ascii=False)
    except TypeError as error:
        raise ResultError(f"{target}: {error}; turn it into a plain number, string, list or dict") from error
    target.parent.mkdir(parents=True, exist_ok=True)
    # Same folder, because os.replace is atomic only within one file system.
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)  # mkstemp makes it private; a result is to be read by others
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_result(path: str | os.PathLike[str]) -> Result:
    """Read and check one result file.

    Raises:
        FileNotFoundError: there is no such file.
        ResultError: it is no JSON, of a newer schema, or fails a check of `write_result`.
    """
    source = Path(path)
    try:
        result = json.loads(source.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{source} is not there; give the folder of a finished run, or its result.json"
        ) from error
    except ValueError as error:  # covers JSONDecodeError and UnicodeDecodeError
        raise ResultError(
            f"{source}: not a JSON file ({error}); give a run's result.json; where this is one, remove it and run its "
            "command again"
        ) from error
    _validate(result, source=str(source))
    return result


def find_results(roots: Iterable[str | os.PathLike[str]]) -> list[Result]:
    """All results under `roots`, each run once, ordered by experiment, model, scale, seed and hash.

    A root is a result file, a folder of result files (`experiments/<benchmark>/results`), or a folder that
    holds runs (`result.json`) or such folders at any depth. Of a run found twice, the first is taken.

    Raises:
        FileNotFoundError: a root does not exist.
        ResultError: a file found is no valid result.
    """
    found: dict[tuple[str, str, int], Result] = {}
    for path in result_files(roots):
        result = read_result(path)
        found.setdefault(run_key(result), result)
    return sorted(found.values(), key=order_key)


def result_files(roots: Iterable[str | os.PathLike[str]]) -> Iterator[Path]:
    """The files that `find_results` reads, root by root; a file below several roots comes several times.

    Raises:
        FileNotFoundError: a root does not exist.
    """
    for root in map(Path, roots):
        if not root.exists():
            raise FileNotFoundError(f"no result file or folder at {root}; give a run root or a results folder")
        yield from _files_below(root)


def run_key(result: Result) -> tuple[str, str, int]:
    """What tells a run from all others."""
    return (result["model"], result["config_hash"], result["seed"])


def order_key(result: Result) -> tuple[str, str, str, int, str]:
    """What results are ordered by, wherever they are shown."""
    return (result["experiment"], result["model"], result["scale"], result["seed"], result["config_hash"])


def folders_of_record() -> list[str]:
    """The folders that hold the results of record, one a benchmark."""
    return sorted(str(folder) for folder in Path(__file__).resolve().parent.glob("*/results"))


def load_results(benchmark: str, roots: Sequence[str] | None = None) -> list[Result]:
    """Results of `benchmark` under `roots`, by default those of record in `experiments/*/results/`.

    Raises:
        ResultError: there are none; the message says what to run.
        FileNotFoundError: a given root doesn't exist.
    """
    roots = roots or folders_of_record()
    found = find_results(roots)
    found = [result for result in found if result["experiment"] == benchmark]
    if not found:
        where = ", ".join(roots) or "experiments/*/results"
        raise ResultError(
            f"no {benchmark} result in {where}; run `make reproduce-{benchmark}`, then give its run root: "
            "--results outputs"
        )
    return found


def home_of(experiment: str) -> str:
    """The package of `experiments/` that keeps an experiment's results of record."""
    return _HOME.get(experiment, experiment)


def publish(
    result_path: str | os.PathLike[str],
    experiments_root: str | os.PathLike[str] | None = None,
) -> Path:
    """Copy a finished result to `experiments/<benchmark>/results/<model>-<scale>-seed<seed>-<hash>.json`.

    The benchmark is the result's experiment; the quickstart's results lie with those of WikiText-2.

    Args:
        experiments_root: the folder that holds the benchmarks; this checkout's `experiments/` by default.

    Returns:
        Where the copy lies.

    Raises:
        ResultError: the run isn't finished, or of scale `smoke`, or its names can't name a file.
        FileNotFoundError: there is no such result, or no such benchmark.
    """
    result = read_result(result_path)
    if result["status"] != "finished":
        raise ResultError(f"{result_path}: status is {result['status']!r}; only a finished run is of record: resume it")
    if result["scale"] == "smoke":
        raise ResultError(
            f"{result_path}: scale is 'smoke', whose numbers mean nothing: train it at scale cpu or paper"
        )
    benchmark = home_of(result["experiment"])
    for key in ("model", "scale", "config_hash"):
        if not _FILE_STEM.fullmatch(result[key]):
            raise ResultError(
                f"{result_path}: {key} {result[key]!r} can't be part of a file name; "
                "use letters, digits, '_', '.' and '-'"
            )
    root = Path(experiments_root) if experiments_root is not None else Path(__file__).resolve().parent
    folder = root / benchmark
    if not folder.is_dir():
        raise FileNotFoundError(f"no benchmark {benchmark!r}: {folder} is no folder; use the name of a benchmark")
    name = f"{result['model']}-{result['scale']}-seed{result['seed']}-{result['config_hash']}.json"
    write_result(folder / "results" / name, result)
    return folder / "results" / name


def check_portable(config: Mapping[str, Any], name: str = "config") -> None:
    """Raise ResultError, naming the key, where `config` holds an absolute path. Call it before a run."""
    for key, value in _leaves(config, name):
        if isinstance(value, str) and _ABSOLUTE.match(value):
            raise ResultError(
                f"{key} is an absolute path ({value!r}), which says nothing on another machine; "
                "leave it out of the result or make it relative"
            )


def portable_command(command: str) -> str:
    """The command with absolute paths replaced by `PATH`, fit for `result["command"]`."""
    return _ABSOLUTE_IN_COMMAND.sub("PATH", command)


def _files_below(root: Path) -> Iterator[Path]:
    if root.is_file():
        yield root
    elif root.name == "results":
        yield from sorted(root.glob("*.json"))
    else:
        yield from sorted({*root.rglob(RESULT), *root.rglob("results/*.json")})


def _leaves(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    """Every scalar below `value` with its dotted key."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _leaves(item, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{key}[{index}]")
    else:
        yield key, value


def _validate(result: Any, source: str) -> None:
    check_schema(result, source)
    for key, value in _leaves(result, ""):
        if isinstance(value, float) and not math.isfinite(value):
            raise ResultError(f"{source}: {key} is {value}; a run that diverged has no result")
    try:
        check_portable(result, name="")
    except ResultError as error:
        raise ResultError(f"{source}: {error}") from None
    if found := _ABSOLUTE_IN_COMMAND.search(result["command"]):
        raise ResultError(f"{source}: command holds the absolute path {found[0]!r}; use portable_command()")
