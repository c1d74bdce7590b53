"""Decoded images, kept in memory, in a file, or not at all; the pixels are the same each way."""

from __future__ import annotations

import hashlib
import logging
import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import torch
import torchvision
from jaxtyping import UInt8
from torch import Tensor

from experiments.cub200.images import read_pixels, stored_size

CACHES = ("none", "memory", "disk")
# Part of the key of a cache file: raised when what it holds, or how, changes.
_FORMAT = 1

logger = logging.getLogger(__name__)


class Images(ABC):
    """Images by their place in the list they were opened with; pickles, for spawned workers."""

    @abstractmethod
    def __getitem__(self, place: int) -> UInt8[Tensor, "3 H W"]:
        """(3, H, W) uint8 in RGB, the shorter side as asked for; not to be written to."""


class ImagesInFiles(Images):
    """Decodes an image each time."""

    def __init__(self, paths: Sequence[Path], short_side: int) -> None:
        """See `open_images`."""
        self.paths = list(paths)
        self.short_side = short_side

    def __getitem__(self, place: int) -> UInt8[Tensor, "3 H W"]:
        """As of `Images`; raises CubImageError."""
        return torch.from_numpy(read_pixels(self.paths[place], self.short_side)).permute(2, 0, 1)


class _Packed(Images):
    """The images one after the other in a flat array of bytes, each with the channels of a pixel side by side."""

    def __init__(self, sizes: Sequence[tuple[int, int]]) -> None:
        self.sizes = list(sizes)
        self.starts = np.cumsum([0, *(3 * height * width for height, width in sizes)])

    def _place(self, place: int) -> tuple[slice, tuple[int, int, int]]:
        return slice(self.starts[place], self.starts[place + 1]), (*self.sizes[place], 3)


class ImagesInMemory(_Packed):
    """Decodes all images when it is made. Workers share its memory, through /dev/shm."""

    def __init__(self, paths: Sequence[Path], short_side: int) -> None:
        """See `open_images`."""
        super().__init__([stored_size(path, short_side) for path in paths])
        self.buffer = torch.empty(int(self.starts[-1]), dtype=torch.uint8)
        for place, pixels in enumerate(_decode(paths, short_side)):
            part, shape = self._place(place)
            self.buffer[part].view(shape)[:] = torch.from_numpy(pixels)

    def __getitem__(self, place: int) -> UInt8[Tensor, "3 H W"]:
        """As of `Images`."""
        part, shape = self._place(place)
        return self.buffer[part].view(shape).permute(2, 0, 1)


class ImagesOnDisk(_Packed):
    """Decodes all images into a file, unless one of the same key is there, and reads them from it.

    The file's name is a hash of the images' own bytes, in order, of their size and of the libraries that decoded
    them, so that no other data set's file can be taken for it. A new one is written aside and renamed: of two
    processes that make it at once, each does all the work, and either's file will do.
    """

    def __init__(self, paths: Sequence[Path], short_side: int, folder: Path) -> None:
        """See `open_images`; ``folder`` is made where it isn't there."""
        super().__init__([stored_size(path, short_side) for path in paths])
        self.file = folder / f"cub200-{_key(paths, short_side)}.pixels"
        # What was written in one go is whole; a file of another length was cut off or added to since.
        if not self.file.is_file() or self.file.stat().st_size != self.starts[-1]:
            self._write(paths, short_side)
        self.buffer = self._open()

    def __getitem__(self, place: int) -> UInt8[Tensor, "3 H W"]:
        """As of `Images`."""
        part, shape = self._place(place)
        # Copied, as PyTorch has no tensors that can't be written to.
        return torch.from_numpy(np.array(self.buffer[part]).reshape(shape)).permute(2, 0, 1)

    def __getstate__(self) -> dict[str, Any]:
        """All but the open file, which would be copied whole."""
        return {name: value for name, value in self.__dict__.items() if name != "buffer"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Open the file in the process that unpickles."""
        self.__dict__.update(state)
        self.buffer = self._open()

    def _open(self) -> np.memmap:
        return np.memmap(self.file, np.uint8, mode="r")

    def _write(self, paths: Sequence[Path], short_side: int) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.file.with_name(f".{self.file.name}.{uuid.uuid4().hex}.tmp")
        try:
            with temporary.open("xb") as file:
                for pixels in _decode(paths, short_side):
                    file.write(pixels)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.file)
        finally:
            temporary.unlink(missing_ok=True)


def open_images(paths: Sequence[Path], short_side: int, cache: str, folder: Path | None = None) -> Images:
    """The images of some files, by their place among them.

    Args:
        paths: the files.
        short_side: pixels of the shorter side that each image is resized to.
        cache: ``none`` decodes an image each time, ``memory`` keeps all of them (0.26 MB each at 256), ``disk``
            keeps them in a file.
        folder: of that file; for ``disk`` alone.

    Raises:
        ValueError: an unknown cache, or ``disk`` without a folder.
        CubImageError: a file that is no image; with ``none``, only when it is asked for.
    """
    if cache not in CACHES:
        raise ValueError(f"cache={cache!r} is unknown: use one of {', '.join(CACHES)}")
    if cache == "none":
        return ImagesInFiles(paths, short_side)
    if cache == "memory":
        return ImagesInMemory(paths, short_side)
    if folder is None:
        raise ValueError("cache='disk' needs cache_folder: name a folder, or use cache='memory'")
    return ImagesOnDisk(paths, short_side, folder)


def _decode(paths: Sequence[Path], short_side: int) -> Iterator[np.ndarray]:
    """The pixels of all images, in order."""
    logger.info("decoding %d images", len(paths))
    # Threads, as Pillow lets go of the interpreter while it decodes.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(lambda path: read_pixels(path, short_side), paths)


def _key(paths: Sequence[Path], short_side: int) -> str:
    versions = (PIL.__version__, torchvision.__version__)
    digest = hashlib.sha256(repr((_FORMAT, short_side, versions)).encode())
    for path in paths:
        # Names, sizes and dates would be quicker, and could be those of other pixels.
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:32]
