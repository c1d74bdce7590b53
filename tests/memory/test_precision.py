"""The precision of the memory: float32 at least on the grid, whatever the rest computes in."""

from __future__ import annotations

import pytest
import torch

from tensormem.memory import MemoryState, TensorMemory
from tests.helpers import BFLOAT16, FLOAT32, assert_all_close, assert_close
from tests.memory.cases import (
    BATCH,
    CHANNELS,
    CHUNK,
    DIM,
    FLOAT_FIELDS,
    GRID,
    fields,
    random_memory,
    random_state,
    random_tokens,
)


def low_precision_summary_is_exact(memory: TensorMemory) -> None:
    """A chunk of one token whose summary is the token: exact in bfloat16 where the token is."""
    with torch.no_grad():
        memory.summary.weight.copy_(torch.eye(DIM))
        memory.summary.bias.zero_()


def test_autocast_leaves_the_grid_in_float32():
    memory = random_memory(chunk=1).float()
    low_precision_summary_is_exact(memory)
    x = random_tokens().bfloat16().float()
    _, expected = memory(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, state = memory(x)
        assert y.dtype == torch.float32
        y_low, _ = memory(x.bfloat16())
        assert y_low.dtype == torch.bfloat16
    assert all(getattr(state, name).dtype == torch.float32 for name in FLOAT_FIELDS)
    # Nothing but the summary and the output may be rounded: coordinates, content, spread and gates are not.
    assert_all_close({"h": state.h, "c": state.c}, {"h": expected.h, "c": expected.c}, FLOAT32)


def test_a_read_under_autocast_is_that_of_float32():
    memory = random_memory(chunk=2).float()
    x = random_tokens(1).float()
    start = random_state(memory)
    start = MemoryState(*(value.float() if value.is_floating_point() else value for value in start))
    _, expected = memory(x, start)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, state = memory(x, start)
    assert_close(state.read, expected.read, "read", FLOAT32)


@pytest.mark.parametrize("chunk", [1, 4])
def test_autocast_is_near_float32(chunk):
    memory = random_memory(chunk=chunk).float()
    x = random_tokens().float()
    y, state = memory(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y_low, state_low = memory(x)
        state_low = memory.flush(state_low)
    assert all(getattr(state_low, name).dtype == torch.float32 for name in FLOAT_FIELDS)
    assert_close(y_low, y, "y", BFLOAT16)
    assert_all_close(fields(state_low), fields(memory.flush(state)), BFLOAT16)
    y_low.square().sum().backward()
    assert all(value.grad is None or torch.isfinite(value.grad).all() for value in memory.parameters())


def test_float32_is_near_float64():
    memory = random_memory()
    x = random_tokens()
    y, state = memory(x)
    memory.float()
    y32, state32 = memory(x.float())
    assert y32.dtype == torch.float32
    assert_close(y32, y, "y", FLOAT32)
    assert_all_close(fields(state32), fields(state), FLOAT32)


def test_float64_stays_float64():
    memory = random_memory()
    y, state = memory(random_tokens())
    assert y.dtype == torch.float64
    assert all(getattr(state, name).dtype == torch.float64 for name in FLOAT_FIELDS)


def test_a_bfloat16_module_keeps_a_float32_state():
    memory = random_memory()
    x = random_tokens()
    y, state = memory(x)
    memory.bfloat16()
    y_low, state_low = memory(x.bfloat16())
    assert y_low.dtype == torch.bfloat16
    assert all(getattr(state_low, name).dtype == torch.float32 for name in FLOAT_FIELDS)
    assert_close(y_low, y, "y", BFLOAT16)
    assert_all_close(fields(memory.flush(state_low)), fields(memory.flush(state)), BFLOAT16)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (None, torch.float32),
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_init_state_is_never_below_float32(dtype, expected):
    state = TensorMemory(DIM, CHANNELS, GRID, CHUNK).init_state(BATCH, dtype=dtype)
    assert all(getattr(state, name).dtype == expected for name in FLOAT_FIELDS)


def test_a_float64_state_serves_a_float32_module():
    memory = random_memory().float()
    x = random_tokens()
    y, state = memory(x.float(), memory.init_state(BATCH, dtype=torch.float64))
    assert y.dtype == torch.float32
    assert state.h.dtype == torch.float64
    assert_close(y, memory.double()(x)[0], "y", FLOAT32)
