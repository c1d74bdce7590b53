"""Valid results of action recognition, as its runs write them, for tests to spoil."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.runs import config_hash
from tests.experiments.made import make_result


def make_classification(
    model: str = "base",
    top1: float = 60.0,
    zero: float | None = None,
    split: int = 1,
    backbone: str | None = None,
    scale: str = "cpu",
    seed: int = 0,
    data: Mapping[str, Any] | None = None,
    found: str = "all 72 clips of 4 classes",
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
        found: how many of the listed clips were there.
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
        # As a run writes it: its own model's number, where there is one.
        published={"test_top1": published} if (published := {"base": 82.12, "tensor": 89.21}.get(model)) else {},
        audit={},
        clips={"found": found, "decoder": "PyAV"},
        config_hash=config_hash(config),
        config=config,
        seed=seed,
    )
