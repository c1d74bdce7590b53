"""Heads: cutting vectors into them, the projections that attentions share, and what they check.

Legend: B batch, N tokens, H heads, E width of a head.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from tensormem.layers.positions import RotaryPositions


class HeadedAttention(nn.Module):
    """Queries, keys and values from one linear map, and the map that ends the branch.

    Args:
        dim: width of the tokens.
        num_heads: H, a divisor of dim.
        rotary: whether there are rotary positions.
    """

    def __init__(self, dim: int, num_heads: int, rotary: bool) -> None:
        super().__init__()
        check_heads(dim, num_heads)
        self.dim = dim
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.output = nn.Linear(dim, dim)
        self.rotary = RotaryPositions(dim // num_heads) if rotary else None


def split_heads(
    x: Float[Tensor, "B N channels"], num_heads: int, count: int
) -> tuple[Float[Tensor, "B num_heads N E"], ...]:
    """Several projections that lie side by side, each cut into heads."""
    heads = x.unflatten(-1, (count, num_heads, x.shape[-1] // (count * num_heads)))
    return heads.permute(2, 0, 3, 1, 4).unbind(0)


def merge_heads(x: Float[Tensor, "B H N E"]) -> Float[Tensor, "B N dim"]:
    """The heads of each token side by side."""
    return x.transpose(1, 2).flatten(2)


def check_heads(dim: int, num_heads: int) -> None:
    """Raise ValueError where the heads don't divide the width."""
    if num_heads < 1 or dim % num_heads:
        raise ValueError(f"num_heads={num_heads} must be at least 1 and divide dim={dim}")


def require_batch(tensor: Tensor, name: str, x: Tensor) -> None:
    """Raise ValueError where a tensor of a state belongs to another number of sequences than x."""
    if tensor.shape[0] != x.shape[0]:
        raise ValueError(
            f"state.{name} has {tensor.shape[0]} sequences, but x has {x.shape[0]}: start from init_state({x.shape[0]})"
        )
