"""Which patches are hidden, and what is pasted where."""

from __future__ import annotations

import pytest
import torch

from experiments.cub200.masks import composite, masked_patches, masked_pixels, num_hidden, paper_composite
from experiments.cub200.patches import patchify
from tests.helpers import EXACT_FLOAT64, assert_close

RATIOS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


@pytest.mark.parametrize("number", [1, 7, 16, 196])
def test_every_image_has_the_exact_number_hidden_and_ratios_are_nested(number: int) -> None:
    noise = torch.rand(20, number, generator=torch.Generator().manual_seed(0))
    noise[3:6] = noise[3:6].round()  # many of them equal
    noise[6] = 0.5
    before = torch.zeros_like(noise, dtype=torch.bool)
    for ratio in RATIOS:
        hidden = masked_patches(noise, ratio)
        assert hidden.dtype == torch.bool
        assert (hidden.sum(dim=1) == round(ratio * number)).all()
        assert num_hidden(ratio, number) == round(ratio * number)
        assert (hidden | ~before).all()
        before = hidden


def test_what_is_hidden_depends_on_the_images_own_noise():
    noise = torch.tensor([[0.1, 0.9, 0.4, 0.6], [0.8, 0.2, 0.7, 0.3]])
    hidden = masked_patches(noise, 0.5)
    assert hidden.tolist() == [[False, True, False, True], [True, False, True, False]]
    assert torch.equal(masked_patches(noise[1:], 0.5), hidden[1:])


def test_every_patch_is_hidden_as_often():
    noise = torch.rand(4_000, 16, generator=torch.Generator().manual_seed(1))
    rates = masked_patches(noise, 0.25).float().mean(dim=0)
    assert (rates - 0.25).abs().max() < 0.03  # 4.4 standard deviations


@pytest.mark.parametrize("ratio", [-0.1, 1.1, float("nan")])
def test_a_ratio_out_of_range_is_an_error(ratio: float) -> None:
    with pytest.raises(ValueError, match=f"mask ratio {ratio}: must be from 0 to 1"):
        masked_patches(torch.rand(1, 4), ratio)


def test_pixels_are_masked_with_their_patch():
    hidden = torch.tensor([[True, False, False, False, False, True]])
    expected = torch.zeros(1, 1, 4, 6, dtype=torch.bool)
    expected[..., :2, :2] = True
    expected[..., 2:, 4:] = True
    assert torch.equal(masked_pixels(hidden, 4, 6), expected)
    assert torch.equal(patchify(expected.float(), 2).bool().all(dim=2), hidden)


def test_hidden_pixels_are_the_predictions_and_the_rest_the_images():
    generator = torch.Generator().manual_seed(2)
    images = torch.rand(2, 3, 8, 12, generator=generator)
    predicted = 3 * torch.rand(2, 6, 48, generator=generator) - 1
    hidden = masked_patches(torch.rand(2, 6, generator=generator), 0.5)
    patches = patchify(composite(predicted, images, hidden), 4)
    assert torch.equal(patches[~hidden], patchify(images, 4)[~hidden])
    assert torch.equal(patches[hidden], predicted[hidden].clamp(0, 1))
    assert (predicted[hidden] < 0).any()
    assert (predicted[hidden] > 1).any()


def test_the_papers_composite_takes_mean_and_deviation_from_the_answer():
    generator = torch.Generator().manual_seed(3)
    images = torch.rand(2, 3, 8, 8, generator=generator, dtype=torch.float64)
    predicted = torch.randn(2, 4, 48, generator=generator, dtype=torch.float64)
    hidden = masked_patches(torch.rand(2, 4, generator=generator), 0.5)
    target, patches = patchify(images, 4), patchify(paper_composite(predicted, images, hidden), 4)
    assert torch.equal(patches[~hidden], target[~hidden])
    deviation = (target.var(dim=2, unbiased=True, keepdim=True) + 1e-6).sqrt()
    expected = predicted * deviation + target.mean(dim=2, keepdim=True)
    assert_close(patches[hidden], expected[hidden], "hidden patches", EXACT_FLOAT64)
