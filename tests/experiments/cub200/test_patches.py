"""Images as patches and back; the published normalisation of patches."""

from __future__ import annotations

import pytest
import torch

from experiments.cub200.patches import normalised, patch_side, patchify, unnormalised, unpatchify
from tests.helpers import EXACT_FLOAT64, assert_close


def test_patches_go_row_by_row_and_hold_channel_row_column():
    images = torch.arange(2 * 3 * 4 * 6).float().view(2, 3, 4, 6)
    patches = patchify(images, 2)
    assert patches.shape == (2, 6, 12)
    for image in range(2):
        for row in range(2):
            for column in range(3):
                square = images[image, :, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
                assert torch.equal(patches[image, 3 * row + column], square.flatten())


@pytest.mark.parametrize(("size", "patch"), [((4, 6), 2), ((8, 8), 8), ((3, 9), 1), ((15, 10), 5)])
def test_unpatchify_is_the_inverse(size: tuple[int, int], patch: int) -> None:
    images = torch.rand(2, 3, *size)
    patches = patchify(images, patch)
    assert torch.equal(unpatchify(patches, *size), images)
    assert torch.equal(patchify(unpatchify(patches, *size), patch), patches)
    assert patch_side(patches.shape[1], *size) == patch


def test_sizes_that_do_not_fit_are_errors():
    with pytest.raises(ValueError, match="patch=4 must divide the images' sides, 8 and 6"):
        patchify(torch.rand(1, 3, 8, 6), 4)
    with pytest.raises(ValueError, match="5 square patches don't make an image of 8x8"):
        unpatchify(torch.rand(1, 5, 12), 8, 8)
    with pytest.raises(ValueError, match="2 square patches"):  # two patches, but no squares
        unpatchify(torch.rand(1, 2, 96), 8, 8)
    with pytest.raises(ValueError, match="0 square patches"):
        patch_side(0, 8, 8)
    with pytest.raises(ValueError, match="patches of 13 values: must be a multiple of the 2x2"):
        unpatchify(torch.rand(1, 16, 13), 8, 8)


def test_normalised_patches_have_mean_0_and_unbiased_deviation_1():
    patches = torch.rand(3, 5, 12, dtype=torch.float64) * 40 + 7
    result = normalised(patches)
    assert_close(result.mean(dim=-1) + 1, torch.ones(3, 5, dtype=torch.float64), "mean + 1", EXACT_FLOAT64)
    assert_close(result.std(dim=-1), torch.ones(3, 5, dtype=torch.float64), "deviation", 1e-7)
    assert_close(unnormalised(result, patches), patches, "and back", EXACT_FLOAT64)


def test_flat_patches_are_divided_by_a_thousandth():
    flat = torch.full((1, 1, 12), 0.25, dtype=torch.float64)
    assert torch.equal(normalised(flat), torch.zeros_like(flat))
    expected = torch.full_like(flat, 0.25 + 2e-3)
    assert_close(unnormalised(torch.full_like(flat, 2.0), flat), expected, "flat", EXACT_FLOAT64)
