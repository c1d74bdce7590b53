"""Looking at a memory at work: what each call wrote and read where, and the grid after it.

Legend: B batch, S chunks written, R chunks read, C channels, n grid axes, V grid points in all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tensormem.memory.scan import ScanInputs
from tensormem.memory.tensor_memory import TensorMemory


class Observation(NamedTuple):
    """One call of a memory, without gradients.

    Attributes:
        inputs: coordinates, content and spread of its reads and writes.
        h: (B, C, *grid), the hidden volume after its last write.
    """

    inputs: ScanInputs
    h: Tensor


@contextmanager
def observed(model: nn.Module) -> Iterator[list[Observation]]:
    """Within it, every call of a memory in the model is added to the list: in a stack, layer by layer.

    What is written at the end of a layer, padded, is no call of its own, and neither is one that only fills a chunk.
    """
    seen: list[Observation] = []

    def note(inputs: ScanInputs, h: Tensor) -> None:
        seen.append(Observation(ScanInputs(*(tensor.detach() for tensor in inputs)), h.detach()))

    memories = [module for module in model.modules() if isinstance(module, TensorMemory)]
    for memory in memories:
        memory.observers.append(note)
    try:
        yield seen
    finally:
        for memory in memories:
            memory.observers.remove(note)


def occupancy(h: Float[Tensor, "B C *grid"], share: float = 0.9) -> Float[Tensor, " B"]:
    """The least share of the grid's points that hold so much of the volume's energy, the sum over channels of h^2.

    1 / V where all is in one point; near ``share`` where it is the same everywhere; 0 for an empty volume.
    """
    energy = h.detach().double().square().sum(1).flatten(1)
    total = energy.sum(1, keepdim=True)
    ordered = energy.sort(dim=1, descending=True).values.cumsum(1)
    needed = (ordered < share * total).sum(1) + 1
    return torch.where(total[:, 0] > 0, needed / energy.shape[1], 0.0).float()
