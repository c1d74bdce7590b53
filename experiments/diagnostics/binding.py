"""Coordinate binding: values are written at points of a cube and asked for by points near them.

Letters: B sequences, W writes, Q queries, D coordinates of a key.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float32, Int64
from torch import Generator, Tensor

from experiments.diagnostics.diagnostic import Batch, Diagnostic, check_whole

WRITE, QUERY = 0, 1


@dataclass(frozen=True)
class Binding(Diagnostic):
    """W writes of a key and a value each, then Q queries; the answer is the value of the nearest written key.

    A query is the key of a written pair, any one with equal chance, plus Gaussian noise, cut off at the cube's faces.
    The noise may carry it nearer to another key: then that one counts, so that a perfect memory is right every time.
    Of keys equally near, the first written counts.

    The numbers of a token are its key. Its symbols are its kind (write 0, query 1) and its value, where queries have
    the additional symbol `num_values`: none.

    Values 3 and 1 are written at -0.5 and 0.5; 0.25 is nearer to 0.5, so the answer is 1:

    >>> task = Binding(num_writes=2, num_queries=1, num_values=4, key_dim=1)
    >>> keys, values = torch.tensor([[[-0.5], [0.5]]]), torch.tensor([[3, 1]])
    >>> batch = task.encode(keys, values, queries=torch.tensor([[[0.25]]]))
    >>> batch.numbers.tolist()
    [[[-0.5], [0.5], [0.25]]]
    >>> batch.symbols.tolist()
    [[[0, 3], [0, 1], [1, 4]]]
    >>> batch.answers.tolist(), batch.targets.tolist()
    ([[2]], [[1]])

    Attributes:
        num_writes: W.
        noise: standard deviation of the noise, in each coordinate of a query.
        num_queries: Q.
        num_values: values that can be written.
        key_dim: D.
    """

    name: ClassVar[str] = "binding"
    difficulty: ClassVar[str | None] = "num_writes"

    num_writes: int = 20
    noise: float = 0.05
    num_queries: int = 4
    num_values: int = 32
    key_dim: int = 3

    def __post_init__(self) -> None:
        for setting in ("num_writes", "num_queries", "key_dim"):
            check_whole(setting, getattr(self, setting), 1)
        check_whole("num_values", self.num_values, 2)
        if not 0 <= self.noise < math.inf:
            raise ValueError(f"noise={self.noise!r} must be a finite number, at least 0")

    @property
    def num_numbers(self) -> int:
        """A = D: the key."""
        return self.key_dim

    @property
    def vocabularies(self) -> tuple[int, ...]:
        """Two kinds; the values and none."""
        return 2, self.num_values + 1

    @property
    def num_classes(self) -> int:
        """The values."""
        return self.num_values

    @property
    def length(self) -> int:
        """W + Q."""
        return self.num_writes + self.num_queries

    def draw(self, batch_size: int, generator: Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Written keys (B, W, D) and values (B, W), and queries (B, Q, D), all coordinates in [-1, 1]."""
        keys = 2 * torch.rand(batch_size, self.num_writes, self.key_dim, generator=generator) - 1
        values = torch.randint(self.num_values, (batch_size, self.num_writes), generator=generator)
        asked = torch.randint(self.num_writes, (batch_size, self.num_queries, 1), generator=generator)
        noise = torch.randn(batch_size, self.num_queries, self.key_dim, generator=generator)
        queries = keys.take_along_dim(asked, dim=1) + self.noise * noise
        return keys, values, queries.clamp(-1, 1)

    def encode(
        self, keys: Float32[Tensor, "B W D"], values: Int64[Tensor, "B W"], queries: Float32[Tensor, "B Q D"]
    ) -> Batch:
        """The writes, then the queries, one token each; ``numbers (B, W + Q, D)``, ``targets (B, Q)``."""
        none = torch.full(queries.shape[:2], self.num_values)
        kinds = torch.cat([torch.full_like(values, WRITE), torch.full_like(none, QUERY)], dim=1)
        # In float32 the rounding of the squares could choose between two keys at nearly one distance.
        offsets = queries[:, :, None].double() - keys[:, None].double()
        nearest = offsets.square().sum(-1).argmin(-1)
        targets = values.take_along_dim(nearest, dim=1)
        return Batch(
            numbers=torch.cat([keys, queries], dim=1),
            symbols=torch.stack([kinds, torch.cat([values, none], dim=1)], dim=-1),
            answers=torch.arange(self.num_writes, self.length)[:, None],
            targets=targets,
            best=torch.ones(targets.shape),
            groups={},
        )
