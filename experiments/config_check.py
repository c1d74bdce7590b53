"""Refuses a mistaken config before any work, with the key's full path and the nearest valid name."""

from __future__ import annotations

import difflib
import inspect
import json
import re
import shutil
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TypedDict

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import ConfigCompositionException, HydraException
from omegaconf import DictConfig, OmegaConf
from pydantic import TypeAdapter, ValidationError
from pytorch_lightning.accelerators import CUDAAccelerator, MPSAccelerator

from experiments.resolvers import CONF
from experiments.tracking import make_logger


class ConfigError(ValueError):
    """A config that names something that does not exist, or gives it a value of the wrong kind."""


class TrainerSettings(TypedDict):
    """The keys of the config's `trainer`."""

    accelerator: str
    devices: int
    num_nodes: int
    strategy: str
    deterministic: bool
    log_every: int
    checkpoint_every: int


_TOP_LEVEL: dict[str, Any] = {"name": str, "task": str, "seed": int, "allow_noncausal": bool}


def parameters_of(target: str) -> dict[str, Any]:
    """Names and annotations of all that a target takes, what it passes on to its base classes included."""
    callable_ = resolve_name(target)
    layers = [callable_]
    if inspect.isclass(callable_):
        layers = [base.__init__ for base in inspect.getmro(callable_)[:-1] if "__init__" in vars(base)]
    found: dict[str, Any] = {}
    for layer in layers:
        hints = typing.get_type_hints(layer)
        parameters = [p for p in inspect.signature(layer).parameters.values() if p.name != "self"]
        for parameter in parameters:
            if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                found.setdefault(parameter.name, hints.get(parameter.name, Any))
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            break
    return found


def check_config(config: Mapping[str, Any]) -> None:
    """Check a resolved config's keys and the kinds of their values.

    Raises:
        ConfigError: an unknown key, a value of the wrong kind, or a `_target_` that can't be imported.
    """
    for key, annotation in _TOP_LEVEL.items():
        _check_value(key, config[key], annotation)
    if config["seed"] < 0:
        raise ConfigError(f"seed={config['seed']}: must not be negative")
    if config["seed"] >= 2**32:
        raise ConfigError(f"seed={config['seed']}: must be less than {2**32}")
    for path, section in (
        ("model.network", config["model"]["network"]),
        ("data", config["data"]),
        ("training", config["training"]),
    ):
        _check_target(path, section)
    logger = {key: hint for key, hint in typing.get_type_hints(make_logger).items() if key in ("mode", "project")}
    _check_section("logger", config["logger"], logger)
    _check_section("sweep", config["sweep"], {"fail_fast": bool})
    trainer = config["trainer"]
    _check_section("trainer", trainer, typing.get_type_hints(TrainerSettings))
    for key in ("devices", "num_nodes", "log_every", "checkpoint_every"):
        if trainer[key] < 1:
            raise ConfigError(f"trainer.{key}={trainer[key]}: must be at least 1")
    _check_accelerator(trainer["accelerator"])


def _check_accelerator(name: str) -> None:
    kinds = {"cuda": [CUDAAccelerator], "mps": [MPSAccelerator], "gpu": [CUDAAccelerator, MPSAccelerator]}.get(name)
    if kinds and not any(kind.is_available() for kind in kinds):
        raise ConfigError(f"trainer.accelerator={name}: none is found here; use cpu, or auto for what there is")


def _check_target(path: str, section: Mapping[str, Any]) -> None:
    """A section that says what is called: the callable exists, and takes these arguments."""
    try:
        known = parameters_of(section["_target_"])
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"{path}._target_={section['_target_']}: {error}. Give the class as module.Class; "
            "a module outside the checkout needs its folder in PYTHONPATH"
        ) from error
    nested = {key: value for key, value in section.items() if isinstance(value, Mapping) and "_target_" in value}
    _check_section(path, {key: value for key, value in section.items() if key not in {"_target_", *nested}}, known)
    for key, value in nested.items():
        _check_known(path, key, known)
        _check_target(f"{path}.{key}", value)
    if isinstance(options := section.get("memory_options"), Mapping):
        _check_section(f"{path}.memory_options", options, parameters_of("tensormem.memory.TensorMemory"))


def check_overrides(overrides: Sequence[str], config_dir: str | None = None) -> None:
    """Check that what overrides name exists, before Hydra says no more than that it does not.

    Args:
        overrides: Hydra overrides, as on the command line; `hydra.searchpath` adds folders to `conf/`.
        config_dir: Hydra's `--config-dir`, one more such folder.

    Raises:
        ConfigError: what is no override; an unknown key, group or choice of a group; a model of another benchmark;
            or a `config_dir` that is no folder.
    """
    if config_dir is not None and not Path(config_dir).is_dir():
        raise ConfigError(f"--config-dir={config_dir}: no such folder; give the one that holds model/")
    parsed = [_parse(text) for text in overrides if not text.startswith("-")]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        _check_parsed(parsed, _search_path(parsed, config_dir))


def _parse(text: str) -> Override:
    if "=" not in text and not text.startswith("~"):
        raise ConfigError(f"{text!r} is no override: write KEY=VALUE, as in model=language/tensor")
    try:
        return OverridesParser.create().parse_override(text)
    except HydraException as error:
        raise ConfigError(f"{text}: {str(error).splitlines()[0]}") from error


def _check_parsed(parsed: Sequence[Override], search_path: Sequence[str]) -> None:
    groups = _groups(search_path)
    chosen, values, models = [], [], []
    for override in parsed:
        key = override.key_or_group
        if key not in groups:
            values.append(override)
            if key == "hydra/launcher" and override.value() == "submitit_slurm" and shutil.which("srun") is None:
                raise ConfigError(f"{key}=submitit_slurm: there is no srun here; give it where Slurm's commands are")
            continue
        if override.is_delete():
            continue
        choices = list(override.sweep_string_iterator()) if override.is_sweep_override() else [override.value()]
        for choice in choices:
            if choice not in groups[key]:
                raise ConfigError(f"{key}={choice}: no such choice{_nearest_choice(str(choice), groups[key])}")
        chosen.append(f"{'+' if override.is_add() else ''}{key}={choices[0]}")
        if key == "model":
            models = choices
    if models:
        others = [choice for choice in chosen if not choice.startswith("model=")]
        _check_models(models, groups["model"], _composed(search_path, others, return_hydra_config=True))
    config = OmegaConf.to_container(_composed(search_path, chosen), resolve=False)
    known = set(_paths(config))
    for override in values:
        key = override.key_or_group
        if override.is_add() or override.is_delete() or key.startswith("hydra") or key in known:
            continue
        raise ConfigError(f"{key} is unknown{nearest(key, [*known, *groups])}")


def _composed(search_path: Sequence[str], chosen: Sequence[str], **options: bool) -> DictConfig:
    try:
        return compose("config", overrides=[*search_path, *chosen], **options)
    except ConfigCompositionException as error:
        group = re.search(r"Could not override '([^']+)'", str(error))
        if group is None:
            raise ConfigError(str(error).splitlines()[0]) from error
        given = next((choice for choice in chosen if choice.startswith(f"{group[1]}=")), group[1])
        raise ConfigError(
            f"{given}: this experiment has no group {group[1]}; name one that has, with experiment=..."
        ) from error


def _check_models(models: Sequence[str], known: Sequence[str], config: DictConfig) -> None:
    """The models are of the kind that the experiment trains, which its own default shows."""
    domain = str(config.hydra.runtime.choices.model).partition("/")[0]
    for model in models:
        if not model.startswith(f"{domain}/"):
            same = [name.partition("/")[2] for name in known if name.startswith(f"{domain}/")]
            raise ConfigError(
                f"model={model}: experiment={config.name} trains models of model/{domain}/: "
                f"{', '.join(name for name in same if '/' not in name)}"
            )


def _nearest_choice(choice: str, known: Sequence[str]) -> str:
    """As `nearest`; a choice in a folder that exists is compared with the others in it, by what tells them apart."""
    folder, _, last = choice.rpartition("/")
    inside = [name.rpartition("/")[2] for name in known if name.rpartition("/")[0] == folder]
    elsewhere = any(name.rpartition("/")[2] == last for name in known)
    if elsewhere or not (folder and inside):
        return nearest(choice, known)
    close = difflib.get_close_matches(last, inside, n=1)
    return f"; did you mean {folder}/{close[0]}?" if close else nearest(last, inside)


def _search_path(parsed: Sequence[Override], config_dir: str | None) -> list[str]:
    """The override that makes Hydra look outside `conf/` too, or nothing."""
    added = [
        folder for override in parsed if override.key_or_group == "hydra.searchpath" for folder in override.value()
    ]
    if config_dir is not None:
        added.append(f"file://{Path(config_dir).resolve()}")
    return [f"hydra.searchpath={json.dumps(added, ensure_ascii=False)}"] if added else []


def _groups(search_path: Sequence[str]) -> dict[str, list[str]]:
    """The config groups and their choices, in `conf/` and on the search path; Hydra must be initialised."""
    loader = GlobalHydra.instance().config_loader()

    def members(group: str, kind: ObjectType) -> list[str]:
        return loader.get_group_options(group, kind, "config", list(search_path))

    def choices(group: str) -> list[str]:
        nested = [
            f"{inner}/{name}" for inner in members(group, ObjectType.GROUP) for name in choices(f"{group}/{inner}")
        ]
        return sorted([*members(group, ObjectType.CONFIG), *nested])

    return {group: choices(group) for group in members("", ObjectType.GROUP) if group != "hydra"}


def _paths(config: Any, prefix: str = "") -> Iterable[str]:
    if prefix:
        yield prefix
    if isinstance(config, Mapping):
        for key, value in config.items():
            yield from _paths(value, f"{prefix}.{key}" if prefix else str(key))


def _check_section(path: str, section: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    for key, value in section.items():
        _check_known(path, key, known)
        _check_value(f"{path}.{key}", value, known[key])


def _check_known(path: str, key: str, known: Mapping[str, Any]) -> None:
    if key not in known:
        raise ConfigError(f"{path}.{key} is unknown{nearest(f'{path}.{key}', [f'{path}.{name}' for name in known])}")


def _check_value(key: str, value: Any, annotation: Any) -> None:
    try:
        TypeAdapter(annotation).validate_python(value, strict=True)
    except ValidationError as error:
        kind = getattr(annotation, "__name__", str(annotation)) if isinstance(annotation, type) else str(annotation)
        raise ConfigError(
            f"{key}={value!r}: {error.errors()[0]['msg'].lower()} (it takes {kind.replace('typing.', '')})"
        ) from error


def nearest(name: str, known: Iterable[str]) -> str:
    """How an error about an unknown name ends: the one that was meant, or all if they are few, or nothing."""
    known = sorted(known)
    last = name.replace("/", ".").rsplit(".", 1)[-1]
    alike = [other for other in known if other.replace("/", ".").rsplit(".", 1)[-1] == last]
    if alike and all("/" in other for other in alike):
        # A choice without its folder, or in another, which several folders may hold: none is nearer for a short name.
        close = alike
    else:
        # A slip of the pen; or the right last part in the wrong place.
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.6) or alike[:1]
    if close:
        return f"; did you mean {' or '.join(close)}?"
    return f"; known are {', '.join(known)}" if len(known) <= 12 else ""
