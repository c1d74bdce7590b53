"""What the configs under `conf/` can ask for: the sizes of a scale, and the models of a domain.

OmegaConf knows these as soon as this module is imported.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

CONF = Path(__file__).resolve().parent.parent / "conf"


def sizes_of(experiment: str, scale: str) -> str:
    """The file of sizes for `${sizes_of:${experiment},${scale}}`.

    `auto` is the paper's scale on a GPU, and what a CPU does in an hour or so elsewhere. The quickstart has one size,
    whatever the scale.
    """
    if experiment == "quickstart":
        scale = "tiny"
    elif scale == "auto":
        scale = "paper" if torch.cuda.is_available() else "cpu"
    return f"{experiment}/{scale}"


def models_of(domain: str) -> str:
    """All models of a domain as a Hydra sweep, so that a new YAML is in every table without being named anywhere."""
    return ",".join(f"{domain}/{path.stem}" for path in sorted((CONF / "model" / domain).glob("*.yaml")))


def windows_of(tokens: int, window: int) -> int:
    """The batch size of a step of so many tokens."""
    if tokens % window:
        raise ValueError(f"window {window} does not divide {tokens} tokens a step")
    return tokens // window


def resolve(config: DictConfig) -> dict[str, Any]:
    """Plain containers, with every interpolation done; a missing value is an error."""
    return OmegaConf.to_container(config, resolve=True, throw_on_missing=True)  # type: ignore[return-value]


for _resolver in (sizes_of, models_of, windows_of):
    OmegaConf.register_new_resolver(_resolver.__name__, _resolver, replace=True)
