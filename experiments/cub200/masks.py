"""Which patches are hidden, and images in which they are replaced by a prediction.

Letters: B images, H and W height and width, N patches of an image, D values of a patch.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from experiments.cub200.patches import patch_side, patchify, unnormalised, unpatchify


def num_hidden(ratio: float, num_patches: int) -> int:
    """Number of hidden patches of an image.

    Raises:
        ValueError: a ratio that isn't from 0 to 1.
    """
    if not 0 <= ratio <= 1:
        raise ValueError(f"mask ratio {ratio}: must be from 0 to 1")
    return round(ratio * num_patches)


def masked_patches(noise: Float[Tensor, "B N"], ratio: float) -> Bool[Tensor, "B N"]:
    """True where a patch is hidden: the ``num_hidden(ratio, N)`` of the largest noise in each image.

    What is hidden at a ratio is hidden at every larger one. Of equal noise, the later patch is hidden first.

    Raises:
        ValueError: a ratio that isn't from 0 to 1.
    """
    number = num_hidden(ratio, noise.shape[1])
    # By rank and not by a threshold, which equal noise would pass together.
    order = noise.argsort(dim=1, stable=True)
    hidden = torch.zeros_like(noise, dtype=torch.bool)
    return hidden.scatter(1, order[:, noise.shape[1] - number :], True)


def masked_pixels(hidden: Bool[Tensor, "B N"], height: int, width: int) -> Bool[Tensor, "B 1 H W"]:
    """True where a pixel is of a hidden patch; raises ValueError where N patches don't make such an image."""
    side = patch_side(hidden.shape[1], height, width)
    grid = hidden.reshape(-1, 1, height // side, width // side)
    return grid.repeat_interleave(side, dim=2).repeat_interleave(side, dim=3)


def composite(
    predicted: Float[Tensor, "B N D"], images: Float[Tensor, "B C H W"], hidden: Bool[Tensor, "B N"]
) -> Float[Tensor, "B C H W"]:
    """The images with the hidden patches as predicted, cut off to [0, 1]; no hidden pixel of the images is used."""
    height, width = images.shape[2:]
    pasted = unpatchify(predicted, height, width).clamp(0, 1)
    return torch.where(masked_pixels(hidden, height, width), pasted, images)


def paper_composite(
    predicted: Float[Tensor, "B N D"], images: Float[Tensor, "B C H W"], hidden: Bool[Tensor, "B N"]
) -> Float[Tensor, "B C H W"]:
    """The images with the hidden patches as predicted, brought to the mean and deviation of the hidden answer."""
    height, width = images.shape[2:]
    target = patchify(images, patch_side(hidden.shape[1], height, width))
    pasted = unpatchify(unnormalised(predicted, target), height, width)
    return torch.where(masked_pixels(hidden, height, width), pasted, images)
