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


class DropPath(nn.Module):
    """Stochastic depth (Huang et al. 2016, arXiv 1603.09382): in training, a branch is left out sequence by sequence.

    Args:
        probability: of being left out; what is kept is scaled up, so that the mean stays.
    """

    def __init__(self, probability: float = 0.0) -> None:
        super().__init__()
        if not 0 <= probability < 1:
            raise ValueError(f"drop_path={probability} must lie in [0, 1)")
        self.probability = probability

    def forward(self, x: Float[Tensor, "B ..."]) -> Float[Tensor, "B ..."]:
        """x with some of its sequences set to zero."""
        if not self.training or self.probability == 0:
            return x
        kept = torch.rand(x.shape[0], *[1] * (x.dim() - 1), device=x.device) >= self.probability
        return x * kept.to(x.dtype) / (1 - self.probability)


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
        drop_path: probability with which each branch is left out, in training, sequence by sequence.
    """

    def __init__(
        self,
        dim: int,
        mixer: nn.Module,
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
        sandwich: bool = False,
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        self.mixer_norm = nn.LayerNorm(dim)
        self.mixer: Mixer = mixer  # type: ignore[assignment]
        self.mixed_norm = nn.LayerNorm(dim) if sandwich else None
        self.mlp_norm = nn.LayerNorm(dim)
        self.mlp = MLP(dim, mlp_ratio)
        self.dropout = nn.Dropout(dropout)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Float[Tensor, "B N dim"], state: Any = None) -> tuple[Float[Tensor, "B N dim"], Any]:
        """The tokens and the mixer's next state."""
        x, state = self.mix(x, state)
        return self.transform(x), state

    def mix(self, x: Float[Tensor, "B N dim"], state: Any = None) -> tuple[Float[Tensor, "B N dim"], Any]:
        """The first half: the tokens with what the mixer adds, and its next state."""
        mixed, state = self.mixer(self.mixer_norm(x), state)
        if self.mixed_norm is not None:
            mixed = self.mixed_norm(mixed)
        return x + self.drop_path(self.dropout(mixed)), state

    def transform(self, x: Float[Tensor, "B N dim"]) -> Float[Tensor, "B N dim"]:
        """The second half: the tokens with what the MLP adds."""
        return x + self.drop_path(self.dropout(self.mlp(self.mlp_norm(x))))


class GatedFusion(nn.Module):
    """x + sigm(gamma) * memory(LayerNorm(x)): what one layer adds to a memory that all layers share.

    Args:
        dim: width of the tokens.
        gamma: initial value of the gate's logit.
        dropout: on what the memory returns.
        drop_path: probability with which it is left out, in training, sequence by sequence.
    """

    def __init__(self, dim: int, gamma: float = 0.0, dropout: float = 0.0, drop_path: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.gamma = nn.Parameter(torch.tensor(float(gamma)))
        self.dropout = nn.Dropout(dropout)
        self.drop_path = DropPath(drop_path)

    @property
    def gate(self) -> Tensor:
        """sigm(gamma), 0-d."""
        return torch.sigmoid(self.gamma)

    def forward(
        self, x: Float[Tensor, "B N dim"], memory: TensorMemory, state: MemoryState | None
    ) -> tuple[Float[Tensor, "B N dim"], MemoryState]:
        """The tokens with the memory's contribution, and the memory's next state."""
        y, state = memory(self.norm(x), state)
        return x + self.drop_path(self.dropout(self.gate * y)), state
