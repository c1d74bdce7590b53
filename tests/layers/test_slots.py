"""Slots against a loop over every head, query and slot, and what the route of the slots lets tokens see."""

from __future__ import annotations

import math

import pytest
import torch

from tensormem.layers.attention import CausalAttention
from tensormem.layers.block import Block
from tensormem.layers.slots import CrossAttention, SlotStack
from tensormem.layers.stack import Stack
from tests.helpers import EXACT_FLOAT64, assert_all_close, assert_close, gradients, randomise

DIM, NUM_HEADS, NUM_SLOTS, NUM_LAYERS, LENGTH = 8, 2, 3, 3, 7


def make_blocks(num_layers=NUM_LAYERS):
    return [Block(DIM, CausalAttention(DIM, NUM_HEADS), mlp_ratio=2.0) for _ in range(num_layers)]


def make_stack(num_layers=NUM_LAYERS, num_slots=NUM_SLOTS, **kwargs):
    stack = SlotStack(make_blocks(num_layers), DIM, NUM_HEADS, num_slots, **kwargs).double()
    randomise(stack, torch.Generator().manual_seed(0))
    return stack


def make_attention(**kwargs):
    attention = CrossAttention(DIM, NUM_HEADS, **kwargs).double()
    randomise(attention, torch.Generator().manual_seed(0))
    return attention


def make_vectors(length=LENGTH, seed=1):
    return torch.randn(2, length, DIM, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def plain_norm(norm, vector):
    centred = vector - vector.mean()
    return norm.weight * centred / torch.sqrt(centred.square().mean() + norm.eps) + norm.bias


def plain_linear(linear, vector):
    return linear.weight @ vector + linear.bias


def plain_attention(attention, queries, source):
    """What each query (N, dim) of one sequence finds in the source (M, dim), one head and one vector at a time."""
    size = DIM // NUM_HEADS
    pairs = [plain_linear(attention.key_value, plain_norm(attention.source_norm, vector)) for vector in source]
    found = []
    for vector in queries:
        query = plain_linear(attention.query, plain_norm(attention.query_norm, vector))
        heads = []
        for head in range(NUM_HEADS):
            own = slice(head * size, (head + 1) * size)
            keys, values = [pair[:DIM][own] for pair in pairs], [pair[DIM:][own] for pair in pairs]
            scores = [torch.exp(query[own] @ key / math.sqrt(size)) for key in keys]
            heads.append(sum(score / sum(scores) * value for score, value in zip(scores, values, strict=True)))
        found.append(plain_linear(attention.output, torch.cat(heads)))
    return torch.stack(found)


def plain_stack(stack, x):
    """The tokens after the last block; every layer reads the slots that the layer below has left."""
    slots = [stack.slots for _ in x]
    for layer, block in enumerate(stack.blocks):
        x, _ = block(x)
        x = torch.stack(
            [row + plain_attention(stack.reads[layer], row, own) for row, own in zip(x, slots, strict=True)]
        )
        if layer + 1 < len(stack.blocks):
            slots = [own + plain_attention(stack.writes[layer], own, row) for row, own in zip(x, slots, strict=True)]
    return x


def assert_same_gradients(actual, expected, inputs):
    got, wanted = (
        gradients({"output": output}, inputs.items(), torch.Generator().manual_seed(2)) for output in (actual, expected)
    )
    assert_all_close(got, wanted, EXACT_FLOAT64)


@pytest.mark.parametrize(("num_queries", "num_sources"), [(7, 3), (3, 7), (1, 2)])
def test_cross_attention_is_a_loop_over_heads_queries_and_sources(num_queries, num_sources):
    attention = make_attention()
    x = make_vectors(num_queries).requires_grad_()
    source = make_vectors(num_sources, seed=4).requires_grad_()
    actual = attention(x, source)
    expected = torch.stack([plain_attention(attention, *rows) for rows in zip(x, source, strict=True)])
    assert_close(actual, expected, "output", EXACT_FLOAT64)
    assert_same_gradients(actual, expected, {"x": x, "source": source, **dict(attention.named_parameters())})


@pytest.mark.parametrize("num_slots", [2, NUM_SLOTS])
@pytest.mark.parametrize("num_layers", [1, NUM_LAYERS])
def test_the_stack_is_a_loop_in_which_slots_are_read_and_then_written(num_layers, num_slots):
    stack, x = make_stack(num_layers, num_slots), make_vectors().requires_grad_()
    actual, state = stack(x)
    assert state is None
    expected = plain_stack(stack, x)
    assert_close(actual, expected, "output", EXACT_FLOAT64)
    assert_same_gradients(actual, expected, {"x": x, **dict(stack.named_parameters())})


@pytest.mark.parametrize("num_layers", [1, NUM_LAYERS])
def test_every_parameter_gets_a_gradient_for_the_last_layer_writes_nothing(num_layers):
    stack = make_stack(num_layers)
    assert (len(stack.reads), len(stack.writes)) == (num_layers, num_layers - 1)
    stack(make_vectors())[0].square().sum().backward()
    assert not [name for name, value in stack.named_parameters() if value.grad is None or not value.grad.any()]


@pytest.mark.parametrize("changed", range(1, LENGTH))
def test_from_the_second_layer_on_the_first_token_sees_every_later_one(changed):
    """Slots that have seen the whole call are read one layer above: not causal, as with threading=depth."""
    x = make_vectors()
    other = x.clone()
    other[:, changed] *= -1
    one, two = make_stack(1), make_stack(2)
    assert torch.equal(one(other)[0][:, :changed], one(x)[0][:, :changed])
    assert (two(other)[0][:, 0] - two(x)[0][:, 0]).abs().max() > 1e-6


def test_sequences_of_a_batch_share_no_slots():
    stack, x = make_stack(), make_vectors()
    alone = torch.cat([stack(row)[0] for row in x.split(1)])
    assert_close(stack(x)[0], alone, "output", EXACT_FLOAT64)


def test_with_everything_dropped_that_is_read_the_blocks_are_left():
    stack, x = make_stack(dropout=1.0).train(), make_vectors()
    assert_close(stack(x)[0], Stack(list(stack.blocks), DIM)(x)[0], "output", EXACT_FLOAT64)


def test_with_everything_dropped_that_is_written_the_slots_stay_as_learned():
    stack, read = make_stack(dropout=1.0).train(), []
    for attention in stack.reads:
        attention.register_forward_hook(lambda _module, arguments, _output: read.append(arguments[1]))
    stack(make_vectors())
    for layer, slots in enumerate(read):
        assert_close(slots, stack.slots.expand(2, -1, -1), f"slots that layer {layer} reads", EXACT_FLOAT64)


def test_dropout_on_the_attention_weights_acts_in_training_only():
    attention, x, source = make_attention(dropout=0.5), make_vectors(), make_vectors(NUM_SLOTS, seed=4)
    assert not torch.equal(attention.train()(x, source), attention(x, source))
    assert_close(attention.eval()(x, source), make_attention()(x, source), "output in evaluation", EXACT_FLOAT64)


def test_a_sequence_holds_the_caches_of_its_blocks_and_its_slots():
    caches = NUM_LAYERS * 4 * 2 * DIM * 100
    assert make_stack().state_bytes(100) == caches + 4 * NUM_SLOTS * DIM


def test_a_state_is_refused_and_the_error_names_what_streams():
    stack = make_stack()
    _, state = Stack(make_blocks(), DIM).double()(make_vectors())
    assert not stack.carries_state
    for attempt in (lambda: stack.init_state(2), lambda: stack.flush(state), lambda: stack(make_vectors(), state)):
        with pytest.raises(ValueError, match=r"slots carry no state.*threading=layer.*threading=time"):
            attempt()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: make_stack(num_slots=0), "num_slots=0 must be at least 1"),
        (lambda: make_stack(num_slots=-2), "num_slots=-2"),
        (lambda: SlotStack(make_blocks(), DIM, 5), "num_heads=5 .*dim=8"),
        (lambda: CrossAttention(DIM, 0), "num_heads=0"),
    ],
)
def test_impossible_sizes_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
