"""What the models of all domains build their stacks from: blocks, initial weights, and how wide a control must be.

Legend: L layers, C channels and K chunk size of the memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tensormem.layers.attention import CausalAttention
from tensormem.layers.bidirectional import BidirectionalAttention
from tensormem.layers.block import Block, GatedFusion
from tensormem.layers.local import LocalAttention
from tensormem.layers.positions import PositionsKind, check_kind
from tensormem.layers.stack import Stack
from tensormem.memory import TensorMemory

AttentionDropout = Literal["matched", "paper"]
Init = Literal["tuned", "paper"]
# Mean and deviation of the colours of ImageNet, by which images are normalised as is usual.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_STD = 0.02


def make_blocks(num_layers: int, make: Callable[[], Block]) -> list[Block]:
    """L blocks; raises ValueError where there would be none."""
    if num_layers < 1:
        raise ValueError(f"num_layers={num_layers} must be at least 1")
    return [make() for _ in range(num_layers)]


def dropout_on_weights(dropout: float, attn_dropout: AttentionDropout, published: bool) -> float:
    """Dropout on the attention weights; published says whether the published model has any."""
    if attn_dropout not in get_args(AttentionDropout):
        raise ValueError(f"attn_dropout={attn_dropout!r} is unknown; choose one of {get_args(AttentionDropout)}")
    return dropout if published or attn_dropout == "matched" else 0.0


def plain_blocks(
    num_layers: int,
    dim: int,
    num_heads: int,
    mlp_ratio: float,
    dropout: float,
    positions: PositionsKind,
    attn_dropout: AttentionDropout = "matched",
    window: int | None = None,
    sandwich: bool = False,
) -> list[Block]:
    """L blocks of causal attention and an MLP.

    Args:
        num_layers: L.
        dim: width of the tokens.
        num_heads: attention heads.
        mlp_ratio: width of the MLP over dim.
        dropout: on both branches and on the attention weights.
        positions: ``rope`` rotates queries and keys.
        attn_dropout: ``paper``: rotary attention drops no weights, unlike what it is compared with.
        window: tokens that each one attends to, itself included; None for all before it.
        sandwich: a second LayerNorm, after the attention.
    """
    check_kind(positions)
    rotary = positions == "rope"
    on_weights = dropout_on_weights(dropout, attn_dropout, published=not rotary)

    def block() -> Block:
        mixer: nn.Module
        if window is None:
            mixer = CausalAttention(dim, num_heads, on_weights, rotary)
        else:
            mixer = LocalAttention(dim, num_heads, window, on_weights, rotary)
        return Block(dim, mixer, mlp_ratio, dropout, sandwich)

    return make_blocks(num_layers, block)


def drop_rates(drop_path: float, num_layers: int) -> list[float]:
    """Rising linearly from 0 to drop_path, as is usual for vision Transformers."""
    return [drop_path * layer / max(1, num_layers - 1) for layer in range(num_layers)]


def bidirectional_blocks(
    num_layers: int,
    dim: int,
    num_heads: int,
    mlp_ratio: float,
    dropout: float,
    drop_path: float,
    half_width: int | None = None,
) -> list[Block]:
    """L blocks of attention without a direction and an MLP, for images and frames.

    Args:
        num_layers: L.
        dim: width of the tokens.
        num_heads: attention heads.
        mlp_ratio: width of the MLP over dim.
        dropout: on both branches and on the attention weights.
        drop_path: probability with which the last block's branches are left out; it rises linearly from 0.
        half_width: tokens on either side that each one attends to; None: all.
    """
    rates = iter(drop_rates(drop_path, num_layers))

    def block() -> Block:
        mixer = BidirectionalAttention(dim, num_heads, dropout, half_width)
        return Block(dim, mixer, mlp_ratio, dropout, drop_path=next(rates))

    return make_blocks(num_layers, block)


def normalised(
    images: Float[Tensor, "*batch 3 H W"],
    mean: Sequence[float] = MEAN,
    deviation: Sequence[float] = DEVIATION,
) -> Float[Tensor, "*batch 3 H W"]:
    """Images in [0, 1] with each colour's mean taken away, over its deviation; by default those of ImageNet."""
    return (images - images.new_tensor(mean)[:, None, None]) / images.new_tensor(deviation)[:, None, None]


def initialise(model: nn.Module, stacks: Sequence[Stack], embeddings: Sequence[nn.Parameter], init: Init) -> None:
    """The initial weights of every vision Transformer: linear maps 0.02 normal, their biases zero.

    The memory keeps its own initialisation, as does what is no linear map, and what is frozen.

    Args:
        model: whose linear maps are initialised.
        stacks: of the model.
        embeddings: further parameters that are 0.02 normal.
        init: ``tuned`` scales the weights that end a residual branch by 1 / sqrt(2 L); ``paper`` does not.

    Raises:
        ValueError: an unknown init.
    """
    if init not in get_args(Init):
        raise ValueError(f"init={init!r} is unknown; choose one of {get_args(Init)}")
    own = {module for stack in stacks if stack.memory is not None for module in stack.memory.modules()}
    for module in model.modules():
        if isinstance(module, nn.Linear) and module not in own and module.weight.requires_grad:
            nn.init.normal_(module.weight, std=_STD)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for parameter in embeddings:
        nn.init.normal_(parameter, std=_STD)
    if init == "tuned":
        for stack in stacks:
            for block in stack.blocks:
                for end in (block.mixer.output, block.mlp.output):
                    nn.init.normal_(end.weight, std=_STD / math.sqrt(2 * len(stack.blocks)))


def matched_mlp_ratio(
    dim: int,
    num_layers: int,
    mlp_ratio: float,
    memory_channels: int,
    memory_grid: Sequence[int],
    memory_chunk: int,
    memory_options: Mapping[str, Any] | None = None,
    memory_layers: int | None = None,
) -> float:
    """The MLP ratio with which plain blocks have as many parameters as blocks with a memory, within 1%.

    Args:
        dim: width of the tokens.
        num_layers: L.
        mlp_ratio: of the model with a memory.
        memory_channels: C of its memory.
        memory_grid: points along each axis of its memory.
        memory_chunk: K of its memory.
        memory_options: further keyword arguments of its memory.
        memory_layers: blocks that the memory is in; None: all of them.
    """
    with torch.device("meta"):
        memory = TensorMemory(dim, memory_channels, memory_grid, memory_chunk, **(memory_options or {}))
        fusion = GatedFusion(dim)
    extra = _num_parameters(memory) + (memory_layers or num_layers) * _num_parameters(fusion)
    # One more hidden unit costs each layer two rows of dim weights and a bias.
    units = round(mlp_ratio * dim) + round(extra / (num_layers * (2 * dim + 1)))
    return units / dim


def _num_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
