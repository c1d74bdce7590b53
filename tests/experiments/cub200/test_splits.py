"""Validation held out of the official train split."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from experiments.cub200.index import CubImage, CubIndex, read_index
from experiments.cub200.splits import split


def index_of(*classes: int, per_class: int = 30) -> CubIndex:
    """Images of some classes, two thirds to train; an image's id does not depend on which classes there are."""
    images = tuple(
        CubImage(100 * class_id + number, f"{class_id}/{number}.jpg", class_id, number % 3 != 2)
        for class_id in classes
        for number in range(per_class)
    )
    return CubIndex(Path("nowhere"), images, {class_id: str(class_id) for class_id in classes})


def test_validation_is_of_the_train_split_and_the_test_split_stays():
    index = index_of(1, 2, 3)
    splits = split(index, 0.1)
    assert splits.test == index.test
    assert sorted(splits.train + splits.validation) == list(index.train)
    assert Counter(image.class_id for image in splits.validation) == {1: 2, 2: 2, 3: 2}
    for images in splits:
        assert list(images) == sorted(images)


def test_a_part_holds_out_what_the_whole_does():
    whole, part = split(index_of(1, 2, 3), 0.1), split(index_of(2), 0.1)
    assert part.validation == tuple(image for image in whole.validation if image.class_id == 2)


def test_classes_and_shares_differ_in_what_they_hold_out():
    small, large = split(index_of(1, 2, 3), 0.1), split(index_of(1, 2, 3), 0.3)
    assert set(small.validation) < set(large.validation)
    numbers = {tuple(sorted(image.id % 100 for image in large.validation if image.class_id == c)) for c in (1, 2, 3)}
    assert len(numbers) == 3


def test_a_cut_keeps_some_of_each_split():
    whole, cut = split(index_of(1, 2, 3), 0.1), split(index_of(1, 2, 3), 0.1, max_images=4)
    for all_images, some in zip(whole, cut, strict=True):
        assert len(some) == 4
        assert set(some) < set(all_images)
        assert list(some) == sorted(some)
    assert len({image.class_id for image in cut.train}) > 1
    assert split(index_of(1, 2, 3), 0.1, max_images=1000) == whole


def test_an_empty_split_is_an_error():
    with pytest.raises(ValueError, match=r"the validation split is empty: 3 of 11,788 images: a part, 2 of them"):
        split(index_of(1, per_class=3), 0.1)
    with pytest.raises(ValueError, match=r"the train split is empty.*validation_share=0.9"):
        split(index_of(1, per_class=3), 0.9)


def test_the_real_classes_all_give_a_tenth(data_root):
    index = read_index(data_root)
    splits = split(index, 0.1)
    trained = Counter(image.class_id for image in index.train)
    held_out = Counter(image.class_id for image in splits.validation)
    assert held_out == {class_id: round(0.1 * count) for class_id, count in trained.items()}
