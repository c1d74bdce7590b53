"""The contract of every language model: the tests walk conf/model/language/, so a new YAML is tested with no edit here.

Each model is composed at the scale `smoke` with a tiny vocabulary, with random weights where the initial ones (zeros,
identities) would hide a mistake.
"""

from __future__ import annotations

import random

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from torch import nn

from tensormem.audit import audit
from tensormem.memory.kernels import compiler_found
from tests.helpers import EXACT_FLOAT64, FLOAT32, assert_all_close, assert_close, gradients
from tests.models.zoo import (
    BATCH,
    CONF,
    LENGTH,
    ONE_CALL,
    POSITIONS,
    STEMS,
    STREAMING,
    VOCABULARY,
    make,
    make_random,
    make_tokens,
    network,
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


def in_calls(model, tokens, sizes):
    outputs, state = [], model.init_state(tokens.shape[0])
    for piece in tokens.split(sizes, dim=1):
        logits, state = model(piece, state)
        outputs.append(logits)
    return torch.cat(outputs, dim=1), state


def random_sizes(total, seed):
    draw, sizes = random.Random(seed), []
    while sum(sizes) < total:
        sizes.append(draw.randint(1, min(6, total - sum(sizes))))
    return sizes


SPLITS = {"single": [1] * LENGTH} | {f"random{seed}": random_sizes(LENGTH, seed) for seed in range(3)}


def test_the_walk_finds_the_models_that_are_known():
    assert len(STEMS) >= 11
    assert {"base", "tensor", "tensor_depth"} <= set(STEMS)
    assert {"base", "base_sln", "base_wide", "tensor", "tensor_sln", "tensor_local"} <= set(STREAMING)
    assert {"local", "local_rope", "transformer_xl", "linear"} <= set(STREAMING)
    assert "tensor_depth" in ONE_CALL


@pytest.mark.parametrize("stem", STEMS)
def test_the_name_in_the_yaml_is_its_stem(stem):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        model = compose("config", overrides=[f"model=language/{stem}", "scale=smoke"]).model
    assert model.name == stem


@pytest.mark.parametrize("stem", STEMS)
def test_the_yaml_builds_the_model_as_a_run_builds_it(stem):
    """With Hydra's own lists and dictionaries, which the constructors' annotations must admit."""
    assert instantiate(network(stem), vocab_size=VOCABULARY).state_dict().keys() == make(stem).state_dict().keys()


@pytest.mark.parametrize("stem", STEMS)
def test_streaming_is_declared(stem):
    assert make(stem).streaming in ("token", "none")


@pytest.mark.parametrize("stem", STEMS)
def test_forward_is_readout_of_hidden(stem):
    model, tokens = make_random(stem), make_tokens()
    logits, state = model(tokens)
    hidden, hidden_state = model.hidden(tokens)
    assert hidden.shape == (BATCH, LENGTH, network(stem).dim)
    assert logits.shape == (BATCH, LENGTH, VOCABULARY)
    assert torch.equal(model.readout(hidden), logits)
    assert_close(hidden @ model.output_weight.T, logits, "logits from the output weight", EXACT_FLOAT64)
    assert (state is None) == (hidden_state is None) == (model.streaming == "none")


@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.parametrize("positions", POSITIONS)
def test_the_gradient_reaches_every_parameter(stem, positions):
    model = make_random(stem, positions=positions).train()
    logits, _ = model(make_tokens())
    logits.square().sum().backward()
    without = [
        name
        for name, parameter in model.named_parameters()
        if parameter.grad is None or not parameter.grad.isfinite().all() or not parameter.grad.any()
    ]
    assert not without


@pytest.mark.parametrize("stem", STREAMING)
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("split", SPLITS)
def test_any_split_equals_one_call(stem, positions, split):
    model, tokens = make_random(stem, positions=positions), make_tokens()
    whole, whole_state = model(tokens)
    with torch.no_grad():
        actual, state = in_calls(model, tokens, SPLITS[split])
    assert_close(actual, whole, "logits", EXACT_FLOAT64)
    assert_all_close(tensors(state), tensors(whole_state), EXACT_FLOAT64)


@pytest.mark.parametrize("stem", STREAMING)
@pytest.mark.parametrize("positions", POSITIONS)
def test_a_split_has_the_gradients_of_one_call(stem, positions):
    model, tokens = make_random(stem, positions=positions), make_tokens()
    got, wanted = (
        gradients({"logits": logits}, model.named_parameters(), torch.Generator().manual_seed(3))
        for logits in (in_calls(model, tokens, SPLITS["random0"])[0], model(tokens)[0])
    )
    assert_all_close(got, wanted, EXACT_FLOAT64)


@pytest.mark.parametrize("stem", STREAMING)
def test_a_call_of_no_tokens_changes_nothing(stem):
    model, tokens = make_random(stem), make_tokens()
    for state in (model.init_state(BATCH), model(tokens)[1]):
        logits, after = model(tokens[:, :0], state)
        assert logits.shape == (BATCH, 0, VOCABULARY)
        assert_all_close(tensors(after), tensors(state), EXACT_FLOAT64)


@pytest.mark.parametrize("stem", STREAMING)
def test_a_state_may_be_used_again(stem):
    """Branches of one prefix: a call must leave the state it was given alone."""
    model, tokens = make_random(stem), make_tokens()
    _, state = model(tokens[:, :7])
    before = {name: tensor.clone() for name, tensor in tensors(state).items()}
    first, _ = model(tokens[:, 7:], state)
    model(make_tokens(5, seed=9), state)
    assert all(torch.equal(tensor, before[name]) for name, tensor in tensors(state).items())
    assert torch.equal(model(tokens[:, 7:], state)[0], first)


@pytest.mark.parametrize("stem", STEMS)
def test_learned_positions_end_at_the_trained_length(stem):
    model = make(stem, positions="learned", max_length=LENGTH)
    model(make_tokens())
    with pytest.raises(ValueError, match="positions=rope"):
        model(make_tokens(LENGTH + 1))


@pytest.mark.parametrize("stem", STREAMING)
def test_learned_positions_end_in_streaming_too(stem):
    model = make(stem, positions="learned", max_length=LENGTH)
    _, state = in_calls(model, make_tokens(), [6, LENGTH - 6])
    with pytest.raises(ValueError, match=rf"position {LENGTH} .*positions=rope"):
        model(make_tokens(1), state)
    assert model.generate(make_tokens(5), LENGTH - 5, temperature=0.0).shape == (BATCH, LENGTH)
    with pytest.raises(ValueError, match="positions=rope"):
        model.generate(make_tokens(5), LENGTH)


@pytest.mark.parametrize("stem", STREAMING)
@pytest.mark.parametrize("positions", ["rope", "none"])
def test_other_positions_go_on_beyond_the_trained_length(stem, positions):
    model = make(stem, positions=positions, max_length=LENGTH)
    logits, _ = in_calls(model, make_tokens(2 * LENGTH + 1), [LENGTH, LENGTH, 1])
    assert torch.isfinite(logits).all()


@pytest.mark.parametrize("stem", STEMS)
def test_positions_are_used(stem):
    """Swapping two earlier tokens must change a later logit, unless the model is told to have no positions.

    One layer: in a second one the causal mask alone would tell the order.
    """
    tokens = make_tokens(3)
    tokens[:, :2] = torch.tensor([1, 2])
    swapped = tokens[:, [1, 0, 2]]
    for positions in ("learned", "rope"):
        model = make_random(stem, positions=positions, num_layers=1)
        assert (model(swapped)[0][:, 2] - model(tokens)[0][:, 2]).abs().max() > 1e-6, positions


def test_without_positions_plain_attention_does_not_know_the_order():
    # Of one layer only: with two, the second sees what the causal mask of the first let each token see.
    model = make_random("base", positions="none", num_layers=1)
    tokens = torch.tensor([[1, 2, 5]])
    assert_close(model(tokens[:, [1, 0, 2]])[0][:, 2], model(tokens)[0][:, 2], "last logits", EXACT_FLOAT64)


@pytest.mark.parametrize("stem", ONE_CALL)
def test_a_model_of_one_call_refuses_states_and_names_what_to_use(stem):
    model, tokens = make(stem), make_tokens()
    _, state = make("tensor")(tokens)
    for attempt in (
        lambda: model.init_state(BATCH),
        lambda: model.generate(tokens, 2),
        lambda: model(tokens, state),
        lambda: model.hidden(tokens, state),
    ):
        with pytest.raises(ValueError, match=r"(?s)layer.*time"):
            attempt()
    assert model(tokens)[1] is None


@pytest.mark.parametrize("stem", STREAMING)
@pytest.mark.parametrize("length", [1, 4, LENGTH])
def test_state_bytes_are_those_of_the_real_state_of_one_sequence(stem, length):
    model = make(stem)
    _, state = model(make_tokens(length)[:1])
    # The counters, 0-d and on the CPU, are no part of what a sequence carries.
    held = [tensor for tensor in tensors(state).values() if tensor.dim()]
    assert model.state_bytes(length) == sum(tensor.numel() * tensor.element_size() for tensor in held)
    assert {tensor.dtype for tensor in held} == {torch.float32}


@pytest.mark.parametrize("stem", ONE_CALL)
def test_state_bytes_are_known_for_models_of_one_call_too(stem):
    assert make(stem).state_bytes(LENGTH) > 0


def test_depth_threading_holds_the_caches_of_base_and_one_memory():
    base, layer, depth = (make(stem).state_bytes(LENGTH) for stem in ("base", "tensor", "tensor_depth"))
    assert layer - base == make("tensor").stack.memory.state_bytes() * len(make("tensor").stack.blocks)
    assert depth - base == make("tensor").stack.memory.state_bytes()


@pytest.mark.parametrize("stem", STEMS)
def test_the_audit_says_causal_unless_the_route_is_depth(stem):
    report = audit(make(stem), VOCABULARY, lengths=(13, 22))
    assert report.verdict == ("leaks" if network(stem).get("threading") == "depth" else "causal"), report


@pytest.mark.parametrize(("stem", "verdict"), [("base", "causal"), ("tensor", "causal"), ("tensor_depth", "leaks")])
def test_the_audit_of_the_known_models(stem, verdict):
    """Said outright, so that no change of a YAML can change what is expected of these three."""
    assert audit(make(stem), VOCABULARY, lengths=(13, 22)).verdict == verdict


@pytest.mark.parametrize("stem", STEMS)
def test_dropout_acts_in_training_only(stem):
    model, tokens = make(stem, dropout=0.5), make_tokens()
    assert not torch.equal(model.train()(tokens)[0], model(tokens)[0])
    assert torch.equal(model.eval()(tokens)[0], model(tokens)[0])


@pytest.mark.parametrize("stem", STEMS)
def test_half_precision_gives_no_nan(stem):
    model, tokens = make(stem).train(), make_tokens()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(tokens)[0].flatten(0, 1).float(), tokens.flatten())
    loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None)
    assert loss.isfinite()


@pytest.mark.slow
@pytest.mark.skipif(not compiler_found("cpu"), reason="torch.compile needs a C++ compiler")
@pytest.mark.parametrize("stem", STEMS)
def test_a_compiled_model_is_the_eager_one(stem, unchecked):
    model, tokens = make(stem), make_tokens()
    compiled = torch.compile(model)
    with torch.no_grad():
        assert_close(compiled(tokens)[0], model(tokens)[0], "logits", FLOAT32)
