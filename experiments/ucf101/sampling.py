"""Which frames of a clip a model is given. Letters: T frames of a view, K views of a clip."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64


def frame_indices(num_frames: int, length: int, num_views: int = 1) -> Int64[np.ndarray, "K T"]:
    """The indices of T frames spread evenly over a clip, K times over, each time between those of the others.

    The clip is cut into T equal parts. View k of K has the frame that lies (k + 1/2) / K into each part, so a single
    view has the middles. No frame is in a view twice: a clip with fewer frames than T gives all that it has, and then
    its last one over and over, in every view.

    Args:
        num_frames: of the clip, at least 1.
        length: T.
        num_views: K.

    Raises:
        ValueError: a number below 1.
    """
    for name, value in (("num_frames", num_frames), ("length", length), ("num_views", num_views)):
        if value < 1:
            raise ValueError(f"{name}={value}: must be at least 1")
    if num_frames < length:
        return np.tile(np.minimum(np.arange(length), num_frames - 1), (num_views, 1))
    # In whole numbers, so that no rounding can move a frame: floor((t + (2k + 1) / 2K) * num_frames / T).
    part, view = np.arange(length)[None, :], np.arange(num_views)[:, None]
    return (2 * num_views * part + 2 * view + 1) * num_frames // (2 * num_views * length)
