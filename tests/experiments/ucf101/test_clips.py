"""Clips decoded each time or kept: the same pixels, and no cache taken for another's."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest
import torch

from experiments.ucf101 import clips as clips_module
from experiments.ucf101.clips import open_clips
from experiments.ucf101.decoding import ClipError, decoder
from tests.experiments.ucf101.toy import make_frames, write_clip


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "data" / f"{number}.avi" for number in range(3)]
    for number, path in enumerate(paths):
        write_clip(path, make_frames(9 + number, seed=number))
    return paths


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files whose frames are decoded and counted, as they are."""
    seen: list[Path] = []
    for name in ("count_frames", "read_frames", "all_frames"):
        read = getattr(clips_module, name)
        monkeypatch.setattr(
            clips_module, name, lambda path, *rest, read=read: (seen.append(path), read(path, *rest))[1]
        )
    return seen


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.npy"))


def test_both_caches_give_the_same_pixels(tmp_path: Path, paths: list[Path], decoded: list[Path]) -> None:
    plain, disk = open_clips(paths, 20), open_clips(paths, 20, "disk", tmp_path / "cache")
    assert not files(tmp_path)
    for clips in (plain, disk, pickle.loads(pickle.dumps(disk))):
        for place in (2, 0, 1, 2):
            assert clips.num_frames(place) == 9 + place
            frames = clips.frames(place, [8, 3, 3])
            assert (frames.dtype, frames.shape) == (torch.uint8, (3, 3, 20, 26))
            assert torch.equal(frames, plain.frames(place, [8, 3, 3]))
    assert len(files(tmp_path)) == 3
    decoded.clear()
    again = open_clips(paths[::-1], 20, "disk", tmp_path / "cache")
    assert torch.equal(again.frames(0, [1]), disk.frames(2, [1]))
    assert decoded == []
    assert len(pickle.dumps(disk)) < 2_000  # the pixels stay in their files


def test_frames_are_counted_once(paths: list[Path], decoded: list[Path]) -> None:
    clips = open_clips(paths, 20)
    for _ in range(3):
        clips.num_frames(1)
    assert decoded == [paths[1]]


def test_the_folder_says_what_decoded(tmp_path: Path, paths: list[Path]) -> None:
    open_clips(paths, 20, "disk", tmp_path / "cache").frames(0, [0])
    (made_by,) = (tmp_path / "cache").rglob("decoder.json")
    said = json.loads(made_by.read_text())
    assert said["decoder"] == decoder()
    assert (said["short_side"], said["damaged"]) == (20, "error")
    assert files(tmp_path)[0].parent == made_by.parent


@pytest.mark.parametrize("change", ["pixels", "size", "version", "torchvision", "format", "damaged"])
def test_another_cache_is_not_taken(
    tmp_path: Path, paths: list[Path], change: str, monkeypatch: pytest.MonkeyPatch, decoded: list[Path]
) -> None:
    open_clips(paths, 20, "disk", tmp_path / "cache").frames(0, [0])
    before = paths[0].stat()
    options: dict[str, str] = {}
    size = 20
    if change == "pixels":  # another clip in a file of the same name and date
        write_clip(paths[0], make_frames(9, seed=7))
        os.utime(paths[0], ns=(before.st_atime_ns, before.st_mtime_ns))
    elif change == "size":
        size = 21
    elif change == "version":
        monkeypatch.setattr(clips_module, "decoder", lambda: "PyAV 0.1")
    elif change == "torchvision":
        monkeypatch.setattr(clips_module.torchvision, "__version__", "0.1")
    elif change == "format":
        monkeypatch.setattr(clips_module, "_FORMAT", 99)
    else:
        options = {"damaged": "repeat"}
    decoded.clear()
    clips = open_clips(paths, size, "disk", tmp_path / "cache", **options)
    frames = clips.frames(0, [4])
    assert decoded == [paths[0]] * 2
    assert torch.equal(frames, open_clips(paths, size).frames(0, [4]))
    assert len(files(tmp_path)) == 2


@pytest.mark.parametrize("kept", [None, -100, 100, 3, 0])
def test_a_file_that_was_cut_off_is_made_again(tmp_path: Path, paths: list[Path], kept: int | None) -> None:
    expected = open_clips(paths, 20, "disk", tmp_path / "cache").frames(0, [8])
    (file,) = files(tmp_path)
    file.write_bytes(file.read_bytes()[:kept])
    assert torch.equal(open_clips(paths, 20, "disk", tmp_path / "cache").frames(0, [8]), expected)


def test_a_clip_that_fails_leaves_nothing(tmp_path: Path, paths: list[Path]) -> None:
    paths[1].write_bytes(b"no video")
    clips = open_clips(paths, 20, "disk", tmp_path / "cache")
    with pytest.raises(ClipError, match=str(paths[1])):
        clips.num_frames(1)
    assert [path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()] == ["decoder.json"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cache": "ram"}, "cache='ram' is unknown: use one of none, disk"),
        ({"cache": "disk"}, "cache='disk' needs cache_folder"),
        ({"damaged": "skip"}, "damaged='skip' is unknown: use one of error, repeat"),
    ],
)
def test_an_unknown_choice_is_an_error(paths: list[Path], options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        open_clips(paths, 20, **options)
