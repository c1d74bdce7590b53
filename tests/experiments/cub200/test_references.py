"""The predictors that learn nothing."""

from __future__ import annotations

import pytest
import torch

from experiments.cub200.masks import masked_patches
from experiments.cub200.patches import patchify, unpatchify
from experiments.cub200.references import mean_colour, zeros
from tests.helpers import EXACT_FLOAT64, assert_close


def test_the_mean_colour_is_that_of_each_images_visible_patches():
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(3, 3, 8, 12, generator=generator, dtype=torch.float64)
    hidden = masked_patches(torch.rand(3, 6, generator=generator), 0.5)
    predicted = mean_colour(images, hidden)
    assert predicted.shape == patchify(images, 4).shape
    flat = unpatchify(predicted, 8, 12)
    for image in range(3):
        visible = patchify(images, 4)[image][~hidden[image]].view(-1, 3, 16)
        colour = visible.mean(dim=(0, 2))
        assert_close(flat[image], colour[:, None, None].expand(3, 8, 12), f"colour of image {image}", EXACT_FLOAT64)


def test_the_mean_colour_sees_nothing_hidden():
    images = torch.rand(2, 3, 8, 8)
    hidden = masked_patches(torch.rand(2, 4), 0.75)
    spoilt = unpatchify(torch.where(hidden[..., None], torch.nan, patchify(images, 4)), 8, 8)
    assert spoilt.isnan().any()
    assert torch.equal(mean_colour(spoilt, hidden), mean_colour(images, hidden))


def test_nothing_visible_has_no_colour():
    hidden = torch.tensor([[True, True, True, False], [True, True, True, True]])
    with pytest.raises(ValueError, match="without a visible patch"):
        mean_colour(torch.rand(2, 3, 8, 8), hidden)


def test_zeros_are_zeros_of_the_right_shape():
    images = torch.rand(2, 3, 8, 12, dtype=torch.float64)
    predicted = zeros(images, torch.zeros(2, 6, dtype=torch.bool))
    assert predicted.shape == patchify(images, 4).shape
    assert predicted.dtype == images.dtype
    assert not predicted.any()
