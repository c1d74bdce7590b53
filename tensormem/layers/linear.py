"""Linear attention with the feature map ELU + 1 (Katharopoulos et al. 2020, arXiv 2006.16236).

Legend: B batch, N new tokens, H heads, E width of a head, M chunks of K tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from tensormem.layers.heads import HeadedAttention, merge_heads, require_batch, split_heads

# Keeps the division finite where every feature of a query has vanished.
_EPSILON = 1e-6


class LinearState(NamedTuple):
    """The sums of one layer; of a fixed size. Kept in float32 at least.

    Attributes:
        products: (B, H, E, E), the sum over the tokens seen of phi(key) (outer) value.
        keys: (B, H, E), the sum of phi(key), which normalises.
        position: 0-d int64 tensor on the CPU: tokens seen.
    """

    products: Tensor
    keys: Tensor
    position: Tensor


class LinearAttention(HeadedAttention):
    """Causal linear attention: y_t = phi(q_t) sum_{s <= t} phi(k_s) v_s / (phi(q_t) . sum_{s <= t} phi(k_s)).

    Computed in chunks: inside a chunk by its K x K products, across chunks by the running sums. Memory grows with
    N (K + E), not with N E^2. There are no attention weights to drop.

    Args:
        dim: width of the tokens.
        num_heads: H, a divisor of dim.
        chunk: K; None for E, which balances both parts. Makes no difference to what is computed.
        rotary: rotate phi(q) and phi(k) in the numerator by their position (Su et al. 2021, eq. 19).
    """

    def __init__(self, dim: int, num_heads: int, chunk: int | None = None, rotary: bool = False) -> None:
        super().__init__(dim, num_heads, rotary)
        self.chunk = max(16, dim // num_heads) if chunk is None else chunk
        if self.chunk < 1:
            raise ValueError(f"chunk={chunk} must be at least 1")

    def init_state(
        self, batch: int, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> LinearState:
        """Empty sums for B sequences."""
        like = self.output.weight
        head_dim = self.dim // self.num_heads
        products = torch.zeros(
            (batch, self.num_heads, head_dim, head_dim),
            device=device or like.device,
            dtype=torch.promote_types(dtype or like.dtype, torch.float32),
        )
        return LinearState(
            products, products.new_zeros(products.shape[:-1]), torch.zeros((), dtype=torch.int64, device="cpu")
        )

    def state_bytes(self, seq_len: int) -> int:
        """Bytes of the sums of one sequence in float32, whatever its length."""
        return 4 * self.dim * (self.dim // self.num_heads + 1)

    def forward(
        self, x: Float[Tensor, "B N dim"], state: LinearState | None = None
    ) -> tuple[Float[Tensor, "B N dim"], LinearState]:
        """Attend from each new token to all tokens seen and to itself."""
        state = self.init_state(x.shape[0], x.device) if state is None else state
        require_batch(state.products, "products", x)
        position = int(state.position)
        projected = self.qkv(x)
        # Sums over a whole sequence need more than half precision.
        with torch.autocast(x.device.type, enabled=False):
            queries, keys, values = split_heads(projected.to(state.products.dtype), self.num_heads, 3)
            y, products, key_sum = self._attend(F.elu(queries) + 1, F.elu(keys) + 1, values, state)
        y = self.output(merge_heads(y).to(projected.dtype))
        return y, LinearState(products, key_sum, torch.tensor(position + x.shape[1], device="cpu"))

    def _attend(
        self, queries: Tensor, keys: Tensor, values: Tensor, state: LinearState
    ) -> tuple[Tensor, Tensor, Tensor]:
        num_tokens = queries.shape[2]
        if not num_tokens:
            return values, state.products, state.keys
        normaliser = ((state.keys.unsqueeze(2) + keys.cumsum(2)) * queries).sum(-1, keepdim=True)
        key_sum = state.keys + keys.sum(2)
        if self.rotary is not None:
            position = int(state.position)
            queries, keys = self.rotary(queries, position), self.rotary(keys, position)
        chunk = min(self.chunk, num_tokens)
        num_chunks = -(-num_tokens // chunk)
        # Zeros at the end add nothing to any sum. (B, H, M, K, E)
        rest = num_chunks * chunk - num_tokens
        queries, keys, values = (
            F.pad(each, (0, 0, 0, rest)).unflatten(2, (num_chunks, chunk)) for each in (queries, keys, values)
        )
        inside = (queries @ keys.transpose(-1, -2)).tril() @ values
        of_chunk = keys.transpose(-1, -2) @ values
        up_to = state.products.unsqueeze(2) + of_chunk.cumsum(2)
        before = torch.cat([state.products.unsqueeze(2), up_to[:, :, :-1]], dim=2)
        y = (inside + queries @ before).flatten(2, 3)[:, :, :num_tokens]
        # A copy: a slice would hold the sums up to every chunk.
        return y / (normaliser + _EPSILON), up_to[:, :, -1].clone(), key_sum
