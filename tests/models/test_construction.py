"""What the language models are made of: initial weights, their number, and settings that are refused."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from tensormem.models.language import BaseLM, TensorLM
from tests.models.zoo import LANGUAGE, VOCABULARY


def std(tensor):
    return float(tensor.detach().double().std())


@pytest.mark.parametrize("stem", LANGUAGE.found_sequences)
def test_tuned_weights_are_small_and_the_ends_of_residual_branches_smaller(stem):
    model = LANGUAGE.make(stem, vocab_size=101, init="tuned", positions="learned")
    ends = [end for block in model.stack.blocks for end in (block.mixer.output, block.mlp.output)]
    own = set(model.stack.memory.modules()) if model.stack.memory is not None else set()
    others = [module for module in model.modules() if isinstance(module, nn.Linear) and module not in {*own, *ends}]
    assert others
    # Each has about a thousand weights, so its deviation is within a few percent.
    for weight in (model.embedding.weight, model.positions.weight, *(module.weight for module in others)):
        assert std(weight) == pytest.approx(0.02, rel=0.12)
    for end in ends:
        assert std(end.weight) == pytest.approx(0.02 / math.sqrt(2 * len(model.stack.blocks)), rel=0.12)
    assert not any(module.bias.any() for module in [*ends, *others] if module.bias is not None)


@pytest.mark.parametrize("init", ["tuned", "paper"])
def test_the_memory_keeps_its_own_initialisation(init):
    memory = LANGUAGE.make("tensor", init=init).stack.memory
    assert torch.equal(memory.spread.bias, torch.ones(1))
    assert torch.equal(memory.update.taps[..., 1], torch.ones_like(memory.update.taps[..., 1]))
    # PyTorch's default for a linear map of fan-in n is uniform up to 1 / sqrt(n).
    for linear in (memory.summary, memory.coordinate, memory.content, memory.output):
        assert std(linear.weight) == pytest.approx(1 / math.sqrt(3 * linear.in_features), rel=0.25)


@pytest.mark.parametrize("stem", LANGUAGE.found)
def test_the_papers_embedding_is_standard_normal_and_the_rest_pytorchs_default(stem):
    model = LANGUAGE.make(stem, vocab_size=101, init="paper", positions="learned")
    assert std(model.embedding.weight) == pytest.approx(1, rel=0.1)
    assert not model.positions.weight.any()
    width = LANGUAGE.config(stem).network.dim
    for block in model.stack.blocks:
        assert std(block.mixer.output.weight) == pytest.approx(1 / math.sqrt(3 * width), rel=0.1)


@pytest.mark.parametrize("stem", LANGUAGE.found)
def test_the_output_is_tied_to_the_embedding(stem):
    model = LANGUAGE.make(stem)
    assert model.output_weight is model.embedding.weight
    sizes = [parameter.shape for parameter in model.parameters() if VOCABULARY in parameter.shape]
    assert sizes == [(VOCABULARY, LANGUAGE.config(stem).network.dim)]


def test_gates_are_named_by_layer_and_empty_without_a_memory():
    assert LANGUAGE.make("base").gates == {}
    model = LANGUAGE.make("tensor", gamma=-1.0)
    assert list(model.gates) == ["0", "1"]
    for gate in model.gates.values():
        assert float(gate.detach()) == pytest.approx(1 / (1 + math.e))


# Counted by hand for base: 5 x 8 words, 6 x 8 positions, two blocks of 872 and a LayerNorm. A second LayerNorm is 16 a
# block; transformer_xl has no positions but 2 heads x (64 + 64) distances a block.
NUM_PARAMETERS = {
    "base": 1848,
    "base_sln": 1880,
    "local": 1848,
    "local_rope": 1800,
    "linear": 1848,
    "transformer_xl": 2312,
}


@pytest.mark.parametrize(("stem", "expected"), NUM_PARAMETERS.items())
def test_the_number_of_parameters(stem, expected):
    model = LANGUAGE.make(stem, vocab_size=5, dim=8, num_layers=2, num_heads=2, max_length=6)
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


SIZES = {"vocab_size": 5, "dim": 8, "num_layers": 2, "num_heads": 2}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("kind", [BaseLM, TensorLM])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"init": "xavier"}, r"init='xavier' is unknown.*tuned.*paper"),
        ({"positions": "sine"}, r"positions='sine' is unknown.*learned.*rope.*none"),
        ({"num_layers": 0}, r"num_layers=0 must be at least 1"),
        ({"num_heads": 3}, r"num_heads=3 .*dim=8"),
        ({"vocab_size": 0}, r"vocab_size=0 "),
        ({"max_length": 0}, r"max_length=0 "),
        ({"dim": 6, "positions": "rope"}, r"positions=rope needs an even"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_wrong_setting_is_an_error_that_names_it(kind, changes, message):
    with pytest.raises(ValueError, match=message):
        kind(**(SIZES | changes))


@pytest.mark.usefixtures("unchecked")
def test_an_unknown_threading_and_a_wrong_memory_are_errors_that_name_them():
    with pytest.raises(ValueError, match=r"threading='diagonal' is unknown.*layer.*depth"):
        TensorLM(**SIZES, threading="diagonal")
    with pytest.raises(ValueError, match="write='soft' is unknown"):
        TensorLM(**SIZES, memory_options={"write": "soft"})
    with pytest.raises(ValueError, match="chunk=0"):
        TensorLM(**SIZES, memory_chunk=0)
