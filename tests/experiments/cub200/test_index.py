"""The lists of CUB-200-2011: what is read, and what each error says."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.cub200.index import Counts, CubMismatchError, CubNotFoundError, read_index
from tests.experiments.cub200.toy import CLASSES, write_toy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_toy(tmp_path)


def edit(folder: Path, name: str, old: str, new: str) -> None:
    text = (folder / name).read_text(encoding="utf-8")
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1), encoding="utf-8")


def test_the_lists_are_joined_by_id(tmp_path: Path, folder: Path) -> None:
    # The order of the lines is no matter, nor are line ends and a blank last line.
    lines = (folder / "images.txt").read_text(encoding="utf-8").splitlines()
    (folder / "images.txt").write_bytes(("\r\n".join(reversed(lines)) + "\r\n\r\n").encode())
    index = read_index(tmp_path)
    assert [image.id for image in index.images] == list(range(1, 19))
    assert index.images[8] == (9, "002.Blue_Bird/Bird_0002.png", 2, False)
    assert dict(index.classes) == CLASSES
    assert [image.id for image in index.test] == [3, 6, 9, 12, 15, 18]
    assert sorted(index.train + index.test) == list(index.images)
    assert all(index.file(image).is_file() for image in index.images)


def test_a_part_and_the_whole_are_told_apart(tmp_path: Path, folder: Path) -> None:
    assert read_index(tmp_path).describe() == "18 of 11,788 images: a part"
    assert read_index(tmp_path, official=Counts(12, 6)).describe() == "all 18 images"


def test_more_than_the_official_split_is_an_error(tmp_path: Path, folder: Path) -> None:
    for official in (Counts(11, 7), Counts(13, 5)):
        with pytest.raises(CubMismatchError, match="12 images to train and 6 to test, more than the official"):
            read_index(tmp_path, official=official)


@pytest.mark.parametrize("root", [None, "nowhere"])
def test_no_data_set_says_where_it_was_looked_for_and_how_to_get_it(tmp_path: Path, root: str | None) -> None:
    place = None if root is None else tmp_path / root
    with pytest.raises(CubNotFoundError, match="TENSORMEM_DATA") as caught:
        read_index(place)
    assert isinstance(caught.value, OSError)
    assert "CUB_200_2011/" in str(caught.value)
    assert "`make data-cub200`" in str(caught.value)
    assert str(place) in str(caught.value) or root is None


def test_missing_lists_are_named(tmp_path: Path, folder: Path) -> None:
    (folder / "classes.txt").unlink()
    (folder / "images.txt").unlink()
    with pytest.raises(CubNotFoundError, match=r"without images.txt, classes.txt:"):
        read_index(tmp_path)


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("images.txt", "2 001", "two 001", r"images.txt, line 2: 'two 001.Red_Bird/Bird_0001.png' is not '<id> <value"),
        ("classes.txt", "2 002.Blue_Bird", "2", r"classes.txt, line 2: '2' is not"),
        ("images.txt", "2 001", "1 001", r"images.txt, line 2: id 1 is there twice"),
        ("train_test_split.txt", "\n4 1", "\n3 1", r"train_test_split.txt, line 4: id 3 is there twice"),
        ("image_class_labels.txt", "2 1\n3 1\n", "", r"image_class_labels.txt: 2 ids \(2, 3\) are in images.txt only"),
        ("images.txt", "18 004.Grey_Bird/Bird_0005.png", "", r"image_class_labels.txt: 1 ids \(18\) are not in images"),
        ("train_test_split.txt", "18 0", "", r"train_test_split.txt: 1 ids \(18\) are in images.txt only"),
        ("image_class_labels.txt", "7 2", "7 3", r"image 7 is of class 3, which classes.txt does not know"),
        ("image_class_labels.txt", "7 2", "7 red", r"image_class_labels.txt: image 7 has 'red', which is no number"),
        ("image_class_labels.txt", "7 2", "7 1", r"image 7 is 002.Blue_Bird/.*, but its class 1 is 001.Red_Bird"),
        ("images.txt", "Bird_0001", "../Bird_0001", r"images.txt: image 2 is .*, but its class 1 is 001.Red_Bird"),
        ("train_test_split.txt", "2 1", "2 2", r"image 2 has 2, must be 1 \(train\) or 0 \(test\)"),
        ("images.txt", "Bird_0001", "Bird_0000", r"images.txt: 1 images \(001.Red_Bird/Bird_0000.png\) have two ids"),
    ],
)
def test_what_disagrees_is_named_with_its_list(
    tmp_path: Path, folder: Path, name: str, old: str, new: str, message: str
) -> None:
    edit(folder, name, old, new)
    with pytest.raises(CubMismatchError, match=message) as caught:
        read_index(tmp_path)
    assert "`make data-cub200`" in str(caught.value)


def test_missing_images_are_counted_and_the_first_named(tmp_path: Path, folder: Path) -> None:
    for number in range(6):
        (folder / "images" / "004.Grey_Bird" / f"Bird_{number:04d}.png").unlink()
    (folder / "images" / "004.Grey_Bird").rmdir()
    with pytest.raises(CubMismatchError, match=r"6 listed images \(004.Grey_Bird/Bird_0000.png, .*0004.png, \.\.\.\)"):
        read_index(tmp_path)
    names = ("images.txt", "image_class_labels.txt", "train_test_split.txt")
    for name in names:
        (folder / name).write_text("", encoding="utf-8")
    with pytest.raises(CubMismatchError, match=r"images.txt is empty"):
        read_index(tmp_path)


def test_the_real_lists_agree(data_root: Path) -> None:
    index = read_index(data_root)
    if index.describe().startswith("all"):
        assert (len(index.train), len(index.test), len(index.classes)) == (5_994, 5_794, 200)
    else:
        assert index.describe() == f"{len(index.images):,} of 11,788 images: a part"
    assert min(len(index.train), len(index.test)) > 1_000
