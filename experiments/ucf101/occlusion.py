"""What is hidden of a test clip, or changed about it: the conditions that a trained model is tested under.

The same for every model and run: all that is random is a function of the clip's number alone.
Letters: B clips, K views of a clip, T frames of a view, S pixels of a side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float32
from torch import Tensor

from experiments.seeding import permutation, uniform

_SEED = 0
# What is shown where nothing is.
GREY = 0.5


class Condition(NamedTuple):
    """How a clip is shown.

    Attributes:
        kind: ``frames`` blanks whole frames, ``patch`` a square that moves; ``shuffled`` shows the frames in random
            order, ``single`` the middle one in the place of all.
        fraction: of the frames, or of each frame's area, that is hidden.
    """

    kind: str
    fraction: float = 0.0


WHOLE = Condition("frames")
CONDITIONS = (
    WHOLE,
    *(Condition(kind, fraction) for kind in ("frames", "patch") for fraction in (0.25, 0.5, 0.75)),
    Condition("shuffled"),
    Condition("single"),
)


def shown(
    frames: Float32[Tensor, "B K T 3 S S"], ids: Sequence[int], condition: Condition
) -> Float32[Tensor, "B K T 3 S S"]:
    """The clips under a condition.

    Of a view's T frames ``round(fraction * T)`` are blanked, chosen by the clip's number; a larger fraction hides what
    a smaller one does, and more. The patch is a square of a ``fraction`` of the area, which goes from one random place
    to another at a constant velocity, inside the frame throughout.

    Args:
        frames: of the clips, in [0, 1].
        ids: number of each clip.
        condition: how they are shown.

    Raises:
        ValueError: an unknown kind, or a fraction that is not from 0 to 1.
    """
    if condition.kind not in _KINDS:
        raise ValueError(f"kind={condition.kind!r} is unknown: use one of {', '.join(_KINDS)}")
    if not 0 <= condition.fraction <= 1:
        raise ValueError(f"fraction={condition.fraction}: must be from 0 to 1")
    show = _KINDS[condition.kind]
    return torch.stack([show(clip, id_, condition.fraction) for clip, id_ in zip(frames, ids, strict=True)])


def _without_frames(clip: Tensor, id_: int, fraction: float) -> Tensor:
    num_frames = clip.shape[1]
    hidden = permutation(num_frames, _SEED, "occlusion", id_)[: round(fraction * num_frames)]
    clip = clip.clone()
    clip[:, hidden] = GREY
    return clip


def _behind_a_patch(clip: Tensor, id_: int, fraction: float) -> Tensor:
    num_frames, size = clip.shape[1], clip.shape[-1]
    side = round(math.sqrt(fraction) * size)
    ends = uniform(4, _SEED, "occlusion", id_) * (size - side)
    clip = clip.clone()
    for number in range(num_frames):
        share = number / max(1, num_frames - 1)
        top, left = (round((1 - share) * ends[axis] + share * ends[2 + axis]) for axis in (0, 1))
        clip[:, number, :, top : top + side, left : left + side] = GREY
    return clip


def _shuffled(clip: Tensor, id_: int, fraction: float) -> Tensor:
    del fraction
    return clip[:, torch.from_numpy(permutation(clip.shape[1], _SEED, "shuffle", id_))]


def _middle_alone(clip: Tensor, id_: int, fraction: float) -> Tensor:
    del id_, fraction
    middle = clip.shape[1] // 2
    return clip[:, middle : middle + 1].expand_as(clip)


_KINDS = {"frames": _without_frames, "patch": _behind_a_patch, "shuffled": _shuffled, "single": _middle_alone}
