"""Map building: small views of a hidden grid, then a question about one of its cells.

Letters: B sequences, G cells along a side of the grid, T views, V cells along a side of a view.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Int64
from torch import Generator, Tensor

from experiments.diagnostics.diagnostic import Batch, Diagnostic, check_whole


@dataclass(frozen=True)
class MapBuilding(Diagnostic):
    """T views of V x V cells at uniformly random places of a grid of fair bits, then a query for any one cell.

    A cell may never have been in view, and then no answer is better than a guess: accuracy is reported apart for
    the groups ``seen`` and ``unseen``.

    The numbers of a token are the V x V cells in view, row by row (zeros in the query), the row and the column of
    the view's top left cell or of the queried cell, as shares of G, and a mark of the query. There are no symbols.

    Of the grid 10 / 11, one view shows the top left cell. The query for the bottom right one, which holds a 1, can
    only be guessed:

    >>> task = MapBuilding(num_views=1, grid_size=2, view_size=1)
    >>> batch = task.encode(
    ...     grid=torch.tensor([[[1, 0], [1, 1]]]), corners=torch.tensor([[[0, 0]]]), query=torch.tensor([[1, 1]])
    ... )
    >>> batch.numbers.tolist()
    [[[1.0, 0.0, 0.0, 0.0], [0.0, 0.5, 0.5, 1.0]]]
    >>> batch.answers.tolist(), batch.targets.tolist(), batch.best.tolist(), batch.groups["seen"].tolist()
    ([[1]], [[1]], [[0.5]], [[False]])

    Attributes:
        num_views: T.
        grid_size: G.
        view_size: V.
    """

    name: ClassVar[str] = "map_building"
    difficulty: ClassVar[str | None] = "num_views"

    num_views: int = 16
    grid_size: int = 8
    view_size: int = 2

    def __post_init__(self) -> None:
        check_whole("num_views", self.num_views, 1)
        check_whole("grid_size", self.grid_size, 1)
        check_whole("view_size", self.view_size, 1, self.grid_size, "grid_size")

    @property
    def num_numbers(self) -> int:
        """A = V^2 + 3: cells, row, column and the mark of the query."""
        return self.view_size**2 + 3

    @property
    def vocabularies(self) -> tuple[int, ...]:
        """No symbols."""
        return ()

    @property
    def num_classes(self) -> int:
        """A cell holds 0 or 1."""
        return 2

    @property
    def length(self) -> int:
        """T + 1."""
        return self.num_views + 1

    @property
    def probability_seen(self) -> float:
        """Exact probability that the queried cell, any one of the grid, is in at least one of the T views."""
        places = self.grid_size - self.view_size + 1
        # How many of a view's places along one side have cell i in view: fewer near the ends.
        covering = [min(cell, places - 1) - max(cell - self.view_size + 1, 0) + 1 for cell in range(self.grid_size)]
        missed = [(1 - rows * columns / places**2) ** self.num_views for rows in covering for columns in covering]
        return 1 - sum(missed) / len(missed)

    def draw(self, batch_size: int, generator: Generator) -> tuple[Tensor, Tensor, Tensor]:
        """The grid (B, G, G), the views' top left cells (B, T, 2) and the queried cell (B, 2), as (row, column)."""
        places = self.grid_size - self.view_size + 1
        grid = torch.randint(2, (batch_size, self.grid_size, self.grid_size), generator=generator)
        corners = torch.randint(places, (batch_size, self.num_views, 2), generator=generator)
        query = torch.randint(self.grid_size, (batch_size, 2), generator=generator)
        return grid, corners, query

    def encode(
        self, grid: Int64[Tensor, "B G G"], corners: Int64[Tensor, "B T 2"], query: Int64[Tensor, "B 2"]
    ) -> Batch:
        """The views, then the query, one token each; ``numbers (B, T + 1, V^2 + 3)``, ``targets (B, 1)``."""
        row = torch.arange(len(grid))
        side = torch.arange(self.view_size)
        rows = corners[:, :, 0, None, None] + side[:, None]
        columns = corners[:, :, 1, None, None] + side
        views = grid[row[:, None, None, None], rows, columns].flatten(2)
        cells = torch.cat([views, views.new_zeros(len(grid), 1, self.view_size**2)], dim=1)
        places = torch.cat([corners, query[:, None]], dim=1) / self.grid_size
        mark = torch.zeros(len(grid), self.length, 1)
        mark[:, -1] = 1
        offsets = query[:, None] - corners
        in_view = ((offsets >= 0) & (offsets < self.view_size)).all(-1)
        seen = in_view.any(1, keepdim=True)
        return Batch(
            numbers=torch.cat([cells.float(), places, mark], dim=-1),
            symbols=torch.zeros(len(grid), self.length, 0, dtype=torch.int64),
            answers=torch.tensor([[self.num_views]]),
            targets=grid[row, query[:, 0], query[:, 1]][:, None],
            best=torch.where(seen, 1.0, 0.5),
            groups={"seen": seen, "unseen": ~seen},
        )
