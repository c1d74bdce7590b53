"""What the memory does, logged at each validation: where it writes and reads, how widely, and how full the grid is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from tensormem.memory.observe import Observation, observed, occupancy
from tensormem.memory.update import GridUpdate

# Shares of the writes below which the logged spreads lie.
QUANTILES = {"p05": 0.05, "p50": 0.5, "p95": 0.95}
GATES = ("input", "forget", "output")


class MemoryWatch(pl.Callback):
    """Logs `memory_summary` of the first batch of every validation, which runs as it would without being watched."""

    def __init__(self) -> None:
        self._watching: AbstractContextManager[list[Observation]] | None = None
        self._seen: list[Observation] = []

    def on_validation_batch_start(
        self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Look, where there is a memory."""
        if batch_idx == 0 and dataloader_idx == 0 and pl_module.model.stack.memory is not None:
            self._watching = observed(pl_module.model)
            self._seen = self._watching.__enter__()

    def on_validation_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Log what was seen."""
        if self._watching is None:
            return
        self._watching.__exit__(None, None, None)
        self._watching = None
        stack = pl_module.model.stack
        for name, value in memory_summary(self._seen, tuple(stack.memory_layers), stack.memory.update).items():
            pl_module.log(name, value, batch_size=1)
        self._seen = []


def memory_summary(seen: Sequence[Observation], layers: Sequence[int], update: GridUpdate) -> dict[str, Tensor]:
    """Numbers of each layer's memory, 0-d, by the names they are logged under.

    For each layer: quantiles of the writes' spread (in units of the coordinates); mean and deviation of the coordinates
    of writes and of reads along each axis; the share of grid points that hold nine tenths of the energy of the volume
    after the last write; and the means of the gates that a step there would have that writes nothing.

    Args:
        seen: calls of the memory; where a video's frames go through the layers in turn, there are several to a layer.
        layers: that have the memory, in order.
        update: of the memory.
    """
    found: dict[str, Tensor] = {}
    for place, layer in enumerate(layers):
        calls = seen[place :: len(layers)]
        if calls:
            numbers = _of_layer(calls, update)
            found |= {f"memory/layer_{layer}/{name}": value for name, value in numbers.items()}
    return found


def _of_layer(calls: Sequence[Observation], update: GridUpdate) -> Mapping[str, Tensor]:
    last = calls[-1].h
    numbers = {"occupancy": occupancy(last).mean()}
    with torch.no_grad():
        gates = update.gates(torch.zeros_like(last), last)
    numbers |= {f"{name}_gate": gate.mean() for name, gate in zip(GATES, gates, strict=False)}
    spread = torch.cat([call.inputs.sigma.flatten() for call in calls]).float()
    if spread.numel():
        quantiles = torch.quantile(spread, spread.new_tensor(list(QUANTILES.values())))
        numbers |= {f"spread_{name}": value for name, value in zip(QUANTILES, quantiles, strict=True)}
    for name in ("write", "read"):
        places = torch.cat([getattr(call.inputs, f"{name}_coordinates").flatten(0, 1) for call in calls]).float()
        for axis in range(places.shape[1]) if len(places) else ():
            numbers[f"{name}_{axis}_mean"] = places[:, axis].mean()
            numbers[f"{name}_{axis}_deviation"] = places[:, axis].std(correction=0)
    return numbers
