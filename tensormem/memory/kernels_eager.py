"""The arithmetic of a step where there is no compiler: as few passes over memory as PyTorch's operators allow.

The arguments are those of ``kernels.Kernels``, and the dtype of the matrix products, None for that of the state.

Legend: B batch, C channels, n grid axes, N_a points along axis a. Volumes are (B, *grid, C).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_aten = torch.ops.aten


def step(
    state: tuple[Tensor, Tensor],
    factors: Tensor,
    bias_volume: Tensor,
    taps: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    corners: tuple[Tensor, Tensor],
    out: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
    gemm: torch.dtype | None = None,
) -> None:
    h, c = state
    rows, corner_weight = corners
    out_h, out_c, gates, out_squashed, out_read = out
    channels = c.shape[-1]
    torch.bmm(corner_weight.unsqueeze(1), _at(h, rows), out=out_read.unsqueeze(1))
    mixed, _ = _mix(h, factors, bias_volume, taps)
    _product(mixed.flatten(0, -2), weight.T, gates.view(-1, 4 * channels), gemm)
    gates.add_(bias)
    gates[..., : 3 * channels].sigmoid_()
    gates[..., 3 * channels :].tanh_()
    i, f, o, g = gates.split(channels, dim=-1)
    torch.mul(f, c, out=out_c).addcmul_(i, g)
    torch.tanh(out_c, out=out_squashed)
    torch.mul(o, out_squashed, out=out_h)


def step_backward(
    grads: tuple[Tensor, Tensor, Tensor],
    record: tuple[Tensor, Tensor, Tensor, Tensor],
    factors: Tensor,
    bias_volume: Tensor,
    taps: Tensor | None,
    weight: Tensor,
    corners: tuple[Tensor, Tensor],
    out: tuple[Tensor, Tensor],
    totals: tuple[Tensor, Tensor, Tensor | None],
    gemm: torch.dtype | None = None,
) -> None:
    grad_h, grad_c, grad_read = grads
    h, c, gates, squashed_c = record
    rows, corner_weight = corners
    out_factors, out_corner_weight = out
    total_weight, total_pre, total_taps = totals
    grad_pre = torch.empty_like(gates)
    i, f, o, g = gates.split(c.shape[-1], dim=-1)
    out_i, out_f, out_o, out_g = grad_pre.split(c.shape[-1], dim=-1)
    scratch = torch.mul(grad_h, o)
    grad_c.add_(_aten.tanh_backward.grad_input(scratch, squashed_c, grad_input=scratch))
    _aten.sigmoid_backward.grad_input(torch.mul(grad_c, g, out=scratch), i, grad_input=out_i)
    _aten.sigmoid_backward.grad_input(torch.mul(grad_c, c, out=scratch), f, grad_input=out_f)
    _aten.sigmoid_backward.grad_input(torch.mul(grad_h, squashed_c, out=scratch), o, grad_input=out_o)
    _aten.tanh_backward.grad_input(torch.mul(grad_c, i, out=scratch), g, grad_input=out_g)
    grad_c.mul_(f)
    total_pre.add_(grad_pre.sum(0))

    flat, (mixed, before) = grad_pre.flatten(0, -2), _mix(h, factors, bias_volume, taps)
    if gemm is None:
        total_weight.addmm_(flat.T, mixed.flatten(0, -2))
    else:
        total_weight.add_(flat.T.to(gemm) @ mixed.flatten(0, -2).to(gemm))
    # What was mixed is not needed again: its gradient takes its place.
    _product(flat, weight, mixed.view(-1, mixed.shape[-1]), gemm)
    _mix_backward(mixed, before, factors, taps, grad_h, out_factors, total_taps)
    torch.bmm(_at(h, rows), grad_read.unsqueeze(2), out=out_corner_weight.unsqueeze(2))
    # No row occurs twice: the corners of a read differ, and every element of the batch has rows of its own.
    read = (corner_weight.unsqueeze(-1) * grad_read.unsqueeze(1)).flatten(0, 1)
    grad_h.view(-1, grad_h.shape[-1]).index_add_(0, rows.flatten(), read)


def _mix(h: Tensor, factors: Tensor, bias_volume: Tensor, taps: Tensor | None) -> tuple[Tensor, list[Tensor]]:
    """What the pointwise map takes, (B, *grid, 2C), and what each axis of the depthwise stack took."""
    channels = h.shape[-1]
    out = h.new_empty(*h.shape[:-1], 2 * channels)
    by_axis = factors.split(h.shape[1:-1], dim=1)
    out_write, out_h = out[..., :channels], out[..., channels:]
    bias_write, bias_h = bias_volume[..., :channels], bias_volume[..., channels:]
    if len(by_axis) == 1:
        torch.add(bias_write, by_axis[0], out=out_write)
    else:
        prefix = _prefixes(by_axis)[-1].unsqueeze(-2)
        torch.addcmul(bias_write, prefix, _last(by_axis[-1], len(by_axis)), out=out_write)
    if taps is None:
        torch.add(bias_h, h, out=out_h)
        return out, [h]
    before = [h]
    for axis in range(len(by_axis) - 1):
        h = _shifted_sum(h, taps[axis], axis + 1, torch.mul(h, taps[axis, 1]))
        before.append(h)
    centre = torch.addcmul(bias_h, h, taps[-1, 1], out=out_h)
    _shifted_sum(h, taps[-1], len(by_axis), centre)
    return out, before


def _mix_backward(
    grad: Tensor,
    before: Sequence[Tensor],
    factors: Tensor,
    taps: Tensor | None,
    out_h: Tensor,
    out_factors: Tensor,
    total_taps: Tensor | None,
) -> None:
    """Writes the gradients of h and of the factors, and adds that of the taps to their total."""
    channels, num_axes = before[0].shape[-1], before[0].dim() - 2
    by_axis, out_by_axis = (each.split(before[0].shape[1:-1], dim=1) for each in (factors, out_factors))
    rest, grad_h = grad[..., :channels], grad[..., channels:]
    # Axis by axis from the last: what is left of the volume shrinks as its axes are summed away.
    prefixes = _prefixes(by_axis)
    for axis in range(num_axes - 1, 0, -1):
        prefix = prefixes[axis - 1].unsqueeze(-2)
        out_by_axis[axis].copy_((rest * prefix).sum(list(range(1, axis + 1))))
        rest = (rest * _last(by_axis[axis], axis + 1)).sum(axis + 1)
    out_by_axis[0].copy_(rest)
    if taps is None or total_taps is None:
        out_h.copy_(grad_h)
        return
    dims = list(range(num_axes + 1))
    for axis in range(num_axes - 1, -1, -1):
        x, place = before[axis], axis + 1
        short = x.shape[place] - 1
        total_taps[axis, 0] += (grad_h.narrow(place, 1, short) * x.narrow(place, 0, short)).sum(dims)
        total_taps[axis, 1] += (grad_h * x).sum(dims)
        total_taps[axis, 2] += (grad_h.narrow(place, 0, short) * x.narrow(place, 1, short)).sum(dims)
        centre = torch.mul(grad_h, taps[axis, 1], out=out_h if axis == 0 else None)
        grad_h = _shifted_sum(grad_h, taps[axis].flip(0), place, centre)


def _prefixes(factors: Sequence[Tensor]) -> list[Tensor]:
    """The first factor, the outer product of the first two, and so on, all but the whole: (B, N_1, ..., N_a, C)."""
    products = [factors[0]]
    for factor in factors[1:-1]:
        products.append(products[-1].unsqueeze(-2) * _last(factor, products[-1].dim() - 1))
    return products


def _last(factor: Tensor, num_axes: int) -> Tensor:
    """A factor (B, N_a, C) laid along the last of so many axes."""
    return factor.reshape(factor.shape[0], *[1] * (num_axes - 1), *factor.shape[1:])


def _shifted_sum(x: Tensor, taps: Tensor, axis: int, centre: Tensor) -> Tensor:
    """Adds to the centre tap's share, in place, those of the taps before and after it along the axis."""
    short = x.shape[axis] - 1
    centre.narrow(axis, 1, short).addcmul_(x.narrow(axis, 0, short), taps[0])
    centre.narrow(axis, 0, short).addcmul_(x.narrow(axis, 1, short), taps[2])
    return centre


def _product(left: Tensor, right: Tensor, out: Tensor, gemm: torch.dtype | None) -> None:
    """Matrix product, in another dtype unless that is None."""
    if gemm is None:
        torch.mm(left, right, out=out)
    else:
        out.copy_(left.to(gemm) @ right.to(gemm))


def _at(volume: Tensor, rows: Tensor) -> Tensor:
    """The rows (B, Q) of a volume, (B, Q, C)."""
    return volume.view(-1, volume.shape[-1])[rows]
