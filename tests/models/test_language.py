"""What language models alone promise: a readout of hidden vectors, and the future unseen.

The contract of every model stands in test_contract.py and test_contract_of_states.py, `generate` in test_generation.py.
"""

from __future__ import annotations

import pytest
import torch

from tensormem.audit import audit
from tensormem.models.language import BaseLM
from tests.helpers import EXACT_FLOAT64, assert_close
from tests.models.zoo import BATCH, LANGUAGE, LENGTH, VOCABULARY, make_words


@pytest.mark.parametrize("stem", LANGUAGE.found)
def test_forward_is_readout_of_hidden(stem):
    model, tokens = LANGUAGE.make_random(stem), make_words()
    logits, state = model(tokens)
    hidden, hidden_state = model.hidden(tokens)
    assert hidden.shape == (BATCH, LENGTH, LANGUAGE.config(stem).network.dim)
    assert logits.shape == (BATCH, LENGTH, VOCABULARY)
    assert torch.equal(model.readout(hidden), logits)
    assert_close(hidden @ model.output_weight.T, logits, "logits from the output weight", EXACT_FLOAT64)
    assert (state is None) == (hidden_state is None) == (model.streaming == "none")


@pytest.mark.parametrize("stem", LANGUAGE.found_one_call)
def test_hidden_refuses_a_state_where_none_is_carried(stem):
    _, state = LANGUAGE.make("tensor")(make_words())
    with pytest.raises(ValueError, match=r"(?s)layer.*time"):
        LANGUAGE.make(stem).hidden(make_words(), state)


def test_without_positions_plain_attention_does_not_know_the_order():
    # Of one layer only: with two, the second sees what the causal mask of the first let each token see.
    model = LANGUAGE.make_random("base", positions="none", num_layers=1)
    tokens = torch.tensor([[1, 2, 5]])
    assert_close(model(tokens[:, [1, 0, 2]])[0][:, 2], model(tokens)[0][:, 2], "last logits", EXACT_FLOAT64)


@pytest.mark.parametrize(("sandwich", "least", "most"), [(False, 0, 0.5), (True, 10, 50)])
def test_a_second_layernorm_starts_much_louder_than_the_small_embeddings(sandwich, least, most):
    """The measure of the README, where it says why `base_sln` learns less than `base`."""
    torch.manual_seed(0)
    model = BaseLM(30_000, dim=128, num_layers=4, num_heads=4, max_length=256, sandwich=sandwich).eval()
    given = {}
    model.stack.blocks[0].mixer_norm.register_forward_pre_hook(lambda norm, args: given.setdefault("x", args[0]))
    with torch.no_grad():
        model(torch.randint(30_000, (2, 256)))
        mixed, _ = model.stack.blocks[0].mix(given["x"])
    added = (mixed - given["x"]).square().mean().sqrt() / given["x"].square().mean().sqrt()
    assert least < added < most


def test_depth_threading_holds_the_caches_of_base_and_one_memory():
    base, layer, depth = (LANGUAGE.make(stem).state_bytes(LENGTH) for stem in ("base", "tensor", "tensor_depth"))
    stack = LANGUAGE.make("tensor").stack
    assert layer - base == stack.memory.state_bytes() * len(stack.blocks)
    assert depth - base == stack.memory.state_bytes()


@pytest.mark.parametrize("stem", LANGUAGE.found)
def test_the_audit_says_causal_unless_the_route_is_depth(stem):
    report = audit(LANGUAGE.make(stem), VOCABULARY, lengths=(13, 22))
    depth = LANGUAGE.config(stem).network.get("threading") == "depth"
    assert report.verdict == ("leaks" if depth else "causal"), report


@pytest.mark.parametrize(("stem", "verdict"), [("base", "causal"), ("tensor", "causal"), ("tensor_depth", "leaks")])
def test_the_audit_of_the_known_models(stem, verdict):
    """Said outright, so that no change of a YAML can change what is expected of these three."""
    assert audit(LANGUAGE.make(stem), VOCABULARY, lengths=(13, 22)).verdict == verdict
