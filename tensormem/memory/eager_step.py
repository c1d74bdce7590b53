"""A step of the eager scan, and the way back.

Legend: B batch, S steps, C channels, G_1 .. G_k points of each group of axes, V points in all. Volumes are
(C, G_1, ..., B, G_k): the batch before the last group.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_aten = torch.ops.aten


class Step:
    """A step without its read, and the way back; what it computes on the way lies in buffers of its own."""

    def __init__(
        self,
        factors: Sequence[Tensor],
        before_gates: Tensor,
        mixing: Sequence[Tensor],
        weight: Tensor,
        gemm: str,
        like: Tensor,
    ) -> None:
        self.factors = [factor.detach().contiguous() for factor in factors]
        self.num_steps = len(self.factors[0])
        self.weight = weight.detach().contiguous()
        # tanh(x) = 2 sigm(2x) - 1, and PyTorch's sigmoid costs less than its tanh.
        twice = torch.ones_like(self.weight[:, :1])
        twice[3 * len(like) :] = 2
        self.doubled_weight = twice * self.weight
        self.before_gates = twice.view(-1, *[1] * (like.dim() - 1)) * before_gates.detach()
        self.minus_one = torch.tensor(-1.0, dtype=like.dtype, device=like.device)
        self.gemm = None if gemm == "exact" else torch.bfloat16
        self.shape, self.points = like.shape, [*like.shape[1:-2], like.shape[-1]]
        # A matrix for each channel and each place along the groups before its own, ready for a batched product.
        self.mixing = [
            matrix.detach().repeat_interleave(torch.Size(self.points[:group]).numel(), 0)
            for group, matrix in enumerate(mixing[:-1])
        ]
        self.mixing += [matrix.detach().contiguous() for matrix in mixing[-1:]]
        # What the pointwise map takes: the write half, then the hidden half.
        self.mixed = like.new_empty(2 * like.shape[0], *like.shape[1:])
        self.mixed_write, self.mixed_h = self.mixed.split(like.shape[0])
        # What each group but the last took.
        self.between = [torch.empty_like(like) for _ in self.mixing[1:]]

    def __call__(self, index: int, state: tuple[Tensor, Tensor], out: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
        h, c = state
        out_h, out_c, gates, out_squashed = out
        channels = len(c)
        self._mix(index, h)
        _product(self.doubled_weight, self.mixed.flatten(1), gates.view(len(gates), -1), self.gemm)
        gates.add_(self.before_gates).sigmoid_()
        i, f, o, g = gates.split(channels)
        torch.add(self.minus_one, g, alpha=2, out=g)
        torch.mul(f, c, out=out_c).addcmul_(i, g)
        torch.mul(out_c, 2, out=out_squashed).sigmoid_()
        torch.add(self.minus_one, out_squashed, alpha=2, out=out_squashed)
        torch.mul(o, out_squashed, out=out_h)

    def backward(
        self,
        index: int,
        grads: tuple[Tensor, Tensor],
        record: tuple[Tensor, Tensor, Tensor, Tensor],
        total: Totals,
    ) -> None:
        """The gradients of the next h and c become those of the h and c before the step."""
        grad_h, grad_c = grads
        h, c, gates, squashed_c = record
        i, f, o, g = gates.split(len(c))
        grad_gates, scratch = total.grad_gates, total.scratch
        out_i, out_f, out_o, out_g = grad_gates.split(len(c))
        torch.mul(grad_h, o, out=scratch)
        grad_c.add_(_aten.tanh_backward.grad_input(scratch, squashed_c, grad_input=scratch))
        _aten.sigmoid_backward.grad_input(torch.mul(grad_c, g, out=scratch), i, grad_input=out_i)
        _aten.sigmoid_backward.grad_input(torch.mul(grad_c, c, out=scratch), f, grad_input=out_f)
        _aten.sigmoid_backward.grad_input(torch.mul(grad_h, squashed_c, out=scratch), o, grad_input=out_o)
        _aten.tanh_backward.grad_input(torch.mul(grad_c, i, out=scratch), g, grad_input=out_g)
        grad_c.mul_(f)

        self._mix(index, h)
        flat, mixed, grad_mixed = grad_gates.flatten(1), self.mixed.flatten(1), total.grad_mixed.flatten(1)
        if self.gemm is None:
            total.weight.addmm_(flat, mixed.T)
        else:
            total.weight.add_(flat.to(self.gemm) @ mixed.T.to(self.gemm))
        _product(self.weight.T, flat, grad_mixed, self.gemm)
        total.before_gates.add_(grad_gates.sum(-2))
        self._write_backward(index, total)
        self._mix_backward(h, grad_h, total)

    def _mix(self, index: int, h: Tensor) -> None:
        """Into the buffer, what the pointwise map takes, and what each group but the last took."""
        *first, last = (factor[index] for factor in self.factors)
        if first:
            torch.mul(_outer_first(first).unsqueeze(-1), _along_last(last, self.shape), out=self.mixed_write)
        else:
            self.mixed_write.copy_(last)
        if not self.mixing:
            self.mixed_h.copy_(h)
            return
        # From the last group to the first: each lies along its own axis, so that any order will do.
        *rest, last_matrix = self.mixing
        outs = [*self.between, self.mixed_h]
        by_row = (len(h), -1, self.points[-1])
        torch.bmm(h.view(by_row), last_matrix.mT, out=outs[0].view(by_row))
        for matrix, x, out in zip(reversed(rest), outs, outs[1:], strict=False):
            by_column = (*matrix.shape[:2], -1)
            torch.bmm(matrix, x.view(by_column), out=out.view(by_column))

    def _mix_backward(self, h: Tensor, grad_h: Tensor, total: Totals) -> None:
        grad = total.grad_mixed[len(h) :]
        if not self.mixing:
            grad_h.copy_(grad)
            return
        *rest, last_matrix = self.mixing
        *total_rest, total_last = total.mixing
        # Of the two, the one that is not read from takes what comes next.
        spare = [total.scratch, total.grad_mixed[: len(h)]]
        for matrix, total_matrix, x in zip(rest, total_rest, reversed(self.between), strict=True):
            by_column = (*matrix.shape[:2], -1)
            total_matrix.baddbmm_(grad.view(by_column), x.view(by_column).mT)
            torch.bmm(matrix.mT, grad.view(by_column), out=spare[0].view(by_column))
            grad = spare[0]
            spare.reverse()
        by_row = (len(h), -1, self.points[-1])
        total_last.baddbmm_(grad.view(by_row).mT, h.view(by_row))
        torch.bmm(grad.view(by_row), last_matrix, out=grad_h.view(by_row))

    def _write_backward(self, index: int, total: Totals) -> None:
        """The gradients of a step's factors, group by group from the last: what is left shrinks as they go."""
        *first, last = (factor[index] for factor in self.factors)
        out_first, out_last = [out[index] for out in total.factors[:-1]], total.factors[-1][index]
        rest = total.grad_mixed[: len(last)]
        if not first:
            out_last.copy_(rest)
            return
        torch.mul(rest, _outer_first(first).unsqueeze(-1), out=total.scratch)
        torch.sum(total.scratch, list(range(1, len(self.shape) - 2)), out=out_last)
        torch.mul(rest, _along_last(last, self.shape), out=total.scratch)
        rest = total.scratch.sum(-1)
        while len(first) > 1:
            *first, factor = first
            *out_first, out = out_first
            dims = list(range(1, 1 + len(first)))
            torch.sum(rest * _outer_first(first).unsqueeze(-2), dims, out=out)
            rest = (rest * factor.view(len(factor), *[1] * len(first), *factor.shape[1:])).sum(-2)
        out_first[0].copy_(rest)


class Totals:
    """Gradients summed over the steps, those that each step has of its own, and room for what comes between."""

    def __init__(self, step: Step) -> None:
        channels, *_ = step.shape
        self.weight = torch.zeros_like(step.weight)
        self.before_gates = torch.zeros_like(step.before_gates.squeeze(-2))
        self.mixing = [torch.zeros_like(matrix, memory_format=torch.contiguous_format) for matrix in step.mixing]
        self.factors = [torch.empty_like(factor) for factor in step.factors]
        self.grad_gates = step.mixed.new_empty(4 * channels, *step.shape[1:])
        self.grad_mixed = torch.empty_like(step.mixed)
        self.scratch = step.mixed.new_empty(step.shape)

    def grad_mixing(self) -> list[Tensor]:
        """Of the matrices as they were given: one a channel."""
        channels = len(self.scratch)
        return [matrix.view(channels, -1, *matrix.shape[1:]).sum(1) for matrix in self.mixing]


def _outer_first(factors: Sequence[Tensor]) -> Tensor:
    """The outer product of factors (C, G_j, B) over the groups: (C, G_1, ..., B)."""
    product, *rest = factors
    for factor in rest:
        product = product.unsqueeze(-2) * factor.view(len(factor), *[1] * (product.dim() - 2), *factor.shape[1:])
    return product


def _along_last(factor: Tensor, shape: Sequence[int]) -> Tensor:
    """The last group's factor (C, B, G_k), laid along the last two dimensions of a volume."""
    return factor.view(len(factor), *[1] * (len(shape) - 3), *factor.shape[1:])


def _product(left: Tensor, right: Tensor, out: Tensor, gemm: torch.dtype | None) -> None:
    """Matrix product, in another dtype unless that is None."""
    if gemm is None:
        torch.mm(left, right, out=out)
    else:
        out.copy_(left.to(gemm) @ right.to(gemm))
