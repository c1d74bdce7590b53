"""The update of the grid: a factorised convolution and ConvLSTM gates.

Legend: B batch, C channels, n grid axes, N_a points along axis a, V points in all.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

UpdateKind = Literal["factorised", "pointwise"]


class GridUpdate(nn.Module):
    """One step of the memory: gates from the write volume and the hidden volume, applied to the whole grid.

    gates = Pointwise(DW_n(... DW_1(concat(write, h)))), split into i, f, o, g (in this order), then
    c <- sigm(f) * c + sigm(i) * tanh(g) and h <- sigm(o) * tanh(c).
    DW_a is a depthwise convolution with 3 taps along grid axis a, zero padding and a bias.

    Args:
        channels: C.
        num_axes: n, the number of grid axes.
        kind: ``factorised`` as above; ``pointwise`` leaves the depthwise convolutions out (ablation: no
            neighbouring points ever mix).
    """

    def __init__(self, channels: int, num_axes: int, kind: UpdateKind = "factorised") -> None:
        super().__init__()
        if kind not in get_args(UpdateKind):
            raise ValueError(f"update={kind!r} is unknown; choose one of {get_args(UpdateKind)}")
        self.kind = kind
        self.num_axes = num_axes
        if kind == "factorised":
            # Identity at the start: the centre tap is 1, so training alone makes points mix.
            taps = torch.zeros(num_axes, 2 * channels, 3)
            taps[..., 1] = 1.0
            self.taps = nn.Parameter(taps)
            self.taps_bias = nn.Parameter(torch.zeros(num_axes, 2 * channels))
        self.gates_weight = nn.Parameter(torch.empty(4 * channels, 2 * channels))
        self.gates_bias = nn.Parameter(torch.zeros(4 * channels))
        nn.init.xavier_uniform_(self.gates_weight)

    def mix(self, volume: Float[Tensor, "B channels *grid"]) -> Float[Tensor, "B channels *grid"]:
        """The depthwise convolutions, along the first grid axis first."""
        if self.kind == "pointwise":
            return volume
        grid = volume.shape[2:]
        for axis in range(self.num_axes):
            # Any number of axes folds into three: those before, the one convolved, and those after it.
            folded = volume.reshape(*volume.shape[:2], grid[:axis].numel(), grid[axis], grid[axis + 1 :].numel())
            volume = _depthwise(folded, self.taps[axis].to(volume.dtype), self.taps_bias[axis].to(volume.dtype))
        return volume.reshape(*volume.shape[:2], *grid)

    def forward(
        self,
        write: Float[Tensor, "B C *grid"],
        h: Float[Tensor, "B C *grid"],
        c: Float[Tensor, "B C *grid"],
    ) -> tuple[Float[Tensor, "B C *grid"], Float[Tensor, "B C *grid"]]:
        """The next hidden and cell volumes."""
        i, f, o, g = self.gates(write, h)
        c = f * c + i * g
        h = o * torch.tanh(c)
        return h, c

    def gates(
        self, write: Float[Tensor, "B C *grid"], h: Float[Tensor, "B C *grid"]
    ) -> tuple[
        Float[Tensor, "B C *grid"], Float[Tensor, "B C *grid"], Float[Tensor, "B C *grid"], Float[Tensor, "B C *grid"]
    ]:
        """The input, forget and output gates of a step, in (0, 1), and what it offers to the cell, in (-1, 1)."""
        mixed = self.mix(torch.cat([write, h], dim=1)).flatten(2)
        gates = torch.matmul(self.gates_weight.to(h.dtype), mixed) + self.gates_bias.to(h.dtype).unsqueeze(-1)
        i, f, o, g = gates.reshape(gates.shape[0], -1, *h.shape[2:]).chunk(4, dim=1)
        return torch.sigmoid(i), torch.sigmoid(f), torch.sigmoid(o), torch.tanh(g)


def _depthwise(x: Tensor, taps: Tensor, bias: Tensor) -> Tensor:
    """Three taps per channel along the last axis but one of x (B, channels, before, N, after).

    Written as three shifted products: on a CPU several times faster than a grouped convolution, and exact.
    """
    num_points = x.shape[3]
    padded = F.pad(x, (0, 0, 1, 1))
    before, centre, after = taps.reshape(x.shape[1], 1, 1, 1, 3).unbind(-1)
    mixed = torch.addcmul(bias.reshape(-1, 1, 1, 1), padded[..., :num_points, :], before)
    mixed = torch.addcmul(mixed, x, centre)
    return torch.addcmul(mixed, padded[..., 2:, :], after)
