"""What the models of sequences have in common: an embedding, positions, a stack of blocks, and a state.

Legend: B batch, N tokens.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tensormem.layers.positions import LearnedPositions, PositionsKind, check_kind
from tensormem.layers.slots import SlotStack
from tensormem.layers.stack import Stack, StackState
from tensormem.models.zoo_model import ZooModel


class SequenceState(NamedTuple):
    """What a model carries between calls.

    Attributes:
        stack: the state of the blocks and of the memory.
        position: 0-d int64 tensor on the CPU: tokens seen.
    """

    stack: StackState
    position: Tensor


class SequenceModel(ZooModel):
    """Embedding, positions, a stack of blocks and a final LayerNorm; a subclass says what goes in and comes out.

    Args:
        embedding: what makes vectors of tokens.
        dim: width of the vectors.
        stack: the blocks.
        max_length: positions that ``positions=learned`` knows; the other kinds have no limit.
        positions: ``learned``, ``rope`` (the stack's attention rotates) or ``none``.
        dropout: on the embedded tokens.
    """

    def __init__(
        self,
        embedding: nn.Module,
        dim: int,
        stack: Stack | SlotStack,
        *,
        max_length: int,
        positions: PositionsKind,
        dropout: float,
    ) -> None:
        super().__init__()
        check_kind(positions)
        if max_length < 1:
            raise ValueError(f"max_length={max_length} must be at least 1")
        self.embedding = embedding
        self.positions = LearnedPositions(max_length, dim) if positions == "learned" else None
        self.dropout = nn.Dropout(dropout)
        self.stack = stack
        self.norm = nn.LayerNorm(dim)

    @property
    def streaming(self) -> Literal["token", "frame", "none"]:
        """``token``: any split into calls equals one call. ``none``: one call is all that there is."""
        return "token" if self.stack.carries_state else "none"

    def init_state(
        self, batch: int, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> SequenceState:
        """The state of B sequences of which nothing has been seen.

        Raises:
            ValueError: the model carries no state (``streaming`` is ``none``).
        """
        return SequenceState(
            self.stack.init_state(batch, device, dtype), torch.zeros((), dtype=torch.int64, device="cpu")
        )

    def flush(self, state: SequenceState) -> SequenceState:
        """Write what the memories have pending, as at the end of a sequence."""
        return state._replace(stack=self.stack.flush(state.stack))

    def state_bytes(self, seq_len: int) -> int:
        """Bytes that one sequence of seq_len tokens holds in float32."""
        return self.stack.state_bytes(seq_len)

    def encode(
        self, x: Float[Tensor, "B N dim"], state: SequenceState | None = None
    ) -> tuple[Float[Tensor, "B N dim"], SequenceState | None]:
        """Embedded tokens to the last hidden vectors, and the next state (None where none is carried).

        Raises:
            ValueError: a state where the model carries none; a position beyond those that were learned.
        """
        if not x.shape[1] and self.stack.carries_state:
            return x, self.init_state(x.shape[0], x.device) if state is None else state
        position = 0 if state is None else int(state.position)
        num_tokens = x.shape[1]
        if self.positions is not None:
            x = x + self.positions(position, num_tokens)
        x, stack_state = self.stack(self.dropout(x), None if state is None else state.stack)
        x = self.norm(x)
        if stack_state is None:
            return x, None
        return x, SequenceState(stack_state, torch.tensor(position + num_tokens, device="cpu"))
