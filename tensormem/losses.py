"""Cross-entropy over a large vocabulary without ever holding all the logits.

Legend: M tokens, E width of a token, W words in the vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor


def token_nats(
    hidden: Float[Tensor, "M E"],
    weight: Float[Tensor, "W E"],
    targets: Int[Tensor, " M"],
    slice_size: int = 256,
) -> Float[Tensor, " M"]:
    """Cross-entropy of each target in nats, without gradients, with slice_size rows of logits at a time."""
    losses = []
    # Out of autocast: an evaluation's logits must not be rounded to half precision.
    with torch.no_grad(), torch.autocast(hidden.device.type, enabled=False):
        for rows, target in zip(hidden.split(slice_size), targets.split(slice_size), strict=True):
            logits = _logits(rows, weight)
            at_target = logits.gather(1, target.unsqueeze(1))
            _, _, log_sum = _exponentials(logits)
            losses.append((log_sum - at_target).squeeze(1))
    return torch.cat(losses)


def chunked_cross_entropy(
    hidden: Float[Tensor, "M E"],
    weight: Float[Tensor, "W E"],
    targets: Int[Tensor, " M"],
    slice_size: int = 256,
) -> Float[Tensor, ""]:
    """Mean cross-entropy in nats of softmax(hidden weight^T), exact, with its gradient.

    Each slice of rows computes its loss and its gradients at once, while its logits are still in the cache;
    memory is slice_size * W instead of M * W. The gradients are ready after the forward pass, so there is no
    second derivative.

    Args:
        hidden: the model's last hidden vectors.
        weight: the output embedding; logits have no bias.
        targets: the words' ids.
        slice_size: rows to a slice.

    Raises:
        ValueError: there are no rows, or not a target for each.
    """
    if targets.shape != hidden.shape[:1] or not len(targets):
        raise ValueError(
            f"targets has shape {tuple(targets.shape)} and hidden {tuple(hidden.shape)}: give one target for each row, "
            "and at least one"
        )
    # Out of autocast, which would round the gradient of the hidden vectors alone.
    with torch.autocast(hidden.device.type, enabled=False):
        return _ChunkedCrossEntropy.apply(hidden, weight, targets, slice_size)


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, slice_size: int) -> Tensor:
        needs_hidden, needs_weight = ctx.needs_input_grad[:2]
        hidden_grad = torch.empty_like(hidden) if needs_hidden else None
        weight_grad = torch.zeros_like(weight) if needs_weight else None
        # One buffer for all slices: fresh pages for each slice's logits would cost as much as the product.
        buffer = hidden.new_empty(min(slice_size, hidden.shape[0]), weight.shape[0])
        total = torch.zeros((), device=hidden.device, dtype=torch.promote_types(hidden.dtype, torch.float32))
        for start in range(0, hidden.shape[0], slice_size):
            rows, target = (
                hidden[start : start + slice_size],
                targets[start : start + slice_size].unsqueeze(1),
            )
            logits = _logits(rows, weight, buffer)
            at_target = logits.gather(1, target).sum()
            exponentials, normaliser, log_sum = _exponentials(logits)
            total += log_sum.sum() - at_target
            if not (needs_hidden or needs_weight):
                continue
            error = exponentials.div_(normaliser)
            error.scatter_add_(1, target, error.new_full(target.shape, -1.0))
            error = error.to(rows.dtype)
            if hidden_grad is not None:
                hidden_grad[start : start + slice_size] = error @ weight.to(rows.dtype)
            if weight_grad is not None:
                weight_grad.addmm_(error.T.to(weight.dtype), rows.to(weight.dtype))
        ctx.save_for_backward(hidden_grad, weight_grad)
        ctx.num_tokens = hidden.shape[0]
        return total / hidden.shape[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        if torch.is_grad_enabled():
            # The gradients saved are constants: a derivative of them would silently be zero.
            raise RuntimeError("chunked_cross_entropy has no second derivative: leave create_graph=True out")
        scale = grad / ctx.num_tokens
        hidden_grad, weight_grad = ctx.saved_tensors
        return (
            None if hidden_grad is None else hidden_grad * scale.to(hidden_grad.dtype),
            None if weight_grad is None else weight_grad * scale.to(weight_grad.dtype),
            None,
            None,
        )


def _logits(rows: Tensor, weight: Tensor, buffer: Tensor | None = None) -> Tensor:
    """Logits in float32 or better, of a product in the precision of the rows."""
    out = None if buffer is None else buffer[: rows.shape[0]]
    logits = torch.mm(rows, weight.to(rows.dtype).T, out=out)
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _exponentials(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """exp(logits - their largest) in their place, its sum over each row, and the logarithm of that of exp(logits)."""
    largest = logits.amax(1, keepdim=True)
    exponentials = logits.sub_(largest).exp_()
    normaliser = exponentials.sum(1, keepdim=True)
    return exponentials, normaliser, normaliser.log() + largest
