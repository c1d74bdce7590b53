"""The grid's update against PyTorch's own convolutions, and against a loop where PyTorch has none."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import jaxtyping
import pytest
import torch
from torch import Tensor, nn

from tensormem.memory.update import GridUpdate
from tests.helpers import EXACT_FLOAT64, assert_all_close, assert_close, gradients, randomise

CHANNELS = 3
# No two axes alike, so that a swap of axes shows; one as short as an axis may be.
GRIDS = [(5,), (4, 3), (2, 5), (4, 2, 3), (3, 5, 4)]
CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


def random_update(num_axes: int, kind: str = "factorised") -> GridUpdate:
    update = GridUpdate(CHANNELS, num_axes, kind=kind).double()
    randomise(update, torch.Generator().manual_seed(0))
    return update


def random_volumes(grid: tuple[int, ...]) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {
        name: torch.randn(2, CHANNELS, *grid, dtype=torch.float64, generator=generator, requires_grad=True)
        for name in ("write", "h", "c")
    }


def depthwise_stack(update: GridUpdate, axes: list[int]) -> list[nn.Module]:
    """One depthwise convolution per axis, in the order given, with the update's weights."""
    layers = []
    for axis in axes:
        kernel = [3 if other == axis else 1 for other in range(update.num_axes)]
        padding = [1 if other == axis else 0 for other in range(update.num_axes)]
        convolution = CONVOLUTIONS[update.num_axes](
            2 * CHANNELS, 2 * CHANNELS, kernel, padding=padding, groups=2 * CHANNELS, dtype=torch.float64
        )
        with torch.no_grad():
            convolution.weight.copy_(update.taps[axis].reshape(convolution.weight.shape))
            convolution.bias.copy_(update.taps_bias[axis])
        layers.append(convolution)
    return layers


def gate_convolution(update: GridUpdate) -> nn.Module:
    convolution = CONVOLUTIONS[update.num_axes](2 * CHANNELS, 4 * CHANNELS, 1, dtype=torch.float64)
    with torch.no_grad():
        convolution.weight.copy_(update.gates_weight.reshape(convolution.weight.shape))
        convolution.bias.copy_(update.gates_bias)
    return convolution


def conv_lstm(gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    input_gate, forget_gate, output_gate, candidate = gates.split(CHANNELS, dim=1)
    c = forget_gate.sigmoid() * c + input_gate.sigmoid() * candidate.tanh()
    return output_gate.sigmoid() * c.tanh(), c


def run(function: Callable, volumes: dict[str, Tensor], parameters: dict[str, Tensor]) -> dict[str, Tensor]:
    """Both outputs, and the gradients of the volumes and of the parameters."""
    h, c = function(volumes["write"], volumes["h"], volumes["c"])
    outputs = {"new h": h, "new c": c}
    return outputs | gradients(outputs, (volumes | parameters).items(), torch.Generator().manual_seed(2))


@pytest.mark.parametrize("kind", ["factorised", "pointwise"])
@pytest.mark.parametrize("grid", GRIDS)
def test_update_is_a_stack_of_convolutions_and_a_conv_lstm(grid, kind):
    update = random_update(len(grid), kind)
    volumes = random_volumes(grid)
    depthwise = depthwise_stack(update, list(range(len(grid)))) if kind == "factorised" else []
    pointwise = gate_convolution(update)

    def textbook(write: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        mixed = nn.Sequential(*depthwise)(torch.cat([write, h], dim=1))
        return conv_lstm(pointwise(mixed), c)

    actual = run(update, volumes, dict(update.named_parameters()))
    theirs = {"gates_weight": pointwise.weight, "gates_bias": pointwise.bias}
    for axis, layer in enumerate(depthwise):
        theirs |= {f"taps {axis}": layer.weight, f"taps_bias {axis}": layer.bias}
    expected = run(textbook, volumes, theirs)
    for name in ("taps", "taps_bias") if kind == "factorised" else ():
        per_axis = [expected.pop(f"gradient of {name} {axis}") for axis in range(len(grid))]
        shape = getattr(update, name).shape
        expected[f"gradient of {name}"] = torch.stack([value.reshape(shape[1:]) for value in per_axis])
    expected["gradient of gates_weight"] = expected["gradient of gates_weight"].reshape(update.gates_weight.shape)
    assert_all_close(actual, expected, EXACT_FLOAT64)


@pytest.mark.parametrize("grid", [grid for grid in GRIDS if len(grid) > 1])
def test_the_order_of_the_axes_shows(grid):
    # Inside, convolutions along different axes commute; zero padding after a bias makes borders differ. Without
    # this the comparison above could not tell one order from the other.
    update = random_update(len(grid))
    volume = torch.cat(list(random_volumes(grid).values())[:2], dim=1)
    backwards = nn.Sequential(*depthwise_stack(update, list(reversed(range(len(grid))))))(volume)
    assert (update.mix(volume) - backwards).abs().max() > 1e-3


def test_four_axes_mix_as_a_slow_loop_does():
    grid = (2, 3, 2, 4)
    update = random_update(len(grid))
    volume = torch.cat(list(random_volumes(grid).values())[:2], dim=1).detach()
    expected = volume
    for axis in range(len(grid)):
        before, expected = expected, torch.empty_like(volume)
        for place in itertools.product(*[range(n) for n in grid]):
            total = update.taps_bias[axis].expand(volume.shape[0], -1)
            for tap in range(3):
                neighbour = list(place)
                neighbour[axis] += tap - 1
                if 0 <= neighbour[axis] < grid[axis]:
                    total = total + update.taps[axis, :, tap] * before[(slice(None), slice(None), *neighbour)]
            expected[(slice(None), slice(None), *place)] = total
    assert_close(update.mix(volume), expected, "mixed volume", EXACT_FLOAT64)


@pytest.mark.parametrize("grid", [*GRIDS, (2, 3, 2, 4)])
def test_a_new_update_mixes_no_points(grid):
    update = GridUpdate(CHANNELS, len(grid)).double()
    volumes = random_volumes(grid)
    both = torch.cat([volumes["write"], volumes["h"]], dim=1)
    assert torch.equal(update.mix(both), both)
    moved = volumes["write"].detach().clone()
    moved[(slice(None), slice(None), *[0] * len(grid))] += 1.0
    change = update(moved, volumes["h"], volumes["c"])[0] - update(*volumes.values())[0]
    changed = change.abs().amax(dim=(0, 1)) > 0
    assert changed.sum() == 1
    assert changed.flatten()[0]


def test_trained_taps_mix_neighbours_along_every_axis_and_pointwise_none():
    grid = (3, 4, 5)
    volumes = random_volumes(grid)
    moved = volumes["write"].detach().clone()
    moved[:, :, 1, 1, 1] += 1.0
    reached = {}
    for kind in ("factorised", "pointwise"):
        update = random_update(3, kind)
        change = update(moved, volumes["h"], volumes["c"])[0] - update(*volumes.values())[0]
        reached[kind] = change.abs().amax(dim=(0, 1)) > 0
    expected = torch.zeros(grid, dtype=torch.bool)
    expected[0:3, 0:3, 0:3] = True
    assert torch.equal(reached["factorised"], expected)
    assert reached["pointwise"].sum() == 1


def test_initial_gates_are_xavier_with_no_bias():
    update = GridUpdate(16, 3)
    bound = (6 / (4 * 16 + 2 * 16)) ** 0.5
    assert 0.95 * bound < update.gates_weight.abs().max() <= bound
    assert not update.gates_bias.any()
    assert not update.taps_bias.any()


def test_pointwise_has_no_taps():
    names = {name for name, _ in GridUpdate(CHANNELS, 3, kind="pointwise").named_parameters()}
    assert names == {"gates_weight", "gates_bias"}


@pytest.mark.usefixtures("unchecked")
def test_an_unknown_kind_is_an_error():
    with pytest.raises(ValueError, match=r"update='separable' is unknown.*factorised.*pointwise"):
        GridUpdate(CHANNELS, 3, kind="separable")


def test_volumes_of_different_shapes_are_refused():
    volumes = random_volumes((4, 2, 3))
    with pytest.raises(jaxtyping.TypeCheckError):
        random_update(3)(volumes["write"], volumes["h"], volumes["c"][:, :, :, :, :2])
