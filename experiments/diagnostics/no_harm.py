"""No harm: counting, a task that needs no memory, which a memory should then not spoil."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Int64
from torch import Generator, Tensor

from experiments.diagnostics.diagnostic import Batch, Diagnostic, check_whole


@dataclass(frozen=True)
class NoHarm(Diagnostic):
    """Each symbol is the one before it plus 1, after the last the first; every token is asked for its successor.

    The first symbol is any one with equal chance. The last token is not asked. The symbol is all that a token has:
    there are no numbers.

    >>> batch = NoHarm(num_symbols=4, sequence_length=5).encode(first=torch.tensor([2]))
    >>> batch.symbols.squeeze(-1).tolist()
    [[2, 3, 0, 1, 2]]
    >>> batch.answers.tolist(), batch.targets.tolist()
    ([[0], [1], [2], [3]], [[3, 0, 1, 2]])

    Attributes:
        num_symbols: of the circle.
        sequence_length: N.
    """

    name: ClassVar[str] = "no_harm"
    difficulty: ClassVar[str | None] = None

    num_symbols: int = 16
    sequence_length: int = 32

    def __post_init__(self) -> None:
        check_whole("num_symbols", self.num_symbols, 2)
        check_whole("sequence_length", self.sequence_length, 2)

    @property
    def num_numbers(self) -> int:
        """No numbers."""
        return 0

    @property
    def vocabularies(self) -> tuple[int, ...]:
        """The symbols."""
        return (self.num_symbols,)

    @property
    def num_classes(self) -> int:
        """The symbols."""
        return self.num_symbols

    @property
    def length(self) -> int:
        """N."""
        return self.sequence_length

    def draw(self, batch_size: int, generator: Generator) -> tuple[Tensor]:
        """The first symbol (B,)."""
        return (torch.randint(self.num_symbols, (batch_size,), generator=generator),)

    def encode(self, first: Int64[Tensor, " B"]) -> Batch:
        """The symbols, ``(B, N, 1)``, and the successors of all but the last, ``targets (B, N - 1)``."""
        symbols = (first[:, None] + torch.arange(self.length)) % self.num_symbols
        targets = symbols[:, 1:]
        return Batch(
            numbers=torch.zeros(len(first), self.length, 0),
            symbols=symbols[..., None],
            answers=torch.arange(self.length - 1)[:, None],
            targets=targets,
            best=torch.ones(targets.shape),
            groups={},
        )
