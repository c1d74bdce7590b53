"""How the benchmarks measure: time in turns, in one process, warm; peak memory each in a process of its own."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from pathlib import Path
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


def peak_bytes(task: Callable[[], Any]) -> int:
    """The most memory that the task takes, over what this process holds before; on Linux.

    What was freed before and not yet given back is given back first. Compilers and thread pools should have run.
    """
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _memory("VmRSS")
    task()
    return _memory("VmHWM") - before


def _memory(key: str) -> int:
    """Bytes, as Linux counts them for this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return 1024 * int(line.split()[1])
    raise RuntimeError(f"/proc/self/status has no {key}")
