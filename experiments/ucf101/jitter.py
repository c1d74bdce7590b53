"""Random brightness, contrast and saturation, the same for all frames of a clip. Letters: T frames, S side."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float32
from torch import Tensor

# Uniform numbers that `jitter` takes: one a property.
NUM_UNIFORM = 3
# What red, green and blue give to grey (ITU-R BT.601).
_GREY = (0.299, 0.587, 0.114)


def jitter(frames: Float32[Tensor, "T 3 S S"], strength: float, uniform: Sequence[float]) -> Float32[Tensor, "T 3 S S"]:
    """Brightness, then contrast, then saturation times a random factor each, cut off at 0 and 1.

    Factors are uniform on ``1 - strength`` to ``1 + strength``. Contrast is about the mean grey of the whole clip, so
    that what flickers goes on doing so.

    Args:
        frames: in [0, 1].
        strength: from 0, which changes nothing, to 1.
        uniform: `NUM_UNIFORM` numbers in [0, 1).
    """
    brightness, contrast, saturation = (1 + strength * (2 * number - 1) for number in uniform)
    frames = (brightness * frames).clamp(0, 1)
    frames = _blend(frames, _grey(frames).mean(), contrast)
    return _blend(frames, _grey(frames), saturation)


def _grey(frames: Tensor) -> Tensor:
    return (frames * frames.new_tensor(_GREY)[:, None, None]).sum(1, keepdim=True)


def _blend(frames: Tensor, other: Tensor, factor: float) -> Tensor:
    return (other + factor * (frames - other)).clamp(0, 1)
