"""Video files as frames: exact indices, and what becomes of files that are not whole."""

from __future__ import annotations

import logging
import struct
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional

from experiments.ucf101.decoding import ClipError, all_frames, count_frames, decoder, read_frames
from tests.experiments.ucf101.toy import make_frames, write_clip

NUM_FRAMES = 20


@pytest.fixture
def pixels() -> np.ndarray:
    return make_frames(NUM_FRAMES)


@pytest.fixture
def clip(tmp_path: Path, pixels: np.ndarray) -> Path:
    write_clip(tmp_path / "clip.avi", pixels)
    return tmp_path / "clip.avi"


def claim(clip: Path, num_frames: int, rate: int = 25) -> None:
    """Change what the head of a file says of its length and rate."""
    content = bytearray(clip.read_bytes())
    head = content.index(b"strh") + 8
    struct.pack_into("<I", content, head + 24, rate)
    struct.pack_into("<I", content, head + 32, num_frames)
    clip.write_bytes(content)


def write_lossy(path: Path, num_frames: int = NUM_FRAMES) -> None:
    """A clip as UCF-101's are compressed, most frames as what changed since the one before."""
    noise = np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8)
    with av.open(str(path), "w", format="avi") as container:
        stream = container.add_stream("mpeg4", rate=25)
        stream.height, stream.width, stream.pix_fmt, stream.bit_rate = 48, 64, "yuv420p", 2_000_000
        for number in range(num_frames):
            rolled = np.ascontiguousarray(np.roll(noise, 3 * number, axis=1))
            container.mux(stream.encode(av.VideoFrame.from_ndarray(rolled, format="rgb24")))
        container.mux(stream.encode())


def test_frames_have_exact_indices_in_any_order_and_twice(clip: Path, pixels: np.ndarray) -> None:
    assert count_frames(clip) == NUM_FRAMES
    indices = [13, 0, 19, 4, 4, 12]
    frames = read_frames(clip, indices, short_side=24)
    assert (frames.dtype, frames.shape) == (torch.uint8, (6, 3, 24, 32))
    assert torch.equal(frames, torch.from_numpy(pixels[indices]).permute(0, 3, 1, 2))
    assert torch.equal(torch.stack(list(all_frames(clip, 24))), torch.from_numpy(pixels).permute(0, 3, 1, 2))


def test_no_key_frame_stands_for_another(tmp_path: Path) -> None:
    write_lossy(tmp_path / "clip.avi")
    with av.open(str(tmp_path / "clip.avi")) as container:
        expected = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        container.seek(0)
        assert sum(frame.key_frame for frame in container.decode(video=0)) < NUM_FRAMES / 2
    for index in (1, 7, 18):
        frame = read_frames(tmp_path / "clip.avi", [index], 48)[0]
        assert np.array_equal(frame.permute(1, 2, 0).numpy(), expected[index])


@pytest.mark.parametrize(("side", "shape"), [(12, (12, 16)), (36, (36, 48)), (23, (23, 30))])
def test_frames_are_resized_as_images_are(clip: Path, pixels: np.ndarray, side: int, shape: tuple[int, int]) -> None:
    frames = read_frames(clip, [3, 5], side)
    source = torch.from_numpy(pixels[[3, 5]]).permute(0, 3, 1, 2)
    assert torch.equal(frames, functional.resize(source, list(shape), InterpolationMode.BICUBIC, antialias=True))


@pytest.mark.parametrize(("claimed", "rate"), [(0, 25), (3, 25), (NUM_FRAMES + 1, 1), (NUM_FRAMES, 1000)])
def test_tags_of_length_and_rate_change_nothing(clip: Path, claimed: int, rate: int) -> None:
    expected = read_frames(clip, range(NUM_FRAMES), 24)
    claim(clip, claimed, rate)
    assert count_frames(clip) == NUM_FRAMES
    assert torch.equal(read_frames(clip, range(NUM_FRAMES), 24), expected)


def test_a_frame_that_is_not_there_is_an_error(clip: Path) -> None:
    with pytest.raises(ClipError, match=rf"{clip} has no frame 20: it decodes to fewer"):
        read_frames(clip, [0, 20], 24)


@pytest.mark.parametrize("damaged", ["error", "repeat"])
@pytest.mark.parametrize("content", [b"", b"no video", b"RIFF\x00\x00\x00\x00AVI "])
def test_what_is_no_video_is_an_error_with_its_path(tmp_path: Path, content: bytes, damaged: str) -> None:
    (tmp_path / "clip.avi").write_bytes(content)
    with pytest.raises(ClipError, match=rf"{tmp_path}/clip.avi (can't be decoded|has no).*make data-ucf101"):
        count_frames(tmp_path / "clip.avi", damaged)
    with pytest.raises(ClipError, match=f"{tmp_path}/other.avi is not there"):
        count_frames(tmp_path / "other.avi", damaged)


def test_sound_alone_is_no_video(tmp_path: Path) -> None:
    with av.open(str(tmp_path / "clip.avi"), "w", format="avi") as container:
        stream = container.add_stream("pcm_s16le", rate=8000, layout="mono")
        sound = av.AudioFrame.from_ndarray(np.zeros((1, 800), dtype=np.int16), format="s16", layout="mono")
        sound.sample_rate = 8000
        container.mux(stream.encode(sound))
    with pytest.raises(ClipError, match="has no video in it"):
        count_frames(tmp_path / "clip.avi")


def test_a_file_that_claims_many_more_frames_was_cut_off(clip: Path, caplog: pytest.LogCaptureFixture) -> None:
    claim(clip, 2 * NUM_FRAMES)
    with pytest.raises(ClipError, match=r"is cut off: it claims 40 frames and has 20; .*data.damaged=repeat"):
        count_frames(clip)
    with caplog.at_level(logging.WARNING):
        assert count_frames(clip, "repeat") == NUM_FRAMES
    assert f"{clip}: 0 damaged frames repeat the one before; 20 of 40 frames are there" in caplog.text


def test_a_damaged_frame_is_an_error_or_the_whole_one_before(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clip = tmp_path / "clip.avi"
    write_lossy(clip)
    whole = read_frames(clip, range(NUM_FRAMES), 48)
    content = bytearray(clip.read_bytes())
    # Some bytes of the eleventh frame's data; the chunks in an AVI begin with the stream's number.
    place = content.index(b"movi")
    for _ in range(11):
        place = content.index(b"00dc", place + 1)
    content[place + 200 : place + 240] = bytes(40)
    clip.write_bytes(content)
    with pytest.raises(ClipError, match=rf"{clip}: frame 10 is damaged; .*data.damaged=repeat"):
        count_frames(clip)
    with caplog.at_level(logging.WARNING):
        assert count_frames(clip, "repeat") == NUM_FRAMES
    assert f"{clip}: 1 damaged frames repeat the one before; 20 of 20 frames are there" in caplog.text
    frames = read_frames(clip, range(NUM_FRAMES), 48, "repeat")
    assert torch.equal(frames[:10], whole[:10])
    assert torch.equal(frames[10], whole[9])


def test_a_file_that_breaks_off_is_an_error_or_ends_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clip = tmp_path / "clip.avi"
    write_lossy(clip)
    whole = read_frames(clip, range(NUM_FRAMES), 48)
    content = clip.read_bytes()
    clip.write_bytes(content[: len(content) // 2])
    with pytest.raises(ClipError, match=rf"{clip}.* (damaged|cut off|beyond frame)"):
        count_frames(clip)
    with caplog.at_level(logging.WARNING):
        count = count_frames(clip, "repeat")
    assert 5 < count < 15
    assert str(clip) in caplog.text
    assert torch.equal(read_frames(clip, range(count - 1), 48, "repeat"), whole[: count - 1])


def test_an_unknown_rule_is_an_error(clip: Path) -> None:
    with pytest.raises(ValueError, match="damaged='skip' is unknown: use one of error, repeat"):
        count_frames(clip, "skip")


def test_the_decoder_says_its_versions() -> None:
    assert decoder().startswith(f"PyAV {av.__version__}, libavcodec ")
    assert "libswscale " in decoder()
