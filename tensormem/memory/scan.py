"""The recurrence over chunks.

Legend: B batch, S chunks written, R chunks read (S, or S + 1 where a chunk is begun but not complete),
C channels, n grid axes.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from tensormem.memory import grid as geometry
from tensormem.memory.update import GridUpdate

WriteKind = Literal["gaussian", "hard"]


class ScanInputs(NamedTuple):
    """All that the recurrence takes from the tokens; none of it depends on the state.

    Attributes:
        read_coordinates: (B, R, n), where each chunk reads.
        write_coordinates: (B, S, n), the centre of each chunk's write.
        content: (B, S, C), what each chunk writes.
        sigma: (B, S, 1), the spread of each write, in units of the coordinates.
    """

    read_coordinates: Tensor
    write_coordinates: Tensor
    content: Tensor
    sigma: Tensor


def reference(
    inputs: ScanInputs,
    h: Float[Tensor, "B C *grid"],
    c: Float[Tensor, "B C *grid"],
    update: GridUpdate,
    write: WriteKind = "gaussian",
) -> tuple[Float[Tensor, "B R C"], Float[Tensor, "B C *grid"], Float[Tensor, "B C *grid"]]:
    """The textbook loop: every chunk reads the state that its predecessors left, then writes.

    Returns:
        What each chunk read, and the hidden and the cell volume after the last write.
    """
    grid = h.shape[2:]
    num_writes = inputs.content.shape[1]
    num_reads = inputs.read_coordinates.shape[1]
    index, weight = geometry.corners(inputs.read_coordinates, grid)
    values = []
    for chunk in range(num_reads):
        values.append(geometry.gather(h, index[:, chunk], weight[:, chunk]))
        if chunk < num_writes:
            coordinates = inputs.write_coordinates[:, chunk]
            if write == "gaussian":
                weights = geometry.gaussian_weights(coordinates, inputs.sigma[:, chunk], grid)
            else:
                weights = geometry.hard_weights(coordinates, grid)
            content = inputs.content[:, chunk].reshape(h.shape[0], h.shape[1], *[1] * len(grid))
            h, c = update(content * weights.unsqueeze(1), h, c)
    return (torch.stack(values, dim=1) if values else h.new_zeros(h.shape[0], 0, h.shape[1])), h, c
