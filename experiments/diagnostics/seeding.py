"""The random stream of a generated batch."""

from __future__ import annotations

import numpy as np
import torch

SPLITS = ("train", "validation", "test")


def batch_generator(seed: int, split: str, index: int) -> torch.Generator:
    """A CPU generator for batch ``index`` of a split: its stream is a function of the three arguments alone.

    No two splits share a stream, whatever their seeds and indices. Within a split, two batches share one with a
    chance of 2^-30.

    Args:
        seed: the data seed, from 0 to 2^32 - 1.
        split: ``train``, ``validation`` or ``test``.
        index: number of the batch, from 0 to 2^32 - 1.

    Raises:
        ValueError: an unknown split, or a seed or index out of range.
    """
    if split not in SPLITS:
        raise ValueError(f"split={split!r} is unknown: use one of {', '.join(SPLITS)}")
    for name, value in (("seed", seed), ("index", index)):
        # A larger number would take two of SeedSequence's words, and then it could pass for another pair.
        if not 0 <= value < 2**32:
            raise ValueError(f"{name}={value} must be from 0 to 2^32 - 1")
    number = SPLITS.index(split)
    bits = int(np.random.SeedSequence([seed, number, index]).generate_state(1)[0])
    # PyTorch's CPU generator looks at 32 bits of its seed, where hashes collide now and then. With the split in the
    # last two of them, a batch that is trained on can't turn up in a test.
    return torch.Generator().manual_seed(bits & ~3 | number)
