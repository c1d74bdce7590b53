"""The contract of the memory: splits, flush, size and causality."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from tensormem.memory import MemoryState, TensorMemory, without_reads
from tests.helpers import EXACT_FLOAT64, assert_all_close, assert_close, gradients
from tests.memory.cases import (
    BATCH,
    CHANNELS,
    CHUNK,
    DIM,
    FLOAT_FIELDS,
    GRID,
    NUM_TOKENS,
    fields,
    random_memory,
    random_state,
    random_tokens,
)


def run_in_pieces(memory: TensorMemory, pieces: list[int], with_gradients: bool = True) -> dict[str, Tensor]:
    """Outputs, final state and all gradients when the tokens arrive in calls of these lengths."""
    x = random_tokens(sum(pieces)).requires_grad_(with_gradients)
    start = random_state(memory)
    start = start._replace(h=start.h.requires_grad_(with_gradients), c=start.c.requires_grad_(with_gradients))
    state, outputs = start, []
    for piece in x.split(pieces, dim=1):
        y, state = memory(piece, state)
        assert y.shape == piece.shape
        outputs.append(y)
    results = {"y": torch.cat(outputs, dim=1)} | fields(state)
    if with_gradients:
        inputs = [("x", x), ("initial h", start.h), ("initial c", start.c), *memory.named_parameters()]
        results |= gradients(results, inputs, torch.Generator().manual_seed(3))
    return results | {"state.pending": state.pending}


def random_pieces(seed: int) -> list[int]:
    source = random.Random(seed)
    cuts = sorted(source.sample(range(1, NUM_TOKENS), source.randint(1, 6)))
    return [end - start for start, end in zip([0, *cuts], [*cuts, NUM_TOKENS], strict=True)]


SPLITS = {f"random {seed}": random_pieces(seed) for seed in range(6)} | {
    "single tokens": [1] * NUM_TOKENS,
    "inside every chunk": [2, 4, 4, 4],
    "one short of a chunk, then over its end": [3, 2, 9],
    "one call inside a chunk": [5, 1, 1, 7],
    "at the chunks' ends": [4, 8, 2],
    "empty calls": [0, 4, 0, 2, 0, 8, 0],
}


@pytest.mark.parametrize("pieces", SPLITS.values(), ids=list(SPLITS))
def test_any_split_equals_one_call(pieces):
    memory = random_memory()
    assert_all_close(run_in_pieces(memory, pieces), run_in_pieces(memory, [sum(pieces)]), EXACT_FLOAT64)


@pytest.mark.parametrize(
    ("grid", "options"),
    [
        ((6,), {}),
        ((3, 4), {}),
        ((2, 3, 2, 2), {}),
        (GRID, {"chunk": 1}),
        (GRID, {"write": "hard"}),
        (GRID, {"coordinates": "separate"}),
        (GRID, {"update": "pointwise"}),
    ],
    ids=lambda value: str(value),
)
@pytest.mark.parametrize("pieces", [[1] * 11, [3, 6, 2]], ids=["single tokens", "inside chunks"])
def test_any_split_equals_one_call_in_every_variant(grid, options, pieces):
    memory = random_memory(grid, **options)
    assert_all_close(run_in_pieces(memory, pieces), run_in_pieces(memory, [sum(pieces)]), EXACT_FLOAT64)


def test_a_pending_chunk_goes_on_with_the_vector_that_it_has_read():
    # Reading again would give the same vector while h is the same, so only another vector tells the two apart.
    memory = random_memory()
    _, state = memory(random_tokens(6), random_state(memory))
    other = torch.randn(BATCH, CHANNELS, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    x = random_tokens(5, seed=5)
    y, after = memory(x, state)
    y_other, after_other = memory(x, state._replace(read=other))
    assert_close(y_other[:, :2], memory.output(other).unsqueeze(1).expand(-1, 2, -1), "pending chunk", EXACT_FLOAT64)
    assert_close(y_other[:, 2:], y[:, 2:], "next chunk", EXACT_FLOAT64)
    assert_all_close(fields(after_other), fields(after), EXACT_FLOAT64)


def test_no_state_is_the_empty_state():
    memory = random_memory()
    x = random_tokens()
    for without, empty in zip(memory(x), memory(x, memory.init_state(BATCH)), strict=True):
        if isinstance(without, MemoryState):
            assert all(torch.equal(*pair) for pair in zip(without, empty, strict=True))
        else:
            assert torch.equal(without, empty)


@pytest.mark.parametrize("num_tokens", [1, 4, 5, 7, 11])
def test_flush_pads_with_zeros(num_tokens):
    memory = random_memory()
    x = random_tokens(num_tokens)
    padded = torch.cat([x, x.new_zeros(BATCH, -num_tokens % CHUNK, DIM)], dim=1)
    results = []
    for flushed in (True, False):
        tokens = (x if flushed else padded).clone().requires_grad_()
        start = random_state(memory)
        start = start._replace(h=start.h.requires_grad_(), c=start.c.requires_grad_())
        _, state = memory(tokens, start)
        if flushed:
            state = memory.flush(state)
        assert int(state.pending) == 0
        outputs = fields(state)
        inputs = [("x", tokens), ("initial h", start.h), ("initial c", start.c), *memory.named_parameters()]
        result = outputs | gradients(outputs, inputs, torch.Generator().manual_seed(3))
        result["gradient of x"] = result["gradient of x"][:, :num_tokens]
        results.append(result)
    assert_all_close(results[0], results[1], EXACT_FLOAT64)


def test_flush_goes_on_where_the_pieces_ended():
    memory = random_memory()
    x = random_tokens(7)
    _, whole = memory(x, random_state(memory))
    _, state = memory(x[:, :5], random_state(memory))
    _, state = memory(x[:, 5:], state)
    assert_all_close(fields(memory.flush(state)), fields(memory.flush(whole)), EXACT_FLOAT64)


@pytest.mark.parametrize("chunk", [1, 4])
def test_flush_of_nothing_changes_nothing(chunk):
    memory = random_memory(chunk=chunk)
    _, state = memory(random_tokens(8), random_state(memory))
    assert int(state.pending) == 0
    for before, after in zip(state, memory.flush(state), strict=True):
        assert torch.equal(before, after)
    # What is flushed is written once.
    _, state = memory(random_tokens(3), state)
    once = memory.flush(state)
    for before, after in zip(once, memory.flush(once), strict=True):
        assert torch.equal(before, after)


def depends(memory: TensorMemory, num_tokens: int) -> Tensor:
    """Entry (t, p): whether the output at t changes when token p does."""
    x = random_tokens(num_tokens)
    base, _ = memory(x, random_state(memory))
    columns = []
    for p in range(num_tokens):
        changed = x.clone()
        changed[:, p] += 1.0
        y, _ = memory(changed, random_state(memory))
        columns.append((y != base).any(dim=-1).all(dim=0))
    return torch.stack(columns, dim=1)


@pytest.mark.parametrize("chunk", [1, 4, 5])
@pytest.mark.parametrize("options", [{}, {"coordinates": "separate"}, {"update": "pointwise"}], ids=str)
def test_an_output_depends_on_earlier_chunks_and_its_own_first_token_alone(chunk, options):
    # Causal, and read before write: a chunk's own later tokens reach later chunks only.
    num_tokens = 11
    t = torch.arange(num_tokens).unsqueeze(1)
    p = torch.arange(num_tokens).unsqueeze(0)
    expected = (p // chunk < t // chunk) | (p == t // chunk * chunk)
    # Wide writes: one that reaches no grid point leaves nothing for a later read to depend on.
    memory = random_memory(chunk=chunk, sigma_scale=5.0, **options)
    assert torch.equal(depends(memory, num_tokens), expected)


def test_a_hard_write_is_causal_too():
    # A write to one point need not be seen by every later read, so only the absence of a leak is certain.
    t, p = torch.arange(11).unsqueeze(1), torch.arange(11).unsqueeze(0)
    assert not depends(random_memory(write="hard"), 11)[p > t].any()


def test_the_state_is_immutable_and_held_by_the_caller():
    memory = random_memory()
    attributes = dict(vars(memory))
    parameters = {name: value.clone() for name, value in memory.state_dict().items()}
    state = memory(random_tokens(6), random_state(memory))[1]
    copies = [value.clone() for value in state]
    with torch.no_grad():  # where an update in place would pass unnoticed by autograd
        memory(random_tokens(7), state)
        memory.flush(state)
    assert all(torch.equal(*pair) for pair in zip(state, copies, strict=True))
    assert vars(memory) == attributes
    assert all(torch.equal(value, parameters[name]) for name, value in memory.state_dict().items())
    assert not list(memory.buffers())
    with pytest.raises(AttributeError):
        state.h = state.c


def test_interleaved_sequences_do_not_mix():
    memory = random_memory()
    x = {"first": random_tokens(seed=11), "second": random_tokens(seed=12)}
    state = {"first": random_state(memory, 21), "second": random_state(memory, 22)}
    alone = {name: memory(x[name], state[name]) for name in x}
    outputs = {"first": [], "second": []}
    for begin, end in ((0, 3), (3, 4), (4, 9), (9, NUM_TOKENS)):
        for name in x:
            y, state[name] = memory(x[name][:, begin:end], state[name])
            outputs[name].append(y)
    for name, (y, final) in alone.items():
        assert_close(torch.cat(outputs[name], dim=1), y, name, EXACT_FLOAT64)
        assert_all_close(fields(state[name]), fields(final), EXACT_FLOAT64)


def test_batch_elements_do_not_mix():
    memory = random_memory()
    x = random_tokens()
    y, state = memory(x, random_state(memory))
    start = random_state(memory)
    one = MemoryState(*(value if value.dim() == 0 else value[1:] for value in start))
    y_one, state_one = memory(x[1:], one)
    assert_close(y[1:], y_one, "y", EXACT_FLOAT64)
    assert_all_close({name: value[1:] for name, value in fields(state).items()}, fields(state_one), EXACT_FLOAT64)


def bytes_per_sequence(state: MemoryState) -> int:
    # `pending` is one number for the whole batch and steers the loop on the host; it is no part of the memory.
    tensors = [getattr(state, name) for name in FLOAT_FIELDS]
    return sum(value.numel() * value.element_size() for value in tensors) // tensors[0].shape[0]


@pytest.mark.parametrize("chunk", [1, 4])
def test_the_state_has_one_size_and_states_it(chunk):
    memory = TensorMemory(DIM, CHANNELS, GRID, chunk)
    state = memory.init_state(BATCH)
    shapes = [value.shape for value in state]
    assert bytes_per_sequence(state) == memory.state_bytes() == memory.state_bytes(7) == memory.state_bytes(10**6)
    for num_tokens in (1, 3, 8, 33):
        _, state = memory(random_tokens(num_tokens).float(), state)
        assert [value.shape for value in state] == shapes
        assert bytes_per_sequence(state) == memory.state_bytes()
    assert [value.shape for value in memory.flush(state)] == shapes


def test_a_new_state_is_empty_and_its_volumes_apart():
    state = TensorMemory(DIM, CHANNELS, GRID, CHUNK).init_state(BATCH)
    assert not any(value.any() for value in state)
    assert state.h.shape == state.c.shape == (BATCH, CHANNELS, *GRID)
    assert state.h.data_ptr() != state.c.data_ptr()
    assert state.pending.dtype == torch.int64


def test_pending_stays_on_the_cpu():
    # It steers control flow, so that on another device each call would wait for it.
    with torch.device("meta"):
        memory = TensorMemory(DIM, CHANNELS, GRID, CHUNK)
        state = memory.init_state(BATCH)
    assert state.h.device.type == "meta"
    assert state.pending.device.type == "cpu"
    memory = random_memory()
    x, start = random_tokens(6), random_state(memory)
    with torch.device("meta"):
        _, state = memory(x, start)
    assert state.pending.device.type == "cpu"


def test_without_reads_what_was_written_makes_no_difference():
    memory, x = random_memory(), random_tokens()
    silent = without_reads(torch.nn.Sequential(memory))[0]
    y, state = silent(x, random_state(memory))
    assert_close(y, memory.output.bias.expand_as(y), "output", EXACT_FLOAT64)
    # It goes on writing, and the model that it was copied from goes on reading.
    whole, whole_state = memory(x, random_state(memory))
    assert_all_close(fields(state), fields(whole_state), EXACT_FLOAT64)
    assert (whole - y).abs().max() > 1e-3
