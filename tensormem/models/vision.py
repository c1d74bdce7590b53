"""The zoo of the image benchmark: masked autoencoders that differ in their encoder.

Legend: L layers, C channels and K chunk size of the memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tensormem.layers.stack import Stack, Threading
from tensormem.memory import TensorMemory
from tensormem.models.backbone import DEVIATION, MEAN, bidirectional_blocks, drop_rates, matched_mlp_ratio
from tensormem.models.masked_autoencoder import MaskedAutoencoder


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
        blocks = bidirectional_blocks(num_layers, dim, num_heads, mlp_ratio, dropout, drop_path, half_width)
        super().__init__(Stack(blocks, dim), dim, **kwargs)


class BaseWideMAE(BaseMAE):
    """`base` with an MLP so wide that it has as many parameters as `tensor`, within 1%: `base_wide`.

    Args:
        dim: width of the encoder.
        num_layers: L.
        num_heads: attention heads.
        mlp_ratio: of the `tensor` that is to be matched.
        memory_channels: C of its memory.
        memory_grid: points along each axis of its memory.
        memory_chunk: K of its memory.
        memory_every: its memory is in every so many blocks.
        memory_options: further keyword arguments of its memory.
        **kwargs: see BaseMAE.
    """

    def __init__(
        self,
        dim: int = 192,
        num_layers: int = 4,
        num_heads: int = 3,
        *,
        mlp_ratio: float = 4.0,
        memory_channels: int = 16,
        memory_grid: Sequence[int] = (4, 4, 4),
        memory_chunk: int = 16,
        memory_every: int = 2,
        memory_options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        memory_layers = -(-num_layers // memory_every)
        ratio = matched_mlp_ratio(
            dim, num_layers, mlp_ratio, memory_channels, memory_grid, memory_chunk, memory_options, memory_layers
        )
        super().__init__(dim, num_layers, num_heads, mlp_ratio=ratio, **kwargs)


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
        blocks = bidirectional_blocks(num_layers, dim, num_heads, mlp_ratio, dropout, drop_path)
        memory = TensorMemory(dim, memory_channels, memory_grid, memory_chunk, **(memory_options or {}))
        stack = Stack(
            blocks,
            dim,
            memory,
            threading,
            gamma,
            dropout,
            drop_rates(drop_path, num_layers),
            place="between",
            every=memory_every,
        )
        super().__init__(stack, dim, **kwargs)


# What timm's VisionTransformer calls the parts of a block.
_TIMM_PARTS = {
    "norm1": "mixer_norm",
    "attn.qkv": "mixer.qkv",
    "attn.proj": "mixer.output",
    "norm2": "mlp_norm",
    "mlp.fc1": "mlp.hidden",
    "mlp.fc2": "mlp.output",
}
_TIMM_EPSILON = 1e-6


def load_timm(
    model: MaskedAutoencoder,
    weights: Mapping[str, Tensor],
    mean: Sequence[float] = MEAN,
    deviation: Sequence[float] = DEVIATION,
) -> None:
    """Put the weights of a timm VisionTransformer of the same sizes into an encoder; the decoder is left as it is.

    Args:
        model: `base`, or another whose blocks are plain. What timm's model lacks (a memory, registers) is left alone.
        weights: its state dict; the weights of a classifier are passed over.
        mean, deviation: of the colours in [0, 1] that the weights were trained with, in timm's `pretrained_cfg` as
            ``mean`` and ``std``; by default ImageNet's, but many are 0.5. The embedding takes up the difference from
            what this model normalises by.

    Raises:
        ValueError: a weight that the encoder needs is missing, or of another shape: which one, and both shapes.
    """
    wanted = {
        "embedding.weight": "patch_embed.proj.weight",
        "embedding.bias": "patch_embed.proj.bias",
        "class_token": "cls_token",
        "positions": "pos_embed",
        "norm.weight": "norm.weight",
        "norm.bias": "norm.bias",
    }
    for layer in range(len(model.stack.blocks)):
        for theirs, ours in _TIMM_PARTS.items():
            for kind in ("weight", "bias"):
                wanted[f"stack.blocks.{layer}.{ours}.{kind}"] = f"blocks.{layer}.{theirs}.{kind}"
    parameters = dict(model.named_parameters())
    found: dict[str, Tensor] = {}
    for ours, theirs in wanted.items():
        if theirs not in weights:
            raise ValueError(f"{theirs} is missing: the weights must be those of a timm VisionTransformer")
        value = weights[theirs].squeeze(0) if theirs in ("cls_token", "pos_embed") else weights[theirs]
        value = value.squeeze(0) if theirs == "cls_token" else value
        if value.shape != parameters[ours].shape:
            raise ValueError(
                f"{theirs} has shape {tuple(value.shape)}, but the model's {ours} has {tuple(parameters[ours].shape)}: "
                "set dim, num_layers, patch and image_size to those of the weights"
            )
        found[ours] = value
    with torch.no_grad():
        for ours, value in found.items():
            parameters[ours].copy_(value)
        # (x - mean) / deviation of the weights, out of (x - MEAN) / DEVIATION.
        ours_mean, ours_deviation, mean_, deviation_ = (
            torch.as_tensor(each, dtype=torch.float64) for each in (MEAN, DEVIATION, mean, deviation)
        )
        kernel = parameters["embedding.weight"]
        shift = (kernel.double() * ((ours_mean - mean_) / deviation_)[:, None, None]).sum(dim=(1, 2, 3))
        parameters["embedding.bias"].add_(shift.to(kernel.dtype))
        kernel.mul_((ours_deviation / deviation_)[:, None, None].to(kernel.dtype))
    for module in [model.norm, *(norm for block in model.stack.blocks for norm in (block.mixer_norm, block.mlp_norm))]:
        module.eps = _TIMM_EPSILON
