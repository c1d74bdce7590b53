"""The zoo of the diagnostic suite: small Transformers that answer questions about a generated sequence.

Legend: B batch, N tokens, A numbers and S symbols of a token, L layers, C channels and K chunk size of the memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tensormem.layers.positions import PositionsKind
from tensormem.layers.slots import SlotStack
from tensormem.layers.stack import Stack, Threading
from tensormem.memory import TensorMemory
from tensormem.models.backbone import matched_mlp_ratio, plain_blocks
from tensormem.models.sequence_model import SequenceModel, SequenceState


class Tokens(NamedTuple):
    """What a token of a diagnostic shows.

    Attributes:
        numbers: (B, N, A) float, its continuous features.
        symbols: (B, N, S) int64, its discrete features.
    """

    numbers: Tensor
    symbols: Tensor


class TokenEmbedding(nn.Module):
    """Linear(numbers) plus an embedding of each symbol.

    Args:
        num_numbers: A.
        vocabularies: how many values each of the S symbols has.
        dim: width of the result.
    """

    def __init__(self, num_numbers: int, vocabularies: Sequence[int], dim: int) -> None:
        super().__init__()
        if num_numbers < 0 or (num_numbers == 0 and not vocabularies):
            raise ValueError(f"num_numbers={num_numbers} with vocabularies={list(vocabularies)}: tokens show nothing")
        self.numbers = nn.Linear(num_numbers, dim) if num_numbers else None
        self.symbols = nn.ModuleList(nn.Embedding(size, dim) for size in vocabularies)

    def forward(self, tokens: Tokens) -> Float[Tensor, "B N dim"]:
        """The vectors of the tokens."""
        parts = [embed(tokens.symbols[..., place]) for place, embed in enumerate(self.symbols)]
        if self.numbers is not None:
            parts.append(self.numbers(tokens.numbers))
        return torch.stack(parts).sum(0)


class DiagnosticModel(SequenceModel):
    """Embedding, positions, a stack of blocks, a final LayerNorm and a linear readout at every token.

    A subclass builds its stack and hands it over. Weights start as PyTorch has them, as published.

    Args:
        num_numbers: A.
        vocabularies: how many values each of the S symbols has.
        num_classes: classes of an answer.
        dim: width of the tokens.
        stack: the blocks.
        max_length: positions that ``positions=learned`` knows; the other kinds have no limit.
        positions: ``learned``, ``rope`` or ``none``.
        dropout: on the embedded tokens.
    """

    def __init__(
        self,
        num_numbers: int,
        vocabularies: Sequence[int],
        num_classes: int,
        dim: int,
        stack: Stack | SlotStack,
        *,
        max_length: int = 512,
        positions: PositionsKind = "none",
        dropout: float = 0.0,
    ) -> None:
        if num_classes < 2:
            raise ValueError(f"num_classes={num_classes} must be at least 2")
        embedding = TokenEmbedding(num_numbers, vocabularies, dim)
        super().__init__(embedding, dim, stack, max_length=max_length, positions=positions, dropout=dropout)
        self.readout = nn.Linear(dim, num_classes)

    def forward(
        self, tokens: Tokens, state: SequenceState | None = None
    ) -> tuple[Float[Tensor, "B N classes"], SequenceState | None]:
        """Logits at each token, and the next state."""
        hidden, state = self.encode(self.embedding(tokens), state)
        return self.readout(hidden), state


class BaseDiagnostic(DiagnosticModel):
    """The plain pre-norm Transformer with a causal mask: `base`.

    Args:
        num_numbers: A.
        vocabularies: how many values each of the S symbols has.
        num_classes: classes of an answer.
        dim: width of the tokens.
        num_layers: L.
        num_heads: attention heads.
        mlp_ratio: width of the MLP over dim.
        dropout: on both branches of each block and on the attention weights.
        positions: ``learned``, ``rope`` or ``none``.
        **kwargs: see DiagnosticModel (max_length).
    """

    def __init__(
        self,
        num_numbers: int,
        vocabularies: Sequence[int],
        num_classes: int,
        dim: int = 64,
        num_layers: int = 2,
        num_heads: int = 4,
        *,
        mlp_ratio: float = 4.0,
        dropout: float = 0.1,
        positions: PositionsKind = "none",
        **kwargs: Any,
    ) -> None:
        stack = Stack(plain_blocks(num_layers, dim, num_heads, mlp_ratio, dropout, positions), dim)
        super().__init__(num_numbers, vocabularies, num_classes, dim, stack, positions=positions, **kwargs)


class BaseWideDiagnostic(BaseDiagnostic):
    """The plain Transformer with an MLP so wide that it has as many parameters as `tensor`, within 1%: `base_wide`.

    The published control has an MLP of 4.5 times the width.

    Args:
        num_numbers: A.
        vocabularies: how many values each of the S symbols has.
        num_classes: classes of an answer.
        dim: width of the tokens.
        num_layers: L.
        num_heads: attention heads.
        mlp_ratio: of the `tensor` that is to be matched.
        memory_channels: C of its memory.
        memory_grid: points along each axis of its memory.
        memory_chunk: K of its memory.
        memory_options: further keyword arguments of its memory.
        **kwargs: see BaseDiagnostic.
    """

    def __init__(
        self,
        num_numbers: int,
        vocabularies: Sequence[int],
        num_classes: int,
        dim: int = 64,
        num_layers: int = 2,
        num_heads: int = 4,
        *,
        mlp_ratio: float = 4.0,
        memory_channels: int = 16,
        memory_grid: Sequence[int] = (6, 6, 6),
        memory_chunk: int = 1,
        memory_options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        ratio = matched_mlp_ratio(
            dim, num_layers, mlp_ratio, memory_channels, memory_grid, memory_chunk, memory_options
        )
        super().__init__(num_numbers, vocabularies, num_classes, dim, num_layers, num_heads, mlp_ratio=ratio, **kwargs)


class SlotsDiagnostic(DiagnosticModel):
    """The Transformer with slots that tokens read and that attend to the tokens, in every layer: `slots`.

    Args:
        num_numbers: A.
        vocabularies: how many values each of the S symbols has.
        num_classes: classes of an answer.
        dim: width of the tokens.
        num_layers: L.
        num_heads: attention heads.
        num_slots: slots.
        mlp_ratio: width of the MLP over dim.
        dropout: on both branches of each block, on what is read and written, and on all attention weights.
        positions: ``learned``, ``rope`` or ``none``.
        **kwargs: see DiagnosticModel (max_length).
    """

    def __init__(
        self,
        num_numbers: int,
        vocabularies: Sequence[int],
        num_classes: int,
        dim: int = 64,
        num_layers: int = 2,
        num_heads: int = 4,
        *,
        num_slots: int = 8,
        mlp_ratio: float = 4.0,
        dropout: float = 0.1,
        positions: PositionsKind = "none",
        **kwargs: Any,
    ) -> None:
        blocks = plain_blocks(num_layers, dim, num_heads, mlp_ratio, dropout, positions)
        stack = SlotStack(blocks, dim, num_heads, num_slots, dropout)
        super().__init__(num_numbers, vocabularies, num_classes, dim, stack, positions=positions, **kwargs)


class TensorDiagnostic(DiagnosticModel):
    """The Transformer with a Tensor Memory after each block: `tensor`, and with threading=layer `tensor_layer`.

    Args:
        num_numbers: A.
        vocabularies: how many values each of the S symbols has.
        num_classes: classes of an answer.
        dim: width of the tokens.
        num_layers: L.
        num_heads: attention heads.
        memory_channels: C of the memory.
        memory_grid: points along each axis of the memory.
        memory_chunk: K, tokens to a step of the memory.
        memory_options: further keyword arguments of TensorMemory (the ablation switches, sigma_scale).
        threading: ``depth`` (as published: the answers come last) or ``layer``; see Stack.
        gamma: initial logit of each layer's gate.
        mlp_ratio: width of the MLP over dim.
        dropout: on both branches of each block, on the memory's contribution and on the attention weights.
        positions: ``learned``, ``rope`` or ``none``.
        window: tokens that each one attends to, itself included (`tensor_local`); None for all before it.
        **kwargs: see DiagnosticModel (max_length).
    """

    def __init__(
        self,
        num_numbers: int,
        vocabularies: Sequence[int],
        num_classes: int,
        dim: int = 64,
        num_layers: int = 2,
        num_heads: int = 4,
        *,
        memory_channels: int = 16,
        memory_grid: Sequence[int] = (6, 6, 6),
        memory_chunk: int = 1,
        memory_options: Mapping[str, Any] | None = None,
        threading: Threading = "depth",
        gamma: float = 0.0,
        mlp_ratio: float = 4.0,
        dropout: float = 0.1,
        positions: PositionsKind = "none",
        window: int | None = None,
        **kwargs: Any,
    ) -> None:
        blocks = plain_blocks(num_layers, dim, num_heads, mlp_ratio, dropout, positions, window=window)
        memory = TensorMemory(dim, memory_channels, memory_grid, memory_chunk, **(memory_options or {}))
        stack = Stack(blocks, dim, memory, threading, gamma, dropout)
        super().__init__(num_numbers, vocabularies, num_classes, dim, stack, positions=positions, **kwargs)
