"""What the data modules of all benchmarks have in common: what a run asks of them, and how they check and share out.

A benchmark brings a data module that extends `Data`; the config's `data._target_` names it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

import pytorch_lightning as pl

Batch = TypeVar("Batch")

# Keywords of the metrics of an evaluation. With several processes each of them evaluates everything, and no sum goes
# over the processes: no sample counts twice, none is left out, and all of them come to the same best checkpoint.
EVALUATED_BY_EACH = {"sync_on_compute": False}


class FixedLoader:
    """The batches of one evaluation pass, in order.

    Not a DataLoader: the batches are in memory, so workers would only copy them; and with several processes Lightning
    would deal a DataLoader's batches out to the processes, repeating some to even them out, so that a target could
    count twice. This way every process sees all of them once, for `EVALUATED_BY_EACH`.
    """

    def __init__(self, batches: list[Any]) -> None:
        """Serve ``batches`` on every pass."""
        self.batches = batches

    def __len__(self) -> int:
        """Number of batches of a pass."""
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        """Start a pass."""
        return iter(self.batches)


class OnePass(ABC, Generic[Batch]):
    """The batches of one evaluation pass, each made when its turn comes; the last one may be smaller.

    Not a DataLoader, for the reason that `FixedLoader` gives: every process sees all members once.

    Args:
        num_members: members of the split, in order.
        batch_size: members of a batch.
    """

    def __init__(self, num_members: int, batch_size: int) -> None:
        self.num_members = num_members
        self.batch_size = batch_size

    def __len__(self) -> int:
        """Number of batches of a pass."""
        return -(-self.num_members // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        """Start a pass."""
        for start in range(0, self.num_members, self.batch_size):
            yield self.batch(range(start, min(start + self.batch_size, self.num_members)))

    @abstractmethod
    def batch(self, members: range) -> Batch:
        """The batch of these members, numbered from 0."""


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


def rows_of_process(batch_size: int, rank: int, world_size: int) -> range:
    """The consecutive rows of a batch that are a process's.

    Raises:
        ValueError: ``world_size`` does not divide ``batch_size``.
    """
    if batch_size % world_size:
        raise ValueError(f"data.batch_size={batch_size} must be a multiple of the {world_size} processes")
    share = batch_size // world_size
    return range(rank * share, (rank + 1) * share)
