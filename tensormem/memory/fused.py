"""The fast scan: the function of ``scan.reference`` in another order, with a backward pass written by hand.

What does not depend on the state leaves the loop: the write, which is a product of one factor per axis even after the
depthwise convolutions, and the places of the reads. What stays is a matrix product and two small kernels a step.

Legend: B batch, S chunks written, R chunks read, C channels, n grid axes, N_a points along axis a, V points in all,
Q = 2^n corners of a read. Inside, volumes are channels-last: (B, *grid, C).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from tensormem.memory import eager, native
from tensormem.memory import grid as geometry
from tensormem.memory.compiled import compiled_scan
from tensormem.memory.kernels import GemmKind, KernelKind, choose
from tensormem.memory.scan import ScanInputs, WriteKind
from tensormem.memory.update import GridUpdate

SavingKind = Literal["auto", "full", "light", "checkpoint"]

# What one call may keep for its backward pass before ``auto`` takes the next thriftier way.
AUTO_BYTES = 2**29


def fused(
    inputs: ScanInputs,
    h: Float[Tensor, "B C *grid"],
    c: Float[Tensor, "B C *grid"],
    update: GridUpdate,
    write: WriteKind = "gaussian",
    saving: SavingKind = "auto",
    kernel_kind: KernelKind = "auto",
    gemm: GemmKind = "exact",
) -> tuple[Float[Tensor, "B R C"], Float[Tensor, "B C *grid"], Float[Tensor, "B C *grid"]]:
    """``scan.reference``, several times faster and exact; its gradients have no derivatives.

    Args:
        inputs, h, c, update, write: as ``scan.reference`` takes them.
        saving: what is kept for the backward pass: ``full`` (states and gates), ``light`` (states; gates are computed
            again) or ``checkpoint`` (a state every sqrt(S) steps; the steps between are run again). ``auto`` takes
            the first of these that keeps at most half a GiB, else the last. Without gradients nothing is kept.
        kernel_kind: ``native`` (C++, on a CPU), ``compiled`` (a kernel a step, by torch.compile), ``eager``, or
            ``auto``: native where it can be, else compiled where it pays and there is a compiler.
        gemm: ``exact``, or ``bfloat16``: the pointwise map's matrix products round what they take to bfloat16.

    Returns:
        What each chunk read, and the hidden and the cell volume after the last write.

    Raises:
        RuntimeError: when a second derivative is asked for.
    """
    grid = h.shape[2:]
    c = c.to(h.dtype)
    saving_now = saving if saving != "auto" else _auto_saving(h, inputs.content.shape[1])
    if not (torch.is_grad_enabled() and any(x.requires_grad for x in (h, c, *inputs, *update.parameters()))):
        saving_now = "none"
    chosen = choose(kernel_kind, gemm, h)
    if chosen == "native":
        return native.scan(inputs, h, c, update, write, saving_now)
    factors = _write_factors(inputs, update, write, grid)
    bias_volume, taps = _hidden_half(update, grid, h.shape[1], h)
    index, corner_weight = geometry.corners(inputs.read_coordinates, grid)
    weight, bias = update.gates_weight.to(h.dtype), update.gates_bias.to(h.dtype)
    # Compiled kernels don't ask for the dtype: everything has that of the state.
    factors, corner_weight = factors.to(h.dtype), corner_weight.transpose(0, 1).to(h.dtype)
    given = factors, bias_volume, taps, weight, bias, index.transpose(0, 1), corner_weight, saving_now, gemm
    if chosen == "eager":
        reads, h, c = eager.scan(h, c, *given)
        return reads.transpose(0, 1), h, c
    h, c = h.movedim(1, -1).contiguous(), c.movedim(1, -1).contiguous()
    reads, h, c, _ = compiled_scan(h, c, *given)
    return reads.transpose(0, 1), h.movedim(-1, 1), c.movedim(-1, 1)


def _write_factors(inputs: ScanInputs, update: GridUpdate, write: WriteKind, grid: Sequence[int]) -> Tensor:
    """The mixed writes of all steps, (S, B, N_1 + ... + N_n, C): one factor for each axis, one behind the other."""
    content = inputs.content.transpose(0, 1).unsqueeze(2)
    device, dtype = content.device, content.dtype
    places = [(axis, place) for axis, num_points in enumerate(grid) for place in range(num_points)]
    axis_of = torch.tensor([axis for axis, _ in places], device=device)
    place_of = torch.tensor([place for _, place in places], device=device)
    size_of = torch.tensor([grid[axis] for axis, _ in places], device=device)
    coordinate = inputs.write_coordinates.transpose(0, 1)[..., axis_of]
    if write == "gaussian":
        points = torch.cat([geometry.axis_positions(num_points, content) for num_points in grid])
        sigma = inputs.sigma.transpose(0, 1)
        factor = torch.exp((points - coordinate).square() / -(2 * sigma.square() + 1e-6))
    else:
        factor = (geometry.nearest(coordinate, size_of) == place_of).to(dtype)
    factor = factor.unsqueeze(-1)
    if update.kind == "factorised":
        taps = update.taps[:, : content.shape[-1]].to(dtype).movedim(2, 0)[:, axis_of]
        # Zero padding: the first point of an axis has none before it, the last none after it.
        before, after = place_of > 0, place_of < size_of - 1
        padded = F.pad(factor, (0, 0, 1, 1))
        taps = taps * torch.stack([before, torch.ones_like(before), after]).unsqueeze(-1)
        factor = padded[..., :-2, :] * taps[0] + factor * taps[1] + padded[..., 2:, :] * taps[2]
    first, *rest = factor.expand(*factor.shape[:-1], content.shape[-1]).split(list(grid), dim=2)
    return torch.cat([content * first, *rest], dim=2)


def _hidden_half(update: GridUpdate, grid: Sequence[int], channels: int, like: Tensor) -> tuple[Tensor, Tensor | None]:
    """The bias volume (*grid, 2C) and the taps (n, 3, C) of the hidden half."""
    if update.kind == "pointwise":
        return like.new_zeros(*grid, 2 * channels), None
    # The stack is affine: its response to nothing is the whole effect of its biases, the zero padding included.
    bias_volume = update.mix(like.new_zeros(1, 2 * channels, *grid)).squeeze(0).movedim(0, -1).contiguous()
    return bias_volume, update.taps[:, channels:].to(like.dtype).transpose(1, 2).contiguous()


def _auto_saving(h: Tensor, num_steps: int) -> str:
    state = 2 * h.numel() * h.element_size()
    for saving, states_kept in (("full", 3.5), ("light", 1.0)):
        if states_kept * state * num_steps <= AUTO_BYTES:
            return saving
    return "checkpoint"
