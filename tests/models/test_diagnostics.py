"""What the diagnostic models alone promise: how tokens become vectors, their size, and which of them are causal.

The contract of every model stands in test_contract.py and test_contract_of_states.py.
"""

from __future__ import annotations

import pytest
import torch

from tensormem.models.diagnostics import (
    BaseDiagnostic,
    SlotsDiagnostic,
    TensorDiagnostic,
    TokenEmbedding,
    Tokens,
)
from tests.helpers import EXACT_FLOAT64, assert_close, randomise
from tests.models.zoo import BATCH, DIAGNOSTICS, LENGTH, NUM_CLASSES

DIM = 6


def make_embedding(num_numbers, vocabularies):
    embedding = TokenEmbedding(num_numbers, vocabularies, DIM).double()
    randomise(embedding, torch.Generator().manual_seed(0))
    return embedding


def make_tokens(num_numbers, vocabularies, length=4):
    generator = torch.Generator().manual_seed(1)
    symbols = torch.zeros(BATCH, length, len(vocabularies), dtype=torch.int64)
    for place, size in enumerate(vocabularies):
        symbols[..., place] = torch.randint(size, (BATCH, length), generator=generator)
    return Tokens(torch.randn(BATCH, length, num_numbers, generator=generator, dtype=torch.float64), symbols)


@pytest.mark.parametrize(
    ("num_numbers", "vocabularies"), [(3, (4, 2)), (1, (3,)), (3, ()), (0, (4, 2)), (0, (5,))], ids=str
)
def test_a_token_is_the_sum_of_what_it_shows(num_numbers, vocabularies):
    embedding, tokens = make_embedding(num_numbers, vocabularies), make_tokens(num_numbers, vocabularies)
    weights = dict(embedding.named_parameters())
    actual = embedding(tokens)
    assert actual.shape == (BATCH, 4, DIM)
    for row in range(BATCH):
        for position in range(4):
            expected = torch.zeros(DIM, dtype=torch.float64)
            for feature in range(num_numbers):
                expected = expected + weights["numbers.weight"][:, feature] * tokens.numbers[row, position, feature]
            if num_numbers:
                expected = expected + weights["numbers.bias"]
            for place in range(len(vocabularies)):
                expected = expected + weights[f"symbols.{place}.weight"][tokens.symbols[row, position, place]]
            assert_close(actual[row, position], expected, f"token {position} of row {row}", EXACT_FLOAT64)


def test_a_token_without_numbers_has_no_weights_for_them():
    assert make_embedding(0, (4, 2)).state_dict().keys() == {"symbols.0.weight", "symbols.1.weight"}
    assert make_embedding(3, ()).state_dict().keys() == {"numbers.weight", "numbers.bias"}


@pytest.mark.parametrize("stem", DIAGNOSTICS.found)
@pytest.mark.parametrize(("num_numbers", "vocabularies"), [(3, ()), (0, (4, 2))], ids=["numbers", "symbols"])
def test_a_model_takes_tokens_of_numbers_or_of_symbols_alone(stem, num_numbers, vocabularies):
    model = DIAGNOSTICS.make_random(stem, num_numbers=num_numbers, vocabularies=vocabularies)
    assert model(make_tokens(num_numbers, vocabularies))[0].isfinite().all()


@pytest.mark.parametrize("stem", DIAGNOSTICS.found)
def test_an_output_has_a_logit_for_each_class_at_each_token(stem):
    model = DIAGNOSTICS.make(stem)
    assert model(DIAGNOSTICS.make_inputs(model))[0].shape == (BATCH, LENGTH, NUM_CLASSES)


SIZES = {"num_numbers": 3, "vocabularies": (4, 2), "num_classes": 5, "dim": 8, "num_layers": 2, "num_heads": 2}

# Counted by hand. base: an embedding of 3 x 8 + 8 and (4 + 2) x 8, two blocks of 872, a LayerNorm of 16 and a readout
# of 8 x 5 + 5. slots: besides, 3 x 8 and three cross-attentions (two reads, one write) of 2 x 16 + 4 x 72. tensor:
# besides, a LayerNorm and a gamma in each layer, 17, and a memory of 3 channels, 2 x 3 points and steps of 2 tokens,
# which has a summary of 16 x 8 + 8, coordinate 8 x 2 + 2, content 8 x 3 + 3, spread 8 + 1, output 3 x 8 + 8, two axes
# of 6 x (3 taps + 1) and gates of 6 x 12 + 12: 354.
NUM_PARAMETERS = [
    (BaseDiagnostic, {}, 1885),
    (SlotsDiagnostic, {"num_slots": 3}, 1885 + 24 + 3 * 320),
    (TensorDiagnostic, {"memory_channels": 3, "memory_grid": (2, 3), "memory_chunk": 2}, 1885 + 354 + 2 * 17),
]


@pytest.mark.parametrize(("kind", "options", "expected"), NUM_PARAMETERS, ids=["base", "slots", "tensor"])
def test_the_number_of_parameters(kind, options, expected):
    model = kind(**SIZES, **options)
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


# Outputs are of order 1 in float64: what a token does to them is more than this, what it does not do is less.
ROUNDING = 1e-12


def effects(stem):
    """How much the output at each position (columns) moves when the features of one token (rows) are drawn anew."""
    model = DIAGNOSTICS.make_random(stem)
    tokens, others = (DIAGNOSTICS.make_inputs(model, batch=1, seed=seed) for seed in (2, 3))
    drawn_anew = torch.eye(LENGTH, dtype=torch.bool)[..., None]
    changed = Tokens(*(torch.where(drawn_anew, *parts) for parts in zip(others, tokens, strict=True)))
    unchanged = Tokens(*(part.expand(LENGTH, -1, -1) for part in tokens))
    return (model(changed)[0] - model(unchanged)[0]).abs().amax(-1)


@pytest.mark.parametrize("stem", DIAGNOSTICS.found)
def test_the_last_output_depends_on_every_token(stem):
    """The answers come last: every model can see all that they may ask for."""
    assert (effects(stem)[:, -1] > ROUNDING).all()


@pytest.mark.parametrize("stem", DIAGNOSTICS.found_streaming)
def test_no_output_of_what_streams_depends_on_a_later_token(stem):
    assert (effects(stem).tril(-1) < ROUNDING).all()


@pytest.mark.parametrize("stem", ["slots", "tensor"])
def test_every_output_of_slots_and_tensor_depends_on_every_token(stem):
    """Slots and, with threading=depth, the memory go on from what the layer below made of the whole call."""
    assert (effects(stem) > ROUNDING).all()


def test_a_sequence_holds_the_caches_of_base_and_its_slots_or_memories():
    base, slots, depth, layer = (
        DIAGNOSTICS.make(stem).state_bytes(LENGTH) for stem in ("base", "slots", "tensor", "tensor_layer")
    )
    network = DIAGNOSTICS.config("slots").network
    assert slots - base == 4 * network.num_slots * network.dim
    memory = DIAGNOSTICS.make("tensor").stack.memory.state_bytes()
    assert depth - base == memory
    assert layer - base == network.num_layers * memory


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("kind", [BaseDiagnostic, SlotsDiagnostic, TensorDiagnostic])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_numbers": 0, "vocabularies": []}, r"num_numbers=0 with vocabularies=\[\]: tokens show nothing"),
        ({"num_numbers": -1}, r"num_numbers=-1 "),
        ({"num_classes": 1}, r"num_classes=1 must be at least 2"),
        ({"num_layers": 0}, r"num_layers=0 must be at least 1"),
        ({"num_heads": 3}, r"num_heads=3 .*dim=8"),
        ({"positions": "sine"}, r"positions='sine' is unknown"),
        ({"max_length": 0}, r"max_length=0 "),
    ],
    ids=str,
)
def test_a_wrong_setting_is_an_error_that_names_it(kind, changes, message):
    with pytest.raises(ValueError, match=message):
        kind(**(SIZES | changes))
