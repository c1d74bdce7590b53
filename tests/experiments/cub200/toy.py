"""A small data set of generated images in the official layout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = {1: "001.Red_Bird", 2: "002.Blue_Bird", 4: "004.Grey_Bird"}


def write_toy(root: Path, per_class: int = 6, size: tuple[int, int] = (40, 48), seed: int = 0) -> Path:
    """Write `CUB_200_2011/` with that many images of each class, two of three of them to train; returns the folder.

    Each image is (height, width) plus its id in one of the sides, smooth, and unlike the others; ids start at 1.
    """
    folder = root / "CUB_200_2011"
    lines: dict[str, list[str]] = {name: [] for name in ("images", "image_class_labels", "train_test_split")}
    rng = np.random.default_rng(seed)
    id_ = 0
    for class_id, name in CLASSES.items():
        (folder / "images" / name).mkdir(parents=True)
        for number in range(per_class):
            id_ += 1
            path = f"{name}/Bird_{number:04d}.png"
            height, width = size[0] + id_ % 3, size[1] - id_ % 5
            Image.fromarray(smooth(rng, height, width)).save(folder / "images" / path)
            lines["images"].append(f"{id_} {path}")
            lines["image_class_labels"].append(f"{id_} {class_id}")
            lines["train_test_split"].append(f"{id_} {int(number % 3 != 2)}")
    for file, content in lines.items():
        (folder / f"{file}.txt").write_text("\n".join(content) + "\n", encoding="utf-8")
    (folder / "classes.txt").write_text("".join(f"{key} {name}\n" for key, name in CLASSES.items()), encoding="utf-8")
    return folder


def smooth(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """(height, width, 3) uint8: a coarse random picture, enlarged."""
    coarse = Image.fromarray(rng.integers(0, 256, (5, 6, 3), dtype=np.uint8))
    return np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC))
