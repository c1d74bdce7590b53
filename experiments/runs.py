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
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

# Keys that change where or how fast a run goes, never what it computes.
_NOT_SCIENTIFIC = {"data": {"root", "num_workers", "download", "cache", "cache_folder"}}
# Mappings that are keyword arguments of what their key stands for.
_CALLED = {"memory_options": "tensormem.memory.TensorMemory"}


class ConfigChangedError(RuntimeError):
    """A run folder holds a run of another config than the one that its name stands for."""


class RunInUseError(RuntimeError):
    """Another process works in the run's folder."""


def scientific_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """What the hash covers, from a resolved config (plain containers, see the module's docstring)."""
    scientific: dict[str, Any] = {"experiment": config["name"], "seed": config["seed"]}
    for name, section in _parts(config).items():
        kept = {key: value for key, value in section.items() if key not in _NOT_SCIENTIFIC.get(name, ())}
        scientific[name] = without_defaults(kept)
    return scientific


def without_defaults(section: Mapping[str, Any]) -> dict[str, Any]:
    """A section's keys that differ from the defaults of its `_target_`."""
    defaults = defaults_of(section["_target_"])
    return {
        key: _canonical(key, value)
        for key, value in section.items()
        if not (key in defaults and _equal(defaults[key], value))
    }


def effective_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """As `scientific_config`, but with every default written out: what a run really does, whatever defaults become."""
    effective: dict[str, Any] = {}
    for name, section in _parts(config).items():
        kept = {key: value for key, value in section.items() if key not in _NOT_SCIENTIFIC.get(name, ())}
        effective[name] = _with_defaults(kept)
    return json.loads(json.dumps(effective))


def _with_defaults(section: Mapping[str, Any]) -> dict[str, Any]:
    """A section with its defaults, flat: what is called with arguments inside it has a dot in its keys."""
    defaults = {key: value for key, value in defaults_of(section["_target_"]).items() if _is_plain(value)}
    return _flat(defaults | dict(section))


def _flat(section: Mapping[str, Any]) -> dict[str, Any]:
    """A section's keys, those of what is called with arguments inside it (or with none) in place of its own."""
    flat: dict[str, Any] = {}
    for key, value in section.items():
        if key in _CALLED and (value is None or isinstance(value, Mapping)):
            value = {"_target_": _CALLED[key], **(value or {})}
        if isinstance(value, Mapping) and "_target_" in value:
            flat.update({f"{key}.{inner}": given for inner, given in _with_defaults(value).items()})
        else:
            flat[key] = value
    return flat


def check_unchanged(folder: Path, config: Mapping[str, Any]) -> None:
    """Compare what the run in the folder does with what the config does now, or note it in a new folder.

    Keys at their defaults are not part of the hash, so a default that has changed since would go unseen.

    Raises:
        ConfigChangedError: the folder's run does something else.
    """
    path = folder / "effective.json"
    now = effective_config(config)
    if not path.exists():
        # Aside and renamed: half a file would bar the folder.
        aside = path.with_suffix(".tmp")
        aside.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")
        os.replace(aside, path)
        return
    try:
        before = json.loads(path.read_text())
    except ValueError as error:
        raise ConfigChangedError(
            f"{path} can't be read ({error}), so what the run in the folder does is not known: move the folder away"
        ) from error
    for name, section in before.items():
        for key, value in _flat(section).items():
            if key in now[name] and not _equal(value, now[name][key]):
                raise ConfigChangedError(
                    f"{folder} was made with {name}.{key}={value!r}, which is {now[name][key]!r} now: "
                    "move the folder away, or set the key as it was"
                )


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
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(folder / ".lock", "w")  # noqa: SIM115 - closed by the with below
    except OSError as error:
        raise OSError(
            f"can't write under the run root: {error}. Set runs.root=... or TENSORMEM_RUNS to a folder of yours"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunInUseError(
                f"run folder {folder} is in use by another process: wait for it, or change the config"
            ) from error
        except OSError as error:
            raise OSError(
                f"run folder {folder} can't be locked ({error}): set runs.root=... or TENSORMEM_RUNS to a file system "
                "that has locks"
            ) from error
        yield


def _parts(config: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {"network": config["model"]["network"], "data": config["data"], "training": config["training"]}


def _canonical(key: str, value: Any) -> Any:
    """1.0 as 1: how a number is written must not change the hash. What is called with arguments, as its section is."""
    if key in _CALLED and isinstance(value, Mapping):
        called = without_defaults({"_target_": _CALLED[key], **value})
        return {name: given for name, given in called.items() if name != "_target_"}
    if isinstance(value, Mapping) and "_target_" in value:
        return without_defaults(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str | tuple | list)


def defaults_of(target: str) -> dict[str, Any]:
    """Defaults of the keyword arguments that a class passes on to its bases, or of a function.

    Raises:
        ImportError, AttributeError: there is no such class or function here.
    """
    found: dict[str, Any] = {}
    callable_ = resolve_name(target)
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
