"""One run: `python -m experiments.train experiment=wikitext model=language/tensor seed=0 scale=cpu`.

A run that was cut off goes on from its last checkpoint when the same command is given again; one that is finished is
not run again. Hydra's `--multirun` gives every job a process, a run folder, a W&B run and a result file of its own.

Processes that prepare batches import this module anew, and a sweep's own process trains nothing: what a run needs is
imported where it starts.
"""

from __future__ import annotations

import logging
import sys
import warnings

import hydra
from hydra._internal.utils import get_args_parser  # the parser that Hydra itself is about to use
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from experiments import sweeps
from experiments.resolvers import resolve
from experiments.results import RESULT
from experiments.runs import run_folder


def _run(config: DictConfig) -> None:
    """The run of a config, in this process, and what the user is told where it ends otherwise."""
    from experiments.errors import USER_ERRORS, explain
    from experiments.runner import run
    from tensormem.runtime import keep_freed_memory

    keep_freed_memory()
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    # Lightning's advice on workers and sessions does not apply: the data is made in memory, in microseconds.
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    warnings.filterwarnings("ignore", message=".*LeafSpec.*is deprecated.*")
    # Nor does that on sums over processes: each evaluates everything (`experiments.data.EVALUATED_BY_EACH`).
    warnings.filterwarnings("ignore", message=".*sync_dist=True.*")
    try:
        run(config)
    except KeyboardInterrupt as interrupt:
        print(f"interrupted {interrupt}: the same command goes on from the last checkpoint", file=sys.stderr)
        sys.exit(sweeps.INTERRUPTED)
    except USER_ERRORS as error:
        # Hydra would add advice about its own internals.
        sys.exit(f"error: {explain(error)}")


def _run_job(config: DictConfig) -> None:
    """A job of a multirun: in a process of its own."""
    try:
        folder = run_folder(resolve(config))
        name, done = folder.name, (folder / RESULT).exists()
    except Exception:  # a config that names no run: the job's own process says what is wrong with it
        name, done = str(config.model.name), False
    try:
        sweeps.run_job(sweeps.job_folder(), name, sweeps.job_overrides(), done, config.sweep.fail_fast)
    except KeyboardInterrupt:
        print("interrupted: the same sweep goes on where it stopped", file=sys.stderr)
        sys.exit(sweeps.INTERRUPTED)


def _check(overrides: list[str], config_dir: str | None) -> None:
    """End here where a word of the command line can't be meant."""
    from experiments.config_check import ConfigError, check_overrides

    try:
        check_overrides(overrides, config_dir)
    except ConfigError as error:
        sys.exit(f"error: {error}")


@hydra.main(version_base="1.3", config_path="../conf", config_name="config")
def main(config: DictConfig) -> None:
    """Hydra's entry point."""
    if HydraConfig.get().mode == RunMode.MULTIRUN:
        _run_job(config)
    else:
        _run(config)


if __name__ == "__main__":
    given = get_args_parser().parse_args()
    if given.multirun and given.cfg:
        sys.exit("error: --cfg shows the config of one run: leave out --multirun, or --cfg")
    if not given.help:
        _check(given.overrides, given.config_dir)
    main()
