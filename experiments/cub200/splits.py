"""Which images train, validate and test: the official test split, and validation held out of the official train."""

from __future__ import annotations

from typing import NamedTuple

from experiments.cub200.index import CubImage, CubIndex
from experiments.seeding import permutation, subset

# One hold-out for every model and every seed of a run: it must not be what makes two runs differ.
_SEED = 0


class Splits(NamedTuple):
    """The images of each split, by ascending id."""

    train: tuple[CubImage, ...]
    validation: tuple[CubImage, ...]
    test: tuple[CubImage, ...]


def split(index: CubIndex, validation_share: float, max_images: int | None = None) -> Splits:
    """Hold validation out of the official train split, class by class; the official test split stays as it is.

    A class of n images gives ``round(validation_share * n)`` of them, chosen by a fixed seed and their ids alone: a
    part of the data set holds out what the whole does of the same classes, and a larger share what a smaller one
    does, and more.

    Args:
        index: the images.
        validation_share: of the official train split, above 0 and below 1.
        max_images: cut each split to a random so many, the same for every seed of a run; None for the whole.

    Raises:
        ValueError: a split would be empty.
    """
    classes: dict[int, list[CubImage]] = {}
    for image in index.train:
        classes.setdefault(image.class_id, []).append(image)
    train: list[CubImage] = []
    validation: list[CubImage] = []
    for class_id, images in classes.items():
        held_out = round(validation_share * len(images))
        for rank, place in enumerate(permutation(len(images), _SEED, "validation", class_id)):
            (validation if rank < held_out else train).append(images[place])
    splits = {"train": train, "validation": validation, "test": index.test}
    for name, images in splits.items():
        if not images:
            raise ValueError(
                f"the {name} split is empty: {index.describe()}, {len(index.train)} of them to train with "
                f"validation_share={validation_share}; give more images or another share"
            )
    return Splits(*(subset(images, max_images, _SEED, number) for number, images in enumerate(splits.values())))
