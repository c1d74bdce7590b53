"""Image files as RGB pixels at the size that the transforms start from. Letters: H, W height and width in pixels."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image
from torchvision.transforms.v2 import functional

from experiments.views import INTERPOLATION, scaled_size


class CubImageError(ValueError):
    """An image file that can't be read as 8-bit pixels."""


def stored_size(path: Path, short_side: int) -> tuple[int, int]:
    """(H, W) of the pixels that `read_pixels` returns, from the head of the file.

    Raises:
        CubImageError: the file is no image.
    """
    try:
        with Image.open(path) as image:
            return _scaled(image, short_side)
    except Exception as error:  # Pillow's decoders raise what they come across; the file must be named
        raise _unreadable(path, error) from error


def read_pixels(path: Path, short_side: int) -> UInt8[np.ndarray, "H W 3"]:
    """The image in RGB, resized (bicubic, with antialiasing) so that its shorter side has ``short_side`` pixels.

    Greyscale and every other mode of 8 bits a channel becomes RGB; transparency is dropped.

    Raises:
        CubImageError: the file is no image, is cut short, or has more than 8 bits a channel.
    """
    try:
        with Image.open(io.BytesIO(path.read_bytes())) as image:
            size = _scaled(image, short_side)
            # Pillow would cut brighter values off at 255.
            if image.mode[0] in "IF":
                raise ValueError(f"mode {image.mode} has more than 8 bits a channel")
            image = functional.resize(image.convert("RGB"), list(size), INTERPOLATION)
            return np.array(image)
    except Exception as error:
        raise _unreadable(path, error) from error


def _scaled(image: Image.Image, short_side: int) -> tuple[int, int]:
    width, height = image.size
    return scaled_size(height, width, short_side)


def _unreadable(path: Path, error: Exception) -> CubImageError:
    reason = " ".join(str(error).split())
    return CubImageError(
        f"{path} can't be read ({type(error).__name__}: {reason}): put the official file back, or "
        "remove the folder CUB_200_2011 and run `make data-cub200`"
    )
