"""Attention and its cache.

Legend: B batch, N new tokens, P tokens already cached, H heads, E width of a head.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from tensormem.layers.heads import HeadedAttention, merge_heads, require_batch, split_heads


class AttentionState(NamedTuple):
    """The key-value cache of one layer; it grows with the sequence.

    Attributes:
        keys: (B, H, P, E), rotated already where positions are rotary.
        values: (B, H, P, E).
    """

    keys: Tensor
    values: Tensor


class CausalAttention(HeadedAttention):
    """Multi-head causal self-attention over the cache and the new tokens.

    Args:
        dim: width of the tokens.
        num_heads: H, a divisor of dim.
        dropout: dropout on the attention weights.
        rotary: rotate queries and keys by their position.
    """

    def __init__(self, dim: int, num_heads: int, dropout: float = 0.0, rotary: bool = False) -> None:
        super().__init__(dim, num_heads, rotary)
        self.dropout = dropout

    def init_state(
        self, batch: int, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> AttentionState:
        """An empty cache for B sequences."""
        weight = self.output.weight
        empty = torch.zeros(
            batch,
            self.num_heads,
            0,
            self.dim // self.num_heads,
            device=weight.device if device is None else device,
            dtype=weight.dtype if dtype is None else dtype,
        )
        return AttentionState(keys=empty, values=empty)

    def state_bytes(self, seq_len: int) -> int:
        """Bytes of the cache of one sequence of seq_len tokens in float32."""
        return 4 * 2 * self.dim * seq_len

    def forward(
        self, x: Float[Tensor, "B N dim"], state: AttentionState | None = None
    ) -> tuple[Float[Tensor, "B N dim"], AttentionState]:
        """Attend from each new token to the cached ones, the earlier new ones and itself."""
        num_tokens = x.shape[1]
        if state is not None:
            require_batch(state.keys, "keys", x)
        queries, keys, values = split_heads(self.qkv(x), self.num_heads, 3)
        num_cached = 0 if state is None else state.keys.shape[2]
        if self.rotary is not None:
            queries, keys = self.rotary(queries, num_cached), self.rotary(keys, num_cached)
        if state is not None and num_cached:
            keys = torch.cat([state.keys.to(keys.dtype), keys], dim=2)
            values = torch.cat([state.values.to(values.dtype), values], dim=2)
        else:
            # Copies: slices would hold the queries as well.
            keys, values = keys.clone(), values.clone()
        mask = None
        if num_cached and num_tokens > 1:
            mask = torch.ones(num_tokens, keys.shape[2], dtype=torch.bool, device=x.device).tril(num_cached)
        y = F.scaled_dot_product_attention(
            queries,
            keys,
            values,
            attn_mask=mask,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=num_cached == 0,
        )
        return self.output(merge_heads(y)), AttentionState(keys=keys, values=values)
