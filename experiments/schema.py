"""What a result file holds: its keys and their types, those of every run and those that an experiment adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SCHEMA_VERSION = 1
STATUSES = ("finished", "interrupted", "failed")
STREAMING = ("token", "frame", "none")

_NUMBER = (int, float)
_NONE = type(None)
# Required keys, dotted, with the types they may have. Blocks may hold more than is listed.
_EVERY_RUN: dict[str, tuple[type, ...]] = {
    "schema_version": (int,),
    "experiment": (str,),
    "model": (str,),
    "seed": (int,),
    "config_hash": (str,),
    "scale": (str,),
    "causal": (bool,),
    "streaming": (str,),
    "status": (str,),
    "protocol": (dict,),
    "published": (dict,),
    "command": (str,),
    "config": (dict,),
    "provenance": (dict,),
    "provenance.git_revision": (str, _NONE),
    "provenance.git_dirty": (bool, _NONE),
    "provenance.versions": (dict,),
    "provenance.hardware": (dict,),
    "provenance.hardware.device": (str,),
    "provenance.hardware.name": (str,),
    "provenance.hardware.threads": (int,),
    "metrics": (dict,),
    "gates": (list, _NONE),
    "parameters": (dict,),
    "parameters.total": (int,),
    "parameters.non_embedding": (int,),
    "parameters.memory": (int,),
    "state_bytes": (dict,),
    "state_bytes.per_sequence": (int,),
    "state_bytes.window": (int,),
    "training": (dict,),
    "training.steps": (int,),
    "training.tokens": (int,),
    "training.wall_seconds": _NUMBER,
    "training.tokens_per_second": _NUMBER,
    "training.stopped_early": (bool,),
}
_LANGUAGE: dict[str, tuple[type, ...]] = {
    "metrics.validation_nats": _NUMBER,
    "metrics.validation_perplexity": _NUMBER,
    "metrics.validation_targets": (int,),
    "metrics.test_nats": _NUMBER,
    "metrics.test_perplexity": _NUMBER,
    "metrics.test_targets": (int,),
    "metrics.best_step": (int,),
    "loss_by_position": (dict,),
    "loss_by_position.nats": (list,),
    "loss_by_position.targets": (list,),
    "history": (dict,),
    "history.step": (list,),
    "history.tokens": (list,),
    "history.validation_nats": (list,),
    "audit": (dict,),
}
_DIAGNOSTICS: dict[str, tuple[type, ...]] = {
    "protocol.diagnostic": (str,),
    "protocol.steps": (str,),
    "difficulty": (dict,),
    "difficulty.setting": (str, _NONE),
    "metrics.test_accuracy": _NUMBER,
    "metrics.test_nats": _NUMBER,
    "metrics.test_best": _NUMBER,
    "metrics.test_answers": (int,),
    "metrics.chance": _NUMBER,
    "metrics.validation_nats": _NUMBER,
    "metrics.validation_accuracy": _NUMBER,
    "metrics.best_step": (int,),
    "tests": (list,),
    "history": (dict,),
    "history.step": (list,),
    "history.validation_accuracy": (list,),
}
_CUB200: dict[str, tuple[type, ...]] = {
    "protocol.target": (str,),
    "metrics.test_psnr": _NUMBER,
    "metrics.test_ssim": _NUMBER,
    "metrics.test_images": (int,),
    "metrics.validation_mse": _NUMBER,
    "metrics.validation_psnr": _NUMBER,
    "metrics.best_step": (int,),
    "tests": (list,),
    "control": (str,),
    "history": (dict,),
    "history.step": (list,),
    "history.validation_mse": (list,),
}
_UCF101: dict[str, tuple[type, ...]] = {
    "protocol.views": (int,),
    "metrics.test_top1": _NUMBER,
    "metrics.test_top5": _NUMBER,
    "metrics.test_nats": _NUMBER,
    "metrics.test_clips": (int,),
    "metrics.chance": _NUMBER,
    "metrics.validation_nats": _NUMBER,
    "metrics.validation_top1": _NUMBER,
    "metrics.best_step": (int,),
    "tests": (list,),
    "history": (dict,),
    "history.step": (list,),
    "history.validation_nats": (list,),
}
# What an experiment asks for beyond that; nothing, where it isn't named here.
SCHEMA_OF_EXPERIMENT: Mapping[str, Mapping[str, tuple[type, ...]]] = {
    "wikitext": _LANGUAGE,
    "quickstart": _LANGUAGE,
    "diagnostics": _DIAGNOSTICS,
    "cub200": _CUB200,
    "ucf101": _UCF101,
}
# Blocks of lists that belong together, one value each.
_PARALLEL = ("loss_by_position", "history")


class ResultError(ValueError):
    """A result that can't be used: the message names the file, the key, the bad value and the fix."""


def check_schema(result: Any, source: str) -> None:
    """Check the keys of a result, their types, and the values that must be one of a few.

    Args:
        source: the file's name, for the message.

    Raises:
        ResultError: of another schema version, or a key is missing or has a value that it can't have.
    """
    if not isinstance(result, Mapping):
        raise ResultError(f"{source}: holds a {type(result).__name__}, not an object with a result's keys")
    version = result.get("schema_version")
    if type(version) is int and version > SCHEMA_VERSION:
        raise ResultError(
            f"{source}: schema_version {version} is newer than {SCHEMA_VERSION}; update tensormem to read it"
        )
    _check_types(result, _EVERY_RUN, source)
    if version != SCHEMA_VERSION:
        raise ResultError(f"{source}: schema_version {version} is unknown; this code reads {SCHEMA_VERSION}")
    for key, choices in (("status", STATUSES), ("streaming", STREAMING)):
        if result[key] not in choices:
            raise ResultError(f"{source}: {key} is {result[key]!r}; use one of {', '.join(choices)}")
    _check_types(result, SCHEMA_OF_EXPERIMENT.get(result["experiment"], {}), source)
    for block in _PARALLEL:
        lengths = {key: len(values) for key, values in result.get(block, {}).items()}
        if len(set(lengths.values())) > 1:
            raise ResultError(f"{source}: the lists of {block} differ in length ({lengths}); write one value each")


def _check_types(result: Mapping[str, Any], schema: Mapping[str, tuple[type, ...]], source: str) -> None:
    for key, types in schema.items():
        value: Any = result
        for part in key.split("."):
            if not isinstance(value, Mapping) or part not in value:
                raise ResultError(f"{source}: {key} is missing; write it, or run the experiment again")
            value = value[part]
        # bool is a subclass of int, and `true` is no count.
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            expected = " or ".join("null" if t is _NONE else t.__name__ for t in types)
            raise ResultError(f"{source}: {key} is {value!r} ({type(value).__name__}); it must be {expected}")
