"""Validation held out of the official train split, group by group."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.ucf101.index import Clip, UcfIndex
from experiments.ucf101.splits import split


def index_of(num_groups: int = 20, num_classes: int = 3) -> UcfIndex:
    """Two clips of each class and group; groups 1 and 2 test."""
    clips = [
        Clip(number, f"{label}/v_{label}_g{group:02d}_c{take:02d}.avi", label, group)
        for number, (label, group, take) in enumerate(
            (label, group, take)
            for label in range(num_classes)
            for group in range(1, num_groups + 1)
            for take in (1, 2)
        )
    ]
    train, test = (tuple(clip for clip in clips if (clip.group > 2) == wanted) for wanted in (True, False))
    return UcfIndex(Path("nowhere"), tuple(map(str, range(num_classes))), train, test, len(clips))


def test_whole_groups_validate_in_every_class_and_the_test_split_stays():
    index = index_of()
    splits = split(index, 0.1)
    assert splits.test == index.test
    assert sorted(splits.train + splits.validation) == list(index.train)
    held_out = {clip.group for clip in splits.validation}
    assert len(held_out) == 2  # round(0.1 * 18)
    assert not held_out & {clip.group for clip in splits.train}
    assert len(splits.validation) == 2 * 3 * 2
    assert {clip.label for clip in splits.validation} == {0, 1, 2}


def test_a_larger_share_holds_out_what_a_smaller_one_does_and_more():
    small, large = split(index_of(), 0.1), split(index_of(), 0.4)
    assert set(small.validation) < set(large.validation)


def test_at_least_one_group_is_held_out():
    assert len({clip.group for clip in split(index_of(num_groups=4), 0.1).validation}) == 1


def test_a_cut_keeps_some_of_each_split():
    whole, cut = split(index_of(), 0.1), split(index_of(), 0.1, max_clips=4)
    for clips, some in zip(whole, cut, strict=True):
        assert len(some) == 4
        assert set(some) < set(clips)
        assert list(some) == sorted(some)


def test_a_split_without_a_clip_is_an_error():
    with pytest.raises(ValueError, match=r"the train split is empty: all 18 clips.* in 1 groups, .*share=0.1"):
        split(index_of(num_groups=3), 0.1)
