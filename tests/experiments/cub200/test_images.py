"""Decoding: modes, sizes and damaged files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from experiments.cub200.images import CubImageError, read_pixels, stored_size
from experiments.cub200.index import read_index
from tests.experiments.cub200.toy import smooth


@pytest.fixture
def picture() -> Image.Image:
    return Image.fromarray(smooth(np.random.default_rng(0), 30, 50))


def test_pixels_of_the_right_size_are_left_alone(tmp_path: Path, picture: Image.Image) -> None:
    picture.save(tmp_path / "bird.png")
    assert np.array_equal(read_pixels(tmp_path / "bird.png", 30), np.asarray(picture))


@pytest.mark.parametrize(
    ("mode", "suffix"), [("L", "jpg"), ("CMYK", "jpg"), ("P", "png"), ("RGBA", "png"), ("1", "png")]
)
def test_every_mode_becomes_rgb(tmp_path: Path, picture: Image.Image, mode: str, suffix: str) -> None:
    picture.convert(mode).save(tmp_path / f"bird.{suffix}")
    pixels = read_pixels(tmp_path / f"bird.{suffix}", 30)
    assert pixels.shape == (30, 50, 3)
    assert pixels.dtype == np.uint8
    expected = np.asarray(picture.convert(mode).convert("RGB"), dtype=float)
    assert np.abs(pixels - expected).mean() < 4  # JPEG is not exact
    if mode == "L":
        assert np.array_equal(pixels[..., 0], pixels[..., 1])
        assert np.array_equal(pixels[..., 0], pixels[..., 2])


@pytest.mark.parametrize(("height", "width", "expected"), [(30, 50, (12, 20)), (50, 31, (19, 12)), (30, 30, (12, 12))])
def test_the_shorter_side_is_what_was_asked_for(
    tmp_path: Path, height: int, width: int, expected: tuple[int, int]
) -> None:
    Image.fromarray(smooth(np.random.default_rng(1), height, width)).save(tmp_path / "bird.png")
    assert read_pixels(tmp_path / "bird.png", 12).shape == (*expected, 3)
    assert stored_size(tmp_path / "bird.png", 12) == expected
    assert min(read_pixels(tmp_path / "bird.png", 77).shape[:2]) == 77


def test_reducing_does_not_alias(tmp_path: Path) -> None:
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[:, ::2] = 255
    Image.fromarray(stripes).save(tmp_path / "stripes.png")
    assert np.abs(read_pixels(tmp_path / "stripes.png", 16)[:, 4:-4].astype(float) - 127.5).max() < 3


def test_damaged_files_are_named(tmp_path: Path, picture: Image.Image) -> None:
    picture.save(tmp_path / "bird.jpg")
    whole = (tmp_path / "bird.jpg").read_bytes()
    for content in (whole[:-40], whole[:200], b"", b"no image at all"):
        (tmp_path / "bird.jpg").write_bytes(content)
        with pytest.raises(CubImageError, match=r"bird.jpg can't be read \("):
            read_pixels(tmp_path / "bird.jpg", 30)
    with pytest.raises(CubImageError, match=r"bird.jpg can't be read"):
        stored_size(tmp_path / "bird.jpg", 30)
    with pytest.raises(CubImageError, match=r"gone.jpg can't be read \(FileNotFoundError"):
        read_pixels(tmp_path / "gone.jpg", 30)


def test_more_than_eight_bits_are_refused_not_cut_off(tmp_path: Path) -> None:
    Image.fromarray(np.full((20, 20), 3_000, np.uint16)).save(tmp_path / "deep.png")
    with pytest.raises(CubImageError, match=r"deep.png can't be read .*more than 8 bits"):
        read_pixels(tmp_path / "deep.png", 20)


def mode_of(file: Path) -> str:
    with Image.open(file) as image:
        return image.mode


def test_real_images_decode_the_grey_ones_too(data_root: Path) -> None:
    index = read_index(data_root)
    files = {image.path.rpartition("/")[2]: index.file(image) for image in index.images}
    grey = [file for file in files.values() if mode_of(file) == "L"]
    assert grey
    for file in (*grey, files["Black_Footed_Albatross_0046_18.jpg"]):
        pixels = read_pixels(file, 256)
        assert min(pixels.shape[:2]) == 256
        assert pixels.std() > 5
