"""What the tables of all benchmarks share: which runs are the seeds of one row, its name, and the mean over them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from experiments.provenance import machine
from experiments.results import Result
from experiments.runs import defaults_of, without_defaults

SCALES = ("paper", "cpu", "smoke", "tiny")
# Two runs that differ in no more than these keys of their network, data and training are seeds of one row. Keys inside
# a section, such as the seed of a generated language, are another matter.
UNSCIENTIFIC_KEYS = frozenset({"seed", "root", "num_workers", "download", "cache", "cache_folder"})


@dataclass(frozen=True)
class Measured:
    """Mean over seeds, and the sample standard deviation where there are at least two."""

    mean: float
    deviation: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Measured:
        """Summarise one value per seed (at least one)."""
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


class Variant(NamedTuple):
    """What the seeds of one row have in common; `settings` are the scientific ones, as JSON."""

    model: str
    causal: bool
    settings: str


def pool_seeds(results: Iterable[Result]) -> list[tuple[str, list[Result]]]:
    """Sort runs that may be compared into rows, one per model and configuration.

    Returns:
        The name of each row and its runs, which are ordered by seed. Rows that were found to read the future come last,
        `base` first, and the others go by name; the order depends on the results alone.
    """
    variants: dict[Variant, list[Result]] = {}
    for result in results:
        variants.setdefault(variant_of(result), []).append(result)
    labels = row_labels(variants)

    def order(key: Variant) -> tuple[bool, bool, str]:
        # Where nothing is audited (images, videos), there is no future to be read.
        leaks = not key.causal and any(result["audit"] for result in variants[key])
        return leaks, key.model != "base", labels[key]

    ordered = sorted(variants, key=order)
    return [(labels[key], sorted(variants[key], key=lambda r: (r["seed"], r["config_hash"]))) for key in ordered]


def variant_of(result: Result) -> Variant:
    """The row that a run belongs to."""
    settings = leaves_of(scientific_parts(result["config"]))
    return Variant(result["model"], result["causal"], json.dumps(settings, sort_keys=True))


def row_labels(variants: Iterable[Variant]) -> dict[Variant, str]:
    """Row names: the model; where it occurs with several configs, with the settings that tell them apart."""
    variants = list(variants)
    labels = {}
    for variant in variants:
        twins = [json.loads(other.settings) for other in variants if other.model == variant.model]
        mine = json.loads(variant.settings)
        names = sorted({name for twin in twins for name in twin})
        differing = [name for name in names if any(twin.get(name) != mine.get(name) for twin in twins)]
        detail = ", ".join(f"{name}={plain(_setting(mine, name))}" for name in differing)
        labels[variant] = f"{variant.model} ({detail})" if detail else variant.model
    return labels


def scientific_parts(config: Mapping[str, Any]) -> dict[str, Any]:
    """What makes a row, without what is at its default: a key that came later must not part old runs from new ones."""
    parts = {"network": config["model"]["network"], "data": config["data"], "training": config["training"]}
    return {
        name: {key: value for key, value in canonical(part).items() if key not in UNSCIENTIFIC_KEYS}
        for name, part in parts.items()
    }


def canonical(part: Mapping[str, Any]) -> dict[str, Any]:
    """One part of a config without what is at its default; as it is, where its `_target_` can't be imported."""
    try:
        return without_defaults(part)
    except (ImportError, AttributeError):
        # A class of somebody else, or one that is no more: the table is still that of the files.
        return dict(part)


def leaves_of(config: Any, prefix: str = "") -> dict[str, Any]:
    """The leaves of a config, by dotted key."""
    if not isinstance(config, Mapping):
        return {prefix: config}
    leaves: dict[str, Any] = {}
    for key, value in config.items():
        leaves |= leaves_of(value, f"{prefix}.{key}" if prefix else str(key))
    return leaves


def _setting(settings: Mapping[str, Any], name: str) -> Any:
    """The value of a key that may be left out, being at its default; None where that is not known here."""
    if name in settings:
        return settings[name]
    section, dot, key = name.rpartition(".")
    try:
        return defaults_of(settings[f"{section}{dot}_target_"]).get(key)
    except (ImportError, AttributeError, KeyError):
        return None


def plain(value: Any) -> str:
    """A setting as a reader sees it: a string as it is, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def machines(results: Iterable[Result]) -> tuple[str, ...]:
    """What the runs were measured on, each machine once and in a few words, in order."""
    return tuple(sorted({machine(result["provenance"]) for result in results}))


def scale_order(scale: str) -> tuple[int, str]:
    """Key to sort by: large scales first, those that aren't known here last, by name."""
    return (SCALES.index(scale) if scale in SCALES else len(SCALES), scale)
