"""Composed configs for tests, as the command line composes them."""

from pathlib import Path

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from experiments.train import register_resolvers

CONF = Path(__file__).resolve().parents[2] / "conf"


def composed(*overrides: str) -> DictConfig:
    """The config of `python -m experiments.train <overrides>`."""
    register_resolvers()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("config", overrides=list(overrides))


def choices(group: str) -> list[str]:
    """The names of all configs of a group, e.g. `model/language`."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))
