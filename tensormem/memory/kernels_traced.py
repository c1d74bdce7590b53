"""The arithmetic of a step as the compiler wants it: plain expressions, each kernel fused into a few loops.

The arguments are those of ``kernels.Kernels``, and what multiplies matrices and takes the tanh. Run eagerly they are
correct and slow; ``eager`` is for that.

Legend: B batch, C channels, n grid axes, N_a points along axis a. Volumes are (B, *grid, C).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def step(
    state: tuple[Tensor, Tensor],
    factors: Tensor,
    bias_volume: Tensor,
    taps: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    corners: tuple[Tensor, Tensor],
    out: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
    product: Callable[[Tensor, Tensor], Tensor] = torch.matmul,
    tanh: Callable[[Tensor], Tensor] = torch.tanh,
) -> None:
    h, c = state
    rows, corner_weight = corners
    out_h, out_c, out_gates, out_squashed, out_read = out
    channels = c.shape[-1]
    out_read.copy_((_at(h, rows) * corner_weight.unsqueeze(-1)).sum(1))
    mixed = _mix(h, factors, bias_volume, taps)
    pre = product(mixed.flatten(0, -2), weight.T).reshape(*c.shape[:-1], -1) + bias
    squashed, candidate = pre.split([3 * channels, channels], dim=-1)
    # sigm(x) = 1/2 + 1/2 tanh(x / 2): one function for all that squashes.
    sigmoids = torch.sigmoid(squashed) if tanh is torch.tanh else 0.5 + 0.5 * tanh(0.5 * squashed)
    candidate = tanh(candidate)
    i, f, o = sigmoids.split(channels, dim=-1)
    next_c = f * c + i * candidate
    squashed_c = tanh(next_c)
    out_h.copy_(o * squashed_c)
    out_c.copy_(next_c)
    out_squashed.copy_(squashed_c)
    out_gates.copy_(torch.cat([sigmoids, candidate], dim=-1))


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
    product: Callable[[Tensor, Tensor], Tensor] = torch.matmul,
) -> None:
    grad_h, grad_c, grad_read = grads
    h, c, gates, squashed_c = record
    rows, corner_weight = corners
    out_factors, out_corner_weight = out
    total_weight, total_pre, total_taps = totals
    i, f, o, g = gates.split(c.shape[-1], dim=-1)
    through_h = grad_c + grad_h * o * (1 - squashed_c * squashed_c)
    grad_pre = torch.cat(
        [
            through_h * g * i * (1 - i),
            through_h * c * f * (1 - f),
            grad_h * squashed_c * o * (1 - o),
            through_h * i * (1 - g * g),
        ],
        dim=-1,
    )
    mixed = _mix(h, factors, bias_volume, taps)
    flat = grad_pre.flatten(0, -2)
    total_weight.add_(product(flat.T, mixed.flatten(0, -2)))
    total_pre.add_(grad_pre.sum(0))
    grad_c.copy_(through_h * f)
    out_corner_weight.copy_((_at(h, rows) * grad_read.unsqueeze(1)).sum(-1))

    grad_mixed = product(flat, weight).reshape(mixed.shape)
    new_grad_h, grad_taps = _mix_backward(grad_mixed, h, factors, taps, out_factors)
    if grad_taps is not None and total_taps is not None:
        total_taps.add_(grad_taps)
    grad_h.copy_(new_grad_h)
    # No row occurs twice: the corners of a read differ, and every element of the batch has rows of its own.
    read = corner_weight.unsqueeze(-1) * grad_read.unsqueeze(1)
    flat_h = grad_h.view(-1, grad_h.shape[-1])
    flat_h[rows] = flat_h[rows] + read


def bfloat16_product(left: Tensor, right: Tensor) -> Tensor:
    """Matrix product of what is rounded to bfloat16, in the dtype of the left."""
    return (left.bfloat16() @ right.bfloat16()).to(left.dtype)


def rational_tanh(x: Tensor) -> Tensor:
    """tanh in float32 to a few units in the last place: the 13/6 rational function of Eigen and XLA.

    Compiled for a CPU it is several times faster than the compiler's tanh.
    """
    x = x.clamp(-7.90531110763549805, 7.90531110763549805)
    square = x * x
    above = [-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08]
    above += [1.48572235717979e-05, 6.37261928935456e-04, 4.89352455891786e-03]
    below = [1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03]
    return x * _polynomial(above, square) / _polynomial(below, square)


def _mix(h: Tensor, factors: Tensor, bias_volume: Tensor, taps: Tensor | None) -> Tensor:
    """What the pointwise map takes, (B, *grid, 2C)."""
    channels = h.shape[-1]
    write = bias_volume[..., :channels] + math.prod(_along_axes(_split(factors, h)))
    if taps is not None:
        for axis, axis_taps in enumerate(taps.unbind(0)):
            h = _shifted_sum(h, axis_taps, axis + 1)
    return torch.cat([write, h + bias_volume[..., channels:]], dim=-1)


def _mix_backward(
    grad: Tensor, h: Tensor, factors: Tensor, taps: Tensor | None, out_factors: Tensor
) -> tuple[Tensor, Tensor | None]:
    """The gradients of h and of the taps; those of the factors are written out."""
    channels, num_axes = h.shape[-1], h.dim() - 2
    grad_write, grad_h = grad[..., :channels], grad[..., channels:]
    along = _along_axes(_split(factors, h))
    grad_factors = []
    for axis in range(num_axes):
        rest = grad_write
        others = [other for other in range(num_axes) if other != axis]
        for other in others:
            rest = rest * along[other]
        grad_factors.append(rest.sum([other + 1 for other in others]) if others else rest)
    out_factors.copy_(torch.cat(grad_factors, dim=1))
    if taps is None:
        return grad_h, None
    before = [h]
    for axis in range(num_axes - 1):
        before.append(_shifted_sum(before[-1], taps[axis], axis + 1))
    grad_taps = []
    dims = list(range(num_axes + 1))
    for axis in reversed(range(num_axes)):
        grad_taps.append(torch.stack([(grad_h * x).sum(dims) for x in _neighbours(before[axis], axis + 1)]))
        grad_h = _shifted_sum(grad_h, taps[axis].flip(0), axis + 1)
    return grad_h, torch.stack(grad_taps[::-1])


def _at(volume: Tensor, rows: Tensor) -> Tensor:
    """The rows (B, Q) of a volume, (B, Q, C)."""
    return volume.view(-1, volume.shape[-1])[rows]


def _polynomial(coefficients: Sequence[float], x: Tensor) -> Tensor:
    """Horner's scheme, the highest power's coefficient first."""
    value = x * coefficients[0] + coefficients[1]
    for coefficient in coefficients[2:]:
        value = value * x + coefficient
    return value


def _split(factors: Tensor, h: Tensor) -> tuple[Tensor, ...]:
    """For each axis its factor (B, N_a, C)."""
    return factors.split(h.shape[1:-1], dim=1)


def _along_axes(factors: Sequence[Tensor]) -> list[Tensor]:
    """Each factor (B, N_a, C) laid along its axis of a volume."""
    n = len(factors)
    return [
        factor.reshape(factor.shape[0], *[1] * axis, factor.shape[1], *[1] * (n - 1 - axis), factor.shape[2])
        for axis, factor in enumerate(factors)
    ]


def _neighbours(x: Tensor, axis: int) -> tuple[Tensor, Tensor, Tensor]:
    """The value before, at and after each place along the axis, zero beyond the ends."""
    num_points = x.shape[axis]
    padded = F.pad(x, [0, 0] * (x.dim() - 1 - axis) + [1, 1])
    return padded.narrow(axis, 0, num_points), x, padded.narrow(axis, 2, num_points)


def _shifted_sum(x: Tensor, taps: Tensor, axis: int) -> Tensor:
    """Three taps (3, C) along an axis of x (B, *grid, C)."""
    before, centre, after = _neighbours(x, axis)
    return before * taps[0] + centre * taps[1] + after * taps[2]
