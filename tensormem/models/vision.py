"""The zoo of the image benchmark: masked autoencoders that differ in their encoder.

Legend: L layers, C channels and K chunk size of the memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensormem.layers.bidirectional import BidirectionalAttention
from tensormem.layers.block import Block
from tensormem.layers.stack import Stack, Threading
from tensormem.memory import TensorMemory
from tensormem.models.backbone import make_blocks
from tensormem.models.masked_autoencoder import MaskedAutoencoder


def _drop_rates(drop_path: float, num_layers: int) -> list[float]:
    """Rising linearly from 0 to drop_path, as is usual for vision Transformers."""
    return [drop_path * layer / max(1, num_layers - 1) for layer in range(num_layers)]


def _blocks(
    num_layers: int,
    dim: int,
    num_heads: int,
    mlp_ratio: float,
    dropout: float,
    drop_path: float,
    half_width: int | None = None,
) -> list[Block]:
    rates = iter(_drop_rates(drop_path, num_layers))

    def block() -> Block:
        mixer = BidirectionalAttention(dim, num_heads, dropout, half_width)
        return Block(dim, mixer, mlp_ratio, dropout, drop_path=next(rates))

    return make_blocks(num_layers, block)


class BaseMAE(MaskedAutoencoder):
    """The plain vision Transformer: `base`; with a half width `local`, with registers `registers`.

    Args:
        dim: width of the encoder.
        num_layers: L.
        num_heads: attention heads.
        mlp_ratio: width of the MLP over dim.
        dropout: on both branches of each block and on the attention weights.
        drop_path: probability with which the last block's branches are left out; it rises linearly from 0.
        half_width: tokens on either side that each one attends to, in the order in which they arrive; None: all.
        **kwargs: see MaskedAutoencoder (image_size, patch, decoder_dim, decoder_layers, decoder_heads,
            num_registers, token_order, init).
    """

    def __init__(
        self,
        dim: int = 192,
        num_layers: int = 4,
        num_heads: int = 3,
        *,
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
        drop_path: float = 0.1,
        half_width: int | None = None,
        **kwargs: Any,
    ) -> None:
        blocks = _blocks(num_layers, dim, num_heads, mlp_ratio, dropout, drop_path, half_width)
        super().__init__(Stack(blocks, dim), dim, **kwargs)


class TensorMAE(MaskedAutoencoder):
    """The vision Transformer with a Tensor Memory between attention and MLP of every second block: `tensor`.

    Args:
        dim: width of the encoder.
        num_layers: L.
        num_heads: attention heads.
        memory_channels: C of the memory.
        memory_grid: points along each axis of the memory.
        memory_chunk: K, tokens to a step of the memory.
        memory_every: the memory is in every so many blocks, the first one among them.
        memory_options: further keyword arguments of TensorMemory (the ablation switches, sigma_scale).
        threading: ``depth`` (as published) or ``layer``; see Stack.
        gamma: initial logit of each gate.
        mlp_ratio: width of the MLP over dim.
        dropout: on the branches of each block, on the memory's contribution and on the attention weights.
        drop_path: probability with which the last block's branches are left out; it rises linearly from 0.
        **kwargs: see MaskedAutoencoder.
    """

    def __init__(
        self,
        dim: int = 192,
        num_layers: int = 4,
        num_heads: int = 3,
        *,
        memory_channels: int = 16,
        memory_grid: Sequence[int] = (4, 4, 4),
        memory_chunk: int = 16,
        memory_every: int = 2,
        memory_options: Mapping[str, Any] | None = None,
        threading: Threading = "depth",
        gamma: float = -2.0,
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
        drop_path: float = 0.1,
        **kwargs: Any,
    ) -> None:
        blocks = _blocks(num_layers, dim, num_heads, mlp_ratio, dropout, drop_path)
        memory = TensorMemory(dim, memory_channels, memory_grid, memory_chunk, **(memory_options or {}))
        stack = Stack(
            blocks,
            dim,
            memory,
            threading,
            gamma,
            dropout,
            _drop_rates(drop_path, num_layers),
            place="between",
            every=memory_every,
        )
        super().__init__(stack, dim, **kwargs)
