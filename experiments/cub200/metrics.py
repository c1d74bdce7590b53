"""PSNR and SSIM of reconstructions: ours, of what the model predicted, and the paper's, of what it pastes together.

All are computed in float64 for each image and averaged over the images, so that neither batches nor processes matter.
Letters: B images, C channels, H and W height and width, N patches of an image, D values of a patch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor
from torchmetrics import Metric

from experiments.cub200.masks import composite, masked_pixels, paper_composite
from experiments.cub200.patches import patch_side, patchify
from experiments.cub200.ssim import ssim, ssim_paper
from experiments.data import EVALUATED_BY_EACH

# Pixels from the border within which our SSIM is not looked at: its window would reach beyond.
_BORDER = 5


def masked_psnr(
    predicted: Float[Tensor, "B N D"], images: Float[Tensor, "B C H W"], hidden: Bool[Tensor, "B N"]
) -> Float64[Tensor, " B"]:
    """PSNR of each image's hidden patches in dB: ``-10 log10(mean squared error)``, for values in [0, 1].

    Args:
        predicted: pixel values, in the order of `patchify`; those of visible patches are not looked at. They are
            scored as they are, outside [0, 1] too.
        images: the answer.
        hidden: which patches count.

    Raises:
        ValueError: an image without a hidden patch.
    """
    if not hidden.any(dim=1).all():
        raise ValueError("an image without a hidden patch has no error: use a larger mask ratio")
    target = patchify(images.double(), patch_side(hidden.shape[1], *images.shape[2:]))
    squared = (predicted.double() - target).square().mean(dim=2)
    return _decibels(torch.where(hidden, squared, 0).sum(dim=1) / hidden.sum(dim=1))


def masked_ssim(
    predicted: Float[Tensor, "B N D"], images: Float[Tensor, "B C H W"], hidden: Bool[Tensor, "B N"]
) -> Float64[Tensor, " B"]:
    """SSIM of each image with its `composite`, over the hidden pixels at least 5 inside the border.

    Arguments as `masked_psnr`, but that predictions are cut off to [0, 1].

    Raises:
        ValueError: an image without such a pixel.
    """
    inside = masked_pixels(hidden, *images.shape[2:])[:, 0, _BORDER:-_BORDER, _BORDER:-_BORDER]
    if not inside.any(dim=(1, 2)).all():
        raise ValueError("an image without a hidden pixel 5 inside the border has no SSIM: use a larger mask ratio")
    similarity = ssim(composite(predicted.double(), images.double(), hidden), images)
    return torch.where(inside, similarity, 0).sum(dim=(1, 2)) / inside.sum(dim=(1, 2))


def paper_psnr(
    predicted: Float[Tensor, "B N D"], images: Float[Tensor, "B C H W"], hidden: Bool[Tensor, "B N"]
) -> Float64[Tensor, " B"]:
    """PSNR of each whole image with its `paper_composite`, in dB; ``predicted`` are normalised patches."""
    images = images.double()
    return _decibels((paper_composite(predicted.double(), images, hidden) - images).square().mean(dim=(1, 2, 3)))


def paper_ssim(
    predicted: Float[Tensor, "B N D"], images: Float[Tensor, "B C H W"], hidden: Bool[Tensor, "B N"]
) -> Float64[Tensor, " B"]:
    """`ssim_paper` of each whole image with its `paper_composite`; ``predicted`` are normalised patches."""
    images = images.double()
    return ssim_paper(paper_composite(predicted.double(), images, hidden), images).mean(dim=(1, 2))


def _decibels(error: Float64[Tensor, " B"]) -> Float64[Tensor, " B"]:
    # A perfect answer, as to an image of one colour, has no finite one: it counts as 120.
    return -10 * error.clamp(min=1e-12).log10()


class ImageMean(Metric, ABC):
    """The mean of a value of each image."""

    full_state_update = False
    higher_is_better = True
    total: Tensor
    images: Tensor

    def __init__(self) -> None:
        """Start with no image."""
        super().__init__(**EVALUATED_BY_EACH)
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("images", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    @staticmethod
    @abstractmethod
    def values(predicted: Tensor, images: Tensor, hidden: Tensor) -> Tensor:
        """(B,) the value of each image."""

    def update(self, predicted: Tensor, images: Tensor, hidden: Tensor) -> None:
        """Take in a batch: (B, N, D) predictions, (B, C, H, W) images, (B, N) True where a patch is hidden."""
        self.total += self.values(predicted, images, hidden).sum()
        self.images += len(images)

    def compute(self) -> Tensor:
        """0-d float64, the mean over all images so far."""
        return self.total / self.images


class MaskedPsnr(ImageMean):
    """Mean of `masked_psnr`."""

    values = staticmethod(masked_psnr)


class MaskedSsim(ImageMean):
    """Mean of `masked_ssim`."""

    values = staticmethod(masked_ssim)


class PaperPsnr(ImageMean):
    """Mean of `paper_psnr`."""

    values = staticmethod(paper_psnr)


class PaperSsim(ImageMean):
    """Mean of `paper_ssim`."""

    values = staticmethod(paper_ssim)
