"""DiagnosticsData: a generated task as a Lightning data module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from torch.utils.data import DataLoader, IterableDataset

from experiments.batches import FixedLoader, rows_of_process
from experiments.data import Data, check_minima
from experiments.diagnostics.diagnostic import Batch, Diagnostic
from experiments.diagnostics.seeding import batch_generator

# Validation and test are the same sequences for every model and every seed of a run.
_EVALUATION_SEED = 0


class Condition(NamedTuple):
    """What the trained model is tested on.

    Attributes:
        changes: settings of the task that differ from those it was trained with.
        diagnostic: the task with these settings.
    """

    changes: dict[str, Any]
    diagnostic: Diagnostic


class TrainingBatches(IterableDataset[Batch]):
    """Endless fresh batches; batch g of a process is a function of (seed, g) alone.

    Args:
        diagnostic: the task.
        batch_size: sequences of a batch, over all processes together.
        seed: of the stream.
        start: the first batch.
        rank: of this process.
        world_size: processes.
    """

    def __init__(
        self, diagnostic: Diagnostic, batch_size: int, seed: int, start: int = 0, rank: int = 0, world_size: int = 1
    ) -> None:
        super().__init__()
        self.diagnostic = diagnostic
        self.batch_size = batch_size
        self.seed = seed
        self.start = start
        rows = rows_of_process(batch_size, rank, world_size)
        self.share = slice(rows.start, rows.stop)

    def __iter__(self) -> Iterator[Batch]:
        """Go on from the first batch, for ever."""
        index = self.start
        while True:
            yield share_of(
                self.diagnostic.sample(self.batch_size, batch_generator(self.seed, "train", index)), self.share
            )
            index += 1


class DiagnosticsData(Data):
    """A generated task: fresh batches for training, fixed ones for validation and test.

    Args:
        diagnostic: the task.
        batch_size: sequences of a batch; in training over all processes together.
        tests: settings to test with besides those of the training, each a mapping of what is changed.
        seed: of the training batches; batch g depends on (seed, g) alone.
        num_validation_batches: batches of a validation.
        num_test_batches: batches of a test; 20 as published.

    Raises:
        ValueError: an argument out of range, or a test of settings that the task does not have, or whose tokens or
            answers are of another kind than those of the training.
    """

    def __init__(
        self,
        *,
        diagnostic: Diagnostic,
        batch_size: int = 128,
        tests: Sequence[Mapping[str, Any]] = (),
        seed: int = 0,
        num_validation_batches: int = 20,
        num_test_batches: int = 20,
    ) -> None:
        super().__init__()
        minima = {
            "batch_size": (batch_size, 1),
            "seed": (seed, 0),
            "num_validation_batches": (num_validation_batches, 1),
            "num_test_batches": (num_test_batches, 1),
        }
        check_minima(minima)
        self.diagnostic = diagnostic
        self.batch_size = batch_size
        self.seed = seed
        self.num_validation_batches = num_validation_batches
        self.num_test_batches = num_test_batches
        conditions = [_condition(diagnostic, changes) for changes in tests]
        # What changes nothing is the first condition.
        self.conditions = [Condition({}, diagnostic), *(each for each in conditions if each.changes)]

    @property
    def network_arguments(self) -> dict[str, Any]:
        """What tokens show, what answers choose among, and how long the longest sequence is."""
        return {
            "num_numbers": self.diagnostic.num_numbers,
            "vocabularies": list(self.diagnostic.vocabularies),
            "num_classes": self.diagnostic.num_classes,
            "max_length": self.longest,
        }

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence of training and tests."""
        return max(condition.diagnostic.length for condition in self.conditions)

    @property
    def tokens_per_step(self) -> int:
        """Tokens of a training batch."""
        return self.batch_size * self.diagnostic.length

    @property
    def num_evaluation_tokens(self) -> tuple[int, int]:
        """Tokens of a validation, and of the test under all conditions."""
        tested = sum(condition.diagnostic.length for condition in self.conditions)
        return (
            self.num_validation_batches * self.tokens_per_step,
            self.num_test_batches * self.batch_size * tested,
        )

    @property
    def source(self) -> str:
        """How the data came about."""
        return "generated"

    def train_dataloader(self) -> DataLoader[Batch]:
        """Endless training batches, from the first one the attached trainer hasn't used (0 without one)."""
        start, rank, world_size = self.place
        batches = TrainingBatches(self.diagnostic, self.batch_size, self.seed, start, rank, world_size)
        return DataLoader(batches, batch_size=None)

    def val_dataloader(self) -> FixedLoader:
        """The validation batches, the same at each evaluation."""
        return FixedLoader(self._fixed(self.diagnostic, "validation", self.num_validation_batches))

    def test_dataloader(self) -> list[FixedLoader]:
        """The test batches of each condition."""
        return [FixedLoader(self._fixed(each.diagnostic, "test", self.num_test_batches)) for each in self.conditions]

    def _fixed(self, diagnostic: Diagnostic, split: str, count: int) -> list[Batch]:
        return [
            diagnostic.sample(self.batch_size, batch_generator(_EVALUATION_SEED, split, index))
            for index in range(count)
        ]


def share_of(batch: Batch, rows: slice) -> Batch:
    """Some sequences of a batch."""
    return batch._replace(
        numbers=batch.numbers[rows],
        symbols=batch.symbols[rows],
        targets=batch.targets[rows],
        best=batch.best[rows],
        groups={name: mask[rows] for name, mask in batch.groups.items()},
    )


def _condition(diagnostic: Diagnostic, settings: Mapping[str, Any]) -> Condition:
    try:
        changed = diagnostic.changed(**settings)
    except ValueError as error:
        raise ValueError(f"data.tests: {error}") from error
    changes = {key: value for key, value in settings.items() if getattr(diagnostic, key) != value}
    if _interface(changed) != _interface(diagnostic):
        raise ValueError(f"data.tests: {changes} changes what tokens or answers are; a model can't take both")
    return Condition(changes, changed)


def _interface(diagnostic: Diagnostic) -> tuple[int, tuple[int, ...], int]:
    return diagnostic.num_numbers, tuple(diagnostic.vocabularies), diagnostic.num_classes
