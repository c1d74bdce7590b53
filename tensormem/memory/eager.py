"""The fused scan by PyTorch's operators, for where there is no compiler: few calls, and few passes over memory.

Three things make it fast. The channels come first, so that the gates lie one behind the other and every pass over one
of them is over memory in a row. The axes of the grid are taken in groups of at most ``GROUP_POINTS`` points: what the
depthwise convolutions do along a group is a matrix per channel, and one batched product replaces a pass for every tap;
its gradient is one product too. And on a CPU some sequences at a time go through all steps, as many as fit its cache.

Legend: B batch, S steps (chunks written), R chunks read (S or S + 1), C channels, G_1 .. G_k points of each group,
V points in all, Q = 2^n corners of a read. Inside, volumes are (C, G_1, ..., B, G_k): the batch before the last group.
"""

# No `from __future__ import annotations` here: custom_op derives its schema from the annotations, as types.

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tensormem.memory.eager_step import Step, Totals
from tensormem.memory.history import history_shapes, no_second_derivative
from tensormem.memory.loop import backwards, forwards

# Groups are as large as they can be without the products costing more than the passes that they replace.
GROUP_POINTS = 64
# On a CPU, about as many values of h as are taken through all steps at once, whole sequences: what a step goes through
# stays in cache, and its calls still cost less than what they do.
BLOCK_VALUES = 2**17


def scan(
    h: Tensor,
    c: Tensor,
    factors: Tensor,
    bias_volume: Tensor,
    taps: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    index: Tensor,
    corner_weight: Tensor,
    saving: str,
    gemm: str = "exact",
) -> tuple[Tensor, Tensor, Tensor]:
    """All steps, of tensors of one dtype.

    Args:
        h, c: (B, C, *grid), the volumes before the first step.
        factors: (S, B, N_1 + ... + N_n, C); the outer product of a step's is its mixed write volume.
        bias_volume: (*grid, 2C), the response of the depthwise stack to nothing.
        taps: (n, 3, C) of the hidden half; None where nothing is mixed.
        weight, bias: (4C, 2C) and (4C,), the pointwise map.
        index, corner_weight: (R, B, Q), the corners of each read and their weights.
        saving: none, full, light or checkpoint.
        gemm: exact, or the dtype of the products of the pointwise map.

    Returns:
        (R, B, C) what was read, and the last h and c, (B, C, *grid).
    """
    grid = h.shape[2:]
    groups = _groups(grid)
    points = [torch.Size(grid[axis] for axis in group).numel() for group in groups]
    by_axis = factors.permute(0, 3, 1, 2).split(list(grid), dim=-1)
    by_group = [_outer([by_axis[axis] for axis in group]) for group in groups]
    by_group = [*(factor.transpose(-1, -2) for factor in by_group[:-1]), by_group[-1]]
    mixing = []
    if taps is not None:
        along = [_tridiagonal(axis_taps, grid[axis]) for axis, axis_taps in enumerate(taps)]
        mixing = [_kronecker([along[axis] for axis in group]) for group in groups]
    # What the biases come to at the gates: with it the steps are without any.
    before_gates = weight @ bias_volume.flatten(0, -2).T + bias.unsqueeze(-1)
    before_gates = before_gates.unflatten(-1, points).unsqueeze(-2)
    blocks = []
    for start, stop in _blocks(h):
        some = slice(start, stop)
        # A point of the grid, (first groups, last group), lies (first groups, sequence, last group) in a volume.
        sequence = torch.arange(stop - start, device=h.device).unsqueeze(-1)
        before, last = index[:, some] // points[-1], index[:, some] % points[-1]
        rows = ((before * (stop - start) + sequence) * points[-1] + last).flatten(1)
        volumes = (_inside(volume[some], points) for volume in (h, c))
        written = [*(factor[..., some] for factor in by_group[:-1]), by_group[-1][:, :, some]]
        given = written, before_gates, mixing, weight, rows, corner_weight[:, some]
        reads, *state, _ = eager_scan(*volumes, *given, saving, gemm)
        blocks.append((reads.transpose(1, 2), *(_outside(volume, grid) for volume in state)))
    if len(blocks) == 1:
        return blocks[0]
    all_reads, all_h, all_c = zip(*blocks, strict=True)
    return torch.cat(all_reads, 1), torch.cat(all_h), torch.cat(all_c)


@torch.library.custom_op("tensormem::eager_scan", mutates_args=())
def eager_scan(
    h: Tensor,
    c: Tensor,
    factors: list[Tensor],
    before_gates: Tensor,
    mixing: list[Tensor],
    weight: Tensor,
    rows: Tensor,
    corner_weight: Tensor,
    saving: str,
    gemm: str,
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """All steps: every chunk reads the state that its predecessors left, then writes.

    Args:
        h, c: the volumes before the first step.
        factors: one a group, (S, C, G_j, B) and for the last (S, C, B, G_k).
        before_gates: (4C, G_1, ..., 1, G_k), what the gates get at each point of the grid beside the products.
        mixing: one a group, (C, G_j, G_j); empty where nothing is mixed.
        weight: (4C, 2C), of what is written and of what is mixed.
        rows, corner_weight: (R, B * Q) and (R, B, Q), where the corners of each read lie in a volume of one channel,
            and their weights.
        saving: none, full, light or checkpoint.
        gemm: exact, or the dtype of the products with the weight.

    Returns:
        (R, C, B) what was read, the last h and c, and what the backward pass needs.
    """
    with torch.no_grad():
        step = Step(factors, before_gates, mixing, weight, gemm, h)
        num_steps = step.num_steps
        history = [h.new_empty(shape) for shape in history_shapes(saving, num_steps, h, channel_dim=0)]
        reads = h.new_empty(rows.shape[0], h.shape[0], h.shape[-2])

        def read(index: int, h: Tensor) -> None:
            torch.sum(_at(h, rows[index], corner_weight) * corner_weight[index], -1, out=reads[index])

        def run(index: int, state: tuple[Tensor, Tensor], out: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
            read(index, state[0])
            step(index, state, out)

        last_h, last_c = forwards(run, h, c, num_steps, saving, history, channel_dim=0)
        if len(rows) > num_steps:
            read(num_steps, last_h)
        return reads, last_h, last_c, history


@eager_scan.register_fake
def _(h, c, factors, before_gates, mixing, weight, rows, corner_weight, saving, gemm):  # type: ignore[no-untyped-def]
    history = [h.new_empty(shape) for shape in history_shapes(saving, factors[0].shape[0], h, channel_dim=0)]
    last = (torch.empty_like(h, memory_format=torch.contiguous_format) for _ in range(2))
    return h.new_empty(rows.shape[0], h.shape[0], h.shape[-2]), *last, history


@torch.library.custom_op("tensormem::eager_scan_backward", mutates_args=())
def eager_scan_backward(
    grad_reads: Tensor,
    grad_h: Tensor,
    grad_c: Tensor,
    last_h: Tensor,
    history: list[Tensor],
    factors: list[Tensor],
    before_gates: Tensor,
    mixing: list[Tensor],
    weight: Tensor,
    rows: Tensor,
    corner_weight: Tensor,
    saving: str,
    gemm: str,
) -> list[Tensor]:
    """Gradients of h, c, what comes before the gates, the weight, the corners' weights, the factors and the mixing."""
    with torch.no_grad():
        step = Step(factors, before_gates, mixing, weight, gemm, last_h)
        grad_corner_weight = torch.empty_like(corner_weight, memory_format=torch.contiguous_format)
        grad_h, grad_c = (grad.clone(memory_format=torch.contiguous_format) for grad in (grad_h, grad_c))
        # (R, C, B, 1)
        grad_reads = grad_reads.unsqueeze(-1)

        def read_backward(index: int, h: Tensor) -> None:
            grad_corner_weight[index] = (_at(h, rows[index], corner_weight) * grad_reads[index]).sum(0)
            spread = corner_weight[index] * grad_reads[index]
            grad_h.view(len(h), -1).index_add_(1, rows[index], spread.flatten(1))

        if len(rows) > step.num_steps:
            read_backward(step.num_steps, last_h)
        total = Totals(step)
        for index, record in backwards(step, last_h, step.num_steps, saving, history, channel_dim=0):
            step.backward(index, (grad_h, grad_c), record, total)
            read_backward(index, record[0])
        grads = [grad_h, grad_c, total.before_gates.unsqueeze(-2), total.weight, grad_corner_weight]
        return [*grads, *total.factors, *total.grad_mixing()]


@eager_scan_backward.register_fake
def _(  # type: ignore[no-untyped-def]
    grad_reads, grad_h, grad_c, last_h, history, factors, before_gates, mixing, weight, rows, corner_weight, *rest
):
    like = [last_h, last_h, before_gates, weight, corner_weight, *factors, *mixing]
    return [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in like]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    _, _, factors, before_gates, mixing, weight, rows, corner_weight, ctx.saving, ctx.gemm = inputs
    _, last_h, _, history = output
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*history)
    ctx.counts = len(factors), len(mixing)
    ctx.save_for_backward(last_h, before_gates, weight, rows, corner_weight, *factors, *mixing, *history)


def _backward(ctx: Any, grad_reads: Any, grad_h: Any, grad_c: Any, grad_history: Any) -> tuple[Any, ...]:
    del grad_history
    last_h, before_gates, weight, rows, corner_weight, *lists = ctx.saved_tensors
    num_factors, num_mixing = ctx.counts
    factors, mixing = lists[:num_factors], lists[num_factors : num_factors + num_mixing]
    history = lists[num_factors + num_mixing :]
    if grad_reads is None:
        grad_reads = last_h.new_zeros(rows.shape[0], last_h.shape[0], last_h.shape[-2])
    grad_h, grad_c = (torch.zeros_like(last_h) if grad is None else grad for grad in (grad_h, grad_c))
    given = factors, before_gates, mixing, weight, rows, corner_weight
    grads = eager_scan_backward(grad_reads, grad_h, grad_c, last_h, history, *given, ctx.saving, ctx.gemm)
    grad_h, grad_c, grad_before_gates, grad_weight, grad_corner_weight, *lists = grads
    grad_factors, grad_mixing = lists[:num_factors], lists[num_factors:]
    grads = [grad_h, grad_c, grad_factors, grad_before_gates, grad_mixing, grad_weight, None, grad_corner_weight]
    return *grads, None, None


eager_scan.register_autograd(_backward, setup_context=_setup)


eager_scan_backward.register_autograd(no_second_derivative)


def _blocks(h: Tensor) -> list[tuple[int, int]]:
    """The first sequence of each block and the one after its last: of one size, all but the last few."""
    batch = h.shape[0]
    num_blocks = 1
    if h.device.type == "cpu":
        num_blocks = min(batch, max(1, math.ceil(h.numel() / BLOCK_VALUES)))
    size = math.ceil(batch / max(1, num_blocks))
    return [(start, min(start + size, batch)) for start in range(0, batch, max(1, size))] or [(0, 0)]


def _groups(grid: Sequence[int]) -> list[list[int]]:
    """Neighbouring axes, from the last on, as many to a group as its points allow."""
    groups: list[list[int]] = []
    points = GROUP_POINTS + 1
    for axis in reversed(range(len(grid))):
        if points * grid[axis] > GROUP_POINTS:
            groups.insert(0, [])
            points = 1
        groups[0].insert(0, axis)
        points *= grid[axis]
    return groups


def _inside(volume: Tensor, points: Sequence[int]) -> Tensor:
    """(B, C, *grid) as (C, G_1, ..., B, G_k)."""
    return volume.flatten(2).unflatten(2, points).movedim(0, -2).contiguous()


def _outside(volume: Tensor, grid: Sequence[int]) -> Tensor:
    """(C, G_1, ..., B, G_k) as (B, C, *grid)."""
    return volume.movedim(-2, 0).flatten(2).unflatten(2, grid)


def _outer(factors: Sequence[Tensor]) -> Tensor:
    """The outer product of factors (..., N_a) along their last dimensions, flattened."""
    product, *rest = factors
    for factor in rest:
        product = (product.unsqueeze(-1) * factor.unsqueeze(-2)).flatten(-2)
    return product


def _tridiagonal(taps: Tensor, num_points: int) -> Tensor:
    """The matrices (C, N, N) of three taps (3, C) along an axis with zero padding."""
    before, centre, after = taps.unsqueeze(-1).expand(-1, -1, num_points).unbind(0)
    return (
        torch.diag_embed(before[:, 1:], offset=-1) + torch.diag_embed(centre) + torch.diag_embed(after[:, 1:], offset=1)
    )


def _kronecker(matrices: Sequence[Tensor]) -> Tensor:
    """The Kronecker product of matrices (C, N_a, N_a), channel by channel."""
    product, *rest = matrices
    for matrix in rest:
        product = product[:, :, None, :, None] * matrix[:, None, :, None, :]
        product = product.flatten(3).flatten(1, 2)
    return product


def _at(h: Tensor, rows: Tensor, corner_weight: Tensor) -> Tensor:
    """The values of h at the corners of a read, (C, B, Q)."""
    return h.view(len(h), -1).index_select(1, rows).view(len(h), *corner_weight.shape[1:])
