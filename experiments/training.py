"""The settings of a training run that change its numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from torch import nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

Schedule = Literal["cosine", "constant"]
Precision = Literal["32-true", "64-true", "16-true", "bf16-true", "16-mixed", "bf16-mixed"]


@dataclass(frozen=True)
class Training:
    """Optimiser and schedule; the defaults are the published language settings.

    Attributes:
        steps: optimiser steps.
        learning_rate: peak rate of AdamW.
        weight_decay: on every parameter, as published.
        warmup_steps: the rate rises linearly to its peak; then a cosine takes it to 0 at the last step.
        schedule: ``cosine``, as above, or ``constant``: the peak from the warmup on.
        clip_norm: largest norm of the gradient.
        evaluate_every: steps between evaluations on the validation split; must divide steps, so that the last
            step is evaluated.
        patience: stop after so many evaluations in a row without a gain.
        precision: Lightning's name of the number format.
    """

    steps: int = 10_000
    learning_rate: float = 3e-4
    weight_decay: float = 0.1
    warmup_steps: int = 1_000
    schedule: Schedule = "cosine"
    clip_norm: float = 1.0
    evaluate_every: int = 500
    patience: int = 10
    precision: Precision = "32-true"

    def __post_init__(self) -> None:
        for name in ("steps", "evaluate_every", "patience"):
            if getattr(self, name) < 1:
                raise ValueError(f"training.{name}={getattr(self, name)} must be at least 1")
        for name in ("learning_rate", "clip_norm"):
            if not getattr(self, name) > 0:
                raise ValueError(f"training.{name}={getattr(self, name)} must be positive")
        if self.schedule not in get_args(Schedule):
            raise ValueError(f"training.schedule={self.schedule!r} is unknown; choose one of {get_args(Schedule)}")
        if self.weight_decay < 0:
            raise ValueError(f"training.weight_decay={self.weight_decay} must not be negative")
        if self.steps % self.evaluate_every:
            raise ValueError(
                f"training.evaluate_every={self.evaluate_every} must divide training.steps={self.steps}: "
                "otherwise the last steps are never evaluated"
            )
        if not 0 <= self.warmup_steps < self.steps:
            raise ValueError(f"training.warmup_steps={self.warmup_steps} must lie in [0, training.steps={self.steps})")

    def optimizer(self, module: nn.Module) -> AdamW:
        """AdamW over all parameters of the module, in one pass over them where gradients can be clipped before it."""
        # Lightning won't clip the gradients of a fused optimiser in mixed precision; None leaves the choice to PyTorch.
        fused = None if self.precision.endswith("-mixed") else True
        return AdamW(module.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay, fused=fused)

    def scheduler(self, optimizer: AdamW) -> LambdaLR:
        """The schedule, to be stepped once per optimiser step."""
        return LambdaLR(optimizer, self.rate_factor)

    def rate_factor(self, step: int) -> float:
        """The learning rate of a step (from 0) over its peak."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        if self.schedule == "constant":
            return 1.0
        progress = (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
