"""The fused scan with compiled kernels: an operator of PyTorch, so that a compiled model takes its loop whole.

Legend: B batch, S steps (chunks written), R chunks read (S or S + 1), C channels, n grid axes, N_a points along
axis a, V points in all, Q = 2^n corners of a read. Volumes are channels-last: (B, *grid, C).
"""

# No `from __future__ import annotations` here: custom_op derives its schema from the annotations, as types.

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tensormem.memory.history import history_shapes, no_second_derivative
from tensormem.memory.kernels import Kernels, kernels
from tensormem.memory.loop import Step, backwards, forwards


class _Steps(NamedTuple):
    """What the steps take beside the state; the lists have one entry a step."""

    factors: Sequence[Tensor]
    bias_volume: Tensor
    taps: Tensor | None
    weight: Tensor
    bias: Tensor
    corners: Sequence[tuple[Tensor, Tensor]]
    run: Kernels

    def step(self, reads: Tensor) -> Step:
        """The kernel of a step; what each step reads goes to reads, (as many or more, B, C)."""

        def step(index: int, state: tuple[Tensor, Tensor], out: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
            self.run.step(
                state,
                self.factors[index],
                self.bias_volume,
                self.taps,
                self.weight,
                self.bias,
                self.corners[index],
                (*out, reads[index]),
            )

        return step


@torch.library.custom_op("tensormem::compiled_scan", mutates_args=())
def compiled_scan(
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
    gemm: str,
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """All steps: every chunk reads the state that its predecessors left, then writes.

    Args:
        h, c: the volumes before the first step.
        factors: (S, B, N_1 + ... + N_n, C); the outer product of a step's is its mixed write volume.
        bias_volume: (*grid, 2C), the response of the depthwise stack to nothing.
        taps: (n, 3, C) of the hidden half; None where nothing is mixed.
        weight, bias: (4C, 2C) and (4C,), the pointwise map.
        index, corner_weight: (R, B, Q), the corners of each read and their weights.
        saving: none, full, light or checkpoint.
        gemm: exact, or the dtype of the products of the pointwise map.

    Returns:
        (R, B, C) what was read, the last h and c, and what the backward pass needs.
    """
    with torch.no_grad():
        steps = _steps(h, factors, bias_volume, taps, weight, bias, index, corner_weight, gemm)
        history = [h.new_empty(shape) for shape in history_shapes(saving, len(steps.factors), h)]
        # In one piece: small blocks of memory between the steps' big ones would keep those from being used again.
        reads = h.new_empty(len(steps.corners), h.shape[0], h.shape[-1])
        last = forwards(steps.step(reads), h, c, len(steps.factors), saving, history)
        if len(steps.corners) > len(steps.factors):
            rows, weights = steps.corners[-1]
            reads[-1] = (weights.unsqueeze(-1) * _corner_values(last[0], rows)).sum(1)
        return reads, *last, history


@compiled_scan.register_fake
def _(h, c, factors, bias_volume, taps, weight, bias, index, corner_weight, saving, gemm):  # type: ignore[no-untyped-def]
    reads = h.new_empty(index.shape[0], h.shape[0], h.shape[-1])
    history = [h.new_empty(shape) for shape in history_shapes(saving, factors.shape[0], h)]
    return reads, torch.empty_like(h), torch.empty_like(c), history


@torch.library.custom_op("tensormem::compiled_scan_backward", mutates_args=())
def compiled_scan_backward(
    grad_reads: Tensor,
    grad_h: Tensor,
    grad_c: Tensor,
    last_h: Tensor,
    history: list[Tensor],
    factors: Tensor,
    bias_volume: Tensor,
    taps: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    index: Tensor,
    corner_weight: Tensor,
    saving: str,
    gemm: str,
) -> list[Tensor]:
    """Gradients of h, c, the factors, the bias volume, the weight, the bias, the corners' weights and the taps."""
    with torch.no_grad():
        steps = _steps(last_h, factors, bias_volume, taps, weight, bias, index, corner_weight, gemm)
        num_steps = len(steps.factors)
        grad_corner_weight = torch.empty_like(corner_weight, memory_format=torch.contiguous_format)
        grad_factors = torch.empty_like(factors, memory_format=torch.contiguous_format)
        grad_reads = grad_reads.contiguous()
        grad_h, grad_c = (grad.clone(memory_format=torch.contiguous_format) for grad in (grad_h, grad_c))
        grad_weight = torch.zeros_like(steps.weight)
        grad_taps = None if steps.taps is None else torch.zeros_like(steps.taps)
        # Summed over the batch and the steps: by linearity it gives the gradients of both biases at the end.
        total_pre = weight.new_zeros(*last_h.shape[1:-1], weight.shape[0])
        if len(steps.corners) > num_steps:
            rows, weights = steps.corners[-1]
            grad_read = grad_reads[-1].unsqueeze(1)
            grad_corner_weight[-1] = (_corner_values(last_h, rows) * grad_read).sum(-1)
            _rows_of(grad_h).index_add_(0, rows.flatten(), (weights.unsqueeze(-1) * grad_read).flatten(0, 1))
        # What was read is not needed again.
        step = steps.step(torch.empty_like(grad_reads))
        for place, record in backwards(step, last_h, num_steps, saving, history):
            steps.run.step_backward(
                (grad_h, grad_c, grad_reads[place]),
                record,
                steps.factors[place],
                steps.bias_volume,
                steps.taps,
                steps.weight,
                steps.corners[place],
                (grad_factors[place], grad_corner_weight[place]),
                (grad_weight, total_pre, grad_taps),
            )
        grads = [grad_h, grad_c, grad_factors, total_pre @ weight, grad_weight, _rows_of(total_pre).sum(0)]
        return [*grads, grad_corner_weight, weight.new_empty(0) if grad_taps is None else grad_taps]


@compiled_scan_backward.register_fake
def _(  # type: ignore[no-untyped-def]
    grad_reads, grad_h, grad_c, last_h, history, factors, bias_volume, taps, weight, bias, index, corner_weight, *rest
):
    like = [last_h, last_h, factors, bias_volume, weight, bias, corner_weight]
    like.append(weight.new_empty(0) if taps is None else taps)
    return [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in like]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    _, _, factors, bias_volume, taps, weight, bias, index, corner_weight, saving, gemm = inputs
    _, last_h, _, history = output
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*history)
    ctx.saving, ctx.gemm = saving, gemm
    ctx.save_for_backward(last_h, bias_volume, taps, weight, bias, index, corner_weight, factors, *history)


def _backward(ctx: Any, grad_reads: Any, grad_h: Any, grad_c: Any, grad_history: Any) -> tuple[Any, ...]:
    del grad_history
    last_h, bias_volume, taps, weight, bias, index, corner_weight, factors, *history = ctx.saved_tensors
    if grad_reads is None:
        grad_reads = last_h.new_zeros(index.shape[0], last_h.shape[0], last_h.shape[-1])
    grad_h, grad_c = (torch.zeros_like(last_h) if grad is None else grad for grad in (grad_h, grad_c))
    shared = factors, bias_volume, taps, weight, bias, index, corner_weight
    *grads, grad_corner_weight, grad_taps = compiled_scan_backward(
        grad_reads, grad_h, grad_c, last_h, history, *shared, ctx.saving, ctx.gemm
    )
    grad_h, grad_c, grad_factors, grad_bias_volume, grad_weight, grad_bias = grads
    if taps is None:
        grad_taps = None
    grads = [grad_h, grad_c, grad_factors, grad_bias_volume, grad_taps, grad_weight, grad_bias]
    return *grads, None, grad_corner_weight, None, None


compiled_scan.register_autograd(_backward, setup_context=_setup)


compiled_scan_backward.register_autograd(no_second_derivative)


def _steps(
    h: Tensor,
    factors: Tensor,
    bias_volume: Tensor,
    taps: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    index: Tensor,
    corner_weight: Tensor,
    gemm: str,
) -> _Steps:
    # Where the corners (R, B, Q) lie among the rows of a volume.
    first = torch.arange(h.shape[0], device=h.device) * h[0, ..., 0].numel()
    rows = index + first.unsqueeze(-1)
    # Compiled kernels take it for granted that nothing requires a gradient and that all is laid out in order.
    factors, bias_volume, weight, bias, corner_weight = (
        tensor.detach().contiguous() for tensor in (factors, bias_volume, weight, bias, corner_weight)
    )
    return _Steps(
        factors=factors.unbind(0),
        bias_volume=bias_volume,
        taps=None if taps is None else taps.detach().contiguous(),
        weight=weight,
        bias=bias,
        corners=list(zip(rows.unbind(0), corner_weight.unbind(0), strict=True)),
        run=kernels(gemm, h),
    )


def _rows_of(volume: Tensor) -> Tensor:
    """A volume as a matrix (B * V, channels)."""
    return volume.view(-1, volume.shape[-1])


def _corner_values(h: Tensor, rows: Tensor) -> Tensor:
    """The rows (B, Q) of a volume, (B, Q, C)."""
    return _rows_of(h)[rows]
