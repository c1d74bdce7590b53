"""The caches of decoded images: the same pixels each way, and no cache taken for another's."""

from __future__ import annotations

import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from PIL import Image, ImageOps

from experiments.cub200 import cache as cache_module
from experiments.cub200.cache import CACHES, open_images
from experiments.cub200.images import CubImageError
from experiments.cub200.index import read_index
from tests.experiments.cub200.toy import write_toy


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    write_toy(tmp_path / "data", per_class=2)
    index = read_index(tmp_path / "data")
    return [index.file(image) for image in index.images]


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that are decoded, as they are."""
    seen: list[Path] = []
    read = cache_module.read_pixels
    monkeypatch.setattr(cache_module, "read_pixels", lambda path, size: (seen.append(path), read(path, size))[1])
    return seen


def test_every_cache_gives_the_same_pixels(tmp_path: Path, paths: list[Path], decoded: list[Path]) -> None:
    plain, memory, disk = (open_images(paths, 20, cache, tmp_path / "cache") for cache in CACHES)
    expected = [plain[place] for place in range(len(paths))]
    again = open_images(paths, 20, "disk", tmp_path / "cache")
    sent = [pickle.loads(pickle.dumps(images)) for images in (memory, disk)]
    assert len(pickle.dumps(disk)) < 2_000  # the pixels stay in their file
    # In another order than they were decoded in, and twice.
    for place in (3, 0, 5, 1, 2, 4, 3):
        for images in (memory, disk, again, *sent):
            assert images[place].dtype == torch.uint8
            assert images[place].shape[0] == 3
            assert min(images[place].shape[1:]) == 20
            assert torch.equal(images[place], expected[place])
    assert not torch.equal(expected[0][:, :20, :20], expected[1][:, :20, :20])
    assert len(decoded) == 3 * len(paths)  # once each for memory, for disk and for what is expected


@pytest.mark.parametrize("change", ["pixels", "order", "size", "version", "format"])
def test_another_cache_is_not_taken(
    tmp_path: Path, paths: list[Path], change: str, monkeypatch: pytest.MonkeyPatch, decoded: list[Path]
) -> None:
    Image.open(paths[0]).save(paths[0], "BMP")
    before = paths[0].stat()
    open_images(paths, 20, "disk", tmp_path / "cache")
    size = 20
    if change == "pixels":  # another picture in a file of the same name, length and date
        ImageOps.invert(Image.open(paths[0])).save(paths[0], "BMP")
        os.utime(paths[0], ns=(before.st_atime_ns, before.st_mtime_ns))
        assert paths[0].stat().st_size == before.st_size
    elif change == "order":
        paths = paths[::-1]
    elif change == "size":
        size = 21
    elif change == "version":
        monkeypatch.setattr(cache_module.PIL, "__version__", "0.1")
    else:
        monkeypatch.setattr(cache_module, "_FORMAT", 99)
    decoded.clear()
    images = open_images(paths, size, "disk", tmp_path / "cache")
    assert len(decoded) == len(paths)
    assert torch.equal(images[0], open_images(paths, size, "none")[0])
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_a_cache_file_of_another_length_is_made_again(tmp_path: Path, paths: list[Path], decoded: list[Path]) -> None:
    open_images(paths, 20, "disk", tmp_path / "cache")
    (file,) = (tmp_path / "cache").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    images = open_images(paths, 20, "disk", tmp_path / "cache")
    assert torch.equal(images[5], open_images(paths, 20, "none")[5])


def test_two_at_once_do_not_disturb_each_other(tmp_path: Path, paths: list[Path]) -> None:
    with ThreadPoolExecutor(4) as pool:
        opened = list(pool.map(lambda _: open_images(paths, 20, "disk", tmp_path / "cache"), range(4)))
    plain = open_images(paths, 20, "none")
    assert all(torch.equal(images[place], plain[place]) for images in opened for place in range(len(paths)))
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_nothing_is_left_where_an_image_is_damaged(tmp_path: Path, paths: list[Path]) -> None:
    paths[3].write_bytes(paths[3].read_bytes()[:-60])
    for cache in ("memory", "disk"):
        with pytest.raises(CubImageError, match=paths[3].name):
            open_images(paths, 20, cache, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
    images = open_images(paths, 20, "none")
    with pytest.raises(CubImageError, match=paths[3].name):
        images[3]


def test_a_wrong_choice_is_an_error(paths: list[Path]) -> None:
    with pytest.raises(ValueError, match="cache='ram' is unknown: use one of none, memory, disk"):
        open_images(paths, 20, "ram")
    with pytest.raises(ValueError, match="cache='disk' needs cache_folder"):
        open_images(paths, 20, "disk")
