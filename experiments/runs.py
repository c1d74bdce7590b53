"""Where a run lives: a folder named by the hash of what makes the run scientifically different from another.

The hash covers the experiment, the seed, the network, the data and the training settings. It leaves out paths,
the logger, the device and the number of workers, and every key that has the default of the callable it goes to: so
a new key at its default does not rename the runs made before it existed.
"""

from __future__ import annotations

import fcntl
import hashlib
import inspect
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra.utils import get_object

# Keys that change where or how fast a run goes, never what it computes.
_NOT_SCIENTIFIC = {"data": {"root", "num_workers", "download"}}
_SECTIONS = ("network", "data", "training")


class RunInUseError(RuntimeError):
    """Another process works in the run's folder."""


def scientific_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """What the hash covers, from a resolved config (plain containers, see the module's docstring)."""
    sections = {
        "network": config["model"]["network"],
        "data": config["data"],
        "training": config["training"],
    }
    scientific: dict[str, Any] = {"experiment": config["name"], "seed": config["seed"]}
    for name in _SECTIONS:
        section = sections[name]
        defaults = _defaults(section["_target_"])
        scientific[name] = {
            key: value
            for key, value in section.items()
            if key not in _NOT_SCIENTIFIC.get(name, ()) and not (key in defaults and _equal(defaults[key], value))
        }
    return scientific


def config_hash(config: Mapping[str, Any]) -> str:
    """Ten hexadecimal digits that name the run of a resolved config."""
    canonical = json.dumps(scientific_config(config), sort_keys=True, allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:10]


def run_folder(config: Mapping[str, Any]) -> Path:
    """`<runs.root>/<experiment>/<model>-seed<k>-<hash>`."""
    stem = f"{config['model']['name']}-seed{config['seed']}-{config_hash(config)}"
    return Path(config["runs"]["root"]) / config["name"] / stem


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold the run's folder, so that two processes can't write one run.

    Raises:
        RunInUseError: another process holds it. The lock ends with its process, however that ends.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RunInUseError(
                f"run folder {folder} is in use by another process: wait for it, or change the config"
            ) from error
        yield


def _defaults(target: str) -> dict[str, Any]:
    """Defaults of the keyword arguments that a class passes on to its bases, or of a function."""
    found: dict[str, Any] = {}
    callable_ = get_object(target)
    candidates = (
        [c for c in inspect.getmro(callable_)[:-1] if "__init__" in vars(c)] if inspect.isclass(callable_) else []
    )
    for candidate in candidates or [callable_]:
        parameters = inspect.signature(candidate).parameters.values()
        for parameter in parameters:
            if parameter.default is not inspect.Parameter.empty:
                found.setdefault(parameter.name, parameter.default)
        if not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
            break
    return found


def _equal(default: Any, value: Any) -> bool:
    if isinstance(default, tuple | list) and isinstance(value, tuple | list):
        return list(default) == list(value)
    # 1 == 1.0 and True == 1: one spelling must not change the hash, a flag must.
    return isinstance(default, bool) == isinstance(value, bool) and bool(default == value)
