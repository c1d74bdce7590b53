"""What the data modules of all benchmarks have in common: what a run asks of them, and how they check it.

A benchmark brings a data module that extends `Data`; the config's `data._target_` names it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl

# Keywords of the metrics of an evaluation. With several processes each of them evaluates everything, and no sum goes
# over the processes: no sample counts twice, none is left out, and all of them come to the same best checkpoint.
EVALUATED_BY_EACH = {"sync_on_compute": False}


class Data(pl.LightningDataModule, ABC):
    """What a run asks of a data module beyond Lightning's own."""

    def setup(self, stage: str | None = None) -> None:
        """Load what there is to load, once; ``stage`` makes no difference."""

    @property
    @abstractmethod
    def network_arguments(self) -> dict[str, Any]:
        """What the data says of the model, as keyword arguments of its network."""

    @property
    @abstractmethod
    def tokens_per_step(self) -> int:
        """Tokens that one optimiser step trains on, over all processes."""

    @property
    @abstractmethod
    def num_evaluation_tokens(self) -> tuple[int, int]:
        """Tokens that the model reads in a pass over validation, and in the test."""

    @property
    @abstractmethod
    def source(self) -> str:
        """Where the data came from, without a path."""

    @property
    def place(self) -> tuple[int, int, int]:
        """The first training batch that the attached trainer hasn't used, its process and the number of processes.

        (0, 0, 1) without a trainer.
        """
        if self.trainer is None:
            return 0, 0, 1
        used = self.trainer.global_step * self.trainer.accumulate_grad_batches
        return used, self.trainer.global_rank, self.trainer.world_size

    @property
    def extra_result(self) -> dict[str, Any]:
        """Blocks of the result file that the data alone knows."""
        return {}


def check_minima(minima: Mapping[str, tuple[float, float]]) -> None:
    """Raise ValueError for the first argument, by name a value and the least it may be, that is below that (or NaN)."""
    for name, (value, minimum) in minima.items():
        if not value >= minimum:
            raise ValueError(f"{name}={value}: must be at least {minimum}")
