"""Valid results of the diagnostic suite, as its runs write them, for tests to spoil."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.runs import config_hash
from tests.experiments.made import make_result

_DIAGNOSTICS = {
    "binding": ("Binding", "num_writes", 20, 1 / 32),
    "map_building": ("MapBuilding", "num_views", 16, 1 / 2),
    "occlusion": ("Occlusion", "num_hidden", 0, 1 / 4),
    "no_harm": ("NoHarm", None, None, 1 / 16),
    "recall": ("Recall", "num_pairs", 8, 1 / 64),
}


def make_run(
    model: str = "base",
    accuracy: float = 0.5,
    *,
    zero: float | None = None,
    others: Sequence[tuple[dict[str, Any], float]] = (),
    groups: Mapping[str, float | None] | None = None,
    diagnostic: str = "binding",
    steps: str = "fixed",
    scale: str = "cpu",
    seed: int = 0,
    ablation: bool = False,
    gates: list[float] | None = None,
    published: Sequence[float] | None = None,
    network: Mapping[str, Any] | None = None,
    data: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Build a valid result of a diagnostic.

    Args:
        model: its name.
        accuracy: of the test.
        zero: with reads set to zero; None: the model has no memory.
        others: changed settings and the accuracy there; with reads set to zero it is half of that.
        groups: accuracy by group of answers; None where a group has no answer.
        published: the paper's range.
        network, data, training: further keys of these sections.
        **settings: of the diagnostic.
    """
    name, setting, easiest, chance = _DIAGNOSTICS[diagnostic]
    tests = [_test({}, "memory", accuracy, chance, groups or {})]
    if zero is not None:
        tests.append(_test({}, "zero", zero, chance, dict.fromkeys(groups or {}, zero)))
    for changes, value in others:
        tests.append(_test(changes, "memory", value, chance, groups or {}))
        if zero is not None:
            tests.append(_test(changes, "zero", value / 2, chance, groups or {}))
    config = {
        "name": "diagnostics",
        "seed": seed,
        "model": {
            "name": model,
            **({"ablation": True} if ablation else {}),
            "network": {"_target_": "tensormem.models.diagnostics.BaseDiagnostic", **(network or {})},
        },
        "data": {
            "_target_": "experiments.diagnostics.data.DiagnosticsData",
            "diagnostic": {"_target_": f"experiments.diagnostics.{diagnostic}.{name}", **settings},
            "batch_size": 32,
            "tests": [changes for changes, _ in others],
            "num_test_batches": 20,
            "seed": seed,
            **(data or {}),
        },
        "training": {
            "_target_": "experiments.training.Training",
            "steps": 1000,
            "evaluate_every": 500,
            "learning_rate": 1e-3,
            **(training or {}),
        },
    }
    return make_result(
        experiment="diagnostics",
        model=model,
        scale=scale,
        protocol={"diagnostic": diagnostic, "steps": steps},
        published={} if published is None else {"test_accuracy": list(published)},
        difficulty={"setting": setting, "value": setting and settings.get(setting, easiest)},
        metrics={
            "test_accuracy": accuracy,
            "test_nats": 1.0,
            "test_best": 1.0,
            "test_answers": 640,
            "chance": chance,
            "validation_nats": 1.1,
            "validation_accuracy": accuracy,
            "best_step": 1000,
        },
        tests=tests,
        state_bytes={"per_sequence": 1000 * ((setting and settings.get(setting, easiest)) or 1), "window": 64},
        history={
            "step": [500, 1000],
            "tokens": [500 * 768, 1000 * 768],
            "validation_nats": [2.0, 1.1],
            "validation_accuracy": [accuracy / 2, accuracy],
        },
        gates=gates,
        config_hash=config_hash(config),
        config=config,
        seed=seed,
    )


def _test(
    changes: Mapping[str, Any], reads: str, accuracy: float, chance: float, groups: Mapping[str, float | None]
) -> dict[str, Any]:
    """One entry of a result's `tests`."""
    return {
        "changes": changes,
        "reads": reads,
        "answers": 640,
        "accuracy": accuracy,
        "nats": 1.0,
        "best": 1.0,
        "chance": chance,
        "groups": {
            name: {"answers": 0 if value is None else 320, "accuracy": value, "nats": value, "best": value and 1.0}
            for name, value in groups.items()
        },
    }
