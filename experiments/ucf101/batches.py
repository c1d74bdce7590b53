"""Batches of clips: endless for training, one pass for evaluation.

Letters: B clips of a batch, K views of a clip, T frames of a view, S pixels of a side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float32, Int64, UInt8
from torch import Tensor
from torchvision.transforms.v2 import functional

from experiments.batches import EndlessBatches, OnePass
from experiments.seeding import uniform
from experiments.ucf101 import jitter
from experiments.ucf101.clips import Clips
from experiments.ucf101.sampling import frame_indices
from experiments.views import NUM_UNIFORM, evaluation_view, training_view

# How many places in the equal parts of a clip a training view chooses from.
NUM_SHIFTS = 256


class ClipBatch(NamedTuple):
    """A batch of B clips.

    Attributes:
        frames: (B, K, T, 3, S, S) RGB in [0, 1]; one view, where a test asks for no more.
        labels: (B,) classes, from 0.
        ids: (B,) numbers of the clips in their lists; see `Clip`.
    """

    frames: Float32[Tensor, "_B _K _T 3 _S _S"]
    labels: Int64[Tensor, " _B"]
    ids: Int64[Tensor, " _B"]


@dataclass(frozen=True)
class Pool:
    """Clips that batches are made of.

    Attributes:
        clips: of all splits.
        places: where the clips of this split are among them.
        ids: numbers of this split's clips, in the same order.
        labels: classes of this split's clips, in the same order.
        image_size: pixels S of a side.
        num_frames: frames T of a view.
    """

    clips: Clips
    places: Sequence[int]
    ids: Sequence[int]
    labels: Sequence[int]
    image_size: int
    num_frames: int

    def __len__(self) -> int:
        """Number of clips of the split."""
        return len(self.ids)

    def pixels(self, member: int, num_views: int = 1, views: slice = slice(None)) -> UInt8[Tensor, "_K T 3 H W"]:
        """The frames of a member of the split, numbered from 0, as they were stored, of some of K views.

        Raises:
            ClipError: they can't be had.
        """
        place = self.places[member]
        indices = frame_indices(self.clips.num_frames(place), self.num_frames, num_views)[views]
        return self.clips.frames(place, indices.flatten().tolist()).unflatten(0, indices.shape)


@dataclass(frozen=True)
class Augmentation:
    """What training views are given, the same for all frames of a clip.

    Attributes:
        crop_scale: smallest and largest share of a frame's area that is cut out.
        flip: whether every other view is mirrored.
        colour_jitter: strength; see `jitter`.
        shift_times: whether the frames lie at a random place in the equal parts of the clip, one for all parts, and
            not in their middles.
    """

    crop_scale: tuple[float, float] = (0.5, 1.0)
    flip: bool = True
    colour_jitter: float = 0.2
    shift_times: bool = True


class TrainingBatches(EndlessBatches[ClipBatch]):
    """Random views of the clips without end, one a clip; see `EndlessBatches`.

    Args:
        pool: the clips.
        batch_size: clips of a batch, over all processes together.
        seed: of orders, crops and colours.
        augmentation: what is random about a view.
        start: number of the first batch.
        rank: of this process.
        world_size: processes.

    Raises:
        ValueError: ``world_size`` does not divide ``batch_size``.
    """

    def __init__(
        self,
        pool: Pool,
        batch_size: int,
        seed: int,
        augmentation: Augmentation,
        start: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        super().__init__(len(pool), batch_size, seed, start, rank, world_size)
        self.pool = pool
        self.augmentation = augmentation

    def batch(self, index: int) -> ClipBatch:
        """This process's rows of batch ``index``; raises ClipError."""
        members = self.members(index)
        views = [self._view(member, index, row) for member, row in zip(members, self.rows, strict=True)]
        return _batch(self.pool, members, views)

    def _view(self, member: int, index: int, row: int) -> Tensor:
        crop = uniform(NUM_UNIFORM, self.seed, "crop", index, row).tolist()
        colours = uniform(jitter.NUM_UNIFORM, self.seed, "jitter", index, row).tolist()
        wanted = self.augmentation
        if wanted.shift_times:
            view = int(NUM_SHIFTS * uniform(1, self.seed, "times", index, row)[0])
            pixels = self.pool.pixels(member, NUM_SHIFTS, slice(view, view + 1))[0]
        else:
            pixels = self.pool.pixels(member)[0]
        frames = training_view(pixels, self.pool.image_size, wanted.crop_scale, wanted.flip, crop)
        return jitter.jitter(scaled(frames), wanted.colour_jitter, colours).unsqueeze(0)


class EvaluationBatches(OnePass[ClipBatch]):
    """One pass over a split by ascending id; see `OnePass`."""

    def __init__(self, pool: Pool, batch_size: int, num_views: int = 1) -> None:
        """Serve K views of all clips of ``pool``, ``batch_size`` clips at a time."""
        super().__init__(len(pool), batch_size)
        self.pool = pool
        self.num_views = num_views

    def batch(self, members: range) -> ClipBatch:
        """See OnePass; raises ClipError."""
        pixels = (self.pool.pixels(member, self.num_views) for member in members)
        return _batch(self.pool, members, [scaled(evaluation_view(each, self.pool.image_size)) for each in pixels])


def scaled(frames: UInt8[Tensor, "..."]) -> Float32[Tensor, "..."]:
    """Pixels in [0, 1]."""
    return functional.to_dtype(frames, torch.float32, scale=True)


def _batch(pool: Pool, members: Sequence[int], views: Sequence[Tensor]) -> ClipBatch:
    labels, ids = ([of[member] for member in members] for of in (pool.labels, pool.ids))
    return ClipBatch(torch.stack(list(views)).contiguous(), torch.tensor(labels), torch.tensor(ids))
