"""How far a run is and how fast it goes: lines on the console, and the speed for its result file."""

from __future__ import annotations

import math
import time
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import rank_zero_only

from experiments.task import Task

# The first steps of a process allocate and warm up: they would understate the speed.
_WARMUP_STEPS = 3


class Progress(pl.Callback):
    """Prints a line every `every` steps, and times the training steps (not the evaluations or checkpoints).

    Both times go on over a resume; what was lost with an interruption does not count.

    Args:
        name: the run's name, which starts each line.
        total_steps: steps of the run.
        tokens_per_step: tokens that one step trains on.
        every: steps between lines.
    """

    def __init__(self, name: str, total_steps: int, tokens_per_step: int, every: int) -> None:
        self.name = name
        self.total_steps = total_steps
        self.tokens_per_step = tokens_per_step
        self.every = every
        self.timed_steps = 0
        self.timed_seconds = 0.0
        self.wall_seconds = 0.0
        self._steps_here = 0
        self._step_start = 0.0
        self._wall_start = 0.0

    @property
    def tokens_per_second(self) -> float:
        """Speed of the training steps so far."""
        return self.timed_steps * self.tokens_per_step / self.timed_seconds if self.timed_seconds else 0.0

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the clock."""
        self._wall_start = time.perf_counter()

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Start the step's clock."""
        self._step_start = time.perf_counter()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: Task, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Stop the step's clock and, now and then, say where the run is."""
        if pl_module.device.type == "cuda":
            # Work is queued: without this the clock would stop before the step is done.
            torch.cuda.synchronize()
        self._steps_here += 1
        if self._steps_here > _WARMUP_STEPS:
            self.timed_steps += 1
            self.timed_seconds += time.perf_counter() - self._step_start
        if self.timed_seconds:
            pl_module.log("train/tokens_per_second", self.tokens_per_second)
        if self._reports(trainer):
            loss = float(outputs["loss"])
            if not math.isfinite(loss):
                raise FloatingPointError(
                    f"the training loss is {loss} at step {trainer.global_step}: lower training.learning_rate "
                    "or lengthen training.warmup_steps"
                )
            self._print(trainer, f"{loss:.4f} {pl_module.loss_name}")

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Task) -> None:
        """Say what the evaluation found."""
        if trainer.state.fn == "fit" and trainer.is_global_zero:
            line = pl_module.evaluation_line(trainer.callback_metrics)
            print(f"{self.name}: step {trainer.global_step}/{self.total_steps}  validation {line}", flush=True)

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Stop the clock."""
        self.wall_seconds += time.perf_counter() - self._wall_start

    def state_dict(self) -> dict[str, Any]:
        """Saved in the checkpoint."""
        wall = self.wall_seconds + time.perf_counter() - self._wall_start
        return {"timed_steps": self.timed_steps, "timed_seconds": self.timed_seconds, "wall_seconds": wall}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restored from the checkpoint."""
        self.timed_steps = state_dict["timed_steps"]
        self.timed_seconds = state_dict["timed_seconds"]
        self.wall_seconds = state_dict["wall_seconds"]

    def _reports(self, trainer: pl.Trainer) -> bool:
        return trainer.global_step % self.every == 0

    @rank_zero_only
    def _print(self, trainer: pl.Trainer, loss: str) -> None:
        line = f"{self.name}: step {trainer.global_step}/{self.total_steps}  train {loss}"
        if self.timed_seconds:
            left = (self.total_steps - trainer.global_step) * self.timed_seconds / self.timed_steps
            line += f"  {self.tokens_per_second:,.0f} tokens/s  {left / 60:.0f} min of training left"
        print(line, flush=True)
