"""The whole memory against a textbook loop that follows DESIGN.md section 1 and shares no code with it.

Letters: B batch, N tokens, K chunk size, C channels, n grid axes.
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tensormem.memory import TensorMemory
from tests.helpers import EXACT_FLOAT64, assert_all_close, gradients, randomise

DIM, CHANNELS, BATCH = 5, 3, 2


def textbook_read(h: Tensor, coordinate: Tensor) -> Tensor:
    """n-linear, border-clamped: by `F.grid_sample` (which names the last axis first) where it can, else by hand."""
    n = coordinate.shape[1]
    if n in (2, 3):
        where = coordinate.flip(-1).reshape(-1, *[1] * n, n)
        return F.grid_sample(h, where, padding_mode="border", align_corners=True).flatten(1)
    position = [(coordinate[:, a] + 1) / 2 * (h.shape[2 + a] - 1) for a in range(n)]
    total = torch.zeros(h.shape[:2], dtype=h.dtype)
    for place in itertools.product(*[range(size) for size in h.shape[2:]]):
        # The n-linear weight of a point is a product of hats, each one cell wide on either side.
        weight = math.prod(F.relu(1 - (position[a] - place[a]).abs()) for a in range(n))
        total = total + weight.unsqueeze(1) * h[(slice(None), slice(None), *place)]
    return total


def textbook_write(kind: str, h: Tensor, coordinate: Tensor, sigma: Tensor, content: Tensor) -> Tensor:
    """The write volume, one grid point at a time."""
    grid = h.shape[2:]
    points = list(itertools.product(*[range(size) for size in grid]))
    squared = []
    for place in points:
        p = torch.tensor([-1 + 2 * i / (size - 1) for i, size in zip(place, grid, strict=True)], dtype=h.dtype)
        squared.append((p - coordinate).square().sum(1))
    distance = torch.stack(squared, dim=1)
    if kind == "gaussian":
        weights = torch.exp(-distance / (2 * sigma**2 + 1e-6))
    else:
        weights = F.one_hot(distance.argmin(1), len(points)).to(h.dtype)
    return torch.einsum("bc,bv->bcv", content, weights).reshape(h.shape)


def textbook_mix(volume: Tensor, taps: Tensor, bias: Tensor) -> Tensor:
    """One depthwise convolution per axis, plane by plane, because PyTorch's convolutions stop at three axes."""
    n = volume.dim() - 2
    for a in range(n):
        per_channel = (1, -1, *[1] * (n - 1))
        planes = volume.unbind(2 + a)
        mixed = []
        for i in range(len(planes)):
            total = bias[a].reshape(per_channel).expand_as(planes[i])
            for tap, neighbour in enumerate((i - 1, i, i + 1)):
                if 0 <= neighbour < len(planes):
                    total = total + taps[a, :, tap].reshape(per_channel) * planes[neighbour]
            mixed.append(total)
        volume = torch.stack(mixed, dim=2 + a)
    return volume


def textbook(memory: TensorMemory, x: Tensor, h: Tensor, c: Tensor) -> dict[str, Tensor]:
    """DESIGN.md section 1, step by step; a last chunk that is not complete reads and does not write."""
    w = dict(memory.named_parameters())
    separate = "write_coordinate.weight" in w
    write_head = "write_coordinate" if separate else "coordinate"
    K = memory.chunk
    outputs, read = [], torch.zeros(x.shape[0], memory.channels, dtype=x.dtype)
    for start in range(0, x.shape[1], K):
        tokens = x[:, start : start + K]
        query = tokens[:, 0]
        coordinate = torch.tanh(query @ w["coordinate.weight"].T + w["coordinate.bias"])
        read = textbook_read(h, coordinate)
        for _ in range(tokens.shape[1]):
            outputs.append(read @ w["output.weight"].T + w["output.bias"])
        if tokens.shape[1] < K:
            break
        joined = torch.cat([tokens[:, k] for k in range(K)], dim=1)
        summary = joined @ w["summary.weight"].T + w["summary.bias"]
        coordinate = torch.tanh(summary @ w[f"{write_head}.weight"].T + w[f"{write_head}.bias"])
        content = summary @ w["content.weight"].T + w["content.bias"]
        sigma = torch.full_like(summary[:, :1], memory.sigma_scale)
        if "spread.weight" in w:
            raw = summary @ w["spread.weight"].T + w["spread.bias"]
            sigma = (torch.log1p(torch.exp(raw)) + 1e-4) * memory.sigma_scale
        volume = torch.cat([textbook_write(memory.write, h, coordinate, sigma, content), h], dim=1)
        if "update.taps" in w:
            volume = textbook_mix(volume, w["update.taps"], w["update.taps_bias"])
        gates = torch.einsum("gc,bc...->bg...", w["update.gates_weight"], volume)
        gates = gates + w["update.gates_bias"].reshape(-1, *[1] * (h.dim() - 2))
        i, f, o, g = (gates[:, part * memory.channels : (part + 1) * memory.channels] for part in range(4))
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
    rest = x.shape[1] % K
    buffer = torch.zeros(x.shape[0], K - 1, x.shape[2], dtype=x.dtype)
    if rest:
        buffer = torch.cat([x[:, -rest:], buffer[:, rest:]], dim=1)
    else:
        read = torch.zeros_like(read)
    return {"y": torch.stack(outputs, dim=1), "h": h, "c": c, "buffer": buffer, "read": read}


CASES = {
    "chunks complete": {"chunk": 3, "tokens": 9},
    "last chunk partial": {"chunk": 4, "tokens": 11},
    "last chunk one token": {"chunk": 3, "tokens": 7},
    "chunk of one": {"chunk": 1, "tokens": 6},
    "less than a chunk": {"chunk": 5, "tokens": 3},
    "hard write": {"chunk": 2, "tokens": 7, "write": "hard"},
    "separate coordinates": {"chunk": 2, "tokens": 7, "coordinates": "separate"},
    "hard write, separate coordinates": {"chunk": 2, "tokens": 6, "write": "hard", "coordinates": "separate"},
    "pointwise update": {"chunk": 2, "tokens": 7, "update": "pointwise"},
    "narrow writes": {"chunk": 2, "tokens": 7, "sigma_scale": 0.15},
    "wide writes": {"chunk": 3, "tokens": 8, "sigma_scale": 2.5},
    "the same spread for all": {"chunk": 2, "tokens": 7, "spread": "fixed", "sigma_scale": 0.4},
    "shortest axes": {"chunk": 2, "tokens": 7, "grid": (2, 5, 2)},
    "one axis": {"chunk": 3, "tokens": 8, "grid": (6,)},
    "one axis, hard write": {"chunk": 3, "tokens": 8, "grid": (6,), "write": "hard"},
    "two axes": {"chunk": 3, "tokens": 8, "grid": (3, 5)},
    "four axes": {"chunk": 2, "tokens": 5, "grid": (2, 3, 2, 4)},
}


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_the_memory_is_the_textbook_loop(case):
    options = {"grid": (3, 2, 4)} | case
    num_tokens = options.pop("tokens")
    generator = torch.Generator().manual_seed(0)
    memory = TensorMemory(DIM, CHANNELS, **options).double()
    randomise(memory, generator)
    shape = (BATCH, CHANNELS, *memory.grid)
    inputs = {
        "x": torch.randn(BATCH, num_tokens, DIM, dtype=torch.float64, generator=generator, requires_grad=True),
        "h": torch.randn(shape, dtype=torch.float64, generator=generator, requires_grad=True),
        "c": torch.randn(shape, dtype=torch.float64, generator=generator, requires_grad=True),
    }
    wanted = list(inputs.items()) + list(memory.named_parameters())

    state = memory.init_state(BATCH)._replace(h=inputs["h"], c=inputs["c"])
    y, state = memory(inputs["x"], state)
    actual = {"y": y} | {name: getattr(state, name) for name in ("h", "c", "buffer", "read")}
    expected = textbook(memory, **inputs)
    assert int(state.pending) == num_tokens % memory.chunk
    assert_all_close(
        actual | gradients(actual, wanted, torch.Generator().manual_seed(1)),
        expected | gradients(expected, wanted, torch.Generator().manual_seed(1)),
        EXACT_FLOAT64,
    )


def test_the_coordinate_head_is_tied():
    memory = TensorMemory(DIM, CHANNELS, (3, 2, 4), chunk=2)
    assert memory.write_coordinate is None
    names = {name.split(".")[0] for name, _ in memory.named_parameters()}
    assert names == {"summary", "coordinate", "content", "spread", "update", "output"}


def test_the_spread_starts_from_a_bias_of_one():
    assert TensorMemory(DIM, CHANNELS, (3, 2, 4), chunk=2).spread.bias.item() == 1.0
