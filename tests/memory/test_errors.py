"""What the memory refuses, and what it says then."""

from __future__ import annotations

import pytest
import torch

from tensormem.memory import TensorMemory
from tests.memory.cases import (
    BATCH,
    CHANNELS,
    CHUNK,
    DIM,
    FLOAT_FIELDS,
    GRID,
    random_memory,
    random_state,
    random_tokens,
)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grid": (4, 1, 4)}, r"grid=\(4, 1, 4\).*at least 2"),
        ({"grid": (4, -3)}, r"grid=\(4, -3\).*at least 2"),
        ({"grid": ()}, r"grid=\(\).*at least one axis"),
        ({"dim": 0}, r"dim=0 .*at least 1"),
        ({"channels": 0}, r"channels=0 .*at least 1"),
        ({"chunk": 0}, r"chunk=0 .*at least 1"),
        ({"chunk": -2}, r"chunk=-2 .*at least 1"),
        ({"sigma_scale": 0.0}, r"sigma_scale=0\.0"),
        ({"sigma_scale": float("nan")}, r"sigma_scale=nan"),
        ({"write": "soft"}, r"write='soft' is unknown.*gaussian.*hard"),
        ({"spread": "wide"}, r"spread='wide' is unknown.*learned.*fixed"),
        ({"coordinates": "tied"}, r"coordinates='tied' is unknown.*shared.*separate"),
        ({"update": "dense"}, r"update='dense' is unknown.*factorised.*pointwise"),
    ],
    ids=str,
)
def test_a_bad_argument_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        TensorMemory(**({"dim": DIM, "channels": CHANNELS, "grid": GRID, "chunk": CHUNK} | options))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("shape", [(BATCH, 6, DIM + 1), (6, DIM), (BATCH, 1, 6, DIM)], ids=str)
def test_tokens_of_a_wrong_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"x has shape") as raised:
        TensorMemory(DIM, CHANNELS, GRID, CHUNK)(torch.zeros(shape))
    assert str(shape) in str(raised.value)
    assert str(DIM) in str(raised.value)


def test_a_state_of_another_batch_size_is_refused():
    memory = random_memory()
    with pytest.raises(ValueError, match=r"state\.h has shape \(3, 3, 3, 2, 4\).*\(2, 3, 3, 2, 4\).*init_state\(2\)"):
        memory(random_tokens(), memory.init_state(BATCH + 1))


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("h", {"grid": (3, 4, 2)}),
        ("h", {"grid": (3, 8)}),
        ("buffer", {"chunk": CHUNK + 1}),
    ],
)
def test_a_state_of_another_memory_is_refused(field, other):
    with pytest.raises(ValueError, match=rf"state\.{field} has shape .* need"):
        random_memory()(random_tokens(), random_memory(**other).init_state(BATCH))


@pytest.mark.parametrize("field", FLOAT_FIELDS)
def test_a_state_on_another_device_is_refused(field):
    memory = random_memory()
    state = memory.init_state(BATCH)
    state = state._replace(**{field: getattr(state, field).to("meta")})
    with pytest.raises(ValueError, match=rf"state\.{field} is on meta, but x is on cpu"):
        memory(random_tokens(), state)


@pytest.mark.parametrize("field", FLOAT_FIELDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64])
def test_a_state_of_another_dtype_is_refused(field, dtype):
    memory = random_memory()
    state = memory.init_state(BATCH)
    state = state._replace(**{field: getattr(state, field).to(dtype)})
    with pytest.raises(ValueError, match=rf"state\.{field} is {dtype}.*float32 or float64"):
        memory(random_tokens(), state)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_coordinates_that_are_not_finite_are_an_error_where_checked(bad):
    memory = random_memory(check_finite=True)
    x = random_tokens()
    memory(x)
    x[1, 4, 2] = bad
    if bad == float("inf"):
        # An infinite sum is squashed to +-1; infinity of both signs has no sum.
        x[1, 4, 3] = -bad * torch.sign(memory.coordinate.weight[0, 2] * memory.coordinate.weight[0, 3]).item()
    with pytest.raises(FloatingPointError, match=r"read_coordinates is not finite.*\(1, 1, 0\)"):
        memory(x)
    # A token that is not a chunk's first reaches the write alone.
    x = random_tokens()
    x[0, 9, 1] = float("nan")
    with pytest.raises(FloatingPointError, match=r"write_coordinates is not finite.*\(0, 2, 0\)"):
        memory(x)


@pytest.mark.parametrize("write", ["gaussian", "hard"])
def test_without_the_check_what_is_not_finite_passes_through(write):
    # No exception that depends on the device: on CUDA an index out of range would end the process's use of it.
    memory = random_memory(write=write)
    x = random_tokens()
    x[1, 4, 2] = float("nan")
    y, _ = memory(x, random_state(memory))
    assert not torch.isfinite(y[1, 4:]).all()
    assert torch.isfinite(y[0]).all(), "a batch element is not spoiled by another"
    assert torch.isfinite(y[1, :4]).all()
