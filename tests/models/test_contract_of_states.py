"""The contract of states: a model in several calls is the model in one, and of one call alone it says so.

The walk is that of test_contract.py.
"""

from __future__ import annotations

import random
from itertools import accumulate, pairwise

import pytest
import torch

from tests.helpers import EXACT_FLOAT64, assert_all_close, assert_close, gradients
from tests.models.zoo import BATCH, LENGTH, POSITIONS, each


def tensors(state, path=""):
    """Every tensor of a nested state, by its place; the model's own layout is none of the contract's business."""
    if isinstance(state, torch.Tensor):
        return {path: state}
    assert isinstance(state, tuple), f"{path} is {type(state)}: a state is made of tuples of tensors"
    names = getattr(state, "_fields", range(len(state)))
    return {
        key: tensor
        for name, part in zip(names, state, strict=True)
        for key, tensor in tensors(part, f"{path}/{name}").items()
    }


def assert_held(state, num_bytes):
    """What a state holds for a sequence has so many bytes; its counters, 0-d and on the CPU, are no part of that.

    Counted by what is allocated: a slice of a larger tensor holds all of that.
    """
    held = [tensor for tensor in tensors(state).values() if tensor.dim()]
    assert num_bytes == sum(tensor.numel() * tensor.element_size() for tensor in held)
    allocated = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in held}
    assert num_bytes == sum(allocated.values())
    assert {tensor.dtype for tensor in held} == {torch.float32}


def each_call(domain, model, inputs, sizes):
    """The output of each call on a part of the inputs, and the last state."""
    outputs, state = [], model.init_state(BATCH)
    for start, stop in pairwise([0, *accumulate(sizes)]):
        output, state = model(domain.take(inputs, slice(start, stop)), state)
        outputs.append(output)
    return outputs, state


def in_calls(domain, model, inputs, sizes):
    outputs, state = each_call(domain, model, inputs, sizes)
    return torch.cat(outputs, dim=1), state


def random_sizes(total, seed):
    draw, sizes = random.Random(seed), []
    while sum(sizes) < total:
        sizes.append(draw.randint(1, min(6, total - sum(sizes))))
    return sizes


SPLITS = {"single": [1] * LENGTH} | {f"random{seed}": random_sizes(LENGTH, seed) for seed in range(3)}


@each("found_streaming")
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("split", SPLITS)
def test_any_split_equals_one_call(domain, stem, positions, split):
    model = domain.make_random(stem, positions=positions)
    inputs = domain.make_inputs(model)
    whole, whole_state = model(inputs)
    with torch.no_grad():
        actual, state = in_calls(domain, model, inputs, SPLITS[split])
    assert_close(actual, whole, "output", EXACT_FLOAT64)
    assert_all_close(tensors(state), tensors(whole_state), EXACT_FLOAT64)


@each("found_streaming")
@pytest.mark.parametrize("positions", POSITIONS)
def test_a_split_has_the_gradients_of_one_call(domain, stem, positions):
    model = domain.make_random(stem, positions=positions)
    inputs = domain.make_inputs(model)
    got, wanted = (
        gradients({"output": output}, model.named_parameters(), torch.Generator().manual_seed(3))
        for output in (in_calls(domain, model, inputs, SPLITS["random0"])[0], model(inputs)[0])
    )
    assert_all_close(got, wanted, EXACT_FLOAT64)


@each("found_streaming")
def test_a_call_of_no_tokens_changes_nothing(domain, stem):
    model = domain.make_random(stem)
    inputs = domain.make_inputs(model)
    whole, whole_state = model(inputs)
    for state in (model.init_state(BATCH), whole_state):
        output, after = model(domain.take(inputs, slice(0)), state)
        assert output.shape == whole[:, :0].shape
        assert_all_close(tensors(after), tensors(state), EXACT_FLOAT64)


@each("found_sequences")
def test_no_tokens_have_no_output(domain, stem):
    model = domain.make(stem)
    inputs = domain.make_inputs(model)
    assert model(domain.take(inputs, slice(0)))[0].shape[:2] == (BATCH, 0)


@each("found_streaming")
def test_a_state_may_be_used_again(domain, stem):
    """Branches of one prefix: a call must leave the state it was given alone."""
    model = domain.make_random(stem)
    inputs = domain.make_inputs(model)
    rest = domain.take(inputs, slice(7, None))
    _, state = model(domain.take(inputs, slice(7)))
    before = {name: tensor.clone() for name, tensor in tensors(state).items()}
    first, _ = model(rest, state)
    model(domain.make_inputs(model, 5, seed=9), state)
    assert all(torch.equal(tensor, before[name]) for name, tensor in tensors(state).items())
    assert torch.equal(model(rest, state)[0], first)


@each("found_frames")
@pytest.mark.parametrize("split", SPLITS)
def test_a_video_in_any_split_between_frames_has_the_logits_of_one_call(domain, stem, split):
    model = domain.make_random(stem)
    frames = domain.make_inputs(model)
    whole, whole_state = model(frames)
    with torch.no_grad():
        outputs, state = each_call(domain, model, frames, SPLITS[split])
    assert_close(outputs[-1], whole, "logits", EXACT_FLOAT64)
    assert_all_close(tensors(state), tensors(whole_state), EXACT_FLOAT64)
    # What is said on the way is what a video that ends there would be.
    stop = SPLITS[split][0]
    assert_close(outputs[0], model(domain.take(frames, slice(stop)))[0], "first logits", EXACT_FLOAT64)


@each("found_frames")
def test_a_video_in_parts_has_the_gradients_of_one_call(domain, stem):
    model = domain.make_random(stem)
    frames = domain.make_inputs(model)
    got, wanted = (
        gradients({"logits": logits}, model.named_parameters(), torch.Generator().manual_seed(3))
        for logits in (each_call(domain, model, frames, SPLITS["random0"])[0][-1], model(frames)[0])
    )
    assert_all_close(got, wanted, EXACT_FLOAT64)


@each("found_frames")
def test_the_state_of_a_video_may_be_used_again_and_no_frames_change_nothing(domain, stem):
    model = domain.make_random(stem)
    frames = domain.make_inputs(model)
    logits, state = model(domain.take(frames, slice(7)))
    before = {name: tensor.clone() for name, tensor in tensors(state).items()}
    first, _ = model(domain.take(frames, slice(7, None)), state)
    model(domain.make_inputs(model, 5, seed=9), state)
    assert all(torch.equal(tensor, before[name]) for name, tensor in tensors(state).items())
    assert torch.equal(model(domain.take(frames, slice(7, None)), state)[0], first)
    same, after = model(domain.take(frames, slice(0)), state)
    assert torch.equal(same, logits)
    assert_all_close(tensors(after), tensors(state), EXACT_FLOAT64)


@each("found_frames")
@pytest.mark.parametrize("length", [1, LENGTH])
def test_state_bytes_are_those_of_the_real_state_of_one_video(domain, stem, length):
    model = domain.make(stem)
    _, state = model(domain.make_inputs(model, length, batch=1))
    assert_held(state, model.state_bytes(length))


@each("found_frames")
def test_an_earlier_frame_has_its_part_in_the_last_ones_vectors(domain, stem):
    """Not only through the mean of the frames' vectors: what is carried must be read."""
    model = domain.make_random(stem)
    frames = domain.make_inputs(model, 3)
    changed = frames.clone()
    changed[:, 0] = 1 - changed[:, 0]
    shares = []
    for video in (frames, changed):
        _, state = model(domain.take(video, slice(2)))
        _, after = model(domain.take(video, slice(2, 3)), state)
        shares.append(after.features - state.features)
    assert (shares[0] - shares[1]).abs().max() > 1e-6


@each("found_streaming")
def test_learned_positions_end_in_streaming_too(domain, stem):
    model = domain.make(stem, positions="learned", max_length=LENGTH)
    _, state = in_calls(domain, model, domain.make_inputs(model), [6, LENGTH - 6])
    with pytest.raises(ValueError, match=rf"position {LENGTH} .*positions=rope"):
        model(domain.make_inputs(model, 1), state)


@each("found_streaming")
@pytest.mark.parametrize("positions", ["rope", "none"])
def test_other_positions_go_on_beyond_the_trained_length(domain, stem, positions):
    model = domain.make(stem, positions=positions, max_length=LENGTH)
    output, _ = in_calls(domain, model, domain.make_inputs(model, 2 * LENGTH + 1), [LENGTH, LENGTH, 1])
    assert torch.isfinite(output).all()


@each("found_one_call")
def test_a_model_of_one_call_refuses_states_and_names_what_to_use(domain, stem):
    model, other = domain.make(stem), domain.make(domain.found_streaming[0])
    inputs = domain.make_inputs(model)
    _, state = other(inputs)
    for attempt in (
        lambda: model.init_state(BATCH),
        lambda: model(inputs, state),
        lambda: model(domain.take(inputs, slice(0)), state),
    ):
        with pytest.raises(ValueError, match=r"(?s)layer.*time"):
            attempt()
    assert model(inputs)[1] is None


@each("found_streaming")
@pytest.mark.parametrize("length", [1, 4, LENGTH, 200])
def test_state_bytes_are_those_of_the_real_state_of_one_sequence(domain, stem, length):
    model = domain.make(stem, max_length=256)
    _, state = model(domain.make_inputs(model, length, batch=1))
    assert_held(state, model.state_bytes(length))


@each("found_streaming")
@pytest.mark.parametrize("split", [[1] * 40, [100, 1, 99, 64, 3]])
def test_state_bytes_are_those_of_the_real_state_after_many_calls(domain, stem, split):
    model = domain.make(stem, max_length=sum(split))
    inputs, state = domain.make_inputs(model, sum(split), batch=1), model.init_state(1)
    assert_held(state, model.state_bytes(0))
    for start, stop in pairwise([0, *accumulate(split)]):
        _, state = model(domain.take(inputs, slice(start, stop)), state)
        assert_held(state, model.state_bytes(stop))


@each("found_one_call")
def test_state_bytes_are_known_for_models_of_one_call_too(domain, stem):
    assert domain.make(stem).state_bytes(LENGTH) > 0
