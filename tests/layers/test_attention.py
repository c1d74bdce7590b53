"""Attention against a softmax written out by hand, and its cache against one call over the whole sequence."""

from __future__ import annotations

import math

import pytest
import torch

from tensormem.layers.attention import AttentionState, CausalAttention
from tests.helpers import EXACT_FLOAT64, assert_all_close, assert_close, gradients, randomise
from tests.layers.plain import in_calls, rotated

DIM, NUM_HEADS, BATCH, LENGTH = 12, 3, 2, 9


def make_attention(rotary=False, seed=0):
    attention = CausalAttention(DIM, NUM_HEADS, rotary=rotary).double()
    randomise(attention, torch.Generator().manual_seed(seed))
    return attention


def make_tokens(length=LENGTH, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(BATCH, length, DIM, generator=generator, dtype=torch.float64)


def plain_attention(attention, x, rotary=False):
    """One head and one query at a time, each over its own past only: no mask, because nothing later is there."""
    projected = x @ attention.qkv.weight.T + attention.qkv.bias
    all_queries, all_keys, all_values = projected.split(DIM, dim=-1)
    width = DIM // NUM_HEADS
    rows = []
    for b in range(x.shape[0]):
        for n in range(x.shape[1]):
            heads = []
            for head in range(NUM_HEADS):
                part = slice(head * width, (head + 1) * width)
                query, keys, values = all_queries[b, n, part], all_keys[b, : n + 1, part], all_values[b, : n + 1, part]
                if rotary:
                    query = rotated(query, n)
                    keys = torch.stack([rotated(key, m) for m, key in enumerate(keys)])
                scores = (keys @ query / math.sqrt(width)).exp()
                heads.append((scores / scores.sum()) @ values)
            rows.append(torch.cat(heads))
    mixed = torch.stack(rows).reshape(x.shape)
    return mixed @ attention.output.weight.T + attention.output.bias


def assert_same_gradients(actual, expected, inputs):
    got, wanted = (
        gradients({"output": output}, inputs.items(), torch.Generator().manual_seed(2)) for output in (actual, expected)
    )
    assert_all_close(got, wanted, EXACT_FLOAT64)


@pytest.mark.parametrize("rotary", [False, True])
def test_outputs_and_gradients_are_those_of_plain_softmax_attention(rotary):
    attention, x = make_attention(rotary), make_tokens().requires_grad_()
    inputs = {"x": x, **dict(attention.named_parameters())}
    expected = plain_attention(attention, x, rotary)
    actual, _ = attention(x)
    assert_close(actual, expected, "output", EXACT_FLOAT64)
    assert_same_gradients(actual, expected, inputs)


@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("sizes", [[1] * LENGTH, [4, 5], [1, 7, 1], [5, 1, 3]], ids=str)
def test_any_split_equals_one_call(rotary, sizes):
    attention, x = make_attention(rotary), make_tokens().requires_grad_()
    whole, whole_state = attention(x)
    # The cache is not detached: later tokens send gradients to earlier calls through it.
    split, split_state = in_calls(attention, x, sizes)
    assert_close(split, whole, "output", EXACT_FLOAT64)
    assert_close(split_state.keys, whole_state.keys, "cached keys", EXACT_FLOAT64)
    assert_close(split_state.values, whole_state.values, "cached values", EXACT_FLOAT64)
    assert_same_gradients(split, whole, {"x": x, **dict(attention.named_parameters())})


def test_the_last_calls_outputs_send_gradients_to_the_first_calls_tokens():
    attention, x = make_attention(), make_tokens().requires_grad_()
    _, state = attention(x[:, :4])
    last, _ = attention(x[:, 4:], state)
    (gradient,) = torch.autograd.grad(last.square().sum(), x)
    assert (gradient[:, :4].abs().amax(dim=-1) > 0).all()


def test_an_empty_cache_is_the_same_as_none():
    attention, x = make_attention(rotary=True), make_tokens()
    fresh = attention.init_state(BATCH)
    assert isinstance(fresh, AttentionState)
    assert fresh.keys.shape == fresh.values.shape == (BATCH, NUM_HEADS, 0, DIM // NUM_HEADS)
    assert fresh.keys.dtype == torch.float64
    assert_close(attention(x, fresh)[0], attention(x)[0], "output", EXACT_FLOAT64)


def test_a_call_does_not_change_the_cache_it_was_given():
    attention, x = make_attention(), make_tokens()
    _, state = attention(x[:, :5])
    kept = state.keys.clone(), state.values.clone()
    attention(x[:, 5:], state)
    assert torch.equal(state.keys, kept[0])
    assert torch.equal(state.values, kept[1])


def test_rotary_scores_depend_on_the_distance_of_two_positions_only():
    attention, x = make_attention(rotary=True), make_tokens(length=1)
    other = make_tokens(length=1, seed=3)

    def score(query_position, key_position):
        width = DIM // NUM_HEADS
        query = attention.qkv(x)[..., :width].unsqueeze(1)
        key = attention.qkv(other)[..., DIM : DIM + width].unsqueeze(1)
        return (attention.rotary(query, query_position) * attention.rotary(key, key_position)).sum(-1)

    near = score(3, 0)
    assert_close(score(1203, 1200), near, "score of two positions, 1200 further on", EXACT_FLOAT64)
    # Without this the test would pass with no rotation at all.
    assert (score(5, 0) - near).abs().min() > 1e-3


def test_rotary_attention_tells_the_order_of_earlier_tokens_and_plain_attention_does_not():
    x = make_tokens(length=3)
    swapped = x[:, [1, 0, 2]]
    plain, rotary = make_attention(), make_attention(rotary=True)
    assert_close(plain(swapped)[0][:, 2], plain(x)[0][:, 2], "last output without positions", EXACT_FLOAT64)
    assert (rotary(swapped)[0][:, 2] - rotary(x)[0][:, 2]).abs().max() > 1e-3


def test_dropout_acts_on_the_weights_in_training_only():
    torch.manual_seed(0)
    attention = CausalAttention(DIM, NUM_HEADS, dropout=0.5).double()
    x = make_tokens()
    assert not torch.equal(attention.train()(x)[0], attention(x)[0])
    assert_close(attention.eval()(x)[0], plain_attention(attention, x), "output in evaluation mode", EXACT_FLOAT64)


@pytest.mark.parametrize("num_heads", [0, -1, 5, 24])
def test_a_number_of_heads_that_does_not_divide_the_width_is_an_error(num_heads):
    with pytest.raises(ValueError, match=rf"num_heads={num_heads} .*dim=12"):
        CausalAttention(DIM, num_heads)


def test_state_bytes_are_those_of_the_real_cache_of_one_sequence():
    attention = CausalAttention(DIM, NUM_HEADS)
    for length in (1, LENGTH):
        _, state = attention(make_tokens(length)[:1].float())
        assert attention.state_bytes(length) == sum(tensor.numel() * tensor.element_size() for tensor in state)
    assert attention.state_bytes(0) == 0
