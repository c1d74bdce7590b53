"""Clips by their place in a list, decoded each time or kept in files of decoded frames; the pixels are the same.

Letters: T frames, H, W height and width in pixels.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torchvision
from jaxtyping import UInt8
from torch import Tensor

from experiments.ucf101.decoding import DAMAGED, all_frames, count_frames, decoder, read_frames

CACHES = ("none", "disk")
# Part of what a cache's folder is named by: raised when what its files hold, or how, changes.
_FORMAT = 1


class Clips(ABC):
    """Clips by their place in the list they were opened with; pickles, for spawned workers.

    Attributes:
        paths: the files.
        short_side: pixels of the shorter side that frames are resized to.
        damaged: ``error`` or ``repeat``; see `count_frames`.
    """

    def __init__(self, paths: Sequence[Path], short_side: int, damaged: str) -> None:
        self.paths = list(paths)
        self.short_side = short_side
        self.damaged = damaged

    @abstractmethod
    def num_frames(self, place: int) -> int:
        """Frames that the clip decodes to; raises ClipError."""

    @abstractmethod
    def frames(self, place: int, indices: Sequence[int]) -> UInt8[Tensor, "T 3 H W"]:
        """Frames of a clip in RGB, by their exact indices; raises ClipError."""


class ClipsInFiles(Clips):
    """Decodes a clip each time, up to the last frame that is asked for; counts its frames once in each process."""

    def __init__(self, paths: Sequence[Path], short_side: int, damaged: str = "error") -> None:
        """See `open_clips`."""
        super().__init__(paths, short_side, damaged)
        self._counts: dict[int, int] = {}

    def num_frames(self, place: int) -> int:
        """As of `Clips`."""
        if place not in self._counts:
            self._counts[place] = count_frames(self.paths[place], self.damaged)
        return self._counts[place]

    def frames(self, place: int, indices: Sequence[int]) -> UInt8[Tensor, "T 3 H W"]:
        """As of `Clips`."""
        return read_frames(self.paths[place], indices, self.short_side, self.damaged)


class ClipsOnDisk(Clips):
    """Decodes a clip when it is first asked for, and keeps all its frames in a file.

    Files lie in a folder of their own for each decoder and each version of it, which ``decoder.json`` there tells, and
    are named by a hash of the clip's own bytes: no other pixels can be taken for a clip's. A new one is written aside
    and renamed, so that several processes may fill a folder.
    """

    def __init__(self, paths: Sequence[Path], short_side: int, folder: Path, damaged: str = "error") -> None:
        """See `open_clips`; the folder is made where it isn't there."""
        super().__init__(paths, short_side, damaged)
        made_by = {
            "format": _FORMAT,
            "decoder": decoder(),
            "resized by": f"torchvision {torchvision.__version__}",
            "short_side": short_side,
            "damaged": damaged,
        }
        text = json.dumps(made_by, indent=2) + "\n"
        self.folder = folder / f"frames-{short_side}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "decoder.json").write_text(text, encoding="utf-8")
        self._files: dict[int, Path] = {}

    def num_frames(self, place: int) -> int:
        """As of `Clips`."""
        return len(self._open(place))

    def frames(self, place: int, indices: Sequence[int]) -> UInt8[Tensor, "T 3 H W"]:
        """As of `Clips`."""
        return torch.from_numpy(self._open(place)[np.asarray(indices)])

    def _open(self, place: int) -> np.ndarray:
        """(frames, 3, H, W) uint8, mapped from its file."""
        if place not in self._files:
            # Names, sizes and dates would be quicker, and could be those of other pixels.
            key = hashlib.sha256(self.paths[place].read_bytes()).hexdigest()
            self._files[place] = self.folder / f"{key}.npy"
        file = self._files[place]
        try:
            return np.load(file, mmap_mode="r")
        except (FileNotFoundError, ValueError, EOFError):  # not there yet, or cut off since
            self._write(place, file)
        return np.load(file, mmap_mode="r")

    def _write(self, place: int, file: Path) -> None:
        path = self.paths[place]
        count = count_frames(path, self.damaged)
        temporary = file.with_name(f".{file.name}.{uuid.uuid4().hex}.tmp")
        pixels: np.ndarray | None = None
        try:
            for index, frame in enumerate(all_frames(path, self.short_side, self.damaged)):
                if pixels is None:
                    shape = (count, *frame.shape)
                    pixels = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.uint8, shape=shape)
                pixels[index] = frame.numpy()
            if pixels is not None:
                pixels.flush()
            del pixels
            with temporary.open("rb") as written:
                os.fsync(written.fileno())  # before it has its name, which a crash of the machine might keep alone
            os.replace(temporary, file)
        finally:
            temporary.unlink(missing_ok=True)


def open_clips(
    paths: Sequence[Path], short_side: int, cache: str = "none", folder: Path | None = None, damaged: str = "error"
) -> Clips:
    """The clips of some files, by their place among them.

    Args:
        paths: the files.
        short_side: pixels of the shorter side that each frame is resized to.
        cache: ``none`` decodes a clip each time, ``disk`` keeps all its frames in a file (at 64 pixels about 16 kB a
            frame, at 256 about 260 kB: all of UCF-101 has 2.5 million frames).
        folder: of these files; for ``disk`` alone.
        damaged: ``error`` or ``repeat``; see `count_frames`.

    Raises:
        ValueError: an unknown cache or ``damaged``, or ``disk`` without a folder.
    """
    for name, value, known in (("cache", cache, CACHES), ("damaged", damaged, DAMAGED)):
        if value not in known:
            raise ValueError(f"{name}={value!r} is unknown: use one of {', '.join(known)}")
    if cache == "none":
        return ClipsInFiles(paths, short_side, damaged)
    if folder is None:
        raise ValueError("cache='disk' needs cache_folder: name a folder, or use cache='none'")
    return ClipsOnDisk(paths, short_side, folder, damaged)
