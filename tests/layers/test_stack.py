"""The stack: the two routes of the memory's state, each against a loop or a split of its own."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tensormem.layers.attention import CausalAttention
from tensormem.layers.bidirectional import BidirectionalAttention
from tensormem.layers.block import Block
from tensormem.layers.stack import Stack, StackState
from tensormem.memory import MemoryState, TensorMemory
from tests.helpers import EXACT_FLOAT64, assert_all_close, assert_close, gradients, randomise

DIM, CHUNK, NUM_LAYERS = 8, 3, 3


def make_stack(threading="layer", num_layers=NUM_LAYERS, memory=True, seed=0, **kwargs):
    blocks = [Block(DIM, CausalAttention(DIM, 2), mlp_ratio=2.0) for _ in range(num_layers)]
    memory = TensorMemory(DIM, 3, (2, 3), CHUNK) if memory else None
    stack = Stack(blocks, DIM, memory, threading, **kwargs).double()
    randomise(stack, torch.Generator().manual_seed(seed))
    return stack


def make_tokens(length=11, seed=1):
    return torch.randn(2, length, DIM, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def assert_same_gradients(actual, expected, inputs):
    got, wanted = (
        gradients({"output": output}, inputs.items(), torch.Generator().manual_seed(2)) for output in (actual, expected)
    )
    assert_all_close(got, wanted, EXACT_FLOAT64)


def assert_same_state(actual, expected):
    for layer, (got, wanted) in enumerate(zip(actual.mixers, expected.mixers, strict=True)):
        assert_close(got.keys, wanted.keys, f"keys of layer {layer}", EXACT_FLOAT64)
        assert_close(got.values, wanted.values, f"values of layer {layer}", EXACT_FLOAT64)
    for layer, (got, wanted) in enumerate(zip(actual.memories, expected.memories, strict=True)):
        for name in MemoryState._fields:
            assert_close(getattr(got, name), getattr(wanted, name), f"{name} of layer {layer}", EXACT_FLOAT64)


def in_calls(stack, x, sizes, state=None):
    outputs = []
    for piece in x.split(sizes, dim=1):
        y, state = stack(piece, state)
        outputs.append(y)
    return torch.cat(outputs, dim=1), state


# With chunks of 3: ends of chunks, middles of chunks, single tokens, a chunk over three calls.
@pytest.mark.parametrize("sizes", [[1] * 11, [3, 3, 5], [4, 7], [2, 1, 8], [1, 1, 2, 7], [10, 1]], ids=str)
def test_layer_threading_gives_the_same_in_any_split(sizes):
    stack, x = make_stack(), make_tokens().requires_grad_()
    whole, whole_state = stack(x)
    split, split_state = in_calls(stack, x, sizes)
    assert_close(split, whole, "output", EXACT_FLOAT64)
    assert_same_state(split_state, whole_state)
    assert_same_gradients(split, whole, {"x": x, **dict(stack.named_parameters())})


def test_layer_threading_starts_every_layer_from_an_empty_memory():
    stack, x = make_stack(), make_tokens()
    expected = x
    for block, fusion in zip(stack.blocks, stack.fusions, strict=True):
        expected, _ = block(expected)
        expected = expected + fusion.gate * stack.memory(fusion.norm(expected), None)[0]
    assert_close(stack(x)[0], expected, "output", EXACT_FLOAT64)
    assert_close(stack(x, stack.init_state(2))[0], expected, "output from init_state", EXACT_FLOAT64)


def test_layer_threading_goes_on_from_the_state_of_each_layer():
    """A state handed over must be used, and each layer must get its own."""
    stack, x = make_stack(), make_tokens()
    _, state = stack(make_tokens(7, seed=5))
    y, _ = stack(x, state)
    assert (y - stack(x)[0]).abs().max() > 1e-3
    swapped = StackState(state.mixers, state.memories[::-1])
    assert (y - stack(x, swapped)[0]).abs().max() > 1e-6


def depth_loop(stack, x):
    """The paper's route: each layer takes the tokens padded with zeros to whole chunks and leaves its h and c above."""
    h = c = None
    for block, fusion in zip(stack.blocks, stack.fusions, strict=True):
        x, _ = block(x)
        padded = F.pad(fusion.norm(x), (0, 0, 0, -x.shape[1] % CHUNK))
        state = stack.memory.init_state(x.shape[0])
        if h is not None:
            state = state._replace(h=h, c=c)
        read, state = stack.memory(padded, state)
        assert int(state.pending) == 0
        h, c = state.h, state.c
        x = x + torch.sigmoid(fusion.gamma) * read[:, : x.shape[1]]
    return x


@pytest.mark.parametrize("length", [1, 2, 3, 11, 12])
def test_depth_threading_is_a_loop_in_which_each_layer_starts_from_the_flushed_state_below(length):
    stack, x = make_stack("depth"), make_tokens(length).requires_grad_()
    actual, state = stack(x)
    assert state is None
    expected = depth_loop(stack, x)
    assert_close(actual, expected, "output", EXACT_FLOAT64)
    assert_same_gradients(actual, expected, {"x": x, **dict(stack.named_parameters())})


def layer_loop(stack, x, between, every):
    """Attention, the memory, the MLP, written out; each layer that has the memory starts from an empty one."""
    for layer, block in enumerate(stack.blocks):
        x = x + block.mixer(block.mixer_norm(x))[0]
        halves = [lambda x, block=block: x + block.mlp(block.mlp_norm(x))]
        if layer % every == 0:
            fusion = stack.fusions[layer // every]
            halves.insert(
                0 if between else 1,
                lambda x, fusion=fusion: x + torch.sigmoid(fusion.gamma) * stack.memory(fusion.norm(x))[0],
            )
        for half in halves:
            x = half(x)
    return x


@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize("every", [1, 2])
def test_the_memory_stands_where_it_is_put(between, every):
    stack = make_stack(place="between" if between else "after", every=every, num_layers=5)
    x = make_tokens().requires_grad_()
    actual, state = stack(x)
    assert len(state.memories) == len(stack.fusions) == len(stack.memory_layers) == (5 if every == 1 else 3)
    expected = layer_loop(stack, x, between, every)
    assert_close(actual, expected, "output", EXACT_FLOAT64)
    assert_same_gradients(actual, expected, {"x": x, **dict(stack.named_parameters())})
    split, split_state = in_calls(stack, x, [4, 7])
    assert_close(split, actual, "output in two calls", EXACT_FLOAT64)
    assert_same_state(split_state, state)


def test_depth_goes_on_from_the_layer_below_that_has_the_memory():
    """Every second of four layers: the first of them and the third make the loop of a stack of two."""
    stack, x = make_stack("depth", num_layers=4, every=2), make_tokens()
    changed = x.clone()
    changed[:, -1] *= -1
    # The second layer has none, so that the first to see the future is the third.
    first = Stack(list(stack.blocks[:2]), DIM, stack.memory, "depth", every=2).double()
    first.fusions[0].load_state_dict(stack.fusions[0].state_dict())
    assert torch.equal(first(changed)[0][:, 0], first(x)[0][:, 0])
    assert (stack(changed)[0][:, 0] - stack(x)[0][:, 0]).abs().max() > 1e-6


def test_depth_threading_lets_the_first_token_see_the_last():
    stack, x = make_stack("depth"), make_tokens()
    changed = x.clone()
    changed[:, -1] *= -1
    assert (stack(changed)[0][:, 0] - stack(x)[0][:, 0]).abs().max() > 1e-6
    layered = make_stack("layer")
    assert torch.equal(layered(changed)[0][:, 0], layered(x)[0][:, 0])


def test_with_one_layer_both_routes_are_the_same():
    assert_close(
        make_stack("depth", num_layers=1)(make_tokens())[0],
        make_stack("layer", num_layers=1)(make_tokens())[0],
        "output",
        EXACT_FLOAT64,
    )


def test_depth_threading_refuses_a_state_and_names_what_to_use():
    stack = make_stack("depth")
    _, state = make_stack("layer")(make_tokens())
    assert not stack.carries_state
    with pytest.raises(ValueError, match=r"threading=depth.*layer.*time"):
        stack.init_state(2)
    with pytest.raises(ValueError, match=r"threading=depth.*layer.*time"):
        stack(make_tokens(), state)


def test_a_plain_stack_is_its_blocks_and_carries_their_states():
    stack, x = make_stack(memory=False), make_tokens()
    expected = x
    for block in stack.blocks:
        expected, _ = block(expected)
    actual, state = stack(x)
    assert_close(actual, expected, "output", EXACT_FLOAT64)
    assert stack.carries_state
    assert state.memories == stack.init_state(2).memories == ()
    assert len(stack.fusions) == 0
    assert_close(in_calls(stack, x, [4, 7])[0], expected, "output in two calls", EXACT_FLOAT64)


def num_parameters(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_one_memory_serves_all_layers():
    """Each further layer costs a block, a LayerNorm and a gamma, and no memory."""
    two, five = make_stack(num_layers=2), make_stack(num_layers=5)
    per_layer = num_parameters(two.blocks[0]) + 2 * DIM + 1
    assert num_parameters(five) - num_parameters(two) == 3 * per_layer
    assert num_parameters(two) - num_parameters(two.memory) == 2 * per_layer


def test_gamma_is_each_gates_initial_logit():
    blocks = [Block(DIM, CausalAttention(DIM, 2)) for _ in range(2)]
    stack = Stack(blocks, DIM, TensorMemory(DIM, 3, (2, 3), CHUNK), gamma=-2.0)
    assert [fusion.gamma.item() for fusion in stack.fusions] == [-2.0, -2.0]
    assert stack.fusions[0].gamma is not stack.fusions[1].gamma


def test_dropout_reaches_the_memorys_contribution():
    stack = make_stack(dropout=1.0).train()
    plain = make_stack(memory=False)
    plain.blocks.load_state_dict(stack.blocks.state_dict())
    assert_close(stack(make_tokens())[0], plain(make_tokens())[0], "output with the memory dropped", EXACT_FLOAT64)


def test_drop_path_reaches_the_memorys_contribution_of_its_own_layer():
    stack = make_stack(num_layers=2, drop_path=[0.0, 0.999999]).train()
    with_one = make_stack(num_layers=2, every=2)
    with_one.load_state_dict({k: v for k, v in stack.state_dict().items() if not k.startswith("fusions.1.")})
    assert_close(stack(make_tokens())[0], with_one(make_tokens())[0], "output", EXACT_FLOAT64)


def test_layer_threading_holds_a_memory_per_layer_and_depth_one():
    layer, depth, plain = make_stack("layer"), make_stack("depth"), make_stack(memory=False)
    mixers = NUM_LAYERS * 4 * 2 * DIM * 100
    memory = layer.memory.state_bytes()
    assert plain.state_bytes(100) == mixers
    assert layer.state_bytes(100) == mixers + NUM_LAYERS * memory
    assert depth.state_bytes(100) == mixers + memory


@pytest.mark.usefixtures("unchecked")
def test_an_unknown_threading_is_an_error_that_names_the_choices():
    with pytest.raises(ValueError, match=r"threading='diagonal' is unknown.*layer.*depth"):
        Stack([], DIM, None, "diagonal")
    with pytest.raises(ValueError, match=r"place='before' is unknown.*after.*between"):
        Stack([], DIM, None, place="before")
    with pytest.raises(ValueError, match="every=0 must be at least 1"):
        Stack([], DIM, None, every=0)


def make_frame_stack(threading, **kwargs):
    """Layers of attention without a direction, which see a frame as a whole."""
    blocks = [Block(DIM, BidirectionalAttention(DIM, 2), mlp_ratio=2.0) for _ in range(NUM_LAYERS)]
    stack = Stack(blocks, DIM, TensorMemory(DIM, 3, (2, 3), CHUNK), threading, **kwargs).double()
    randomise(stack, torch.Generator().manual_seed(0))
    return stack


def steps_by_hand(stack, frames):
    """The memory's route through layers and frames, written out."""
    states = {layer: stack.memory.init_state(2, dtype=torch.float64) for layer in range(NUM_LAYERS)}
    running, outputs = states[0], []
    for x in frames:
        for layer, block in enumerate(stack.blocks):
            x, _ = block.mix(x)
            if stack.place == "after":
                x = block.transform(x)
            if layer in stack.memory_layers:
                fusion = stack.fusions[list(stack.memory_layers).index(layer)]
                # Zeros behind the tokens make the last chunk whole.
                tokens = F.pad(fusion.norm(x), (0, 0, 0, -x.shape[1] % CHUNK))
                read, after = stack.memory(tokens, running if stack.threading == "depth" else states[layer])
                running = states[layer] = after
                x = x + fusion.gate * read[:, : x.shape[1]]
            if stack.place == "between":
                x = block.transform(x)
        outputs.append(x)
    return outputs, (running,) if stack.threading == "depth" else tuple(states[layer] for layer in stack.memory_layers)


@pytest.mark.parametrize("threading", ["layer", "depth"])
@pytest.mark.parametrize("options", [{}, {"place": "between", "every": 2, "gamma": -2.0}], ids=["after", "between"])
@pytest.mark.parametrize("length", [CHUNK, 7])
def test_a_frame_goes_on_from_the_frame_before(threading, options, length):
    stack = make_frame_stack(threading, **options)
    frames = [make_tokens(length, seed=seed) for seed in range(3)]
    outputs, memories = [], stack.init_memories(2, dtype=torch.float64)
    for frame in frames:
        y, memories = stack.step(frame, memories)
        outputs.append(y)
    expected, states = steps_by_hand(stack, frames)
    for number, (actual, wanted) in enumerate(zip(outputs, expected, strict=True)):
        assert_close(actual, wanted, f"frame {number}", EXACT_FLOAT64)
    for actual, wanted in zip(memories, states, strict=True):
        assert_close(actual.h, wanted.h, "h", EXACT_FLOAT64)
        assert_close(actual.c, wanted.c, "c", EXACT_FLOAT64)
        assert int(actual.pending) == 0


def test_a_stack_without_a_memory_takes_each_frame_alone():
    stack = Stack([Block(DIM, BidirectionalAttention(DIM, 2), mlp_ratio=2.0)], DIM).double()
    assert stack.init_memories(2) == ()
    y, memories = stack.step(make_tokens(), ())
    assert memories == ()
    assert torch.equal(y, stack(make_tokens())[0])
