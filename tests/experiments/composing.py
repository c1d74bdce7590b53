"""Composed configs for tests, as the command line composes them, and runs of them."""

from pathlib import Path

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from experiments import runner
from experiments.resolvers import CONF, resolve
from experiments.runs import run_folder


def composed(*overrides: str) -> DictConfig:
    """The config of `python -m experiments.train <overrides>`."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("config", overrides=list(overrides))


def choices(group: str) -> list[str]:
    """The names of all configs of a group, e.g. `model/language`."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


# Trained to be loaded: what the words are worth does not matter.
_TWO_STEPS = [
    "scale=smoke",
    "training.steps=2",
    "training.evaluate_every=1",
    "training.warmup_steps=0",
    "data.batch_size=2",
    "data.window=32",
    "data.max_eval_tokens=100",
    "trainer.accelerator=cpu",
    "trainer.checkpoint_every=1",
    "logger.mode=disabled",
]


def finished_run(root: Path, *overrides: str) -> Path:
    """The folder of a run of two steps in windows of 32, trained for the tests."""
    config = composed(*_TWO_STEPS, f"runs.root={root}", *overrides)
    runner.run(config)
    return run_folder(resolve(config))


# 12 steps; dropout on, because its random numbers are what a resumed run gets wrong first.
TINY = [
    "scale=smoke",
    "training.steps=12",
    "training.evaluate_every=4",
    "training.warmup_steps=2",
    "data.batch_size=4",
    "data.window=21",
    "data.max_eval_tokens=700",
    "model.network.dropout=0.2",
    "trainer.accelerator=cpu",
    "trainer.log_every=2",
    "trainer.checkpoint_every=3",
    "logger.mode=disabled",
]


def tiny(data_root: str | Path, runs: Path, *overrides: str) -> DictConfig:
    """The config of a language run of 12 steps."""
    return composed(*TINY, f"data.root={data_root}", f"runs.root={runs}", *overrides)


def folder_of(config: DictConfig) -> Path:
    """The folder of a config's run."""
    return run_folder(resolve(config))
