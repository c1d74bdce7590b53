"""Predictors that learn nothing: what a score means is seen beside theirs.

Letters: B images, H and W height and width, N patches of an image, D values of a patch.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from experiments.cub200.masks import masked_pixels
from experiments.cub200.patches import patch_side


def mean_colour(images: Float[Tensor, "B C H W"], hidden: Bool[Tensor, "B N"]) -> Float[Tensor, "B N D"]:
    """Every pixel of every patch as the mean colour of the image's visible patches.

    Raises:
        ValueError: an image without a visible patch.
    """
    if hidden.all(dim=1).any():
        raise ValueError("an image without a visible patch has no mean colour: use a smaller mask ratio")
    height, width = images.shape[2:]
    side = patch_side(hidden.shape[1], height, width)
    visible = ~masked_pixels(hidden, height, width)
    # `where`, not a product: what is hidden must not matter, even if it is not finite.
    colour = torch.where(visible, images, 0).sum(dim=(2, 3)) / visible.sum(dim=(2, 3))
    return colour.repeat_interleave(side * side, dim=1)[:, None].expand(-1, hidden.shape[1], -1)


def zeros(images: Float[Tensor, "B C H W"], hidden: Bool[Tensor, "B N"]) -> Float[Tensor, "B N D"]:
    """0 everywhere; under the paper's protocol that is the mean of each hidden patch."""
    channels, height, width = images.shape[1:]
    side = patch_side(hidden.shape[1], height, width)
    return images.new_zeros(*hidden.shape, channels * side * side)
