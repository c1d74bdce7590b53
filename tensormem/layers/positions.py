"""Positions: learned embeddings of a fixed length, or rotary ones without a limit.

Legend: B batch, N tokens, H heads, E width of a head.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

PositionsKind = Literal["learned", "rope", "none"]


def check_kind(kind: str) -> None:
    """Raise ValueError for a kind of positions that does not exist."""
    if kind not in get_args(PositionsKind):
        raise ValueError(f"positions={kind!r} is unknown; choose one of {get_args(PositionsKind)}")


class LearnedPositions(nn.Module):
    """One learned vector per position, zero at the start.

    Args:
        max_length: number of positions.
        dim: width of the tokens.
    """

    def __init__(self, max_length: int, dim: int) -> None:
        super().__init__()
        self.max_length = max_length
        self.weight = nn.Parameter(torch.zeros(max_length, dim))

    def forward(self, offset: int, num_tokens: int) -> Float[Tensor, "N dim"]:
        """The vectors of positions offset to offset + num_tokens - 1.

        Raises:
            ValueError: a position beyond the trained length.
        """
        if offset + num_tokens > self.max_length:
            raise ValueError(
                f"positions=learned knows {self.max_length} positions, but position {offset + num_tokens - 1} "
                f"is asked for: use positions=rope or positions=none to go beyond the trained length"
            )
        return self.weight[offset : offset + num_tokens]


class RotaryPositions(nn.Module):
    """Rotary position embedding (Su et al. 2021, arXiv 2104.09864), of queries and keys.

    Args:
        head_dim: E, an even number.
        base: the longest wavelength is 2 pi base.
    """

    def __init__(self, head_dim: int, base: float = 10_000.0) -> None:
        super().__init__()
        if head_dim % 2:
            raise ValueError(f"positions=rope needs an even width of a head, not {head_dim}")
        self.head_dim = head_dim
        self.base = base

    def forward(self, x: Float[Tensor, "B H N E"], offset: int) -> Float[Tensor, "B H N E"]:
        """Rotate each pair of components (e, e + E/2) by its position times its frequency."""
        half = self.head_dim // 2
        # float64: at position 100,000 a float32 angle is off by several thousandths of a radian.
        exponent = torch.arange(half, device=x.device, dtype=torch.float64) / half
        position = torch.arange(offset, offset + x.shape[2], device=x.device, dtype=torch.float64)
        angle = position[:, None] * self.base**-exponent
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        first, second = x[..., :half], x[..., half:]
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
