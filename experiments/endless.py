"""Batches without end: in worker processes, and of a data set's members in a random order of each epoch."""

from __future__ import annotations

import atexit
import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import numpy as np
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from experiments.data import rows_of_process
from experiments.seeding import permutation

Batch = TypeVar("Batch")


def batch_numbers(start: int) -> Iterator[int]:
    """``start, start + 1, ...`` without end; of W workers, worker w has every W-th from ``start + w`` on.

    The loader asks its workers in turn, so that the order is that of one process.
    """
    worker = get_worker_info()
    return itertools.count(start, 1) if worker is None else itertools.count(start + worker.id, worker.num_workers)


def endless_loader(batches: IterableDataset[Batch], num_workers: int) -> DataLoader[Batch]:
    """A DataLoader of whole batches that come without end, in as many worker processes, which don't change them."""
    # Spawned workers start clean; forked ones would inherit the threads and CUDA state of the trainer.
    options: dict[str, Any] = {
        "multiprocessing_context": "spawn",
        "persistent_workers": True,
        "worker_init_fn": _leave_at_once,
    }
    return DataLoader(batches, batch_size=None, num_workers=num_workers, **(options if num_workers else {}))


def _leave_at_once(worker: int) -> None:
    """A worker is still sending a batch when it is told to end, as those of endless batches always are.

    Python would end the thread that sends in the middle of PyTorch's code, which aborts the process, and the trainer
    would take that for a failure.
    """
    atexit.register(os._exit, 0)


class EndlessBatches(IterableDataset[Batch], ABC, Generic[Batch]):
    """Batches ``start, start + 1, ...`` without end, for a DataLoader with ``batch_size=None``; see `endless_loader`.

    The members come in a random order of each epoch, one order after the other, so that a batch may lie across two.
    Workers share the batches out (`batch_numbers`). Process ``rank`` of ``world_size`` gets its consecutive share of
    the rows of every batch. It pickles, for spawned workers, where what a subclass holds does.

    Args:
        num_members: members of the data set.
        batch_size: rows of a batch, over all processes together.
        seed: of the orders; batch g must be a function of (seed, g) alone.
        start: number of the first batch.
        rank: of this process.
        world_size: processes.

    Raises:
        ValueError: ``world_size`` does not divide ``batch_size``.
    """

    def __init__(
        self, num_members: int, batch_size: int, seed: int, start: int = 0, rank: int = 0, world_size: int = 1
    ) -> None:
        super().__init__()
        self.num_members = num_members
        self.batch_size = batch_size
        self.seed = seed
        self.start = start
        self.rows = rows_of_process(batch_size, rank, world_size)
        self._order: tuple[int, np.ndarray] | None = None

    def __iter__(self) -> Iterator[Batch]:
        """Go on from the first batch, for ever."""
        return map(self.batch, batch_numbers(self.start))

    @abstractmethod
    def batch(self, index: int) -> Batch:
        """This process's rows of batch ``index``."""

    def members(self, index: int) -> list[int]:
        """The members, numbered from 0, in this process's rows of batch ``index``."""
        return [self._member(index * self.batch_size + row) for row in self.rows]

    def _member(self, position: int) -> int:
        """The member at a position of the epochs' orders, one after the other."""
        epoch, place = divmod(position, self.num_members)
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, permutation(self.num_members, self.seed, "order", epoch)
        return int(self._order[1][place])
