"""Short runs on generated images."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from experiments.resolvers import resolve
from experiments.runs import run_folder
from tests.experiments.composing import composed

TINY = [
    "experiment=cub200",
    "scale=smoke",
    "training.steps=4",
    "training.evaluate_every=2",
    "training.warmup_steps=1",
    "data.batch_size=4",
    "data.max_images=null",
    # Of four images of a class that train, one validates.
    "+data.validation_share=0.25",
    "trainer.accelerator=cpu",
    "trainer.checkpoint_every=3",
    "trainer.log_every=2",
    "logger.mode=disabled",
]


def tiny(data: Path, runs: Path, *overrides: str) -> DictConfig:
    """The config of a run of four steps on the images under ``data``."""
    return composed(*TINY, f"data.root={data}", f"runs.root={runs}", *overrides)


def folder_of(config: DictConfig) -> Path:
    """Where the run of a config lives."""
    return run_folder(resolve(config))
