"""A table from nothing: `python -m experiments.reproduce wikitext [overrides]`.

Says which runs the table needs, which of them are done and how long the rest takes here; runs them one after the other,
each resumable; prints the table. Overrides are Hydra's and go to every run, e.g. `scale=smoke` or `seed=0,1,2`.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import torch
from hydra.utils import get_class, instantiate
from omegaconf import DictConfig
from pytorch_lightning.utilities import move_data_to_device

from experiments.benchmarks import BENCHMARKS
from experiments.config_check import check_overrides
from experiments.data import Data
from experiments.errors import USER_ERRORS, explain
from experiments.figures import draw_all
from experiments.launcher import Launcher
from experiments.overall import OverallProgress, duration
from experiments.plan import PlannedRun, benchmarks, plan
from experiments.resolvers import resolve
from experiments.results import RESULT, read_result
from experiments.sweeps import INTERRUPTED
from experiments.tables import make_table
from experiments.training import Training
from tensormem.runtime import keep_freed_memory

_TIMED_STEPS = 3
# What a run's process takes before its first step and after its last.
_MINUTES_TO_START = 0.1


def measure_speed(config: DictConfig, data: Data) -> float:
    """Training tokens/s of a config on this machine, from a few steps on its first batch.

    Args:
        config: of the run.
        data: its data, set up.
    """
    training: Training = instantiate(config.training)
    network = instantiate(config.model.network, **data.network_arguments)
    task = get_class(config.task).of_run(network, training, data, seed=0)
    device = torch.device("cuda" if torch.cuda.is_available() and config.trainer.accelerator != "cpu" else "cpu")
    task.to(device)
    optimizer = training.optimizer(task)
    batch = move_data_to_device(next(iter(data.train_dataloader())), device)
    seconds = []
    for _ in range(1 + _TIMED_STEPS):
        start = time.perf_counter()
        loss = task.loss(batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        seconds.append(time.perf_counter() - start)
    # The first step allocates; the fastest of the others is the one least disturbed.
    return data.tokens_per_step / min(seconds[1:])


def estimate_minutes(run: PlannedRun, tokens_per_second: float, data: Data) -> float:
    """Minutes that the rest of a run takes: its steps, its evaluations (a third of a training step) and its test."""
    num_validation, num_test = data.num_evaluation_tokens
    tokens = run.steps_left * data.tokens_per_step
    evaluations = run.steps_left / run.config.training.evaluate_every
    computing = (tokens + (evaluations * num_validation + num_test) / 3) / tokens_per_second / 60
    return computing + (0 if run.finished else _MINUTES_TO_START)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m experiments.reproduce", description=__doc__)
    parser.add_argument("benchmark", help="the table, e.g. wikitext")
    parser.add_argument("--plan", action="store_true", help="say what would run, and stop")
    parser.add_argument("--models", help="only these of the table's models, e.g. base,tensor")
    parser.add_argument("--parts", help="of a suite of several tables only these, e.g. binding,ablations")
    parser.add_argument("overrides", nargs="*", help="Hydra overrides for every run, e.g. scale=smoke seed=0,1")
    options = parser.parse_intermixed_args(arguments)
    keep_freed_memory()
    try:
        return _reproduce(options)
    except KeyboardInterrupt:
        print("interrupted: the same command goes on where it stopped", file=sys.stderr)
        return INTERRUPTED


def _reproduce(options: argparse.Namespace) -> int:
    try:
        overrides = [*options.overrides, *_chosen(options.benchmark, options.models)]
        if options.benchmark in benchmarks():
            check_overrides([f"experiment={options.benchmark}", *overrides])
        parts = [part.strip() for part in options.parts.split(",")] if options.parts else None
        runs = plan(options.benchmark, overrides, parts)
        minutes = _announce(runs)
    except USER_ERRORS as error:
        print(f"error: {explain(error)}", file=sys.stderr)
        return 1
    if options.plan:
        return 0
    failed = []
    to_do = [run for run in runs if not run.finished]
    overall = OverallProgress([minutes[run.folder] for run in to_do], [run.steps_done for run in to_do])
    # Loading the libraries once more is for those that have something to run.
    with Launcher() if to_do else nullcontext() as launcher:
        for number, run in enumerate(runs, start=1):
            if run.finished or launcher is None:
                continue
            print(f"\n[{number}/{len(runs)}] python -m experiments.train {shlex.join(run.overrides)}", flush=True)
            status = launcher.run(run.overrides, overall.relay)
            overall.finish_run()
            if status == INTERRUPTED:
                raise KeyboardInterrupt
            if status or not run.finished:
                failed.append(run.name)
    try:
        _show(options.benchmark, runs)
    except USER_ERRORS as error:
        print(f"error: {explain(error)}", file=sys.stderr)
        return 1
    if failed:
        print(
            f"error: {', '.join(failed)} did not finish; the same command goes on where they stopped", file=sys.stderr
        )
    return 1 if failed else 0


def _show(benchmark: str, runs: Sequence[PlannedRun]) -> None:
    """Print the table of the runs that are finished, and draw their figures."""
    results = [read_result(run.folder / RESULT) for run in runs if run.finished]
    if results:
        print("\n" + make_table(results))
        figures = Path(runs[0].config.runs.root) / benchmark / "figures"
        drawn = draw_all(results, figures)
        pictures = BENCHMARKS[benchmark].pictures
        if pictures is not None:
            drawn += pictures([run.folder for run in runs if run.finished], figures)
        print("Figures:", *(f"  {path}" for path in drawn), sep="\n")
        print("Result files:")
        for run in runs:
            if run.finished:
                print(f"  {run.folder / RESULT}")


def _chosen(benchmark: str, models: str | None) -> list[str]:
    """The override that takes the place of the table's models."""
    if models is None or benchmark not in BENCHMARKS:
        return []
    domain = BENCHMARKS[benchmark].domain
    return ["model=" + ",".join(f"{domain}/{name.strip()}" for name in models.split(","))]


def _announce(runs: Sequence[PlannedRun]) -> dict[Path, float]:
    """Print the plan, and find out before any training whether the data is there; minutes of each run to be done."""
    config = runs[0].config
    data_of = _DataOnce()
    scale = config.size.name
    asked = " (scale=auto: no CUDA device here)" if config.scale.name == "auto" and scale == "cpu" else ""
    print(
        f"Scale {scale}{asked}; data: {data_of(config).source}; runs under {config.runs.root}. "
        "Timing a few steps of each model.",
        flush=True,
    )
    minutes_of: dict[Path, float] = {}
    width = max(len(run.setting) + 2 * bool(run.setting) for run in runs)
    speeds: dict[str, float] = {}
    for run in runs:
        data = data_of(run.config)
        tokens = run.config.training.steps * data.tokens_per_step
        line = f"  {run.setting:{width}}{run.name:22} {run.config.training.steps} steps, {tokens / 1e6:.1f}M tokens: "
        if run.finished:
            print(line + "finished", flush=True)
            continue
        alike = json.dumps(resolve(run.config)["model"]) + str(data.tokens_per_step)
        if alike not in speeds:
            speeds[alike] = measure_speed(run.config, data)
        minutes = estimate_minutes(run, speeds[alike], data)
        minutes_of[run.folder] = minutes
        start = f"resumes at step {run.steps_done}, " if run.steps_done else ""
        print(line + f"{start}about {minutes:.0f} min at {speeds[alike]:,.0f} tokens/s", flush=True)
    print(
        f"{len(runs)} runs, {len(minutes_of)} to do: about {duration(sum(minutes_of.values()))} at scale {scale}. "
        f"SCALE=smoke shows all of it in a few minutes; {_restrictions(runs)}. Interrupt at any time: the same command "
        "goes on where it stopped.",
        flush=True,
    )
    return minutes_of


def _restrictions(runs: Sequence[PlannedRun]) -> str:
    """How to ask for less."""
    parts = list(dict.fromkeys(run.setting.split(" ")[0] for run in runs if run.setting))
    return "MODELS=base,tensor restricts" + (f", PARTS={','.join(parts[:2])} too" if len(parts) > 1 else "")


class _DataOnce:
    """The data of a config, set up; runs with equal settings share it."""

    def __init__(self) -> None:
        self.made: dict[str, Data] = {}

    def __call__(self, config: DictConfig) -> Data:
        settings = json.dumps({key: value for key, value in resolve(config)["data"].items() if key != "seed"})
        if settings not in self.made:
            data: Data = instantiate(config.data)
            data.setup()
            self.made[settings] = data
        return self.made[settings]


if __name__ == "__main__":
    sys.exit(main())
