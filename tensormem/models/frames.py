"""What makes vectors of a video's frames: patches, or the features of a frozen model of timm.

Legend: F frames, N vectors of a frame, P side of a patch in pixels.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tensormem.models.backbone import normalised


class BackboneError(RuntimeError):
    """A model of timm, or its weights, can't be had."""


class PatchFrames(nn.Module):
    """A linear map of each patch.

    Args:
        dim: width of the vectors.
        image_size: pixels of a side of the square frames.
        patch: P, a divisor of image_size.
    """

    def __init__(self, dim: int, image_size: int, patch: int) -> None:
        super().__init__()
        if patch < 1 or image_size % patch:
            raise ValueError(f"patch={patch} must divide image_size={image_size}")
        self.num_vectors = (image_size // patch) ** 2
        self.projection = nn.Conv2d(3, dim, patch, stride=patch)

    def forward(self, frames: Float[Tensor, "F 3 side side"]) -> Float[Tensor, "F N dim"]:
        """Vectors of the patches, row by row, of frames in [0, 1]."""
        return self.projection(normalised(frames)).flatten(2).transpose(1, 2)


class FrozenFrames(nn.Module):
    """A linear map of the pooled feature of each whole frame, from a model of timm that is not trained.

    Args:
        dim: width of the vectors.
        image_size: pixels of a side of the square frames.
        name: of timm's model, such as ``vit_small_patch16_224``.
        pretrained: with the weights that timm publishes; random ones otherwise, which only tests want.

    Raises:
        BackboneError: timm is not installed, has no such model, or its weights can't be had.
    """

    num_vectors = 1

    def __init__(self, dim: int, image_size: int, name: str, pretrained: bool) -> None:
        super().__init__()
        backbone = _from_timm(name, image_size, pretrained)
        self.backbone = backbone.requires_grad_(False).eval()
        self.mean: tuple[float, ...] = tuple(backbone.pretrained_cfg["mean"])
        self.deviation: tuple[float, ...] = tuple(backbone.pretrained_cfg["std"])
        self.projection = nn.Linear(backbone.num_features, dim)

    def train(self, mode: bool = True) -> FrozenFrames:
        """As of any module, but the frozen model's dropout and statistics stay those of evaluation."""
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, frames: Float[Tensor, "F 3 side side"]) -> Float[Tensor, "F N dim"]:
        """One vector of each of the frames in [0, 1]."""
        with torch.no_grad():
            features = self.backbone(normalised(frames, self.mean, self.deviation))
        return self.projection(features).unsqueeze(1)


def _from_timm(name: str, image_size: int, pretrained: bool) -> Any:
    try:
        import timm
    except ImportError as error:
        raise BackboneError(f"backbone={name!r} needs timm: install it with `pip install timm`") from error
    if not timm.is_model(name):
        raise BackboneError(f"backbone={name!r}: timm {timm.__version__} has no such model; see timm.list_models()")
    try:
        return timm.create_model(name, pretrained=pretrained, num_classes=0, img_size=image_size)
    except TypeError as error:
        raise BackboneError(f"backbone={name!r} takes no image_size={image_size}: use a vision Transformer") from error
    except Exception as error:  # what a download fails with depends on the library that does it
        if not pretrained:
            raise
        reason = " ".join(str(error).split())[:300]
        raise BackboneError(
            f"pretrained=true: timm's weights of {name} can't be had ({type(error).__name__}: {reason}). Nothing else "
            "stands in for them: run this once with a network, which leaves them in the cache of the Hugging Face Hub "
            "(HF_HOME), or train without a backbone, backbone=null and pretrained=false"
        ) from error
