"""A small data set of generated clips in UCF-101's layout, without loss: every pixel is known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import av
import numpy as np

CLASSES = ("Bend", "Jack", "Wave")


def write_clip(path: Path, frames: np.ndarray, rate: int = 25) -> None:
    """Write (T, H, W, 3) uint8 frames as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w", format="avi") as container:
        stream = container.add_stream("ffv1", rate=rate)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "bgr0"
        for pixels in frames:
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
            container.mux(stream.encode(frame.reformat(format="bgr0")))
        container.mux(stream.encode())


def make_frames(num_frames: int, size: tuple[int, int] = (24, 32), seed: int = 0) -> np.ndarray:
    """(T, H, W, 3) uint8: a square that wanders over stripes, unlike in any two frames or clips."""
    rng = np.random.default_rng(seed)
    frames = np.repeat(rng.integers(0, 256, (1, 1, size[1], 3), dtype=np.uint8), num_frames, 0).repeat(size[0], 1)
    for number, frame in enumerate(frames):
        left = number % (size[1] - 6)
        frame[4:10, left : left + 6] = rng.integers(0, 256, 3)
        frame[0, 0] = number
    return frames


def write_lists(folder: Path, train: Sequence[str], test: Sequence[str], split: int = 1, end: str = "\n") -> None:
    """The lists of a split, with class numbers behind the clips that train."""
    lists = folder / "ucfTrainTestlist"
    lists.mkdir(parents=True, exist_ok=True)
    number = {name: place for place, name in enumerate(CLASSES, start=1)}
    content = {
        "classInd.txt": [f"{number[name]} {name}" for name in CLASSES],
        f"trainlist{split:02d}.txt": [f"{path} {number[path.partition('/')[0]]}" for path in train],
        f"testlist{split:02d}.txt": list(test),
    }
    for file, lines in content.items():
        (lists / file).write_bytes("".join(f"{line}{end}" for line in lines).encode())


def write_toy(folder: Path, num_groups: int = 5, beside: bool = False, num_splits: int = 1) -> Path:
    """Write a data set: two clips of each class and group; of group 1 those that test. Returns the folder.

    Clips have 9 to 13 frames of 24 x 32 pixels. They lie in ``UCF-101/``, or beside the lists.
    """
    clips = [
        f"{name}/v_{name}_g{group:02d}_c{number:02d}.avi"
        for name in CLASSES
        for group in range(1, num_groups + 1)
        for number in (1, 2)
    ]
    for seed, path in enumerate(clips):
        write_clip((folder if beside else folder / "UCF-101") / path, make_frames(9 + seed % 5, seed=seed))
    for split in range(1, num_splits + 1):
        held = f"_g{split:02d}_"
        write_lists(folder, [c for c in clips if held not in c], [c for c in clips if held in c], split)
    return folder
