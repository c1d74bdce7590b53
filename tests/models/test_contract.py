"""The contract of every model: the tests walk conf/model/, so a new YAML is tested with no edit here.

Each model is composed at the scale `smoke` and given tiny inputs of its domain's kind (zoo.py), with random weights
where the initial ones (zeros, identities) would hide a mistake. What one domain alone promises stands in its own tests.
"""

from __future__ import annotations

import io
import random
from itertools import accumulate, pairwise

import pytest
import torch

from tensormem.memory.kernels import compiler_found
from tests.helpers import EXACT_FLOAT64, FLOAT32, assert_all_close, assert_close, gradients
from tests.models.zoo import BATCH, CONF, DOMAINS, FOLDERS, LENGTH, POSITIONS


def each(kind):
    """Run a test for every model of every domain; kind: `found`, `found_streaming`, `found_one_call`, ..."""
    return pytest.mark.parametrize(
        ("domain", "stem"),
        [
            pytest.param(domain, stem, id=f"{domain.name}-{stem}")
            for domain in DOMAINS.values()
            for stem in getattr(domain, kind)
        ],
    )


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


def without_gradient(model):
    return [
        name
        for name, parameter in model.named_parameters()
        if parameter.grad is None or not parameter.grad.isfinite().all() or not parameter.grad.any()
    ]


def num_parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_domain_is_walked(folder):
    assert folder in DOMAINS, (
        f"no test walks conf/model/{folder}: give {folder!r} an entry of DOMAINS in tests/models/zoo.py, which says "
        "how its models are built and what they take"
    )


@pytest.mark.parametrize("domain", DOMAINS.values(), ids=list(DOMAINS))
def test_the_walk_finds_the_models_that_are_known(domain):
    missing = {
        kind: sorted(getattr(domain, kind) - set(getattr(domain, f"found_{kind}")))
        for kind in ("streaming", "one_call", "variants", "whole", "frames")
    }
    assert not any(missing.values()), f"not found in conf/model/{domain.name}: {missing}"


@each("found")
def test_the_name_in_the_yaml_is_its_stem(domain, stem):
    assert domain.config(stem).name == stem


@each("found")
def test_the_yaml_builds_the_model_as_a_run_builds_it(domain, stem):
    """With Hydra's own lists and dictionaries, which the constructors' annotations must admit."""
    built = domain.make(stem, _convert_="none")
    assert built.state_dict().keys() == domain.make(stem).state_dict().keys()


@each("found")
def test_streaming_is_declared(domain, stem):
    assert domain.make(stem).streaming in ("token", "frame", "none")


@each("found_sequences")
@pytest.mark.parametrize("positions", POSITIONS)
def test_the_gradient_reaches_every_parameter(domain, stem, positions):
    model = domain.make_random(stem, positions=positions).train()
    domain.run(model, domain.make_inputs(model)).square().sum().backward()
    assert not without_gradient(model)


@each("found_pictures")
def test_the_gradient_reaches_every_parameter_of_a_model_of_pictures(domain, stem):
    # Stochastic depth would leave out a branch, and its parameters with it.
    model = domain.make_random(stem, drop_path=0.0).train()
    domain.run(model, domain.make_inputs(model)).square().sum().backward()
    assert not without_gradient(model)


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
    held = [tensor for tensor in tensors(state).values() if tensor.dim()]
    assert model.state_bytes(length) == sum(tensor.numel() * tensor.element_size() for tensor in held)
    assert {tensor.dtype for tensor in held} == {torch.float32}


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


@each("found_sequences")
def test_learned_positions_end_at_the_trained_length(domain, stem):
    model = domain.make(stem, positions="learned", max_length=LENGTH)
    model(domain.make_inputs(model))
    with pytest.raises(ValueError, match="positions=rope"):
        model(domain.make_inputs(model, LENGTH + 1))


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


@each("found_sequences")
@pytest.mark.parametrize("positions", ["learned", "rope"])
def test_positions_are_used(domain, stem, positions):
    """Swapping two earlier tokens must change a later output.

    One layer: in a second one the causal mask alone would tell the order.
    """
    model = domain.make_random(stem, positions=positions, num_layers=1)
    inputs = domain.make_inputs(model, 3)
    swapped = domain.take(inputs, [1, 0, 2])
    assert (model(swapped)[0][:, 2] - model(inputs)[0][:, 2]).abs().max() > 1e-6


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
@pytest.mark.parametrize("length", [1, 4, LENGTH])
def test_state_bytes_are_those_of_the_real_state_of_one_sequence(domain, stem, length):
    model = domain.make(stem)
    _, state = model(domain.make_inputs(model, length, batch=1))
    # The counters, 0-d and on the CPU, are no part of what a sequence carries.
    held = [tensor for tensor in tensors(state).values() if tensor.dim()]
    assert model.state_bytes(length) == sum(tensor.numel() * tensor.element_size() for tensor in held)
    assert {tensor.dtype for tensor in held} == {torch.float32}


@each("found_one_call")
def test_state_bytes_are_known_for_models_of_one_call_too(domain, stem):
    assert domain.make(stem).state_bytes(LENGTH) > 0


@each("found")
def test_dropout_acts_in_training_only(domain, stem):
    model = domain.make(stem, dropout=0.5)
    inputs = domain.make_inputs(model)
    model.train()
    assert not torch.equal(domain.run(model, inputs), domain.run(model, inputs))
    model.eval()
    assert torch.equal(domain.run(model, inputs), domain.run(model, inputs))


@each("found")
def test_half_precision_gives_no_nan(domain, stem):
    model = domain.make(stem).train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = domain.run(model, domain.make_inputs(model))
        loss = output.float().log_softmax(-1)[..., 0].mean()
    loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None)
    assert loss.isfinite()


@pytest.mark.parametrize(
    "domain", [pytest.param(domain, id=name) for name, domain in DOMAINS.items() if "base_wide" in domain.found]
)
def test_base_wide_has_the_parameters_of_tensor_within_a_hundredth(domain):
    wide, tensor = (num_parameters(domain.make(stem)) for stem in ("base_wide", "tensor"))
    assert abs(wide - tensor) < 0.01 * tensor


@each("found")
def test_weights_that_were_saved_load_into_a_model_built_anew(domain, stem):
    """The order of modules and the names of weights are those of the class, not of the seed."""
    model, file = domain.make_random(stem), io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other = domain.make(stem).double()
    other.load_state_dict(torch.load(file, weights_only=True))
    inputs = domain.make_inputs(model)
    assert torch.equal(domain.run(other, inputs), domain.run(model, inputs))


@pytest.mark.slow
@pytest.mark.skipif(not compiler_found("cpu"), reason="torch.compile needs a C++ compiler")
@each("found")
def test_a_compiled_model_is_the_eager_one(domain, stem, unchecked):
    model = domain.make(stem)
    inputs = domain.make_inputs(model)
    compiled = torch.compile(model)
    with torch.no_grad():
        assert_close(domain.run(compiled, inputs), domain.run(model, inputs), "output", FLOAT32)


@each("found_variants")
def test_a_variant_builds_and_trains(domain, stem):
    """Of what a nested folder holds no more is asked: it is a model of the contract with one setting changed."""
    assert domain.config(stem).name == (CONF / "model" / domain.name / stem).name
    model = domain.make_random(stem).train()
    domain.run(model, domain.make_inputs(model)).square().sum().backward()
    assert without_gradient(model) == []
