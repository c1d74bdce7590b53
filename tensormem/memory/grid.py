"""Geometry of the grid: what a coordinate in [-1, 1]^n reads and where it writes.

Legend: B batch, C channels, n grid axes, N_a points along axis a, V = N_1 * ... * N_n points in all.
Component a of a coordinate addresses grid axis a; -1 and +1 are the centres of the first and the last point.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor


def axis_positions(num_points: int, like: Tensor) -> Float[Tensor, " num_points"]:
    """Positions in [-1, 1] of the points along one axis, both ends included."""
    return torch.linspace(-1.0, 1.0, num_points, device=like.device, dtype=like.dtype)


def corners(
    coordinates: Float[Tensor, "*batch n"], grid: Sequence[int]
) -> tuple[Int[Tensor, "*batch corners"], Float[Tensor, "*batch corners"]]:
    """The 2^n grid points around each coordinate and the weights of an n-linear read there.

    Coordinates outside [-1, 1] are clamped to the border. As in ``F.grid_sample(align_corners=True,
    padding_mode="border")``, a coordinate on or beyond the border gets no gradient.

    Args:
        coordinates: positions, one component per grid axis.
        grid: points along each axis.

    Returns:
        Flat indices into the V grid points (last axis fastest), and the weights, which sum to 1.
    """
    last = torch.tensor([num_points - 1 for num_points in grid], device=coordinates.device, dtype=coordinates.dtype)
    position = (coordinates + 1) * (last / 2)
    inside = (position > 0) & (position < last)
    # Explicit, because releases of torch differ in clamp's gradient at the border itself.
    position = torch.where(inside, position, torch.minimum(position.detach().clamp(min=0), last))
    # NaN makes no index: it must reach the weights, and only them.
    lower = torch.minimum(position.detach().nan_to_num().floor(), last - 1)
    upper_weight = position - lower
    both = torch.stack([1 - upper_weight, upper_weight], dim=-1)
    weight = both[..., 0, :]
    for axis in range(1, len(grid)):
        weight = (weight.unsqueeze(-1) * both[..., axis, None, :]).flatten(-2)
    strides = [math.prod(grid[axis + 1 :]) for axis in range(len(grid))]
    offsets = [sum(corner) for corner in itertools.product(*[(0, stride) for stride in strides])]
    first = (lower.long() * torch.tensor(strides, device=lower.device)).sum(-1, keepdim=True)
    return first + torch.tensor(offsets, device=lower.device), weight


def gather(
    volume: Float[Tensor, "B C *grid"],
    index: Int[Tensor, "B corners"],
    weight: Float[Tensor, "B corners"],
) -> Float[Tensor, "B C"]:
    """Weighted sum of the volume's values at the grid points that ``corners`` found."""
    points = volume.flatten(2)
    values = points.gather(2, index.unsqueeze(1).expand(-1, points.shape[1], -1))
    return torch.linalg.vecdot(values, weight.unsqueeze(1), dim=-1)


def read(volume: Float[Tensor, "B C *grid"], coordinates: Float[Tensor, "B n"]) -> Float[Tensor, "B C"]:
    """n-linear interpolation of the volume at one coordinate per batch element, clamped at the border."""
    return gather(volume, *corners(coordinates, volume.shape[2:]))


def gaussian_weights(
    coordinates: Float[Tensor, "*batch n"], sigma: Float[Tensor, "*batch 1"], grid: Sequence[int]
) -> Float[Tensor, "..."]:
    """Weight of a Gaussian write at every grid point: exp(-|p - mu|^2 / (2 sigma^2 + 1e-6)).

    Args:
        coordinates: the centres mu, in [-1, 1]^n.
        sigma: the spreads, in units of the coordinates (the whole grid is 2 wide).
        grid: points along each axis.

    Returns:
        Weights of shape (*batch, *grid), in (0, 1].
    """
    num_batch = coordinates.dim() - 1
    squared = coordinates.new_zeros([1] * (num_batch + len(grid)))
    for axis, num_points in enumerate(grid):
        offset = axis_positions(num_points, coordinates) - coordinates[..., axis : axis + 1]
        squared = squared + offset.square().reshape(_along_axis(offset, axis, len(grid)))
    width = 2 * sigma.square() + 1e-6
    return torch.exp(-squared / width.reshape(*width.shape[:-1], *[1] * len(grid)))


def hard_weights(coordinates: Float[Tensor, "*batch n"], grid: Sequence[int]) -> Float[Tensor, "..."]:
    """Weight 1 at the grid point nearest to each coordinate and 0 elsewhere (the ablation's write).

    The choice of the point is not differentiable: coordinates get no gradient from it.

    Returns:
        Weights of shape (*batch, *grid).
    """
    index = torch.zeros_like(coordinates[..., 0], dtype=torch.long)
    for axis, num_points in enumerate(grid):
        sizes = torch.tensor(num_points, device=coordinates.device)
        index = index * num_points + nearest(coordinates[..., axis], sizes)
    flat = torch.nn.functional.one_hot(index, math.prod(grid)).to(coordinates.dtype)
    return flat.reshape(*index.shape, *grid)


def nearest(coordinates: Float[Tensor, "*batch"], num_points: Int[Tensor, "..."]) -> Int[Tensor, "*batch"]:
    """The point of an axis nearest to each coordinate, given the axis's number of points; no gradient."""
    last = (num_points - 1).to(coordinates.dtype)
    position = (coordinates.detach() + 1) * (last / 2)
    return torch.minimum(position.nan_to_num().round().clamp(min=0), last).long()


def _along_axis(values: Tensor, axis: int, num_axes: int) -> list[int]:
    """Shape that lays the last dimension of ``values`` along one of ``num_axes`` trailing axes."""
    trailing = [1] * num_axes
    trailing[axis] = values.shape[-1]
    return [*values.shape[:-1], *trailing]
