"""Structural similarity (Wang et al. 2004) of images with values in [0, 1], as a map.

Letters: B images, C channels, H and W height and width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64
from torch import Tensor

_K1, _K2 = 0.01, 0.03
_SIGMA = 1.5
_RADIUS = 5
_BOX = 7


def ssim(
    predicted: Float[Tensor, "B C H W"], target: Float[Tensor, "B C H W"]
) -> Float64[Tensor, "B H_minus_10 W_minus_10"]:
    """Mean over the channels of the SSIM under an 11x11 Gaussian of deviation 1.5, for all pixels at least 5 inside.

    Equal to scikit-image's with ``gaussian_weights=True, sigma=1.5, use_sample_covariance=False, data_range=1``.
    torchmetrics' equals it too, but takes many times as long in float64, and in float32 its convolutions follow the
    precision that autocast and TF32 are set to.

    Raises:
        ValueError: a side shorter than 11 pixels.
    """
    if min(target.shape[2:]) <= 2 * _RADIUS:
        raise ValueError(f"images of {target.shape[2]}x{target.shape[3]} pixels: SSIM takes at least 11x11")
    taps = torch.exp(-(torch.arange(-_RADIUS, _RADIUS + 1, dtype=torch.float64) ** 2) / (2 * _SIGMA**2))
    return _ssim(predicted.double(), target.double(), (taps / taps.sum()).tolist())


def ssim_paper(predicted: Float[Tensor, "B C H W"], target: Float[Tensor, "B C H W"]) -> Float64[Tensor, "B H W"]:
    """Mean over the channels of the SSIM under a uniform 7x7 box, with zeros around the images, for all pixels."""
    padding = [_BOX // 2] * 4
    return _ssim(F.pad(predicted.double(), padding), F.pad(target.double(), padding), [1 / _BOX] * _BOX)


def _ssim(predicted: Tensor, target: Tensor, taps: list[float]) -> Tensor:
    # An image at a time: the maps of one stay in a CPU's cache, which makes it four times as fast.
    pairs = zip(predicted.split(1), target.split(1), strict=True)
    return torch.cat([_ssim_of_one(x, y, taps) for x, y in pairs])


def _ssim_of_one(x: Tensor, y: Tensor, taps: list[float]) -> Tensor:
    mean_x, mean_y, xx, yy, xy = _filtered(torch.stack([x, y, x * x, y * y, x * y]), taps)
    variance_x, variance_y, covariance = xx - mean_x**2, yy - mean_y**2, xy - mean_x * mean_y
    c1, c2 = _K1**2, _K2**2
    luminance = (2 * mean_x * mean_y + c1) / (mean_x**2 + mean_y**2 + c1)
    structure = (2 * covariance + c2) / (variance_x + variance_y + c2)
    return (luminance * structure).mean(dim=1)


def _filtered(maps: Tensor, taps: list[float]) -> Tensor:
    """Weighted means along both last axes, where all taps lie inside."""
    # Sums of shifted copies: a convolution in float64 is slow, and autocast would round it.
    for axis in (-1, -2):
        length = maps.shape[axis] - len(taps) + 1
        total = torch.zeros_like(maps.narrow(axis, 0, length))
        for offset, weight in enumerate(taps):
            total.add_(maps.narrow(axis, offset, length), alpha=weight)
        maps = total
    return maps
