"""The language zoo: the plain Transformer, a wide one, and the one with a Tensor Memory.

Legend: W words in the vocabulary, L layers, C channels and K chunk size of the memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import torch
from torch import nn

from tensormem.layers.attention import CausalAttention
from tensormem.layers.block import Block, GatedFusion
from tensormem.layers.positions import PositionsKind, check_kind
from tensormem.layers.stack import Stack, Threading
from tensormem.memory import TensorMemory
from tensormem.models.language_model import LanguageModel

AttentionDropout = Literal["matched", "paper"]


def _attention_blocks(
    dim: int,
    num_layers: int,
    num_heads: int,
    mlp_ratio: float,
    dropout: float,
    positions: PositionsKind,
    attn_dropout: AttentionDropout,
) -> list[Block]:
    check_kind(positions)
    if num_layers < 1:
        raise ValueError(f"num_layers={num_layers} must be at least 1")
    if attn_dropout not in get_args(AttentionDropout):
        raise ValueError(f"attn_dropout={attn_dropout!r} is unknown; choose one of {get_args(AttentionDropout)}")
    # The published rotary models drop no attention weights, unlike those that they are compared with.
    on_weights = 0.0 if attn_dropout == "paper" and positions == "rope" else dropout
    return [
        Block(dim, CausalAttention(dim, num_heads, on_weights, rotary=positions == "rope"), mlp_ratio, dropout)
        for _ in range(num_layers)
    ]


class BaseLM(LanguageModel):
    """The plain pre-norm Transformer.

    Args:
        vocab_size: W.
        dim: width of the tokens.
        num_layers: L.
        num_heads: attention heads.
        mlp_ratio: width of the MLP over dim.
        dropout: on the embedding, the attention weights and both branches of each block.
        positions: ``learned``, ``rope`` or ``none``.
        attn_dropout: ``matched``: every model drops attention weights alike; ``paper``: rotary ones don't.
        **kwargs: see LanguageModel (max_length, init).
    """

    def __init__(
        self,
        vocab_size: int,
        dim: int = 384,
        num_layers: int = 8,
        num_heads: int = 8,
        *,
        mlp_ratio: float = 4.0,
        dropout: float = 0.2,
        positions: PositionsKind = "learned",
        attn_dropout: AttentionDropout = "matched",
        **kwargs: Any,
    ) -> None:
        blocks = _attention_blocks(dim, num_layers, num_heads, mlp_ratio, dropout, positions, attn_dropout)
        super().__init__(vocab_size, dim, Stack(blocks, dim), positions=positions, dropout=dropout, **kwargs)


class TensorLM(LanguageModel):
    """The Transformer with a Tensor Memory after each block's MLP: `tensor`, and with threading=depth `tensor_depth`.

    Args:
        vocab_size: W.
        dim: width of the tokens.
        num_layers: L.
        num_heads: attention heads.
        memory_channels: C of the memory.
        memory_grid: points along each axis of the memory.
        memory_chunk: K, tokens to a step of the memory.
        memory_options: further keyword arguments of TensorMemory (the ablation switches, sigma_scale).
        threading: ``layer`` (causal) or ``depth`` (the paper's, which reads the future); see Stack.
        gamma: initial logit of each layer's gate.
        mlp_ratio: width of the MLP over dim.
        dropout: on the embedding, the attention weights, each branch and the memory's contribution.
        positions: ``learned``, ``rope`` or ``none``.
        attn_dropout: ``matched``: every model drops attention weights alike; ``paper``: rotary ones don't.
        **kwargs: see LanguageModel (max_length, init).
    """

    def __init__(
        self,
        vocab_size: int,
        dim: int = 384,
        num_layers: int = 8,
        num_heads: int = 8,
        *,
        memory_channels: int = 32,
        memory_grid: Sequence[int] = (8, 8, 8),
        memory_chunk: int = 16,
        memory_options: Mapping[str, Any] | None = None,
        threading: Threading = "layer",
        gamma: float = 0.0,
        mlp_ratio: float = 4.0,
        dropout: float = 0.2,
        positions: PositionsKind = "learned",
        attn_dropout: AttentionDropout = "matched",
        **kwargs: Any,
    ) -> None:
        blocks = _attention_blocks(dim, num_layers, num_heads, mlp_ratio, dropout, positions, attn_dropout)
        memory = TensorMemory(dim, memory_channels, memory_grid, memory_chunk, **(memory_options or {}))
        stack = Stack(blocks, dim, memory, threading, gamma, dropout)
        super().__init__(vocab_size, dim, stack, positions=positions, dropout=dropout, **kwargs)


class BaseWideLM(BaseLM):
    """The plain Transformer with an MLP so wide that it has as many parameters as `tensor`, within 1%.

    Args:
        vocab_size: W.
        dim: width of the tokens.
        num_layers: L.
        num_heads: attention heads.
        mlp_ratio: of the `tensor` that is to be matched.
        memory_channels: C of its memory.
        memory_grid: points along each axis of its memory.
        memory_chunk: K of its memory.
        memory_options: further keyword arguments of its memory.
        **kwargs: see BaseLM.
    """

    def __init__(
        self,
        vocab_size: int,
        dim: int = 384,
        num_layers: int = 8,
        num_heads: int = 8,
        *,
        mlp_ratio: float = 4.0,
        memory_channels: int = 32,
        memory_grid: Sequence[int] = (8, 8, 8),
        memory_chunk: int = 16,
        memory_options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        with torch.device("meta"):
            memory = TensorMemory(dim, memory_channels, memory_grid, memory_chunk, **(memory_options or {}))
            fusion = GatedFusion(dim)
        extra = _num_parameters(memory) + num_layers * _num_parameters(fusion)
        # One more hidden unit costs each layer two rows of dim weights and a bias.
        units = round(mlp_ratio * dim) + round(extra / (num_layers * (2 * dim + 1)))
        super().__init__(vocab_size, dim, num_layers, num_heads, mlp_ratio=units / dim, **kwargs)


def _num_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
