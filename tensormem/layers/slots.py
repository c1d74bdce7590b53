"""Slots: a few learned vectors that the tokens read from and that are updated from the tokens, layer by layer.

Legend: B batch, N tokens, M slots, L layers, H heads, E width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from tensormem.layers.block import Block
from tensormem.layers.heads import check_heads, merge_heads, split_heads


class CrossAttention(nn.Module):
    """Multi-head attention from one set of vectors to another; both pass a LayerNorm first.

    Args:
        dim: width of the vectors.
        num_heads: H, a divisor of dim.
        dropout: dropout on the attention weights.
    """

    def __init__(self, dim: int, num_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        check_heads(dim, num_heads)
        self.num_heads = num_heads
        self.dropout = dropout
        self.query_norm = nn.LayerNorm(dim)
        self.source_norm = nn.LayerNorm(dim)
        self.query = nn.Linear(dim, dim)
        self.key_value = nn.Linear(dim, 2 * dim)
        self.output = nn.Linear(dim, dim)

    def forward(self, x: Float[Tensor, "B N dim"], source: Float[Tensor, "B M dim"]) -> Float[Tensor, "B N dim"]:
        """What each vector of x finds in the source."""
        (queries,) = split_heads(self.query(self.query_norm(x)), self.num_heads, 1)
        keys, values = split_heads(self.key_value(self.source_norm(source)), self.num_heads, 2)
        found = F.scaled_dot_product_attention(queries, keys, values, dropout_p=self.dropout if self.training else 0.0)
        return self.output(merge_heads(found))


class SlotStack(nn.Module):
    """Blocks with slots: after each block the tokens read the slots, then the slots attend to all tokens.

    The slots of a layer have seen the whole call, and the next layer's tokens read them: as with the memory's
    threading ``depth``, no state can be carried between calls, and on tokens the stack is not causal.

    Args:
        blocks: the blocks, first one first.
        dim: width of the tokens.
        num_heads: heads of the cross-attentions.
        num_slots: M.
        dropout: on what is read and written, and on the attention weights.
    """

    memory = None
    fusions = ()
    memory_layers = ()
    carries_state = False

    def __init__(
        self, blocks: Sequence[Block], dim: int, num_heads: int, num_slots: int = 8, dropout: float = 0.0
    ) -> None:
        super().__init__()
        if num_slots < 1:
            raise ValueError(f"num_slots={num_slots} must be at least 1")
        self.blocks: Sequence[Block] = nn.ModuleList(blocks)  # type: ignore[assignment]
        self.slots = nn.Parameter(0.02 * torch.randn(num_slots, dim))
        self.reads = nn.ModuleList(CrossAttention(dim, num_heads, dropout) for _ in blocks)
        # The last layer's slots would be read by nobody.
        self.writes = nn.ModuleList(CrossAttention(dim, num_heads, dropout) for _ in blocks[:-1])
        self.dropout = nn.Dropout(dropout)

    def init_state(self, *_: Any) -> NoReturn:
        """Raises ValueError: there is no state to carry."""
        self._refuse()

    def flush(self, *_: Any) -> NoReturn:
        """As `init_state`."""
        self._refuse()

    def state_bytes(self, seq_len: int) -> int:
        """Bytes that one sequence of seq_len tokens holds in float32: caches and slots."""
        return sum(block.mixer.state_bytes(seq_len) for block in self.blocks) + 4 * self.slots.numel()

    def forward(self, x: Float[Tensor, "B N dim"], state: Any = None) -> tuple[Float[Tensor, "B N dim"], None]:
        """The tokens after the last block; raises ValueError where a state is given."""
        if state is not None:
            self._refuse()
        slots = self.slots.expand(x.shape[0], -1, -1)
        for layer, block in enumerate(self.blocks):
            x, _ = block(x)
            x = x + self.dropout(self.reads[layer](x, slots))
            if layer < len(self.writes):
                slots = slots + self.dropout(self.writes[layer](slots, x))
        return x, None

    def _refuse(self) -> NoReturn:
        raise ValueError(
            "slots carry no state between calls (each layer's slots have seen the whole call): give the whole "
            "sequence in one call, or use a model that streams, such as the memory with threading=layer (or, where "
            "it is offered, threading=time)"
        )
