"""What a run, its checkpoint and the tables ask of every model, whatever its domain."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

from torch import Tensor, nn

from tensormem.layers.slots import SlotStack
from tensormem.layers.stack import Stack


class ZooModel(nn.Module):
    """A model around a stack of blocks.

    Attributes:
        embedding: what makes vectors of the input.
        stack: the blocks, with the memory where there is one.
    """

    embedding: nn.Module
    stack: Stack | SlotStack

    @property
    @abstractmethod
    def streaming(self) -> Literal["token", "frame", "none"]:
        """``token``: any split into calls equals one call; ``frame``: splits between frames. ``none``: one call."""

    @abstractmethod
    def state_bytes(self, seq_len: int) -> int:
        """Bytes that one sequence of seq_len tokens holds in float32."""

    @property
    def gates(self) -> dict[str, Tensor]:
        """The memory's gate of each layer that has it, 0-d, by the layer's number; empty without a memory."""
        return {
            str(layer): fusion.gate for layer, fusion in zip(self.stack.memory_layers, self.stack.fusions, strict=True)
        }
