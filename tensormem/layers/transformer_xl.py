"""Attention with cached segments: Transformer-XL (Dai et al. 2019, arXiv 1901.02860).

Legend: B batch, N new tokens, P tokens already held, H heads, E width of a head, T segment, M memory length,
D = T + M distances.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from tensormem.layers.heads import check_heads, merge_heads, require_batch, split_heads
from tensormem.layers.positions import RotaryPositions

RelativeKind = Literal["bias", "relative"]


class SegmentState(NamedTuple):
    """What one layer holds: its inputs of the current segment and of the last M tokens before the segment's start.

    Attributes:
        inputs: (B, P, dim), P < T + M; those before the segment's start have no gradient.
        position: 0-d int64 tensor on the CPU: tokens seen.
    """

    inputs: Tensor
    position: Tensor


class SegmentAttention(nn.Module):
    """Multi-head causal self-attention within a segment and to the M tokens before it, through which no gradient flows.

    Segments start at multiples of T from a sequence's start, whatever the calls' sizes: the cache is cut there and
    nowhere else.

    Args:
        dim: width of the tokens.
        num_heads: H, a divisor of dim.
        segment: T.
        memory_length: M; 0 for no cache.
        kind: ``bias``, a learned number for each head and distance (the authors'), or ``relative``: sinusoids of the
            distance with a projection of their own and two global biases (Dai et al., section 3.3).
        dropout: dropout on the attention weights.
        rotary: rotate queries and keys by their position as well.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        segment: int,
        memory_length: int,
        kind: RelativeKind = "bias",
        dropout: float = 0.0,
        rotary: bool = False,
    ) -> None:
        super().__init__()
        check_heads(dim, num_heads)
        if kind not in get_args(RelativeKind):
            raise ValueError(f"relative={kind!r} is unknown; choose one of {get_args(RelativeKind)}")
        if segment < 1 or memory_length < 0:
            raise ValueError(f"segment={segment} must be at least 1 and memory_length={memory_length} at least 0")
        self.dim = dim
        self.num_heads = num_heads
        self.segment = segment
        self.memory_length = memory_length
        self.dropout = dropout
        self.query = nn.Linear(dim, dim)
        self.key_value = nn.Linear(dim, 2 * dim)
        self.output = nn.Linear(dim, dim)
        self.rotary = RotaryPositions(dim // num_heads) if rotary else None
        distances = segment + memory_length
        self.distance: DistanceBias | DistanceSinusoids
        if kind == "bias":
            self.distance = DistanceBias(num_heads, distances)
        else:
            self.distance = DistanceSinusoids(dim, num_heads)

    def init_state(
        self, batch: int, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> SegmentState:
        """An empty cache for B sequences."""
        like = self.output.weight
        inputs = torch.zeros(batch, 0, self.dim, device=device or like.device, dtype=dtype or like.dtype)
        return SegmentState(inputs, torch.zeros((), dtype=torch.int64, device="cpu"))

    def state_bytes(self, seq_len: int) -> int:
        """Bytes of the cache of one sequence of seq_len tokens in float32."""
        start = seq_len - seq_len % self.segment
        return 4 * self.dim * (min(start, self.memory_length) + seq_len - start)

    def forward(
        self, x: Float[Tensor, "B N dim"], state: SegmentState | None = None
    ) -> tuple[Float[Tensor, "B N dim"], SegmentState]:
        """Attend from each new token to the cache, the earlier tokens of its segment and itself."""
        state = self.init_state(x.shape[0], x.device, x.dtype) if state is None else state
        require_batch(state.inputs, "inputs", x)
        position, held = int(state.position), state.inputs.to(x.dtype)
        outputs = []
        for piece in self._pieces(x, position):
            held = torch.cat([held, piece], dim=1)
            position += piece.shape[1]
            outputs.append(self._attend(piece, held, position - held.shape[1]))
            if position % self.segment == 0:
                # A copy: a slice would hold what lies before it as well.
                held = held[:, max(0, held.shape[1] - self.memory_length) :].detach().clone()
        y = torch.cat(outputs, dim=1) if outputs else x
        return y, SegmentState(held, torch.tensor(position, device="cpu"))

    def _pieces(self, x: Tensor, position: int) -> Iterator[Tensor]:
        """The new tokens, cut where a segment ends."""
        start = 0
        while start < x.shape[1]:
            size = min(self.segment - (position + start) % self.segment, x.shape[1] - start)
            yield x[:, start : start + size]
            start += size

    def _attend(self, new: Tensor, held: Tensor, first: int) -> Tensor:
        """From the new tokens, the last of those held; the first of those is at position first."""
        num_before = held.shape[1] - new.shape[1]
        (queries,) = split_heads(self.query(new), self.num_heads, 1)
        keys, values = split_heads(self.key_value(held), self.num_heads, 2)
        if self.rotary is not None:
            keys = self.rotary(keys, first)
        query_place = torch.arange(num_before, held.shape[1], device=new.device)
        distance = query_place.unsqueeze(-1) - torch.arange(held.shape[1], device=new.device)
        bias = self.distance(queries, distance.clamp(min=0))
        queries = queries + self.distance.content_bias
        if self.rotary is not None:
            queries = self.rotary(queries, first + num_before)
        bias = bias.masked_fill(distance < 0, -torch.inf)
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(queries, keys, values, attn_mask=bias.to(queries.dtype), dropout_p=dropout)
        return self.output(merge_heads(y))


class DistanceBias(nn.Module):
    """A learned number for each head and distance, zero at the start.

    Args:
        num_heads: H.
        num_distances: D.
    """

    content_bias = 0.0

    def __init__(self, num_heads: int, num_distances: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(num_heads, num_distances))

    def forward(self, queries: Float[Tensor, "B H N E"], distance: Tensor) -> Float[Tensor, "H N P"]:
        """What is added to the scores of keys at the distances (N, P)."""
        return self.weight[:, distance]


class DistanceSinusoids(nn.Module):
    """(q + v) . W r_d / sqrt(E), with r_d the sinusoids of the distance d; and u, which joins q against the keys.

    Args:
        dim: width of the tokens.
        num_heads: H.
    """

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        if dim % 2:
            raise ValueError(f"relative='relative' needs an even dim, not {dim}")
        self.dim = dim
        self.num_heads = num_heads
        self.projection = nn.Linear(dim, dim, bias=False)
        # u and v of the paper.
        self.content_bias = nn.Parameter(torch.zeros(num_heads, 1, dim // num_heads))
        self.distance_bias = nn.Parameter(torch.zeros(num_heads, 1, dim // num_heads))

    def forward(self, queries: Float[Tensor, "B H N E"], distance: Tensor) -> Float[Tensor, "B H N P"]:
        """What is added to the scores of keys at the distances (N, P)."""
        num_distances = int(distance.max()) + 1
        sinusoids = self._sinusoids(num_distances, queries)
        (of_distance,) = split_heads(self.projection(sinusoids).unsqueeze(0), self.num_heads, 1)
        scores = (queries + self.distance_bias) @ of_distance.transpose(-1, -2)
        scores = scores / queries.shape[-1] ** 0.5
        return scores.gather(-1, distance.expand(*scores.shape[:2], *distance.shape))

    def _sinusoids(self, num_distances: int, like: Tensor) -> Tensor:
        half = torch.arange(self.dim // 2, device=like.device, dtype=torch.float64) / (self.dim // 2)
        angle = torch.arange(num_distances, device=like.device, dtype=torch.float64)[:, None] * 10_000.0**-half
        return torch.cat([angle.sin(), angle.cos()], dim=-1).to(self.projection.weight.dtype)
