"""Sliding-window attention: a true band, whose cost grows with N times the window.

Legend: B batch, N new tokens, P tokens already cached, H heads, E width of a head, W window.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from tensormem.layers.heads import HeadedAttention, merge_heads, require_batch, split_heads


class LocalState(NamedTuple):
    """The last W - 1 keys and values of one layer, fewer at a sequence's start.

    Attributes:
        keys: (B, H, P, E), rotated already where positions are rotary.
        values: (B, H, P, E).
        position: 0-d int64 tensor on the CPU: tokens seen.
    """

    keys: Tensor
    values: Tensor
    position: Tensor


class LocalAttention(HeadedAttention):
    """Multi-head causal self-attention to the W - 1 tokens before each one and to itself.

    Queries are cut into blocks of W; a block's keys are its own and those of the W - 1 tokens before it.

    Args:
        dim: width of the tokens.
        num_heads: H, a divisor of dim.
        window: W, the token itself included.
        dropout: dropout on the attention weights.
        rotary: rotate queries and keys by their position.
    """

    def __init__(self, dim: int, num_heads: int, window: int, dropout: float = 0.0, rotary: bool = False) -> None:
        super().__init__(dim, num_heads, rotary)
        if window < 1:
            raise ValueError(f"window={window} must be at least 1: the token itself counts")
        self.window = window
        self.dropout = dropout

    def init_state(
        self, batch: int, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> LocalState:
        """An empty cache for B sequences."""
        like = self.output.weight
        shape = batch, self.num_heads, 0, self.dim // self.num_heads
        empty = torch.zeros(shape, device=device or like.device, dtype=dtype or like.dtype)
        return LocalState(keys=empty, values=empty, position=torch.zeros((), dtype=torch.int64, device="cpu"))

    def state_bytes(self, seq_len: int) -> int:
        """Bytes of the cache of one sequence of seq_len tokens in float32."""
        return 4 * 2 * self.dim * min(seq_len, self.window - 1)

    def forward(
        self, x: Float[Tensor, "B N dim"], state: LocalState | None = None
    ) -> tuple[Float[Tensor, "B N dim"], LocalState]:
        """Attend from each new token to the tokens of its window, the cached ones included."""
        state = self.init_state(x.shape[0], x.device) if state is None else state
        require_batch(state.keys, "keys", x)
        position = int(state.position)
        queries, keys, values = split_heads(self.qkv(x), self.num_heads, 3)
        if self.rotary is not None:
            queries, keys = self.rotary(queries, position), self.rotary(keys, position)
        keys = torch.cat([state.keys.to(keys.dtype), keys], dim=2)
        values = torch.cat([state.values.to(values.dtype), values], dim=2)
        y = self._banded(queries, keys, values)
        first_kept = max(0, keys.shape[2] - (self.window - 1))
        seen = torch.tensor(position + x.shape[1], device="cpu")
        # Copies: a slice would hold the whole call.
        state = LocalState(keys[:, :, first_kept:].clone(), values[:, :, first_kept:].clone(), seen)
        return self.output(merge_heads(y)), state

    def _banded(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        num_tokens, before = queries.shape[2], self.window - 1
        if not num_tokens:
            return queries
        block = min(self.window, num_tokens)
        num_blocks = -(-num_tokens // block)
        # Room for a whole window before the first query, and for whole blocks; none of it is ever seen.
        missing, rest = before - (keys.shape[2] - num_tokens), num_blocks * block - num_tokens
        keys, values = (F.pad(each, (0, 0, missing, rest)) for each in (keys, values))
        # (B, H, blocks, queries of a block or keys that they may see, E)
        queries = F.pad(queries, (0, 0, 0, rest)).unflatten(2, (num_blocks, block))
        keys, values = (each.unfold(2, before + block, block).transpose(-1, -2) for each in (keys, values))
        place = torch.arange(before + block, device=keys.device)
        query = torch.arange(block, device=keys.device).unsqueeze(-1)
        seen = (place >= query) & (place <= query + before)
        start = block * torch.arange(num_blocks, device=keys.device).reshape(-1, 1, 1)
        mask = seen & (start + place >= missing)
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, dropout_p=dropout)
        return y.flatten(2, 3)[:, :, :num_tokens]
