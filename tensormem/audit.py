"""The causality audit: does any logit depend on a token that comes after it?

A language model whose logits see the future has no perplexity worth the name. The audit changes single tokens and
looks at the logits before them. It runs in float64 and evaluation mode, so that a leak is told from rounding.

Legend: B batch, N tokens, W words in the vocabulary.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

Verdict = Literal["causal", "leaks", "inconclusive"]
LogitsFunction = Callable[[Tensor], Any]

# Logits are of order 1 in float64: rounding moves them by 1e-15 or so, a leak by many orders more.
_TOLERANCE = 1e-9
# Of a longer sequence so many tokens are changed, its first and last among them.
_MOST_POSITIONS = 64
# Logits held at a time.
_MOST_LOGITS = 2**24


@dataclass(frozen=True)
class AuditReport:
    """What an audit found.

    Attributes:
        verdict: ``causal``; ``leaks``; ``inconclusive`` where changed tokens changed nothing at or after
            themselves, or two equal calls differed, so that nothing can be said. Only ``causal`` is a pass.
        reason: one sentence.
        weights: what showed it, ``given`` or ``random`` weights (a closed gate hides a leak; random ones open it).
        length: tokens of the sequence that showed it.
        changed_position: the token that was changed.
        leaking_position: the first position before it whose logits changed.
        largest_change: the largest change of a logit before the changed token.
    """

    verdict: Verdict
    reason: str
    weights: str | None = None
    length: int | None = None
    changed_position: int | None = None
    leaking_position: int | None = None
    largest_change: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether the model was shown to be causal."""
        return self.verdict == "causal"

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for a result file."""
        return asdict(self)


class CausalityError(RuntimeError):
    """A model that is not causal, or not shown to be, where a causal one is required."""


def audit(
    model: LogitsFunction,
    vocab_size: int,
    lengths: Sequence[int] = (29, 53),
    seed: int = 0,
) -> AuditReport:
    """Change single tokens and report the first logit before a changed token that changes with it.

    Every token of a sequence is changed in turn; of one longer than 64, 64 of them.

    An ``nn.Module`` is audited as a float64 copy in evaluation mode, once with the weights given and once with every
    parameter random: a gate that is closed or an output that is zero must not hide a leak. Its own state is left
    untouched. Any other callable is audited as it is.

    Args:
        model: tokens (B, N) to logits (B, N, W), or to a tuple that starts with them.
        vocab_size: W.
        lengths: sequence lengths to try. For a memory of chunk size K take some that K does not divide and that
            span several chunks; a chunk of 1 hides leaks inside a chunk, so audit with at least 4.
        seed: of the tokens and of the random weights.

    Raises:
        ValueError: a vocabulary or a length below 2: there is nothing to change.
    """
    if vocab_size < 2 or not lengths or min(lengths) < 2:
        raise ValueError(f"vocab_size={vocab_size} and lengths={tuple(lengths)} must all be at least 2")
    candidates: list[tuple[str, LogitsFunction]] = [("given", model)]
    device = torch.device("cpu")
    if isinstance(model, nn.Module):
        device = next((parameter.device for parameter in model.parameters()), device)
        given = copy.deepcopy(model).double().eval()
        candidates = [("given", given), ("random", _randomised(given, seed))]
    tokens_generator = torch.Generator().manual_seed(seed)
    effect_seen = False
    with torch.no_grad():
        for weights, candidate in candidates:
            effects = []
            for length in lengths:
                tokens = torch.randint(vocab_size, (1, length), generator=tokens_generator).to(device)
                positions = _positions(length, tokens_generator)
                report, effect = _probe(candidate, tokens, positions, vocab_size, weights)
                if report is not None:
                    return report
                effects.append(effect)
            effect_seen = all(effects)
    if not effect_seen:
        return AuditReport(
            "inconclusive",
            "a changed token changed no logit at or after itself: the audit cannot tell a causal model from a dead one",
        )
    return AuditReport("causal", "no logit changed before a changed token, and logits at or after it did")


def require_causal(report: AuditReport, name: str, allow_noncausal: bool = False) -> None:
    """Raise CausalityError unless the audit passed; a leak, but not an inconclusive audit, may be allowed.

    Args:
        report: what ``audit`` returned.
        name: the model's name, for the message.
        allow_noncausal: let a leaking model through.
    """
    if report.passed or (report.verdict == "leaks" and allow_noncausal):
        return
    if report.verdict == "leaks":
        raise CausalityError(
            f"{name} reads the future: {report.reason}. Its perplexity would not be comparable with any causal "
            "model's. Use threading=layer, or set allow_noncausal=true to run it all the same, marked as not causal."
        )
    raise CausalityError(f"the causality audit of {name} is inconclusive: {report.reason}")


def _probe(
    model: LogitsFunction, tokens: Tensor, positions: Tensor, vocab_size: int, weights: str
) -> tuple[AuditReport | None, bool]:
    """A report where this sequence (1, N) settles the matter, and whether every changed token had an effect."""
    length = tokens.shape[1]
    logits = _logits(model, tokens)
    if not bool(torch.isfinite(logits).all()):
        return AuditReport("inconclusive", "the logits are not finite", weights, length), False
    if not torch.equal(logits, _logits(model, tokens)):
        return AuditReport("inconclusive", "two calls with equal tokens gave different logits", weights, length), False
    # One row per changed token, a few rows at a time: their logits together may not fit into memory.
    changed = tokens + torch.eye(length, dtype=torch.long, device=tokens.device) * (vocab_size // 2)
    every_effect = True
    for some in positions.split(max(1, min(8, _MOST_LOGITS // (length * vocab_size)))):
        # Compared with as many rows of unchanged tokens: kernels round differently for another number of rows.
        unchanged = _logits(model, tokens.expand(len(some), -1))
        changes = (_logits(model, changed[some] % vocab_size) - unchanged).abs().amax(dim=2)
        if not bool(torch.isfinite(changes).all()):
            return AuditReport("inconclusive", "the logits are not finite", weights, length), False
        for position, change in zip(some.tolist(), changes, strict=True):
            leaking = (change[:position] > _TOLERANCE).nonzero()
            if len(leaking):
                first = int(leaking[0])
                reason = f"changing token {position} of {length} changes the logits of position {first}"
                size = float(change[:position].max())
                return AuditReport("leaks", reason, weights, length, position, first, size), True
            every_effect &= bool((change[position:] > _TOLERANCE).any())
    return None, every_effect


def _positions(length: int, generator: torch.Generator) -> Tensor:
    if length <= _MOST_POSITIONS:
        return torch.arange(length)
    inner = 1 + torch.randperm(length - 2, generator=generator)[: _MOST_POSITIONS - 2]
    return torch.cat([torch.tensor([0, length - 1]), inner]).sort().values


def _logits(model: LogitsFunction, tokens: Tensor) -> Tensor:
    output = model(tokens)
    logits: Tensor = output[0] if isinstance(output, tuple) else output
    return logits.double()


def _randomised(model: nn.Module, seed: int) -> nn.Module:
    """A copy with every parameter drawn anew, at a scale that keeps activations of order 1."""
    model = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        fan_in = parameter.shape[-1] if parameter.dim() > 1 else 1
        values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / fan_in**0.5
        parameter.data.copy_(values)
    return model
