"""Command lines of `key=value` arguments, as Hydra's are, for commands that have a few of them and no config."""

from __future__ import annotations

import typing
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from experiments.config_check import ConfigError, nearest

Request = TypeVar("Request", bound=tuple[Any, ...])


def parse(kind: type[Request], arguments: Sequence[str]) -> Request:
    """Read a command line into a named tuple, whose fields are the keys; their annotations, pydantic's, check values.

    Args:
        kind: the named tuple; a field without a default must be given.
        arguments: of the command line.

    Raises:
        ConfigError: one that is unknown, missing, given twice, of the wrong kind or out of range.
    """
    kinds = typing.get_type_hints(kind, include_extras=True)
    defaults: dict[str, Any] = kind._field_defaults  # type: ignore[attr-defined]
    values: dict[str, Any] = {}
    for argument in arguments:
        key, equals, text = argument.partition("=")
        if not equals:
            raise ConfigError(f"{argument!r} is no key=value argument; keys are {', '.join(kinds)}")
        if key not in kinds:
            raise ConfigError(f"{key} is unknown{nearest(key, kinds)}")
        if key in values:
            raise ConfigError(f"{key} is given twice: leave one out")
        try:
            values[key] = TypeAdapter(kinds[key]).validate_python(text)
        except ValidationError as error:
            raise ConfigError(f"{key}={text}: {error.errors()[0]['msg'].lower()}") from error
    needed = [key for key in kinds if key not in defaults]
    if missing := [key for key in needed if key not in values]:
        raise ConfigError(f"{missing[0]}=... is missing; needed are {' and '.join(f'{key}=...' for key in needed)}")
    return kind(**values)
