"""Images as rows of patches.

Letters: B images, C channels, H and W height and width, N patches of an image, P pixels of a patch's side, D = C*P*P
values of a patch.
"""

from __future__ import annotations

import math

from jaxtyping import Float
from torch import Tensor

# In the denominator of the normalisation, as published for masked autoencoders (arXiv 2111.06377).
_EPSILON = 1e-6


def patchify(images: Float[Tensor, "B C H W"], patch: int) -> Float[Tensor, "B N D"]:
    """Cut images into patches, row by row; a patch's values are in the order (channel, row, column).

    Raises:
        ValueError: ``patch`` does not divide both sides.
    """
    batch, channels, height, width = images.shape
    if patch < 1 or height % patch or width % patch:
        raise ValueError(f"patch={patch} must divide the images' sides, {height} and {width}")
    grid = images.reshape(batch, channels, height // patch, patch, width // patch, patch)
    return grid.permute(0, 2, 4, 1, 3, 5).reshape(batch, -1, channels * patch * patch)


def unpatchify(patches: Float[Tensor, "B N D"], height: int, width: int) -> Float[Tensor, "B C H W"]:
    """Put patches together again: the inverse of `patchify`.

    Raises:
        ValueError: N square patches don't make an image of this size, or D values no patch of it.
    """
    batch, number, values = patches.shape
    patch = patch_side(number, height, width)
    if values % (patch * patch):
        raise ValueError(f"patches of {values} values: must be a multiple of the {patch}x{patch} pixels of a patch")
    grid = patches.reshape(batch, height // patch, width // patch, -1, patch, patch)
    return grid.permute(0, 3, 1, 4, 2, 5).reshape(batch, -1, height, width)


def patch_side(num_patches: int, height: int, width: int) -> int:
    """Side P of the square patches, in pixels, of which so many make an image of this size.

    Raises:
        ValueError: there is no such side.
    """
    side = math.isqrt(height * width // num_patches) if num_patches else 0
    if not side or height % side or width % side or height * width != num_patches * side * side:
        raise ValueError(f"{num_patches} square patches don't make an image of {height}x{width} pixels")
    return side


def normalised(patches: Float[Tensor, "B N D"]) -> Float[Tensor, "B N D"]:
    """Each patch less its mean, over its standard deviation: what a model learns to predict as published."""
    mean, deviation = _statistics(patches)
    return (patches - mean) / deviation


def unnormalised(predicted: Float[Tensor, "B N D"], target: Float[Tensor, "B N D"]) -> Float[Tensor, "B N D"]:
    """The inverse of `normalised`, with the mean and deviation of another's patches: the answer's, as published."""
    mean, deviation = _statistics(target)
    return predicted * deviation + mean


def _statistics(patches: Float[Tensor, "B N D"]) -> tuple[Float[Tensor, "B N 1"], Float[Tensor, "B N 1"]]:
    # The variance is the unbiased one, over D - 1.
    return patches.mean(dim=-1, keepdim=True), (patches.var(dim=-1, keepdim=True) + _EPSILON).sqrt()
