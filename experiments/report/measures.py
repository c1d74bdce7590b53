"""How a run is summed up: its measure of record, whether it is causal, and which runs share a chart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from experiments.benchmarks import BENCHMARKS
from experiments.results import Result
from experiments.summary import plain, scale_order


class Measure(NamedTuple):
    """What stands for a run: a metric of its result, and the column of its history that a chart shows first."""

    metric: str
    curve: str
    digits: int


_MEASURES = {
    "language": Measure("test_perplexity", "validation_nats", 2),
    "diagnostics": Measure("test_accuracy", "validation_accuracy", 4),
    "vision": Measure("test_psnr", "validation_psnr", 2),
    "video": Measure("test_top1", "validation_nats", 2),
}
# Images and clips are seen whole: nothing in them is the future of something else that is to be told.
_WHOLE = frozenset({"vision", "video"})
CAUSAL_WORDS = {"yes": "yes", "no": "no: reads the future", "na": "not applicable"}


def measure_of(result: Result) -> Measure:
    """The measure of a run's benchmark."""
    return _MEASURES[BENCHMARKS[result["experiment"]].domain]


def causal_mark(result: Result) -> str:
    """``yes``, ``no`` or ``na`` (not applicable); `CAUSAL_WORDS` says it to a reader."""
    if BENCHMARKS[result["experiment"]].domain in _WHOLE:
        return "na"
    return "yes" if result["causal"] else "no"


def settings(results: Sequence[Result]) -> list[str]:
    """For each run of a benchmark, what sets it apart from those that it must not be drawn with.

    Of the protocol, what differs between the runs; a key that some lack, because they are older, tells none apart.
    Then the difficulty and the scale, and the budget of tokens where that alone differs.
    """
    shared = set.intersection(*(set(result["protocol"]) for result in results))
    differing = [
        key
        for key in results[0]["protocol"]
        if key in shared and len({plain(result["protocol"][key]) for result in results}) > 1
    ]
    names = [", ".join(_setting(result, differing)) for result in results]
    budgets = [_budget(result) for result in results]
    pairs = list(zip(names, budgets, strict=True))
    several = {name for name, number in Counter(name for name, _ in set(pairs)).items() if number > 1}
    return [f"{name}, {budget:,} tokens" if name in several else name for name, budget in pairs]


def setting_order(named: Iterable[tuple[str, Result]]) -> list[str]:
    """The settings in the order to show them: ours before the published ones, large scales first."""
    first: dict[str, Result] = {}
    for name, result in named:
        first.setdefault(name, result)
    return sorted(first, key=lambda name: _order(name, first[name]))


def _budget(result: Result) -> int:
    """Tokens that the run was to train on."""
    return int(result["training"].get("budget_tokens", result["training"]["tokens"]))


def _setting(result: Result, differing: Sequence[str]) -> Iterable[str]:
    for key in differing:
        value = plain(result["protocol"][key])
        yield value if key == "diagnostic" else f"{key} {value}"
    difficulty = result.get("difficulty") or {}
    if difficulty.get("setting") is not None:
        yield f"{difficulty['setting']} {plain(difficulty['value'])}"
    yield f"scale {result['scale']}"


def _order(name: str, result: Result) -> tuple[Any, ...]:
    published = sum(value in ("paper", "normalised", "shuffled") for value in result["protocol"].values())
    value = (result.get("difficulty") or {}).get("value")
    hard = value if isinstance(value, int | float) else 0
    task = str(result["protocol"].get("diagnostic", ""))
    return (published, task, scale_order(result["scale"]), hard, -_budget(result), name)
