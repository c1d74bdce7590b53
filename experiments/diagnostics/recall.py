"""Associative recall of several pairs of symbols (Arora et al., "Zoology", arXiv 2312.04927).

Letters: B sequences, W pairs, Q queries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Int64
from torch import Generator, Tensor

from experiments.diagnostics.diagnostic import Batch, Diagnostic, check_whole


@dataclass(frozen=True)
class Recall(Diagnostic):
    """W keys, each followed by its value, then Q of the keys in random order, each asked for its value.

    The keys of a sequence are distinct; the values are drawn independently of them and of one another. The symbol
    is all that a token has: there are no numbers. Keys are the symbols from 0, values those from `num_symbols`, and
    with a gap the symbol ``2 num_symbols`` fills it. The classes are the values, counted from 0.

    Key 2 is followed by value 0 and key 1 by value 2, that is by the symbols 3 and 5; then a filler, symbol 6, and a
    query for each pair, the second (key 1) first:

    >>> task = Recall(num_pairs=2, num_symbols=3, gap=1)
    >>> keys, values = torch.tensor([[2, 1]]), torch.tensor([[0, 2]])
    >>> batch = task.encode(keys, values, asked=torch.tensor([[1, 0]]))
    >>> batch.symbols.squeeze(-1).tolist()
    [[2, 3, 1, 5, 6, 1, 2]]
    >>> batch.answers.tolist(), batch.targets.tolist()
    ([[5], [6]], [[2, 0]])

    Attributes:
        num_pairs: W.
        num_symbols: keys there are, and values.
        num_queries: Q, at most W; None: as many as pairs.
        gap: fillers between the pairs and the queries.
    """

    name: ClassVar[str] = "recall"
    difficulty: ClassVar[str | None] = "num_pairs"

    num_pairs: int = 8
    num_symbols: int = 64
    num_queries: int | None = None
    gap: int = 0

    def __post_init__(self) -> None:
        check_whole("num_symbols", self.num_symbols, 2)
        check_whole("num_pairs", self.num_pairs, 1, self.num_symbols, "num_symbols")
        if self.num_queries is not None:
            check_whole("num_queries", self.num_queries, 1, self.num_pairs, "num_pairs")
        check_whole("gap", self.gap, 0)

    @property
    def num_asked(self) -> int:
        """Q."""
        return self.num_pairs if self.num_queries is None else self.num_queries

    @property
    def num_numbers(self) -> int:
        """No numbers."""
        return 0

    @property
    def vocabularies(self) -> tuple[int, ...]:
        """Keys, values and, with a gap, its filler."""
        return (2 * self.num_symbols + (self.gap > 0),)

    @property
    def num_classes(self) -> int:
        """The values."""
        return self.num_symbols

    @property
    def length(self) -> int:
        """2 W + gap + Q."""
        return 2 * self.num_pairs + self.gap + self.num_asked

    def draw(self, batch_size: int, generator: Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Keys (B, W), values (B, W), both counted from 0, and the pairs (B, Q) that the queries ask for, in turn."""
        # The places that random numbers take when they are sorted are a random permutation.
        keys = torch.rand(batch_size, self.num_symbols, generator=generator).argsort(1)[:, : self.num_pairs]
        values = torch.randint(self.num_symbols, (batch_size, self.num_pairs), generator=generator)
        asked = torch.rand(batch_size, self.num_pairs, generator=generator).argsort(1)[:, : self.num_asked]
        return keys, values, asked

    def encode(self, keys: Int64[Tensor, "B W"], values: Int64[Tensor, "B W"], asked: Int64[Tensor, "B Q"]) -> Batch:
        """Pairs, gap and queries, ``symbols (B, 2 W + gap + Q, 1)``, and ``targets (B, Q)``."""
        pairs = torch.stack([keys, self.num_symbols + values], dim=-1).flatten(1)
        gap = pairs.new_full((len(keys), self.gap), 2 * self.num_symbols)
        targets = values.take_along_dim(asked, dim=1)
        return Batch(
            numbers=torch.zeros(len(keys), self.length, 0),
            symbols=torch.cat([pairs, gap, keys.take_along_dim(asked, dim=1)], dim=1)[..., None],
            answers=torch.arange(self.length - self.num_asked, self.length)[:, None],
            targets=targets,
            best=torch.ones(targets.shape),
            groups={},
        )
