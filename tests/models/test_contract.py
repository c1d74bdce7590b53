"""The contract of every model: the tests walk conf/model/, so a new YAML is tested with no edit here.

Each model is composed at the scale `smoke` and given tiny inputs of its domain's kind (zoo.py), with random weights
where the initial ones (zeros, identities) would hide a mistake. What a state promises stands in
test_contract_of_states.py, what one domain alone promises in its own tests.
"""

from __future__ import annotations

import io

import pytest
import torch

from tensormem.memory.kernels import compiler_found
from tests.helpers import FLOAT32, assert_close
from tests.models.zoo import CONF, DOMAINS, FOLDERS, LENGTH, POSITIONS, each


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


@each("found_sequences")
def test_learned_positions_end_at_the_trained_length(domain, stem):
    model = domain.make(stem, positions="learned", max_length=LENGTH)
    model(domain.make_inputs(model))
    with pytest.raises(ValueError, match="positions=rope"):
        model(domain.make_inputs(model, LENGTH + 1))


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
