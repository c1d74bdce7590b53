"""Small random memories, tokens and states for the tests of the memory."""

from __future__ import annotations

import torch
from torch import Tensor

from tensormem.memory import MemoryState, TensorMemory
from tests.helpers import randomise

DIM, CHANNELS, BATCH, CHUNK, NUM_TOKENS = 5, 3, 2, 4, 14
GRID = (3, 2, 4)
FLOAT_FIELDS = ("h", "c", "buffer", "read")


def random_memory(grid: tuple[int, ...] = GRID, chunk: int = CHUNK, **options) -> TensorMemory:
    memory = TensorMemory(DIM, CHANNELS, grid, chunk, **options).double()
    randomise(memory, torch.Generator().manual_seed(0))
    return memory


def random_tokens(num_tokens: int = NUM_TOKENS, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(BATCH, num_tokens, DIM, dtype=torch.float64, generator=generator)


def random_state(memory: TensorMemory, seed: int = 2) -> MemoryState:
    """Random volumes, nothing pending: an empty memory would hide what the first read depends on."""
    generator = torch.Generator().manual_seed(seed)
    shape = (BATCH, memory.channels, *memory.grid)
    h, c = (torch.randn(shape, dtype=torch.float64, generator=generator) for _ in range(2))
    return memory.init_state(BATCH)._replace(h=h, c=c)


def fields(state: MemoryState) -> dict[str, Tensor]:
    return {f"state.{name}": getattr(state, name) for name in FLOAT_FIELDS}
