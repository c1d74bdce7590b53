"""Random scans, run by the fused path and by the reference.

Letters: B batch, S chunks written, R chunks read, C channels.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tensormem.memory import fused, native_library
from tensormem.memory.scan import ScanInputs, reference
from tensormem.memory.update import GridUpdate
from tests.helpers import assert_all_close, gradients, randomise

needs_native = pytest.mark.skipif(native_library.library() is None, reason="needs a C++ compiler for native.cpp")
KERNELS = ["eager", pytest.param("native", marks=needs_native)]
EXACT = 1e-10
BATCH = 2
GRIDS = [(2,), (5,), (3, 4), (3, 2, 4), (2, 3, 2, 2)]
SAVINGS = ["full", "light", "checkpoint"]


class Case:
    """Random inputs, state and parameters; every tensor that has a gradient is named."""

    def __init__(
        self,
        grid: tuple[int, ...],
        num_steps: int = 5,
        num_reads: int | None = None,
        channels: int = 3,
        batch: int = BATCH,
        kind: str = "factorised",
        dtype: torch.dtype = torch.float64,
    ) -> None:
        generator = torch.Generator().manual_seed(0)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

        num_reads = num_steps if num_reads is None else num_reads
        self.update = GridUpdate(channels, len(grid), kind).to(dtype)
        randomise(self.update, generator)
        inputs = ScanInputs(
            read_coordinates=torch.tanh(normal(batch, num_reads, len(grid))),
            write_coordinates=torch.tanh(normal(batch, num_steps, len(grid))),
            content=normal(batch, num_steps, channels),
            sigma=normal(batch, num_steps, 1).abs() + 0.1,
        )
        # The ends of an axis, to the bit: a read there is clamped and its coordinate has no gradient.
        inputs.read_coordinates[:, ::3] = inputs.read_coordinates[:, ::3].sign()
        inputs.write_coordinates[:, 1::3] = inputs.write_coordinates[:, 1::3].sign()
        self.inputs = ScanInputs(*(tensor.requires_grad_() for tensor in inputs))
        self.h, self.c = (normal(batch, channels, *grid).requires_grad_() for _ in range(2))

    def leaves(self) -> list[tuple[str, Tensor]]:
        return [
            *self.inputs._asdict().items(),
            ("h", self.h),
            ("c", self.c),
            *self.update.named_parameters(),
        ]

    def run(self, scan, **options) -> dict[str, Tensor]:
        reads, h, c = scan(self.inputs, self.h, self.c, self.update, **options)
        outputs = {"reads": reads, "last h": h, "last c": c}
        return outputs | gradients(outputs, self.leaves(), torch.Generator().manual_seed(1))


def assert_parity(case: Case, tolerance: float, write: str = "gaussian", **options) -> None:
    assert_all_close(case.run(fused.fused, write=write, **options), case.run(reference, write=write), tolerance)
