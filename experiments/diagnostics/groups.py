"""Which diagnostic runs may be compared, and what they measured: the base of the tables and the figures.

Imports no torch: tables are functions of the result files alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from experiments.results import Result
from experiments.summary import (
    Measured,
    Variant,
    canonical,
    leaves_of,
    machines,
    plain,
    row_labels,
    scale_order,
)

ORDER = ("binding", "map_building", "occlusion", "no_harm", "recall")
STEPS = {"fixed": "as many steps for every model", "converge": "each model until validation stops improving"}
# They make no group: the tests besides, and what a group shows in another way.
_LEFT_OUT = frozenset({"tests", "seed", "_target_", "diagnostic"})


@dataclass(frozen=True)
class Row:
    """A model of a group: its runs by the difficulty they were trained with (None where a task has none).

    Attributes:
        label: its name in the tables.
        ablation: the model that it is an ablation of; None where it is none.
        runs: by difficulty.
    """

    label: str
    ablation: str | None
    runs: Mapping[Any, tuple[Result, ...]]

    @property
    def model(self) -> str:
        """The model's own name; the label goes on with settings where it occurs with several."""
        return str(self.results[0]["model"])

    @property
    def results(self) -> tuple[Result, ...]:
        """All runs, the easiest first."""
        return tuple(result for difficulty in self.runs for result in self.runs[difficulty])

    def measured(
        self, difficulty: Any, changes: Mapping[str, Any] | None = None, reads: str = "memory", group: str | None = None
    ) -> Measured | None:
        """Accuracy over the seeds; None where it was not measured, or the group has no answer.

        Args:
            difficulty: that of the training.
            changes: of the test's settings from those of the training.
            reads: ``memory``, or ``zero``: with the memory's reads set to zero.
            group: of answers; None for all.
        """
        values = []
        for result in self.runs.get(difficulty, ()):
            test = find_test(result, changes or {}, reads)
            if test is None:
                continue
            found = test if group is None else test["groups"][group]
            if found["answers"]:
                values.append(found["accuracy"])
        return Measured.of(values) if values else None


@dataclass(frozen=True)
class Group:
    """Runs that may be compared: one task, but for its difficulty, one scale and one way to train.

    Attributes:
        diagnostic: the task's name.
        steps: ``fixed`` or ``converge``.
        scale: of the runs.
        setting: the name of what makes the task hard; None where nothing does.
        settings: the others of the task.
        difficulties: what the models were trained with, the easiest first.
        rows: the models; those of ablations last.
    """

    diagnostic: str
    steps: str
    scale: str
    setting: str | None
    settings: Mapping[str, Any]
    difficulties: tuple[Any, ...]
    rows: tuple[Row, ...]

    @property
    def results(self) -> tuple[Result, ...]:
        """The runs behind the rows."""
        return tuple(result for row in self.rows for result in row.results)

    @property
    def main(self) -> Group:
        """The group without the ablations, and without the difficulties that only they were trained with."""
        rows = tuple(row for row in self.rows if row.ablation is None)
        difficulties = tuple(value for value in self.difficulties if any(value in row.runs for row in rows))
        return replace(self, rows=rows, difficulties=difficulties)

    @property
    def ablated(self) -> tuple[str, ...]:
        """The models that there are ablations of."""
        return tuple(sorted({row.ablation for row in self.rows if row.ablation is not None}))

    def ablations(self, model: str) -> tuple[Row, ...]:
        """A model and its ablations."""
        return tuple(row for row in self.rows if row.ablation == model or row.model == model)

    @property
    def answer_groups(self) -> tuple[str, ...]:
        """Names of the groups of answers that are reported apart."""
        return tuple(self.results[0]["tests"][0]["groups"])

    @property
    def slug(self) -> str:
        """The group in the name of a file."""
        own = [f"{key}-{plain(value)}" for key, value in self.settings.items()]
        return "-".join([self.diagnostic, *own, *([] if self.steps == "fixed" else [self.steps]), self.scale])

    @property
    def caption(self) -> str:
        """What every row has in common, in a few lines."""
        first = self.results[0]
        training, batch_size = first["config"]["training"], first["config"]["data"]["batch_size"]
        at_most = "" if self.steps == "fixed" else "at most "
        settings = "".join(f", {key} {plain(value)}" for key, value in self.settings.items())
        hardware = "; ".join(machines(self.results))
        return (
            f"{self.diagnostic}{settings}: accuracy in %. Scale {self.scale}, {STEPS.get(self.steps, self.steps)}: "
            f"{at_most}{training['steps']:,} steps of {batch_size} sequences, learning rate "
            f"{training['learning_rate']:g}; {first['metrics']['test_answers']:,} test answers; on {hardware}."
        )

    def reference(self, difficulty: Any, key: str, group: str | None = None) -> float | None:
        """`best` (the best achievable accuracy) or `chance` at a difficulty, from the files."""
        for row in self.rows:
            for result in row.runs.get(difficulty, ()):
                test = find_test(result, {}, "memory")
                if test is None:
                    continue
                found = test if group is None or key == "chance" else test["groups"][group]
                if found["answers"]:
                    return float(found[key])
        return None


def find_test(result: Result, changes: Mapping[str, Any], reads: str) -> dict[str, Any] | None:
    """The test of a run under these conditions, where there is one."""
    for test in result["tests"]:
        if test["changes"] == changes and test["reads"] == reads:
            return test  # type: ignore[no-any-return]
    return None


def group_results(results: Iterable[Result]) -> list[Group]:
    """Sort finished results into groups: in the order of the tasks, large scales first."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        if result["status"] == "finished":
            groups.setdefault(json.dumps(_alike(result), sort_keys=True), []).append(result)
    # By their names first; those of one name by what parts them, so that the order of the files makes no difference.
    return sorted((_group(groups[alike]) for alike in sorted(groups)), key=_order)


def _alike(result: Result) -> dict[str, Any]:
    """What the runs of a group have in common."""
    config = result["config"]
    data = {key: value for key, value in canonical(config["data"]).items() if key not in _LEFT_OUT}
    return {
        "protocol": result["protocol"],
        "scale": result["scale"],
        "task": _task_settings(result),
        "training": canonical(config["training"]),
        "data": data,
    }


def _task_settings(result: Result) -> dict[str, Any]:
    """The settings of the task that are not its defaults, without its difficulty."""
    settings = canonical(result["config"]["data"]["diagnostic"])
    leave_out = {"_target_", result["difficulty"]["setting"]}
    return {key: value for key, value in settings.items() if key not in leave_out}


def _group(members: Sequence[Result]) -> Group:
    first = members[0]
    variants: dict[Variant, list[Result]] = {}
    for result in members:
        network = leaves_of(canonical(result["config"]["model"]["network"]))
        key = Variant(result["model"], result["causal"], json.dumps(network, sort_keys=True))
        variants.setdefault(key, []).append(result)
    labels = row_labels(variants)
    difficulties = sorted({result["difficulty"]["value"] for result in members}, key=lambda value: value or 0)
    rows = [_row(labels[variant], runs, difficulties) for variant, runs in variants.items()]
    return Group(
        diagnostic=first["protocol"]["diagnostic"],
        steps=first["protocol"]["steps"],
        scale=first["scale"],
        setting=first["difficulty"]["setting"],
        settings=_task_settings(first),
        difficulties=tuple(difficulties),
        rows=tuple(sorted(rows, key=lambda row: (row.ablation or "", not row.label.startswith("base"), row.label))),
    )


def _row(label: str, runs: Sequence[Result], difficulties: Sequence[Any]) -> Row:
    by_difficulty: dict[Any, tuple[Result, ...]] = {}
    for value in difficulties:
        # Of runs that differ in their tests alone, and so have the same weights, the one with the most.
        found = sorted(
            (run for run in runs if run["difficulty"]["value"] == value),
            key=lambda run: (len(run["tests"]), run["config_hash"]),
        )
        if found:
            by_seed = {run["seed"]: run for run in found}
            by_difficulty[value] = tuple(by_seed[seed] for seed in sorted(by_seed))
    return Row(label, _ablates(runs[0]), by_difficulty)


def first_gates(results: Iterable[Result]) -> str:
    """What the gates of these runs' memories were before training."""
    gammas = {result["config"]["model"]["network"].get("gamma", 0.0) for result in results if result["gates"]}
    return " or ".join(f"{1 / (1 + math.exp(-gamma)):.3g}" for gamma in sorted(gammas))


def _ablates(result: Result) -> str | None:
    """What a run's model is an ablation of: the memory beside attention, or the memory alone."""
    model = result["config"]["model"]
    if not model.get("ablation", False):
        return None
    return "tensor_local" if model["network"].get("window") == 1 else "tensor"


def _order(group: Group) -> tuple[Any, ...]:
    place = ORDER.index(group.diagnostic) if group.diagnostic in ORDER else len(ORDER)
    return (place, group.diagnostic, scale_order(group.scale), group.steps != "fixed", group.slug)
