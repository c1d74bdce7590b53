"""Batches of images with the noise that masks them: endless for training, one pass for evaluation.

Letters: B images of a batch, S pixels of a side, N patches of an image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float32, Int64, UInt8
from torch import Tensor
from torchvision.transforms.v2 import functional

from experiments.batches import EndlessBatches, OnePass
from experiments.cub200.cache import Images
from experiments.seeding import uniform
from experiments.views import NUM_UNIFORM, evaluation_view, training_view

# The masks of an evaluation are those of the images, whatever the run's seed.
_EVALUATION_SEED = 0


class ImageBatch(NamedTuple):
    """A batch of B images.

    Attributes:
        images: (B, 3, S, S) RGB in [0, 1].
        noise: (B, N) uniform on [0, 1); see `masked_patches`.
        ids: (B,) official numbers of the images.
    """

    images: Float32[Tensor, "_B 3 _S _S"]
    noise: Float32[Tensor, "_B _N"]
    ids: Int64[Tensor, " _B"]


@dataclass(frozen=True)
class Pool:
    """Images that batches are made of.

    Attributes:
        images: the decoded images, of all splits.
        places: where the images of this split are among them.
        ids: the official numbers of this split's images, in the same order.
        image_size: pixels S of a side.
        num_patches: patches N of an image.
    """

    images: Images
    places: Sequence[int]
    ids: Sequence[int]
    image_size: int
    num_patches: int

    def __len__(self) -> int:
        """Number of images of the split."""
        return len(self.ids)

    def pixels(self, member: int) -> UInt8[Tensor, "3 H W"]:
        """The stored pixels of a member of the split, numbered from 0."""
        return self.images[self.places[member]]


class TrainingBatches(EndlessBatches[ImageBatch]):
    """Random views of the images without end; see `EndlessBatches`.

    Args:
        pool: the images.
        batch_size: images of a batch, over all processes together.
        seed: of orders, crops and noise.
        crop_scale: smallest and largest share of an image's area that is cut out.
        flip: whether every other view is mirrored.
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
        crop_scale: tuple[float, float],
        flip: bool,
        start: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        super().__init__(len(pool), batch_size, seed, start, rank, world_size)
        self.pool = pool
        self.crop_scale = crop_scale
        self.flip = flip

    def batch(self, index: int) -> ImageBatch:
        """This process's rows of batch ``index``."""
        members = self.members(index)
        views = [
            training_view(
                self.pool.pixels(member),
                self.pool.image_size,
                self.crop_scale,
                self.flip,
                uniform(NUM_UNIFORM, self.seed, "crop", index, row).tolist(),
            )
            for member, row in zip(members, self.rows, strict=True)
        ]
        noise = uniform(self.batch_size * self.pool.num_patches, self.seed, "noise", index)
        noise = noise.reshape(self.batch_size, -1)[self.rows.start : self.rows.stop]
        return _batch(views, noise, [self.pool.ids[member] for member in members])


class EvaluationBatches(OnePass[ImageBatch]):
    """One pass over a split by ascending id; see `OnePass`. In one list the batches would take 0.6 MB an image."""

    def __init__(self, pool: Pool, batch_size: int) -> None:
        """Serve all images of ``pool``, ``batch_size`` at a time."""
        super().__init__(len(pool), batch_size)
        self.pool = pool

    def batch(self, members: range) -> ImageBatch:
        """See OnePass."""
        ids = [self.pool.ids[member] for member in members]
        noise = [uniform(self.pool.num_patches, _EVALUATION_SEED, "evaluation noise", id_) for id_ in ids]
        views = [evaluation_view(self.pool.pixels(member), self.pool.image_size) for member in members]
        return _batch(views, np.stack(noise), ids)


def _batch(views: Sequence[UInt8[Tensor, "3 S S"]], noise: np.ndarray, ids: Sequence[int]) -> ImageBatch:
    images = functional.to_dtype(torch.stack(list(views)), torch.float32, scale=True)
    return ImageBatch(images.contiguous(), torch.from_numpy(noise).float(), torch.tensor(ids))
