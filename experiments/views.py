"""From stored pixels to what a model is given: a random crop in training, the centre in evaluation.

Of an image, or of the frames of a clip, which are all cut and mirrored alike.

Letters: T frames, H, W height and width of the stored pixels, S side of the square that is cut from them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from jaxtyping import UInt8
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional

INTERPOLATION = InterpolationMode.BICUBIC
ASPECT_RATIOS = (3 / 4, 4 / 3)
_ATTEMPTS = 10
# Uniform numbers that `training_view` takes: four an attempt, and one for the flip.
NUM_UNIFORM = 4 * _ATTEMPTS + 1


def scaled_size(height: int, width: int, short_side: int) -> tuple[int, int]:
    """(H, W) of pixels resized so that their shorter side has ``short_side``, in proportion.

    The longer side is rounded down, as torchvision's Resize does it.
    """
    if height <= width:
        return short_side, width * short_side // height
    return height * short_side // width, short_side


def training_view(
    pixels: UInt8[Tensor, "*T 3 H W"],
    side: int,
    crop_scale: tuple[float, float],
    flip: bool,
    uniform: Sequence[float],
) -> UInt8[Tensor, "*T 3 S S"]:
    """A random crop, resized (bicubic, with antialiasing), mirrored every other time.

    The crop's share of the area is uniform on ``crop_scale`` and the logarithm of its aspect ratio on that of
    `ASPECT_RATIOS`, as in torchvision's RandomResizedCrop; but what is drawn is given, not taken from the global
    generator.

    Args:
        pixels: the stored image, or the frames of a clip.
        side: pixels S of the result's sides.
        crop_scale: smallest and largest share of the area.
        flip: whether to mirror at all.
        uniform: `NUM_UNIFORM` numbers in [0, 1).
    """
    top, left, height, width = crop_box(*pixels.shape[-2:], crop_scale, uniform)
    view = functional.resized_crop(pixels, top, left, height, width, [side, side], INTERPOLATION, antialias=True)
    return functional.horizontal_flip(view) if flip and uniform[-1] < 0.5 else view


def evaluation_view(pixels: UInt8[Tensor, "*T 3 H W"], side: int) -> UInt8[Tensor, "*T 3 S S"]:
    """The centre of the stored pixels, without a resize."""
    return functional.center_crop(pixels, [side, side])


def crop_box(
    height: int, width: int, crop_scale: tuple[float, float], uniform: Sequence[float]
) -> tuple[int, int, int, int]:
    """Top, left, height and width of a random crop in pixels; arguments as `training_view`."""
    low, high = map(math.log, ASPECT_RATIOS)
    for attempt in range(_ATTEMPTS):
        share, ratio, down, right = uniform[4 * attempt : 4 * attempt + 4]
        area = height * width * (crop_scale[0] + share * (crop_scale[1] - crop_scale[0]))
        aspect = math.exp(low + ratio * (high - low))
        crop_width, crop_height = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < crop_width <= width and 0 < crop_height <= height:
            top, left = int(down * (height - crop_height + 1)), int(right * (width - crop_width + 1))
            return top, left, crop_height, crop_width
    # None fitted, as happens where the image is long and the crop large: the largest central one that is allowed.
    crop_width = min(width, round(height * ASPECT_RATIOS[1]))
    crop_height = min(height, round(width / ASPECT_RATIOS[0]))
    return (height - crop_height) // 2, (width - crop_width) // 2, crop_height, crop_width
