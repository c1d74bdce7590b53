"""Attention without a direction, for images: every token attends to all, or to those near it in the sequence.

Legend: B batch, N tokens, H heads, E width of a head.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from tensormem.layers.heads import HeadedAttention, merge_heads, split_heads


class BidirectionalAttention(HeadedAttention):
    """Multi-head self-attention to all tokens of a call; it carries nothing from one call to the next.

    Args:
        dim: width of the tokens.
        num_heads: H, a divisor of dim.
        dropout: dropout on the attention weights.
        half_width: attend to tokens at most so far away in the sequence, on either side; None: to all.
    """

    def __init__(self, dim: int, num_heads: int, dropout: float = 0.0, half_width: int | None = None) -> None:
        super().__init__(dim, num_heads, rotary=False)
        if half_width is not None and half_width < 0:
            raise ValueError(f"half_width={half_width} must not be negative")
        self.dropout = dropout
        self.half_width = half_width

    def init_state(self, *_: object) -> None:
        """None: there is no state."""

    def state_bytes(self, seq_len: int) -> int:
        """Nothing is carried."""
        return 0

    def forward(self, x: Float[Tensor, "B N dim"], state: None = None) -> tuple[Float[Tensor, "B N dim"], None]:
        """Attend from each token to all, or to those in reach."""
        queries, keys, values = split_heads(self.qkv(x), self.num_heads, 3)
        y = F.scaled_dot_product_attention(
            queries,
            keys,
            values,
            attn_mask=self._mask(x.shape[1], x.device),
            dropout_p=self.dropout if self.training else 0.0,
        )
        return self.output(merge_heads(y)), None

    def _mask(self, num_tokens: int, device: torch.device) -> Tensor | None:
        if self.half_width is None:
            return None
        place = torch.arange(num_tokens, device=device)
        return (place[:, None] - place[None, :]).abs() <= self.half_width
