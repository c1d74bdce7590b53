"""What the fused scan keeps for its backward pass, and how.

Legend: S steps, C channels. Volumes have any shape; one of their dimensions, by default the last, holds the channels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

# Most bytes to one tensor of what is kept; glibc's allocator keeps what is below 32 MiB.
HISTORY_BYTES = 2**24

# Of h, c, gates and tanh of the new c, in channels.
_WIDTHS = (1, 1, 4, 1)


class Volumes(NamedTuple):
    """What some steps in a row go through: the state before each, its gates, and tanh of its new c.

    Each list is used in turn: a list shorter than the steps keeps what the last of them left.
    """

    h: Sequence[Tensor]
    c: Sequence[Tensor]
    gates: Sequence[Tensor]
    squashed_c: Sequence[Tensor]


def block_length(saving: str, num_steps: int) -> int:
    """Steps from one state that is kept to the next."""
    return max(1, math.isqrt(num_steps)) if saving == "checkpoint" else 1


def num_kept_states(saving: str, num_steps: int) -> int:
    """How many states are kept."""
    return 0 if saving == "none" else len(range(0, num_steps, block_length(saving, num_steps)))


def history_shapes(saving: str, num_steps: int, h: Tensor, channel_dim: int = -1) -> list[list[int]]:
    """Shapes of what is kept: all h, all c and, with ``full``, all gates and all tanh of the new c.

    Many steps to a tensor, because an operator's results cost time each, but only as many as the allocator keeps for
    the next call: what is bigger goes back to the system and comes anew, page by page.
    """
    shapes = []
    num_kept = num_kept_states(saving, num_steps)
    for width in _WIDTHS if saving == "full" else _WIDTHS[:2]:
        most = max(1, HISTORY_BYTES // max(1, width * h.numel() * h.element_size()))
        for start in range(0, num_kept, most):
            shapes.append([min(most, num_kept - start), *_widened(h, width, channel_dim)])
    return shapes


def by_step(history: Sequence[Tensor], saving: str, num_steps: int) -> Volumes:
    """What is kept, one entry a step; no gates but with ``full``."""
    volumes = [volume for several in history for volume in several.unbind(0)]
    num_kept = num_kept_states(saving, num_steps)
    return Volumes(*(volumes[part * num_kept : (part + 1) * num_kept] for part in range(len(_WIDTHS))))


def new_volumes(h: Tensor, count: int, channel_dim: int = -1) -> Volumes:
    """Uninitialised volumes for so many steps."""
    return Volumes(*([h.new_empty(_widened(h, width, channel_dim)) for _ in range(count)] for width in _WIDTHS))


def _widened(h: Tensor, width: int, channel_dim: int) -> list[int]:
    """The shape of h with so many times its channels."""
    shape = list(h.shape)
    shape[channel_dim] *= width
    return shape


def no_second_derivative(ctx: Any, *grads: Any) -> None:
    """The derivative of each backward pass: nothing is kept for one.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError("the fused scan has no second derivative: take TensorMemory(scan='reference')")
