"""The Transformer block, and the gated fusion that adds what the memory read to the residual stream."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tensormem.memory import MemoryState, TensorMemory


class Mixer(Protocol):
    """What a block needs of the layer that mixes tokens: any attention, or a replacement for it.

    Attributes:
        output: the linear map that ends the branch.
    """

    output: nn.Linear

    def __call__(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]: ...

    def init_state(
        self, batch: int, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> Any: ...

    def state_bytes(self, seq_len: int) -> int: ...


class MLP(nn.Module):
    """Two linear maps with a GELU between them.

    Args:
        dim: width of the tokens.
        ratio: width of the hidden layer over dim.
    """

    def __init__(self, dim: int, ratio: float = 4.0) -> None:
        super().__init__()
        self.hidden = nn.Linear(dim, round(ratio * dim))
        self.activation = nn.GELU()
        self.output = nn.Linear(round(ratio * dim), dim)

    def forward(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Applied to each token alone."""
        return self.output(self.activation(self.hidden(x)))


class Block(nn.Module):
    """A pre-norm Transformer block: x + mixer(LayerNorm(x)), then x + MLP(LayerNorm(x)).

    Args:
        dim: width of the tokens.
        mixer: what mixes tokens.
        mlp_ratio: width of the MLP over dim.
        dropout: on both branches.
        sandwich: a second LayerNorm, on what the mixer returns.
    """

    def __init__(
        self, dim: int, mixer: nn.Module, mlp_ratio: float = 4.0, dropout: float = 0.0, sandwich: bool = False
    ) -> None:
        super().__init__()
        self.mixer_norm = nn.LayerNorm(dim)
        self.mixer: Mixer = mixer  # type: ignore[assignment]
        self.mixed_norm = nn.LayerNorm(dim) if sandwich else None
        self.mlp_norm = nn.LayerNorm(dim)
        self.mlp = MLP(dim, mlp_ratio)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "B N dim"], state: Any = None) -> tuple[Float[Tensor, "B N dim"], Any]:
        """The tokens and the mixer's next state."""
        mixed, state = self.mixer(self.mixer_norm(x), state)
        if self.mixed_norm is not None:
            mixed = self.mixed_norm(mixed)
        x = x + self.dropout(mixed)
        x = x + self.dropout(self.mlp(self.mlp_norm(x)))
        return x, state


class GatedFusion(nn.Module):
    """x + sigm(gamma) * memory(LayerNorm(x)): what one layer adds to a memory that all layers share.

    Args:
        dim: width of the tokens.
        gamma: initial value of the gate's logit.
        dropout: on what the memory returns.
    """

    def __init__(self, dim: int, gamma: float = 0.0, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.gamma = nn.Parameter(torch.tensor(float(gamma)))
        self.dropout = nn.Dropout(dropout)

    @property
    def gate(self) -> Tensor:
        """sigm(gamma), 0-d."""
        return torch.sigmoid(self.gamma)

    def forward(
        self, x: Float[Tensor, "B N dim"], memory: TensorMemory, state: MemoryState | None
    ) -> tuple[Float[Tensor, "B N dim"], MemoryState]:
        """The tokens with the memory's contribution, and the memory's next state."""
        y, state = memory(self.norm(x), state)
        return x + self.dropout(self.gate * y), state
