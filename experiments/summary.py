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

# The setting of a model that has none of that name.
_NONE = object()


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


class Pair(NamedTuple):
    """Two rows that differ in the model alone: their names, and their runs of the same seeds."""

    first: str
    second: str
    runs: tuple[tuple[Result, Result], ...]


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
        detail = ", ".join(f"{name}={plain(_setting(mine, name))}" for name in _differing(twins))
        labels[variant] = f"{variant.model} ({detail})" if detail else variant.model
    return labels


def pairs_of(results: Iterable[Result], first: str, second: str) -> list[Pair]:
    """Rows of two models, and their runs seed by seed.

    Where a model has several rows, each is paired with those of the other that agree with it in what tells the rows
    apart, as far as both models have such a setting.

    Args:
        results: runs that may be compared.
        first: a model.
        second: another one.
    """
    rows = [
        (label, runs, json.loads(variant_of(runs[0]).settings))
        for label, runs in pool_seeds(results)
        if runs[0]["model"] in (first, second)
    ]
    ones, others = ([row for row in rows if row[1][0]["model"] == model] for model in (first, second))
    names = {name for side in (ones, others) for name in _differing([settings for *_, settings in side])}
    pairs = []
    for label, runs, settings in ones:
        for other_label, other_runs, other_settings in others:
            by_seed = {run["seed"]: run for run in other_runs}
            both = tuple((run, by_seed[run["seed"]]) for run in runs if run["seed"] in by_seed)
            if both and all(_agree(settings, other_settings, name) for name in names):
                pairs.append(Pair(label, other_label, both))
    return pairs


def _differing(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The settings that tell rows of one model apart."""
    names = sorted({name for row in rows for name in row})
    return [name for name in names if any(row.get(name) != rows[0].get(name) for row in rows)]


def _agree(one: Mapping[str, Any], other: Mapping[str, Any], name: str) -> bool:
    """Whether two rows have the same value of a setting, or not both of them have it."""
    values = [_setting(row, name, otherwise=_NONE) for row in (one, other)]
    return _NONE in values or values[0] == values[1]


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


def _setting(settings: Mapping[str, Any], name: str, otherwise: Any = None) -> Any:
    """The value of a key that may be left out, being at its default; `otherwise` where that is not known here."""
    if name in settings:
        return settings[name]
    section, dot, key = name.rpartition(".")
    try:
        return defaults_of(settings[f"{section}{dot}_target_"]).get(key, otherwise)
    except (ImportError, AttributeError, KeyError):
        return otherwise


def plain(value: Any) -> str:
    """A setting as a reader sees it: a string as it is, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def machines(results: Iterable[Result]) -> tuple[str, ...]:
    """What the runs were measured on, each machine once and in a few words, in order."""
    return tuple(sorted({machine(result["provenance"]) for result in results}))


def scale_order(scale: str) -> tuple[int, str]:
    """Key to sort by: large scales first, those that aren't known here last, by name."""
    return (SCALES.index(scale) if scale in SCALES else len(SCALES), scale)
