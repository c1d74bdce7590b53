"""Composed configs for tests, as the command line composes them."""

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from experiments import resolvers
from experiments.resolvers import CONF


def composed(*overrides: str) -> DictConfig:
    """The config of `python -m experiments.train <overrides>`."""
    resolvers.register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("config", overrides=list(overrides))


def choices(group: str) -> list[str]:
    """The names of all configs of a group, e.g. `model/language`."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))
