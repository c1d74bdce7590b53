"""Batches: without end for training, in worker processes; those of one pass for evaluation; and a process's share.

Spawned workers import this and what they make batches of, so neither imports Lightning, which takes seconds and
hundreds of MB in each of them.
"""

from __future__ import annotations

import atexit
import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import numpy as np
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

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


class FixedLoader:
    """The batches of one evaluation pass, in order.

    Not a DataLoader: the batches are in memory, so workers would only copy them; and with several processes Lightning
    would deal a DataLoader's batches out to the processes, repeating some to even them out, so that a target could
    count twice. This way every process sees all of them once, for `experiments.data.EVALUATED_BY_EACH`.
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


def rows_of_process(batch_size: int, rank: int, world_size: int) -> range:
    """The consecutive rows of a batch that are a process's.

    Raises:
        ValueError: ``world_size`` does not divide ``batch_size``.
    """
    if batch_size % world_size:
        raise ValueError(f"data.batch_size={batch_size} must be a multiple of the {world_size} processes")
    share = batch_size // world_size
    return range(rank * share, (rank + 1) * share)
