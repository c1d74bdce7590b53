"""How the benchmarks measure: everything that is compared is run in turns, in one process, warm."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch


def interleaved(tasks: dict[str, Callable[[], Any]], rounds: int, warmup: int = 2) -> dict[str, list[Any]]:
    """What every task returns, once a round, so that what else the machine does meets all of them alike.

    Args:
        tasks: by name.
        rounds: how many are kept.
        warmup: rounds before, whose values are dropped: first calls compile and allocate.
    """
    measured: dict[str, list[Any]] = {name: [] for name in tasks}
    for done in range(warmup + rounds):
        for name, task in tasks.items():
            value = task()
            if done >= warmup:
                measured[name].append(value)
    return measured


def gemm_rate(size: int = 2048) -> float:
    """Floating-point operations a second of a square product in float32, the best of several."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    times = []
    for _ in range(8):
        start = time.perf_counter()
        a @ b
        times.append(time.perf_counter() - start)
    return 2 * size**3 / min(times)
