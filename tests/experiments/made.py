"""A valid result, as a run of WikiText-2 writes it, for tests to spoil; other benchmarks' lie with their tests."""

from __future__ import annotations

import copy
import math
from typing import Any

_RESULT: dict[str, Any] = {
    "schema_version": 1,
    "experiment": "wikitext",
    "model": "base",
    "seed": 0,
    "config_hash": "0123abcd",
    "scale": "cpu",
    "causal": True,
    "streaming": "token",
    "status": "finished",
    "protocol": {"vocabulary": "paper_fixed", "evaluation": "full", "init": "tuned"},
    "published": {},
    "command": "python -m experiments.train experiment=wikitext model=language/base seed=0 scale=cpu",
    "config": {
        "seed": 0,
        "model": {
            "name": "base",
            "network": {"_target_": "tensormem.models.language.BaseLM", "dim": 128, "num_layers": 4},
        },
        "data": {"_target_": "experiments.wikitext.data.LanguageData", "window": 8},
        "training": {"_target_": "experiments.training.Training", "steps": 500, "evaluate_every": 250},
    },
    "provenance": {
        "git_revision": "f" * 40,
        "git_dirty": False,
        "versions": {"python": "3.11.7", "torch": "2.14.1", "datasets": None},
        "hardware": {
            "device": "cpu",
            "name": "Some CPU",
            "cores": 2,
            "threads": 2,
            "memory_gib": 23.4,
            "platform": "Linux x86_64",
        },
    },
    "metrics": {
        "validation_nats": math.log(220.0),
        "validation_perplexity": 220.0,
        "validation_targets": 213_885,
        "test_nats": math.log(210.0),
        "test_perplexity": 210.0,
        "test_targets": 241_210,
        "best_step": 500,
    },
    "loss_by_position": {"nats": [7.0, 6.0, 5.0, 5.0, 5.0, 4.0, 4.0, 4.0], "targets": [10] * 7 + [9]},
    "history": {"step": [250, 500], "tokens": [500_000, 1_000_000], "validation_nats": [6.0, 5.4]},
    "audit": {"start": {"verdict": "causal"}, "best": {"verdict": "causal"}},
    "gates": [0.5, 0.5],
    "parameters": {"total": 4_700_000, "non_embedding": 800_000, "memory": 0},
    "state_bytes": {"per_sequence": 1_048_576, "window": 8},
    "training": {
        "steps": 500,
        "tokens": 1_000_000,
        "wall_seconds": 100.0,
        "tokens_per_second": 10_000.0,
        "stopped_early": False,
    },
}


def make_result(**changes: Any) -> dict[str, Any]:
    """Build a valid result; keyword arguments set keys, `__` in a name for the dot."""
    result = copy.deepcopy(_RESULT)
    for key, value in changes.items():
        *blocks, last = key.split("__")
        target = result
        for block in blocks:
            target = target[block]
        target[last] = value
    if "config_hash" not in changes:
        result["config_hash"] = f"{result['model']}-{result['seed']}-{result['scale']}".replace("_", "-")
    if "seed" in changes:
        result["config"] = result["config"] | {"seed": changes["seed"]}
    return result
