"""What the tasks of all benchmarks have in common: optimiser, seeded dropout, and what a run asks of a task.

A benchmark brings a task (a LightningModule that extends `Task`), which the config's `task` names, and a data module
(see experiments/data.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pytorch_lightning as pl
import torch
import wandb
from pytorch_lightning.loggers import WandbLogger
from torch import nn

from experiments.checkpoints import BUILT_FROM, BestCheckpoint
from experiments.training import Training
from tensormem.audit import AuditReport

# What a run's folder keeps of `Task.sample`.
SAMPLE = "sample.txt"


class Task(pl.LightningModule, ABC):
    """Trains and evaluates a model.

    A subclass logs `monitor`, its loss, at the end of each validation; the lowest makes the best checkpoint.

    Args:
        model: the model.
        training: optimiser and schedule.
        seed: with the step, seeds the dropout: a resumed run draws what an uninterrupted one does.
        built_from: what builds the model, in plain containers, for the checkpoints: the config's sections `network`
            and `data`, and what the data adds as `arguments`; None: they don't say.
    """

    # What the loss is called in logs: its unit where it has one.
    loss_name: ClassVar[str] = "nats"
    # Further values of each validation that the result keeps, by the name that they are logged under.
    followed: ClassVar[tuple[str, ...]] = ()
    # The metric that the paper prints.
    published_metric: ClassVar[str]

    def __init__(
        self,
        model: nn.Module,
        training: Training,
        seed: int,
        built_from: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        super().__init__()
        self.model: Any = model
        self.training_settings = training
        self.seed = seed
        self.built_from = built_from

    @property
    def monitor(self) -> str:
        """The name that the validation loss is logged under."""
        return f"validation/{self.loss_name}"

    @classmethod
    @abstractmethod
    def of_run(
        cls,
        model: nn.Module,
        training: Training,
        data: Any,
        seed: int,
        built_from: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Self:
        """The task of a run, with what it needs to know of the run's data."""

    @classmethod
    @abstractmethod
    def preflight(
        cls, build: Callable[..., nn.Module], name: str, data: Any, allow_noncausal: bool
    ) -> AuditReport | None:
        """Check the model before any work is done; the audit's report where there is one.

        Args:
            build: the model of the config; keyword arguments take the place of those of the network.
            name: the model's name, for errors.
            data: the run's data module, not set up yet.
            allow_noncausal: let a model through that reads the future.
        """

    @abstractmethod
    def loss(self, batch: Any) -> torch.Tensor:
        """The loss of a training batch, 0-d."""

    @abstractmethod
    def evaluation_line(self, metrics: Mapping[str, Any]) -> str:
        """What the console says of a validation, from what was logged."""

    @abstractmethod
    def result(self, best: BestCheckpoint) -> dict[str, Any]:
        """The blocks of the result file that belong to the task, after the test: `metrics` and more."""

    @staticmethod
    @abstractmethod
    def headline(metrics: Mapping[str, Any]) -> str:
        """The result in a few words."""

    def sample(self) -> str | None:
        """What the tested model makes of a few examples, a few lines of text; None where it makes none."""
        return None

    def on_test_end(self) -> None:
        """Show it: in the run's folder, and in W&B."""
        if not self.trainer.is_global_zero:
            return
        with torch.no_grad():
            text = self.sample()
        if text is None:
            return
        (Path(self.trainer.default_root_dir) / SAMPLE).write_text(text + "\n", encoding="utf-8")
        self.show("test/sample", lambda: wandb.Table(columns=["sample"], data=[[text]]))

    def show(self, name: str, media: Callable[[], Any]) -> None:
        """Log a table or a picture to W&B, where that runs; it is made only there."""
        for logger in self.loggers:
            if isinstance(logger, WandbLogger):
                # Without a step, which would put it before what was logged last.
                logger.experiment.log({name: media()})

    def audit(self) -> AuditReport | None:
        """Audit the model as it is now; None where reading the future is no matter."""
        return None

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add what builds the model."""
        if self.built_from is not None:
            checkpoint[BUILT_FROM] = dict(self.built_from)

    def configure_optimizers(self) -> Any:
        """AdamW and its schedule."""
        optimizer = self.training_settings.optimizer(self)
        scheduler = self.training_settings.scheduler(optimizer)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Seed the step's dropout by (seed, step), and by the process where there are several."""
        process = [self.global_rank] if self.global_rank else []
        (state,) = np.random.SeedSequence([self.seed, self.global_step, *process]).generate_state(1, np.uint64)
        torch.manual_seed(int(state))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        """Train on a batch; log its loss, the learning rate and the gates."""
        loss = self.loss(batch)
        self.log(f"train/{self.loss_name}", loss)
        self.log("train/learning_rate", self.lr_schedulers().get_last_lr()[0])  # type: ignore[union-attr]
        for layer, gate in self.model.gates.items():
            self.log(f"gate/layer_{layer}", gate)
        return loss

    def model_blocks(self, seq_len: int) -> dict[str, Any]:
        """The blocks of the result file that every model has.

        Args:
            seq_len: tokens of a sequence, for the bytes of its state.
        """
        memory = self.model.stack.memory
        total = sum(parameter.numel() for parameter in self.model.parameters())
        embedded = sum(parameter.numel() for parameter in self.model.embedding.parameters())
        return {
            "streaming": self.model.streaming,
            "gates": [float(gate.detach()) for gate in self.model.gates.values()] or None,
            "parameters": {
                "total": total,
                "non_embedding": total - embedded,
                "memory": 0 if memory is None else sum(parameter.numel() for parameter in memory.parameters()),
            },
            "state_bytes": {"per_sequence": self.model.state_bytes(seq_len), "window": seq_len},
        }
