"""Reads against `F.grid_sample` and slow loops; writes against the formula at every grid point."""

from __future__ import annotations

import itertools
import math

import jaxtyping
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tensormem.memory import grid as geometry
from tests.helpers import EXACT_FLOAT64, assert_all_close, assert_close, gradients

# No two axes alike: on a cube a swap of axes could go unseen. One of each is as short as an axis may be.
GRIDS_OF_GRID_SAMPLE = [(3, 5), (2, 4), (3, 5, 4), (2, 7, 3)]
GRIDS_WITHOUT = [(2,), (5,), (2, 4, 3, 5), (3, 2, 2, 4)]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_volume(batch: int, grid: tuple[int, ...], seed: int = 0) -> Tensor:
    return torch.randn(batch, 3, *grid, dtype=torch.float64, generator=generator(seed))


def grid_sample(volume: Tensor, coordinates: Tensor) -> Tensor:
    """The same read by PyTorch, which names the last grid axis first."""
    num_axes = coordinates.shape[-1]
    where = coordinates.flip(-1).reshape(-1, *[1] * num_axes, num_axes)
    sampled = F.grid_sample(volume, where, mode="bilinear", padding_mode="border", align_corners=True)
    return sampled.flatten(1)


def slow_read(volume: Tensor, coordinates: Tensor) -> Tensor:
    """n-linear interpolation, one batch element and one corner at a time."""
    results = []
    for element, coordinate in zip(volume, coordinates, strict=True):
        lower, fraction = [], []
        for component, num_points in zip(coordinate, volume.shape[2:], strict=True):
            position = (component + 1) / 2 * (num_points - 1)
            if position.item() <= 0 or position.item() >= num_points - 1:
                position = position.detach().clamp(0, num_points - 1)
            lower.append(min(math.floor(position.item()), num_points - 2))
            fraction.append(position - lower[-1])
        total = torch.zeros(volume.shape[1], dtype=volume.dtype)
        for corner in itertools.product((0, 1), repeat=len(lower)):
            weight = torch.ones((), dtype=volume.dtype)
            for side, share in zip(corner, fraction, strict=True):
                weight = weight * (share if side else 1 - share)
            place = tuple(start + side for start, side in zip(lower, corner, strict=True))
            total = total + weight * element[(slice(None), *place)]
        results.append(total)
    return torch.stack(results)


def assert_same_read(reference, volume: Tensor, coordinates: Tensor) -> None:
    results = []
    for function in (geometry.read, reference):
        inputs = {"volume": volume.clone().requires_grad_(), "coordinates": coordinates.clone().requires_grad_()}
        value = function(inputs["volume"], inputs["coordinates"])
        outputs = {"read": value}
        results.append(outputs | gradients(outputs, inputs.items(), generator(9)))
    assert_all_close(results[0], results[1], EXACT_FLOAT64)


def references(grid: tuple[int, ...]):
    return slow_read if grid in GRIDS_WITHOUT else grid_sample


@pytest.mark.parametrize("grid", GRIDS_OF_GRID_SAMPLE + GRIDS_WITHOUT)
def test_read_inside_and_outside_the_grid(grid):
    # Of 24 coordinates in [-1.5, 1.5]^n about a third has a component outside.
    coordinates = torch.rand(24, len(grid), dtype=torch.float64, generator=generator(1)) * 3 - 1.5
    assert (coordinates.abs() > 1).any()
    assert (coordinates.abs() < 1).all(dim=-1).any()
    assert_same_read(references(grid), random_volume(24, grid), coordinates)


@pytest.mark.parametrize("grid", GRIDS_OF_GRID_SAMPLE + GRIDS_WITHOUT)
def test_read_at_the_border_itself(grid):
    # Every mix of -1, +1 and an inner value: the border clamps, and gives its component no gradient.
    coordinates = torch.tensor(list(itertools.product((-1.0, 0.3, 1.0), repeat=len(grid))), dtype=torch.float64)
    assert_same_read(references(grid), random_volume(len(coordinates), grid), coordinates)


@pytest.mark.parametrize("grid", [(3, 5), (5, 3, 9), (3,), (3, 5, 3, 3)])
def test_read_on_grid_points(grid):
    # These positions are exact in binary, so both sides agree on which cell a point opens, and on the gradient.
    places = torch.tensor(list(itertools.product(*[range(0, n, 2) for n in grid])))
    steps = torch.tensor([n - 1 for n in grid], dtype=torch.float64)
    coordinates = places / steps * 2 - 1
    volume = random_volume(len(places), grid)
    assert_same_read(slow_read if len(grid) in (1, 4) else grid_sample, volume, coordinates)
    at_points = torch.stack([element[(slice(None), *place)] for element, place in zip(volume, places, strict=True)])
    assert_close(geometry.read(volume, coordinates), at_points, "read on grid points", EXACT_FLOAT64)


def test_read_on_grid_points_that_are_not_exact_in_binary():
    grid = (4, 6, 7)
    places = list(itertools.product(*[range(n) for n in grid]))
    axes = [geometry.axis_positions(n, torch.zeros((), dtype=torch.float64)) for n in grid]
    coordinates = torch.stack([torch.stack([axis[i] for axis, i in zip(axes, place, strict=True)]) for place in places])
    volume = random_volume(1, grid).expand(len(places), -1, -1, -1, -1)
    expected = volume[0].flatten(1).T
    assert_close(geometry.read(volume, coordinates), expected, "read on grid points", EXACT_FLOAT64)


def test_component_a_addresses_axis_a():
    volume = torch.arange(2 * 3 * 4, dtype=torch.float64).reshape(1, 1, 2, 3, 4)
    coordinates = torch.tensor([[1.0, -1.0, 1.0]], dtype=torch.float64)
    assert geometry.read(volume, coordinates).item() == volume[0, 0, 1, 0, 3].item()
    assert geometry.hard_weights(coordinates, (2, 3, 4))[0, 1, 0, 3] == 1
    assert geometry.gaussian_weights(coordinates, torch.full((1, 1), 0.5).double(), (2, 3, 4))[0, 1, 0, 3] == 1


@pytest.mark.parametrize("batch", [(3,), (2, 4)])
@pytest.mark.parametrize("grid", GRIDS_OF_GRID_SAMPLE + GRIDS_WITHOUT)
def test_corners_take_any_batch_shape(grid, batch):
    coordinates = torch.rand(*batch, len(grid), dtype=torch.float64, generator=generator(2)) * 2.4 - 1.2
    index, weight = geometry.corners(coordinates, grid)
    assert index.shape == weight.shape == (*batch, 2 ** len(grid))
    assert index.min() >= 0
    assert index.max() < math.prod(grid)
    assert_close(weight.sum(-1), torch.ones(batch), "sum of the weights", EXACT_FLOAT64)
    # The read of the coordinates themselves, as a volume, gives the clamped coordinate back: n-linear is exact there.
    axes = [torch.linspace(-1, 1, n, dtype=torch.float64) for n in grid]
    points = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).reshape(-1, len(grid))
    read = (points[index] * weight.unsqueeze(-1)).sum(-2)
    assert_close(read, coordinates.clamp(-1, 1), "the place that is read", EXACT_FLOAT64)


def distances(coordinates: Tensor, grid: tuple[int, ...]) -> Tensor:
    """|p - mu|^2 over an explicit table of the grid's points: (*batch, V)."""
    axes = [-1 + 2 * torch.arange(n, dtype=torch.float64) / (n - 1) for n in grid]
    points = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).reshape(-1, len(grid))
    return (points - coordinates.unsqueeze(-2)).square().sum(-1)


@pytest.mark.parametrize("batch", [(3,), (2, 4)])
@pytest.mark.parametrize("grid", GRIDS_OF_GRID_SAMPLE + GRIDS_WITHOUT)
def test_gaussian_weights_follow_the_formula(grid, batch):
    results = []
    for ours in (True, False):
        coordinates = torch.rand(*batch, len(grid), dtype=torch.float64, generator=generator(3)) * 2 - 1
        # Spreads down to 1e-3, where the 1e-6 in the width counts.
        sigma = 10 ** (torch.rand(*batch, 1, dtype=torch.float64, generator=generator(4)) * 3 - 3)
        # A narrow Gaussian would be 0 everywhere unless its centre lies at a point.
        coordinates[..., 0, :] = -1
        sigma[..., 0, :] = 1e-3
        coordinates[..., 0, :] += 5e-4
        coordinates.requires_grad_()
        sigma.requires_grad_()
        if ours:
            value = geometry.gaussian_weights(coordinates, sigma, grid)
            assert value.shape == (*batch, *grid)
        else:
            value = torch.exp(-distances(coordinates, grid) / (2 * sigma**2 + 1e-6)).reshape(*batch, *grid)
        outputs = {"weights": value}
        inputs = {"coordinates": coordinates, "sigma": sigma}
        results.append(outputs | gradients(outputs, inputs.items(), generator(9)))
    assert_all_close(results[0], results[1], EXACT_FLOAT64)


@pytest.mark.parametrize("batch", [(20,), (4, 5)])
@pytest.mark.parametrize("grid", GRIDS_OF_GRID_SAMPLE + GRIDS_WITHOUT)
def test_hard_weights_choose_the_nearest_point(grid, batch):
    coordinates = torch.rand(*batch, len(grid), dtype=torch.float64, generator=generator(5)) * 2.6 - 1.3
    coordinates.requires_grad_()
    weights = geometry.hard_weights(coordinates, grid)
    assert weights.shape == (*batch, *grid)
    assert weights.dtype == coordinates.dtype
    assert not weights.requires_grad, "the choice of a point is not differentiable"
    nearest = distances(coordinates.detach(), grid).argmin(-1)
    assert torch.equal(weights.flatten(-len(grid)).argmax(-1), nearest)
    assert torch.equal(weights.flatten(-len(grid)).sum(-1), torch.ones(batch, dtype=torch.float64))


def test_hard_weights_choose_one_point_between_two():
    weights = geometry.hard_weights(torch.tensor([[0.0, 0.0]]), (2, 4))
    assert weights.sum() == 1
    assert weights.max() == 1


@pytest.mark.parametrize(
    ("volume", "coordinates"),
    [
        (torch.zeros(2, 3, 4, 5, 6), torch.zeros(3, 3)),  # another batch size
        (torch.zeros(2, 3, 4, 5, 6), torch.zeros(3)),  # no batch axis
        (torch.zeros(2, 3, 4, 5, 6, dtype=torch.long), torch.zeros(2, 3)),
    ],
)
def test_shapes_are_checked_in_the_tests(volume, coordinates):
    # Fails if the import hook of tests/conftest.py is not active.
    with pytest.raises(jaxtyping.TypeCheckError):
        geometry.read(volume, coordinates)
