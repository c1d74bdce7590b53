"""Random numbers that are a function of what they are for: a seed, a use, and numbers such as batch and place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np

Member = TypeVar("Member", bound=Any)

# What a stream is for; the first word of its key, so that no two uses share one. New ones go to the end.
USES = (
    *("order", "crop", "noise", "evaluation noise", "validation", "subset", "jitter", "occlusion", "shuffle"),
    "times",
)


def _raw(count: int, seed: int, use: str, *key: int) -> np.ndarray:
    for value in key:
        # A larger number would take two of SeedSequence's words, and then it could pass for another key.
        if not 0 <= value < 2**32:
            raise ValueError(f"key {key} of the random numbers for {use}: {value} must be from 0 to 2^32 - 1")
    sequence = np.random.SeedSequence(seed, spawn_key=(USES.index(use), *key))
    # NumPy promises the bits of PCG64; what its Generator makes of them may change.
    return np.random.PCG64(sequence).random_raw(count)


def uniform(count: int, seed: int, use: str, *key: int) -> np.ndarray:
    """(count,) float64, uniform on the multiples of 2^-24 in [0, 1): float32 holds them as they are.

    Args:
        count: how many.
        seed: at least 0.
        use: one of `USES`.
        key: numbers from 0 to 2^32 - 1 that tell this stream from the others of the same use.

    Raises:
        ValueError: an unknown use, a negative seed, or a number of the key out of range.
    """
    return (_raw(count, seed, use, *key) >> np.uint64(40)) * 2.0**-24


def permutation(count: int, seed: int, use: str, *key: int) -> np.ndarray:
    """(count,) int64: the numbers ``0 .. count - 1`` in random order; arguments and errors as `uniform`."""
    return np.argsort(_raw(count, seed, use, *key), kind="stable")


def subset(members: Iterable[Member], max_members: int | None, seed: int, *key: int) -> tuple[Member, ...]:
    """A random so many of the members (all, where there are fewer, or for None), in ascending order."""
    members = sorted(members)
    order = permutation(len(members), seed, "subset", *key)[:max_members]
    return tuple(members[place] for place in sorted(order))
