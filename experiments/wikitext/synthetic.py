"""A generated language whose entropy is known: no honest model can have a lower loss than its source.

Legend: N tokens, A symbols, k order.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class MarkovSource:
    """A Markov chain of order k over A symbols, drawn once by a seed of its own.

    Given the last k symbols, the next one is drawn from a row of `probabilities`; the first k symbols are uniform. Rows
    are drawn from a symmetric Dirichlet distribution: the lower the concentration, the more predictable the language.

    Attributes:
        num_symbols: A.
        order: k.
        concentration: of the Dirichlet distribution.
        seed: of the rows.
        probabilities: (A^k, A), the next symbol's distribution; rows are contexts, the last symbol counting fastest.
    """

    num_symbols: int = 24
    order: int = 1
    concentration: float = 0.3
    seed: int = 0
    probabilities: np.ndarray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.num_symbols < 2 or self.order < 1:
            raise ValueError(f"num_symbols={self.num_symbols} must be at least 2 and order={self.order} at least 1")
        if self.num_symbols**self.order > 1_000_000:
            raise ValueError(
                f"num_symbols={self.num_symbols} to the power of order={self.order} is over a million contexts: "
                "lower one of them"
            )
        if not self.concentration > 0:
            raise ValueError(f"concentration={self.concentration} must be positive")
        generator = np.random.default_rng(self.seed)
        rows = generator.dirichlet(np.full(self.num_symbols, self.concentration), size=self.num_symbols**self.order)
        # A symbol of probability 0 would cost a model that gives it any chance nothing, and the source infinity.
        rows = (rows + 1e-6) / (rows + 1e-6).sum(axis=1, keepdims=True)
        object.__setattr__(self, "probabilities", rows)

    def sample(self, num_tokens: int, seed: int) -> Tensor:
        """(N,) int64 symbols, a function of the source and the seed."""
        generator = np.random.default_rng([self.seed, seed])
        draws = generator.random(num_tokens)
        cumulative = self.probabilities.cumsum(axis=1)
        cumulative[:, -1] = 1.0
        rows = cumulative.tolist()
        num_contexts = len(rows)
        symbols = generator.integers(self.num_symbols, size=min(self.order, num_tokens)).tolist()
        context = 0
        for symbol in symbols:
            context = (context * self.num_symbols + symbol) % num_contexts
        for draw in draws[len(symbols) :].tolist():
            symbol = bisect.bisect_right(rows[context], draw)
            symbols.append(symbol)
            context = (context * self.num_symbols + symbol) % num_contexts
        return torch.tensor(symbols)

    def nats(self, tokens: Tensor) -> Tensor:
        """(N,) float64: -log of each token's probability given the tokens before it, exactly."""
        symbols = tokens.numpy()
        context = np.zeros(max(len(symbols) - self.order, 0), dtype=np.int64)
        for back in range(self.order, 0, -1):
            context = context * self.num_symbols + symbols[self.order - back : len(symbols) - back]
        known = -np.log(self.probabilities[context, symbols[self.order :]])
        start = np.full(min(self.order, len(symbols)), np.log(self.num_symbols))
        return torch.from_numpy(np.concatenate([start, known]))
