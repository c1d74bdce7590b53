"""Which clips train, validate and test: the official test split, and whole groups of the official train held out."""

from __future__ import annotations

from typing import NamedTuple

from experiments.seeding import permutation, subset
from experiments.ucf101.index import Clip, UcfIndex

# One hold-out for every model and every seed of a run: it must not be what makes two runs differ.
_SEED = 0


class Splits(NamedTuple):
    """The clips of each split, by id."""

    train: tuple[Clip, ...]
    validation: tuple[Clip, ...]
    test: tuple[Clip, ...]


def split(index: UcfIndex, validation_share: float, max_clips: int | None = None) -> Splits:
    """Hold validation out of the official train split, group by group; the official test split stays as it is.

    Of n group numbers ``round(validation_share * n)``, but at least one, are held out, in every class, as the official
    test splits do it: clips of one recording are all but the same, and where a group is a person, as in some data sets
    of this layout, nobody is on both sides.

    Args:
        index: the clips.
        validation_share: of the groups, above 0 and below 1.
        max_clips: cut each split to a random so many, the same for every seed of a run; None for the whole.

    Raises:
        ValueError: a split would be empty.
    """
    groups = sorted({clip.group for clip in index.train})
    num_held_out = max(1, round(validation_share * len(groups)))
    held_out = {groups[place] for place in permutation(len(groups), _SEED, "validation")[:num_held_out]}
    splits = Splits(
        train=tuple(clip for clip in index.train if clip.group not in held_out),
        validation=tuple(clip for clip in index.train if clip.group in held_out),
        test=index.test,
    )
    for name, clips in zip(Splits._fields, splits, strict=True):
        if not clips:
            raise ValueError(
                f"the {name} split is empty: {index.describe()}, {len(index.train)} of them to train, in "
                f"{len(groups)} groups, with validation_share={validation_share}; give more clips or another share"
            )
    return Splits(*(subset(clips, max_clips, _SEED, number) for number, clips in enumerate(splits)))
