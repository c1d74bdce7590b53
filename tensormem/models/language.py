"""The language zoo: the plain Transformer and its variants, those with another attention, and the Tensor Memory.

Legend: W words in the vocabulary, L layers, C channels and K chunk size of the memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensormem.layers.block import Block
from tensormem.layers.linear import LinearAttention
from tensormem.layers.positions import PositionsKind, check_kind
from tensormem.layers.stack import Stack, Threading
from tensormem.layers.transformer_xl import RelativeKind, SegmentAttention
from tensormem.memory import TensorMemory
from tensormem.models.backbone import (
    AttentionDropout,
    dropout_on_weights,
    make_blocks,
    matched_mlp_ratio,
    plain_blocks,
)
from tensormem.models.language_model import LanguageModel


class BaseLM(LanguageModel):
    """The plain pre-norm Transformer: `base`; with a window `local`, and with rotary positions too `local_rope`.

    Args:
        vocab_size: W.
        dim: width of the tokens.
        num_layers: L.
        num_heads: attention heads.
        mlp_ratio: width of the MLP over dim.
        dropout: on the embedding, the attention weights and both branches of each block.
        positions: ``learned``, ``rope`` or ``none``.
        attn_dropout: ``matched``: every model drops attention weights alike; ``paper``: rotary ones don't.
        window: tokens that each one attends to, itself included; None for all before it.
        sandwich: a second LayerNorm, after the attention (`base_sln`).
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
        window: int | None = None,
        sandwich: bool = False,
        **kwargs: Any,
    ) -> None:
        blocks = plain_blocks(num_layers, dim, num_heads, mlp_ratio, dropout, positions, attn_dropout, window, sandwich)
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
        window: tokens that each one attends to, itself included (`tensor_local`); None for all before it.
        sandwich: a second LayerNorm, after the attention (`tensor_sln`).
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
        window: int | None = None,
        sandwich: bool = False,
        **kwargs: Any,
    ) -> None:
        blocks = plain_blocks(num_layers, dim, num_heads, mlp_ratio, dropout, positions, attn_dropout, window, sandwich)
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
        ratio = matched_mlp_ratio(
            dim, num_layers, mlp_ratio, memory_channels, memory_grid, memory_chunk, memory_options
        )
        super().__init__(vocab_size, dim, num_layers, num_heads, mlp_ratio=ratio, **kwargs)


class LinearLM(LanguageModel):
    """The Transformer with linear attention, whose state has a fixed size: `linear`.

    Args:
        vocab_size: W.
        dim: width of the tokens.
        num_layers: L.
        num_heads: attention heads.
        mlp_ratio: width of the MLP over dim.
        dropout: on the embedding and both branches of each block.
        positions: ``learned``, ``rope`` or ``none``.
        attn_dropout: makes no difference: linear attention has no weights to drop.
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
        check_kind(positions)
        dropout_on_weights(dropout, attn_dropout, published=False)
        blocks = make_blocks(
            num_layers,
            lambda: Block(dim, LinearAttention(dim, num_heads, rotary=positions == "rope"), mlp_ratio, dropout),
        )
        super().__init__(vocab_size, dim, Stack(blocks, dim), positions=positions, dropout=dropout, **kwargs)


class TransformerXL(LanguageModel):
    """The Transformer that attends to cached segments as well (Dai et al. 2019): `transformer_xl`.

    It is made to be trained on streams, each batch going on from the state of the one before.

    Args:
        vocab_size: W.
        dim: width of the tokens.
        num_layers: L.
        num_heads: attention heads.
        segment: tokens of a segment.
        memory_length: tokens before a segment that each layer keeps.
        relative: ``bias`` (the authors') or ``relative`` (the original); see SegmentAttention.
        mlp_ratio: width of the MLP over dim.
        dropout: on the embedding, the attention weights and both branches of each block.
        positions: ``none``, for distances are known already; ``learned`` and ``rope`` add to that.
        attn_dropout: ``matched``: every model drops attention weights alike; ``paper``: this one doesn't.
        **kwargs: see LanguageModel (max_length, init).
    """

    def __init__(
        self,
        vocab_size: int,
        dim: int = 384,
        num_layers: int = 8,
        num_heads: int = 8,
        *,
        segment: int = 512,
        memory_length: int = 512,
        relative: RelativeKind = "bias",
        mlp_ratio: float = 4.0,
        dropout: float = 0.2,
        positions: PositionsKind = "none",
        attn_dropout: AttentionDropout = "matched",
        **kwargs: Any,
    ) -> None:
        check_kind(positions)
        on_weights = dropout_on_weights(dropout, attn_dropout, published=False)

        def block() -> Block:
            mixer = SegmentAttention(
                dim, num_heads, segment, memory_length, relative, on_weights, rotary=positions == "rope"
            )
            return Block(dim, mixer, mlp_ratio, dropout)

        stack = Stack(make_blocks(num_layers, block), dim)
        super().__init__(vocab_size, dim, stack, positions=positions, dropout=dropout, **kwargs)
