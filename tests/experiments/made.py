"""Valid results, as runs of each benchmark write them, for tests to spoil."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.runs import config_hash

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


def make_reconstruction(
    model: str = "base",
    psnr: Sequence[float] = (20.0, 18.0, 16.0),
    *,
    zero: Sequence[float] | None = None,
    control: Sequence[float] = (15.0, 14.0, 13.0),
    target: str = "pixels",
    token_order: str = "raster",
    scale: str = "cpu",
    seed: int = 0,
    data: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Build a valid result of masked reconstruction.

    Args:
        model: its name.
        psnr: of the test with a quarter, a half and three quarters hidden; the SSIM is a fiftieth of it.
        zero: the same with reads set to zero; None: the model has no memory.
        control: the same of what learns nothing.
        data, training: further keys of these sections.
    """
    subjects = {"memory": psnr, "zero": zero, "control": control}
    tests = [
        {"subject": subject, "mask_ratio": ratio, "psnr": value, "ssim": value / 50, "images": 1442}
        for subject, values in subjects.items()
        for ratio, value in zip((0.25, 0.5, 0.75), values or (), strict=values is not None)
    ]
    config = {
        "name": "cub200",
        "seed": seed,
        "model": {
            "name": model,
            "network": {
                "_target_": f"tensormem.models.vision.{'TensorMAE' if zero else 'BaseMAE'}",
                "target": target,
                "token_order": token_order,
            },
        },
        "data": {
            "_target_": "experiments.cub200.data.CubData",
            "image_size": 64,
            "patch": 8,
            "batch_size": 64,
            "cache": "memory",
            "seed": seed,
            **(data or {}),
        },
        "training": {
            "_target_": "experiments.training.Training",
            "steps": 3000,
            "evaluate_every": 1500,
            **(training or {}),
        },
    }
    return make_result(
        experiment="cub200",
        model=model,
        scale=scale,
        causal=False,
        streaming="none",
        protocol={"target": target, "token_order": token_order, "init": "tuned", "preset": "small"},
        metrics={
            "test_psnr": psnr[2],
            "test_ssim": psnr[2] / 50,
            "test_images": 1442,
            "validation_mse": 0.02,
            "validation_psnr": psnr[2],
            "best_step": 3000,
        },
        tests=tests,
        control="mean colour of the visible patches" if target == "pixels" else "0 everywhere, paper protocol",
        history={"step": [1500, 3000], "tokens": [1, 2], "validation_mse": [0.03, 0.02]},
        gates=[0.1, 0.2] if zero else None,
        config_hash=config_hash(config),
        config=config,
        seed=seed,
    )


def make_classification(
    model: str = "base",
    top1: float = 60.0,
    zero: float | None = None,
    split: int = 1,
    backbone: str | None = None,
    scale: str = "cpu",
    seed: int = 0,
    data: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Builds the result of a run on UCF-101.

    Args:
        model: its name.
        top1: of whole clips, in percent; each quarter that is hidden takes 10 off.
        zero: the same with reads set to zero; None: the model has no memory.
        split: the official split.
        backbone: name of the frozen model.
        scale: of the run.
        seed: of the run.
        data: further keys of the data.
    """
    tests = [
        {
            "subject": subject,
            "condition": kind,
            "fraction": fraction,
            "top1": value - 40 * fraction - (5 if kind in ("shuffled", "single") else 0),
            "top5": 95.0,
            "nats": 1.0,
            "clips": 24,
        }
        for subject, value in (("memory", top1), ("zero", zero))
        if value is not None
        for kind, fraction in (
            *(("frames", number / 4) for number in range(4)),
            *(("patch", number / 4) for number in range(1, 4)),
            ("shuffled", 0.0),
            ("single", 0.0),
        )
    ]
    kind = {"base": "Base", "registers": "Registers"}.get(model, "Tensor")
    config = {
        "name": "ucf101",
        "seed": seed,
        "model": {
            "name": model,
            "network": {"_target_": f"tensormem.models.video.{kind}Video", "backbone": backbone, "dim": 96},
        },
        "data": {
            "_target_": "experiments.ucf101.data.UcfData",
            "folder": "Weizmann4",
            "split": split,
            "num_frames": 8,
            "image_size": 64,
            "patch": 8,
            "batch_size": 16,
            "seed": seed,
            **(data or {}),
        },
        "training": {"_target_": "experiments.training.Training", "steps": 600, "evaluate_every": 300},
    }
    return make_result(
        experiment="ucf101",
        model=model,
        scale=scale,
        causal=False,
        streaming="none" if model == "base" else "frame",
        protocol={"views": 1, "backbone": backbone, "pretrained": backbone is not None, "init": "tuned"},
        metrics={
            "test_top1": top1,
            "test_top5": 95.0,
            "test_nats": 1.0,
            "test_clips": 24,
            "chance": 25.0,
            "validation_nats": 0.9,
            "validation_top1": top1,
            "best_step": 600,
        },
        tests=tests,
        history={"step": [300, 600], "tokens": [1, 2], "validation_nats": [1.2, 0.9]},
        gates=None if zero is None else [0.1, 0.2],
        published={"base": 82.12, "tensor": 89.21},
        config_hash=config_hash(config),
        config=config,
        seed=seed,
    )
