"""A run's own record of what it logged, `metrics.jsonl` in its folder: no account, no library, no step twice."""

from __future__ import annotations

import json
import math
import os
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities import rank_zero_only

from experiments.logged import METRICS, read_metrics


class MetricsFile(Logger):
    """Appends a line of JSON for whatever is logged: ``step``, the steps that are done, and values by their names.

    Values that are not finite are null, for which JSON has a word.

    Args:
        folder: the run's folder.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.path = Path(folder) / METRICS
        self.trainer: pl.Trainer | None = None

    @property
    def name(self) -> str:
        """Of the file."""
        return METRICS

    @property
    def version(self) -> str:
        """None."""
        return ""

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Nothing: the config lies beside it."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Append a line; Lightning's own count of steps, which starts at 0, is taken only where there is no trainer."""
        done = step if self.trainer is None else self.trainer.global_step
        values = {name: _plain(value) for name, value in metrics.items() if name != "epoch"}
        if values:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"step": done, **values}) + "\n")

    @rank_zero_only
    def rewind(self, step: int) -> None:
        """Forget what was logged after so many steps, which are about to be done again, and a line that was cut off."""
        if not self.path.exists():
            return
        kept = [line for line in read_metrics(self.path) if line["step"] <= step]
        partial = self.path.with_name(f".{self.path.name}.partial")
        with partial.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in kept)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, self.path)


class RewindMetrics(pl.Callback):
    """Ties the file to the trainer, and drops what a resumed run is about to log again.

    Args:
        metrics: the file.
    """

    def __init__(self, metrics: MetricsFile) -> None:
        self.metrics = metrics

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """The trainer knows how many steps are done."""
        self.metrics.trainer = trainer

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """The checkpoint has been loaded: the run goes on from this step."""
        self.metrics.rewind(trainer.global_step)


def _plain(value: Any) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None
