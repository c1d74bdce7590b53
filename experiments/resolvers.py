"""What the configs under `conf/` can ask for: the sizes of a scale, and the models of a domain."""

from __future__ import annotations

from pathlib import Path

import torch
from omegaconf import OmegaConf

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


def register() -> None:
    """Make them known to OmegaConf; calling it again does no harm."""
    OmegaConf.register_new_resolver("sizes_of", sizes_of, replace=True)
    OmegaConf.register_new_resolver("windows_of", windows_of, replace=True)
    OmegaConf.register_new_resolver("models_of", models_of, replace=True)
