"""SSIM against scikit-image, torchmetrics and a loop."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from skimage.metrics import structural_similarity
from torchmetrics.functional.image import structural_similarity_index_measure

from experiments.cub200.ssim import ssim, ssim_paper
from tests.helpers import EXACT_FLOAT64, assert_close


@pytest.fixture
def pair() -> tuple[torch.Tensor, torch.Tensor]:
    """Noise, gradients and flat areas, and the same with errors; (3, 3, 32, 41) float64."""
    generator = torch.Generator().manual_seed(0)
    target = torch.rand(3, 3, 32, 41, generator=generator, dtype=torch.float64)
    target[1] = torch.linspace(0, 1, 41, dtype=torch.float64) * torch.tensor([1.0, 0.5, 0.2])[:, None, None]
    target[2, :, :, 20:] = 0.9
    error = 0.2 * torch.randn(target.shape, generator=generator, dtype=torch.float64)
    return (target + error).clamp(0, 1), target


def test_it_is_scikit_images(pair: tuple[torch.Tensor, torch.Tensor]) -> None:
    predicted, target = pair
    for image in range(3):
        _, expected = structural_similarity(
            predicted[image].numpy(),
            target[image].numpy(),
            full=True,
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
            data_range=1,
            channel_axis=0,
        )
        inside = torch.from_numpy(expected.mean(axis=0))[5:-5, 5:-5]
        assert_close(ssim(predicted, target)[image], inside, f"image {image}", EXACT_FLOAT64)


def test_it_is_torchmetrics(pair: tuple[torch.Tensor, torch.Tensor]) -> None:
    _, expected = structural_similarity_index_measure(*pair, data_range=1.0, return_full_image=True)
    assert_close(ssim(*pair), expected.mean(dim=1)[:, 5:-5, 5:-5], "inside", EXACT_FLOAT64)


def test_the_papers_is_a_box_with_zeros_around(pair: tuple[torch.Tensor, torch.Tensor]) -> None:
    predicted, target = (images[:1, :, :9, :11] for images in pair)
    padded = [np.pad(images[0].numpy(), ((0, 0), (3, 3), (3, 3))) for images in (predicted, target)]
    expected = np.zeros((9, 11))
    for row in range(9):
        for column in range(11):
            for channel in range(3):
                x, y = (image[channel, row : row + 7, column : column + 7] for image in padded)
                covariance = ((x - x.mean()) * (y - y.mean())).mean()
                luminance = (2 * x.mean() * y.mean() + 1e-4) / (x.mean() ** 2 + y.mean() ** 2 + 1e-4)
                expected[row, column] += luminance * (2 * covariance + 9e-4) / (x.var() + y.var() + 9e-4) / 3
    assert_close(ssim_paper(predicted, target)[0], torch.from_numpy(expected), "map", EXACT_FLOAT64)


def test_equal_images_have_1(pair: tuple[torch.Tensor, torch.Tensor]) -> None:
    _, target = pair
    for similarity in (ssim, ssim_paper):
        found = similarity(target.float(), target.float())
        assert found.dtype == torch.float64
        assert_close(found, torch.ones_like(found), similarity.__name__, EXACT_FLOAT64)


def test_small_images_are_an_error():
    with pytest.raises(ValueError, match="images of 10x30 pixels: SSIM takes at least 11x11"):
        ssim(torch.rand(1, 3, 10, 30), torch.rand(1, 3, 10, 30))
    assert ssim(torch.rand(1, 3, 11, 12), torch.rand(1, 3, 11, 12)).shape == (1, 1, 2)
