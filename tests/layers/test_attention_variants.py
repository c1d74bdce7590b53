"""Local, linear and segment attention, each against its definition written out pair by pair, and cut into calls."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from tensormem.layers.linear import LinearAttention
from tensormem.layers.local import LocalAttention
from tensormem.layers.transformer_xl import SegmentAttention
from tests.helpers import EXACT_FLOAT64, assert_all_close, assert_close, gradients, randomise
from tests.layers.plain import in_calls, rotated

DIM, NUM_HEADS, BATCH, LENGTH = 12, 3, 2, 17
WIDTH = DIM // NUM_HEADS

VARIANTS = {
    "local": lambda: LocalAttention(DIM, NUM_HEADS, window=4),
    "local, rope": lambda: LocalAttention(DIM, NUM_HEADS, window=4, rotary=True),
    "local, itself alone": lambda: LocalAttention(DIM, NUM_HEADS, window=1),
    "local, wider than the sequence": lambda: LocalAttention(DIM, NUM_HEADS, window=40),
    "linear": lambda: LinearAttention(DIM, NUM_HEADS, chunk=3),
    "linear, rope": lambda: LinearAttention(DIM, NUM_HEADS, chunk=5, rotary=True),
    "linear, one chunk": lambda: LinearAttention(DIM, NUM_HEADS, chunk=64),
    "bias": lambda: SegmentAttention(DIM, NUM_HEADS, 5, 7, "bias"),
    "bias, rope": lambda: SegmentAttention(DIM, NUM_HEADS, 5, 3, "bias", rotary=True),
    "bias, no cache": lambda: SegmentAttention(DIM, NUM_HEADS, 5, 0, "bias"),
    "relative": lambda: SegmentAttention(DIM, NUM_HEADS, 5, 7, "relative"),
    "relative, short cache": lambda: SegmentAttention(DIM, NUM_HEADS, 6, 2, "relative"),
}


def make(name):
    attention = VARIANTS[name]().double()
    randomise(attention, torch.Generator().manual_seed(0))
    return attention


def make_tokens(length=LENGTH, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(BATCH, length, DIM, generator=generator, dtype=torch.float64)


def of_head(x, linear, part, head):
    """Projection number `part` of a linear layer, the width of one head."""
    start = part * DIM + head * WIDTH
    return x @ linear.weight[start : start + WIDTH].T + linear.bias[start : start + WIDTH]


def local_pairs(attention, x, head, n):
    """Weights and values of the keys that query n of one sequence sees."""
    seen = range(max(0, n - attention.window + 1), n + 1)
    query = of_head(x[n], attention.qkv, 0, head)
    keys = [of_head(x[m], attention.qkv, 1, head) for m in seen]
    if attention.rotary is not None:
        query, keys = rotated(query, n), [rotated(key, m) for key, m in zip(keys, seen, strict=True)]
    scores = torch.stack([query @ key / math.sqrt(WIDTH) for key in keys])
    return scores.softmax(0), torch.stack([of_head(x[m], attention.qkv, 2, head) for m in seen])


def linear_pairs(attention, x, head, n):
    query = F.elu(of_head(x[n], attention.qkv, 0, head)) + 1
    keys = [F.elu(of_head(x[m], attention.qkv, 1, head)) + 1 for m in range(n + 1)]
    total = sum(query @ key for key in keys) + 1e-6
    if attention.rotary is not None:
        query, keys = rotated(query, n), [rotated(key, m) for m, key in enumerate(keys)]
    weights = torch.stack([query @ key / total for key in keys])
    return weights, torch.stack([of_head(x[m], attention.qkv, 2, head) for m in range(n + 1)])


def segment_pairs(attention, x, head, n):
    start = n - n % attention.segment
    seen = range(max(0, start - attention.memory_length), n + 1)
    query = of_head(x[n], attention.query, 0, head)
    scores, values = [], []
    for m in seen:
        # What lies before the segment is a constant.
        held = x[m] if m >= start else x[m].detach()
        key = of_head(held, attention.key_value, 0, head)
        values.append(of_head(held, attention.key_value, 1, head))
        distance = attention.distance
        if hasattr(distance, "weight"):
            turned = (rotated(query, n), rotated(key, m)) if attention.rotary is not None else (query, key)
            scores.append(turned[0] @ turned[1] / math.sqrt(WIDTH) + distance.weight[head, n - m])
            continue
        angle = (n - m) * 10_000.0 ** (-torch.arange(DIM // 2, dtype=torch.float64) / (DIM // 2))
        sinusoids = torch.cat([angle.sin(), angle.cos()])
        r = (distance.projection.weight @ sinusoids)[head * WIDTH : (head + 1) * WIDTH]
        u, v = distance.content_bias[head, 0], distance.distance_bias[head, 0]
        # Equation of section 3.3: terms (a) to (d).
        scores.append((query @ key + query @ r + u @ key + v @ r) / math.sqrt(WIDTH))
    return torch.stack(scores).softmax(0), torch.stack(values)


PAIRS = {LocalAttention: local_pairs, LinearAttention: linear_pairs, SegmentAttention: segment_pairs}


def pair_by_pair(attention, x):
    rows = []
    for sequence in x:
        for n in range(x.shape[1]):
            heads = [PAIRS[type(attention)](attention, sequence, head, n) for head in range(NUM_HEADS)]
            rows.append(torch.cat([weights @ values for weights, values in heads]))
    return attention.output(torch.stack(rows).reshape(x.shape))


def all_gradients(output, attention, x):
    inputs = {"x": x, **dict(attention.named_parameters())}
    return gradients({"output": output}, inputs.items(), torch.Generator().manual_seed(2))


@pytest.mark.parametrize("name", VARIANTS)
def test_outputs_and_gradients_are_those_of_the_definition(name):
    attention, x = make(name), make_tokens().requires_grad_()
    actual, expected = attention(x)[0], pair_by_pair(attention, x)
    assert_close(actual, expected, "output", EXACT_FLOAT64)
    assert_all_close(all_gradients(actual, attention, x), all_gradients(expected, attention, x), EXACT_FLOAT64)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("sizes", [[1] * LENGTH, [4, 13], [5, 5, 5, 2], [1, 7, 1, 8], [11, 1, 5]], ids=str)
def test_any_split_equals_one_call(name, sizes):
    attention, x = make(name), make_tokens().requires_grad_()
    whole, whole_state = attention(x)
    split, split_state = in_calls(attention, x, sizes)
    assert_close(split, whole, "output", EXACT_FLOAT64)
    assert_all_close(split_state._asdict(), whole_state._asdict(), EXACT_FLOAT64)
    assert_all_close(all_gradients(split, attention, x), all_gradients(whole, attention, x), EXACT_FLOAT64)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("length", [1, 4, 5, 16, LENGTH])
def test_state_bytes_are_those_of_the_state(name, length):
    attention = make(name).float()
    _, state = attention(make_tokens(length)[:1].float())
    held = [tensor for tensor in state if tensor.dim()]
    assert attention.state_bytes(length) == sum(tensor.numel() * tensor.element_size() for tensor in held)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_state_of_other_sequences_is_refused(name):
    attention = make(name)
    with pytest.raises(ValueError, match="start from init_state"):
        attention(make_tokens(), attention.init_state(BATCH + 1))


@pytest.mark.parametrize("name", ["linear", "linear, rope"])
def test_the_sums_of_linear_attention_stay_in_float32_under_autocast(name):
    attention = make(name).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, state = attention(make_tokens().float())
    assert y.isfinite().all()
    assert state.products.dtype == state.keys.dtype == torch.float32


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: LocalAttention(DIM, NUM_HEADS, window=0), "window=0"),
        (lambda: LocalAttention(DIM, 5, window=4), "num_heads=5"),
        (lambda: LinearAttention(DIM, NUM_HEADS, chunk=0), "chunk=0"),
        (lambda: SegmentAttention(DIM, NUM_HEADS, 0, 4), "segment=0"),
        (lambda: SegmentAttention(DIM, NUM_HEADS, 4, -1), "memory_length=-1"),
        (lambda: SegmentAttention(DIM, NUM_HEADS, 4, 4, "absolute"), "absolute"),
    ],
)
def test_impossible_sizes_are_refused(build, message, unchecked):
    with pytest.raises(ValueError, match=message):
        build()
