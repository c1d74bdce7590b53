"""Video files as frames: every frame is decoded, and counted, one after the other.

What a file's tags say of its length, rate, duration or rotation is not relied on: frame i is the i-th that comes out of
the decoder, as it is stored. Letters: T frames, H, W height and width in pixels.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import av
import torch
from jaxtyping import UInt8
from torch import Tensor
from torchvision.transforms.v2 import functional

from experiments.views import INTERPOLATION, scaled_size

DAMAGED = ("error", "repeat")
# Files claim a frame or two that no decoder gives (empty packets); one that is cut off claims many.
_LEAST_SHARE = 0.9

logger = logging.getLogger(__name__)


class ClipError(ValueError):
    """A video file that can't be decoded, or not as a whole."""


def decoder() -> str:
    """The decoder and the versions of it that pixels depend on."""
    libraries = av.library_versions
    versions = (f"{name} {'.'.join(map(str, libraries[name]))}" for name in ("libavcodec", "libswscale"))
    return f"PyAV {av.__version__}, {', '.join(versions)}"


def count_frames(path: Path, damaged: str = "error") -> int:
    """The frames that a file decodes to, at least 1.

    Args:
        path: the file.
        damaged: what is done about frames that can't be decoded whole: ``error``, or ``repeat`` the whole one before;
            a file that breaks off then ends there. Each such file is logged.

    Raises:
        ValueError: an unknown ``damaged``.
        ClipError: the file is no video, or has no frames; its frames differ in size; a frame is damaged, or it holds
            much fewer frames than it claims, with ``error``; its first frame is damaged.
    """
    return sum(1 for _ in _decoded(path, damaged))


def read_frames(
    path: Path, indices: Sequence[int], short_side: int, damaged: str = "error"
) -> UInt8[Tensor, "T 3 H W"]:
    """Frames by their exact indices, in RGB, resized (bicubic, with antialiasing) to a shorter side of so many pixels.

    Args:
        path: the file.
        indices: of the frames, from 0, in any order; one may be there twice.
        short_side: pixels.
        damaged: see `count_frames`, which has looked at the whole file; this goes no further than the last index.

    Raises:
        ClipError: as `count_frames`, as far as it looks; or there is no frame of such an index.
    """
    wanted, last = set(indices), max(indices)
    found: dict[int, Tensor] = {}
    for index, frame in enumerate(_decoded(path, damaged)):
        if index in wanted:
            found[index] = _resized(frame, short_side)
        if index == last:
            break
    if len(found) < len(wanted):
        raise ClipError(f"{path} has no frame {last}: it decodes to fewer")
    return torch.stack([found[index] for index in indices])


def all_frames(path: Path, short_side: int, damaged: str = "error") -> Iterator[UInt8[Tensor, "3 H W"]]:
    """Every frame as `read_frames` gives it, one at a time; errors as `count_frames`."""
    return (_resized(frame, short_side) for frame in _decoded(path, damaged))


def _resized(frame: av.VideoFrame, short_side: int) -> Tensor:
    # More threads, which is what it takes by itself, cost a small frame more than its conversion does.
    pixels = torch.from_numpy(frame.to_ndarray(format="rgb24", threads=1)).permute(2, 0, 1)
    size = scaled_size(frame.height, frame.width, short_side)
    return functional.resize(pixels, list(size), INTERPOLATION, antialias=True).contiguous()


def _decoded(path: Path, damaged: str) -> Iterator[av.VideoFrame]:
    if damaged not in DAMAGED:
        raise ValueError(f"damaged={damaged!r} is unknown: use one of {', '.join(DAMAGED)}")
    if not path.is_file():
        raise ClipError(f"{path} is not there")
    count = num_damaged = claimed = 0
    last: av.VideoFrame | None = None
    broken: Exception | None = None
    try:
        with av.open(str(path)) as container:
            if not container.streams.video:
                raise ClipError(f"{path} has no video in it; {_FIX}")
            stream = container.streams.video[0]
            # The workers of the loader are what runs side by side.
            stream.codec_context.thread_count = 1
            claimed = stream.frames
            for frame in container.decode(stream):
                if frame.is_corrupt:
                    num_damaged += 1
                    if damaged == "error" or last is None:
                        raise ClipError(f"{path}: frame {count} is damaged; {_fix(last)}")
                    frame = last
                elif last is not None and (frame.height, frame.width) != (last.height, last.width):
                    raise ClipError(
                        f"{path}: frame {count} has {frame.height}x{frame.width} pixels, the one before "
                        f"{last.height}x{last.width}; {_FIX}"
                    )
                last = frame
                count += 1
                yield frame
    except av.FFmpegError as error:
        broken = error
    if broken is not None and (damaged == "error" or last is None):
        reason = " ".join(str(broken).split())
        raise ClipError(f"{path} can't be decoded beyond frame {count} ({reason}); {_fix(last)}") from broken
    if last is None:
        raise ClipError(f"{path} has no frames; {_FIX}")
    if count < _LEAST_SHARE * claimed and damaged == "error":
        raise ClipError(f"{path} is cut off: it claims {claimed} frames and has {count}; {_fix(last)}")
    if num_damaged or broken is not None or count < _LEAST_SHARE * claimed:
        logger.warning(
            "%s: %d damaged frames repeat the one before; %d of %d frames are there", path, num_damaged, count, claimed
        )


_FIX = "put the official file back (`make data-ucf101`), or take the clip off the lists"


def _fix(last: object) -> str:
    return f"{_FIX}{'' if last is None else ', or set data.damaged=repeat'}"
