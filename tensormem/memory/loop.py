"""The fused scan's loop over its steps, whatever computes them: onwards, and backwards over what was kept.

Legend: C channels. Volumes have any shape; one of their dimensions holds the channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from tensormem.memory.history import Volumes, block_length, by_step, new_volumes

# One step, given its number, h and c, and where to write the next h and c, the gates after their activation, and tanh
# of the next c. What it writes to is none of what it reads.
Step = Callable[[int, tuple[Tensor, Tensor], tuple[Tensor, Tensor, Tensor, Tensor]], None]


def forwards(
    step: Step, h: Tensor, c: Tensor, num_steps: int, saving: str, history: Sequence[Tensor], channel_dim: int = -1
) -> tuple[Tensor, Tensor]:
    """All steps; what the way of saving keeps goes into the history. The last h and c."""
    kept = by_step(history, saving, num_steps)
    volumes = new_volumes(h, min(2, num_steps), channel_dim) if saving in ("none", "checkpoint") else kept
    if not volumes.gates:
        volumes = Volumes(volumes.h, volumes.c, *new_volumes(h, min(1, num_steps), channel_dim)[2:])
    last = torch.empty_like(h), torch.empty_like(c)
    first = (volumes.h[0], volumes.c[0]) if num_steps else last
    first[0].copy_(h)
    first[1].copy_(c)
    length = block_length(saving, num_steps)

    def keep(index: int, h: Tensor, c: Tensor) -> None:
        block, rest = divmod(index, length)
        if not rest:
            kept.h[block].copy_(h)
            kept.c[block].copy_(c)

    _advance(step, volumes, range(num_steps), last, keep if saving == "checkpoint" else None)
    return last


def backwards(
    step: Step, like: Tensor, num_steps: int, saving: str, history: Sequence[Tensor], channel_dim: int = -1
) -> Iterator[tuple[int, tuple[Tensor, Tensor, Tensor, Tensor]]]:
    """The steps, the last first, each with h, c, the gates and tanh of the new c: as kept, or run again."""
    kept = by_step(history, saving, num_steps)
    if saving == "full":
        for index in reversed(range(num_steps)):
            yield index, (kept.h[index], kept.c[index], kept.gates[index], kept.squashed_c[index])
        return
    length = block_length(saving, num_steps)
    spare = new_volumes(like, length, channel_dim)
    for start in reversed(range(0, num_steps, length)):
        block = range(start, min(start + length, num_steps))
        first = start // length
        volumes = spare._replace(h=[kept.h[first], *spare.h[1:]], c=[kept.c[first], *spare.c[1:]])
        # The state after the block is not needed again.
        _advance(step, volumes, block, (spare.h[0], spare.c[0]))
        for index in reversed(block):
            place = index - start
            yield index, (volumes.h[place], volumes.c[place], volumes.gates[place], volumes.squashed_c[place])


def _advance(
    step: Step,
    volumes: Volumes,
    block: range,
    last: tuple[Tensor, Tensor],
    keep: Callable[[int, Tensor, Tensor], None] | None = None,
) -> None:
    """Run the steps of the block from the state that lies first in the volumes; the state after them goes to last."""
    num_h, num_gates = len(volumes.h), len(volumes.gates)
    for place, index in enumerate(block):
        h, c = volumes.h[place % num_h], volumes.c[place % num_h]
        if keep is not None:
            keep(index, h, c)
        after = (place + 1) % num_h
        next_h, next_c = last if index == block[-1] else (volumes.h[after], volumes.c[after])
        step(index, (h, c), (next_h, next_c, volumes.gates[place % num_gates], volumes.squashed_c[place % num_gates]))
