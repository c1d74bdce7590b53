"""The runs of a benchmark's table: a sweep, or at a scale a suite of several.

`conf/sweep/<benchmark>.yaml` is the sweep. A benchmark of several tables has `conf/suite/<benchmark>/<scale>.yaml`, a
list of sweeps in the order in which they run, with what that scale changes in them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from experiments.checkpoints import DamagedCheckpointError, resume_point
from experiments.config_check import nearest
from experiments.resolvers import CONF, resolve, sizes_of
from experiments.results import RESULT
from experiments.runs import run_folder


@dataclass(frozen=True)
class PlannedRun:
    """One run of a table.

    Attributes:
        overrides: what `experiments.train` is called with.
        config: the composed config.
        folder: where the run lives.
        steps_done: steps that its last checkpoint holds; all of them where it is finished.
        setting: what tells it from the other runs of its sweep, but for model and seed.
    """

    overrides: tuple[str, ...]
    config: DictConfig
    folder: Path
    steps_done: int
    setting: str = ""

    @property
    def name(self) -> str:
        """Model and seed."""
        return f"{self.config.model.name}-seed{self.config.seed}"

    @property
    def finished(self) -> bool:
        """Whether its result file is there."""
        return (self.folder / RESULT).exists()

    @property
    def steps_left(self) -> int:
        """Steps still to train."""
        return 0 if self.finished else self.config.training.steps - self.steps_done


def plan(benchmark: str, overrides: Sequence[str] = (), parts: Sequence[str] | None = None) -> list[PlannedRun]:
    """The runs of a benchmark, each once.

    Args:
        benchmark: name of the experiment.
        overrides: Hydra overrides for every run; a comma sweeps, and takes the place of what the table sweeps over.
        parts: of a suite, by the names of their sweeps; all of them by default.

    Raises:
        ValueError: no such benchmark, scale or part.
    """
    if benchmark not in benchmarks():
        raise ValueError(f"benchmark {benchmark!r} is unknown; choose one of {', '.join(benchmarks())}")
    given = {override.key_or_group: override.input_line or "" for override in _parsed(overrides)}
    runs: dict[Path, PlannedRun] = {}
    with initialize_config_dir(str(CONF), version_base="1.3"):
        for sweep, changes in _sweeps(benchmark, given.get("scale", "scale=auto").partition("=")[2], parts):
            swept: Any = OmegaConf.select(OmegaConf.load(CONF / "sweep" / f"{sweep}.yaml"), "hydra.sweeper.params")
            by_key = {key: f"{key}={value}" for key, value in {**swept, **changes}.items()} | given
            varied = [key for key, text in by_key.items() if "," in str(swept.get(key, "")) or _is_sweep(text)]
            for chosen in _product(list(by_key.values())):
                arguments = (f"experiment={benchmark}", f"+sweep={sweep}", *chosen)
                config = compose("config", overrides=list(arguments))
                folder = run_folder(resolve(config))
                setting = "" if sweep == benchmark else _setting(sweep, chosen, varied)
                runs.setdefault(folder, PlannedRun(arguments, config, folder, _steps_done(folder), setting))
    return list(runs.values())


def benchmarks() -> list[str]:
    """The experiments that have a table: those with a sweep or a suite."""
    sweeps = {path.stem for path in (CONF / "sweep").glob("*.yaml")} | {p.name for p in (CONF / "suite").iterdir()}
    return sorted(path.stem for path in (CONF / "experiment").glob("*.yaml") if path.stem in sweeps)


def parts_of(benchmark: str, scale: str) -> list[str]:
    """Names of the parts of a benchmark's suite at a scale; none where it is one sweep."""
    return [Path(entry["sweep"]).name for entry in _suite(benchmark, scale)]


def _suite(benchmark: str, scale: str) -> list[dict[str, Any]]:
    folder = CONF / "suite" / benchmark
    if not folder.is_dir():
        return []
    path = folder / f"{Path(sizes_of(benchmark, scale)).name}.yaml"
    if not path.exists():
        known = ", ".join(sorted(path.stem for path in folder.iterdir()))
        raise ValueError(f"scale={scale}: no such choice; known are {known}")
    return OmegaConf.to_container(OmegaConf.load(path), resolve=True)  # type: ignore[return-value]


def _sweeps(benchmark: str, scale: str, parts: Sequence[str] | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each sweep and what it changes."""
    suite = _suite(benchmark, scale)
    known = [Path(entry["sweep"]).name for entry in suite]
    for part in parts or ():
        if part not in known:
            has = nearest(part, known) if known else f"; {benchmark} is one sweep"
            raise ValueError(f"part {part!r} is unknown{has}")
    if not suite:
        yield benchmark, {}
    for part, entry in zip(known, suite, strict=True):
        if parts is None or part in parts:
            yield entry["sweep"], {key: value for key, value in entry.items() if key != "sweep"}


def _parsed(overrides: Sequence[str]) -> list[Any]:
    return OverridesParser.create().parse_overrides(list(overrides))


def _product(overrides: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Every combination of what overrides sweep over, as overrides of a single run."""
    choices = []
    for override in _parsed(overrides):
        if override.is_sweep_override():
            choices.append([f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()])
        else:
            choices.append([override.input_line or ""])
    return itertools.product(*choices)


def _is_sweep(override: str) -> bool:
    return any(parsed.is_sweep_override() for parsed in _parsed([override]))


def _setting(sweep: str, chosen: Sequence[str], varied: Sequence[str]) -> str:
    """The part of a suite, and the values of what varies in it: `binding num_writes=20`."""
    pairs = [override.partition("=") for override in chosen]
    named = [(key, value) for key, _, value in pairs if key in varied and key not in ("model", "seed")]
    return " ".join([Path(sweep).name, *(f"{key.rpartition('.')[2]}={value}" for key, value in named)])


def _steps_done(folder: Path) -> int:
    try:
        last, _ = resume_point(folder)
    except DamagedCheckpointError:
        # The run itself says what to do about it.
        return 0
    return 0 if last is None else int(torch.load(last, map_location="cpu", weights_only=True)["global_step"])
