"""CubData: CUB-200-2011 as a Lightning data module."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from experiments.batches import endless_loader
from experiments.cub200.batches import EvaluationBatches, ImageBatch, Pool, TrainingBatches
from experiments.cub200.cache import CACHES, open_images
from experiments.cub200.index import CubImage, read_index
from experiments.cub200.splits import Splits, split
from experiments.data import Data, check_minima


class CubData(Data):
    """Random views of the images for training; their centres, with fixed masks, for validation and test.

    Batches are `ImageBatch`. Training batches go on for ever: bound the run by its steps. Validation is held out of
    the official train split; the official test split is touched by the test alone.

    Every image is first resized so that its shorter side has ``image_size * evaluation_resize`` pixels, and kept so.
    Training crops are cut from that as well, so a crop of a fifth of the area is enlarged.

    Args:
        root: data root that holds ``CUB_200_2011/``; None: there is none, which `setup` says.
        image_size: pixels of a side of the square images.
        batch_size: images of a batch; in training over all processes together.
        seed: of the training batches; batch g depends on (seed, g) alone.
        validation_share: of the official train split, class by class, held out for validation; see `split`.
        evaluation_resize: shorter side of an image before its centre is cut out, as a multiple of ``image_size``;
            256 pixels for 224 as published.
        crop_scale: smallest and largest share of an image's area that a training view shows.
        flip: whether every other training view is mirrored.
        num_workers: processes that prepare training batches (spawned); they don't change the batches.
        cache: where decoded images are kept: ``none``, ``memory`` or ``disk``; it changes no pixel.
        cache_folder: folder of the ``disk`` cache, outside the data set.
        max_images: cut each split to so many images, for smoke runs; None for the whole splits.
        patch: pixels of a side of a patch.
        mask_ratio: share of the patches that are hidden in training and validation.

    Raises:
        ValueError: an argument out of range, with its name, value and what is allowed.
    """

    def __init__(
        self,
        *,
        root: str | Path | None,
        image_size: int = 224,
        batch_size: int = 256,
        seed: int = 0,
        validation_share: float = 0.1,
        evaluation_resize: float = 256 / 224,
        crop_scale: Sequence[float] = (0.2, 1.0),
        flip: bool = True,
        num_workers: int = 0,
        cache: str = "memory",
        cache_folder: str | Path | None = None,
        max_images: int | None = None,
        patch: int = 16,
        mask_ratio: float = 0.75,
    ) -> None:
        super().__init__()
        minima: dict[str, tuple[float, float]] = {
            "image_size": (image_size, 1),
            "batch_size": (batch_size, 1),
            "seed": (seed, 0),
            "evaluation_resize": (evaluation_resize, 1),
            "num_workers": (num_workers, 0),
            "patch": (patch, 1),
        }
        if max_images is not None:
            minima["max_images"] = (max_images, 1)
        check_minima(minima)
        if image_size % patch:
            raise ValueError(f"image_size={image_size}: must be a multiple of patch={patch}")
        for name, share in (("validation_share", validation_share), ("mask_ratio", mask_ratio)):
            if not 0 < share < 1:
                raise ValueError(f"{name}={share}: must be above 0 and below 1")
        if len(crop_scale) != 2 or not 0 < crop_scale[0] <= crop_scale[1] <= 1:
            raise ValueError(f"crop_scale={tuple(crop_scale)}: must be two shares, 0 < smallest <= largest <= 1")
        if cache not in CACHES:
            raise ValueError(f"cache={cache!r} is unknown: use one of {', '.join(CACHES)}")
        if (cache == "disk") != (cache_folder is not None):
            raise ValueError(f"cache={cache!r}, cache_folder={cache_folder}: a folder goes with 'disk', and only there")
        self.root = root
        self.image_size = image_size
        self.batch_size = batch_size
        self.seed = seed
        self.validation_share = validation_share
        self.evaluation_resize = evaluation_resize
        self.crop_scale = (float(crop_scale[0]), float(crop_scale[1]))
        self.flip = flip
        self.num_workers = num_workers
        self.cache = cache
        self.cache_folder = None if cache_folder is None else Path(cache_folder)
        self.max_images = max_images
        self.patch = patch
        self.mask_ratio = mask_ratio
        self._source = ""
        self._pools: dict[str, Pool] | None = None

    def setup(self, stage: str | None = None) -> None:
        """Read the lists, split, and open the images, once; ``stage`` makes no difference.

        Raises:
            CubNotFoundError: the data set is not there.
            CubMismatchError: its lists disagree.
            CubImageError: an image can't be read.
            ValueError: a split would be empty.
        """
        if self._pools is not None:
            return
        index = read_index(self.root)
        splits = split(index, self.validation_share, self.max_images)
        members = [image for images in splits for image in images]
        paths = [index.file(image) for image in members]
        short_side = round(self.image_size * self.evaluation_resize)
        images = open_images(paths, short_side, self.cache, self.cache_folder)
        places = {image: place for place, image in enumerate(members)}

        def pool(chosen: Sequence[CubImage]) -> Pool:
            ids = [image.id for image in chosen]
            return Pool(images, [places[image] for image in chosen], ids, self.image_size, self.num_patches)

        self._source = index.describe()
        self._pools = dict(zip(Splits._fields, map(pool, splits), strict=True))

    @property
    def num_patches(self) -> int:
        """Patches of an image."""
        return (self.image_size // self.patch) ** 2

    @property
    def network_arguments(self) -> dict[str, Any]:
        """Sides of an image and of a patch in pixels."""
        return {"image_size": self.image_size, "patch": self.patch}

    @property
    def tokens_per_step(self) -> int:
        """Patches of a training batch."""
        return self.batch_size * self.num_patches

    @property
    def num_evaluation_tokens(self) -> tuple[int, int]:
        """Patches of validation and of test; raises RuntimeError before `setup`."""
        return len(self._pool("validation")) * self.num_patches, len(self._pool("test")) * self.num_patches

    @property
    def source(self) -> str:
        """How much of the official data set was there; raises RuntimeError before `setup`."""
        self._pool("train")
        return self._source

    def train_dataloader(self) -> DataLoader[ImageBatch]:
        """Endless training batches, from the first one the attached trainer hasn't used (0 without one)."""
        start, rank, world_size = self.place
        batches = TrainingBatches(
            self._pool("train"), self.batch_size, self.seed, self.crop_scale, self.flip, start, rank, world_size
        )
        return endless_loader(batches, self.num_workers)

    def val_dataloader(self) -> EvaluationBatches:
        """One pass over the images that are held out of the official train split."""
        return EvaluationBatches(self._pool("validation"), self.batch_size)

    def test_dataloader(self) -> EvaluationBatches:
        """One pass over the official test split."""
        return EvaluationBatches(self._pool("test"), self.batch_size)

    def test_examples(self, count: int) -> ImageBatch:
        """So many images of the test split (all, where it has fewer), with their masks, spread over the classes."""
        pool = self._pool("test")
        # The split is sorted by class.
        members = np.linspace(0, len(pool) - 1, min(count, len(pool))).astype(int)
        places, ids = ([of[member] for member in members] for of in (pool.places, pool.ids))
        return next(iter(EvaluationBatches(replace(pool, places=places, ids=ids), len(members))))

    def _pool(self, name: str) -> Pool:
        if self._pools is None:
            raise RuntimeError("CubData has no data yet: call setup() first")
        return self._pools[name]
