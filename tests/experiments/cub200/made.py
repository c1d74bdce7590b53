"""Valid results of masked reconstruction, as its runs write them, for tests to spoil."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.runs import config_hash
from tests.experiments.made import make_result


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
