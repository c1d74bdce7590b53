"""The audit: what it must pass, what it must fail, and what it must not pretend to know."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from tensormem.audit import AuditReport, CausalityError, audit, require_causal
from tensormem.models.language import BaseLM, TensorLM

VOCABULARY = 7
CHUNK = 4
# No multiples of the chunk, several chunks each.
LENGTHS = (13, 18)


def logits_table(width=5):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(VOCABULARY, width, generator=generator, dtype=torch.float64)


TABLE = logits_table()


def own_logits(tokens):
    """A causal model: each position's logits depend on its own token."""
    return TABLE[tokens]


def leaking_at(*positions):
    """Logits at each of these positions depend on the next token too."""

    def model(tokens):
        logits = own_logits(tokens).clone()
        for position in positions:
            if position + 1 < tokens.shape[1]:
                logits[:, position] += 0.1 * TABLE[tokens[:, position + 1]]
        return logits

    return model


def test_a_causal_function_passes():
    report = audit(own_logits, VOCABULARY, LENGTHS)
    assert report.passed


def test_the_report_names_the_changed_token_and_the_first_leaking_position():
    def model(tokens):
        logits = own_logits(tokens).clone()
        # Positions 4 and 9 see the last token of 13, and by unlike amounts.
        logits[:, 4] += 0.25 * TABLE[tokens[:, -1]]
        logits[:, 9] += 0.5 * TABLE[tokens[:, -1]]
        return logits

    report = audit(model, VOCABULARY, (13,))
    assert report.verdict == "leaks"
    assert (report.length, report.changed_position, report.leaking_position) == (13, 12, 4)
    assert report.weights == "given"
    # Half of the largest difference of two rows of the table at most; the quarter's at least.
    spread = max(float((one - other).abs().max()) for one in TABLE for other in TABLE)
    assert 0 < report.largest_change <= 0.5 * spread
    assert report.reason == "changing token 12 of 13 changes the logits of position 4"


def test_the_largest_change_is_taken_over_all_positions_before_the_changed_one():
    table = torch.arange(2.0, dtype=torch.float64).unsqueeze(1)

    def model(tokens):
        logits = table[tokens].clone()
        logits[:, 1] += 2 * table[tokens[:, -1]]
        logits[:, 2] += 5 * table[tokens[:, -1]]
        return logits

    report = audit(model, 2, (6,))
    assert (report.leaking_position, report.largest_change) == (1, 5.0)


@pytest.mark.parametrize("length", [2, 13, 29, 53])
def test_a_leak_from_the_last_token_to_the_first_is_found(length):
    def model(tokens):
        logits = own_logits(tokens).clone()
        logits[:, 0] += 0.1 * TABLE[tokens[:, -1]]
        return logits

    report = audit(model, VOCABULARY, (length,))
    assert (report.verdict, report.changed_position, report.leaking_position) == ("leaks", length - 1, 0)


def test_a_small_leak_is_told_from_rounding():
    def model(tokens):
        logits = own_logits(tokens).clone()
        logits[:, :-1] += 1e-6 * TABLE[tokens[:, 1:]]
        return logits

    assert audit(model, VOCABULARY, LENGTHS).verdict == "leaks"


def test_a_leak_in_any_length_is_found():
    def model(tokens):
        return leaking_at(*range(53))(tokens) if tokens.shape[1] == 18 else own_logits(tokens)

    assert audit(model, VOCABULARY, LENGTHS).length == 18


@pytest.mark.parametrize(("chunk", "place"), [(chunk, place) for chunk in (4, 16) for place in range(chunk)])
def test_a_leak_at_one_place_of_a_chunk_is_found(chunk, place):
    """An off-by-one at the end of a chunk leaks one token, and to one place of a chunk only."""

    def model(tokens):
        return leaking_at(*range(place, tokens.shape[1], chunk))(tokens)

    assert audit(model, VOCABULARY).verdict == "leaks"


def test_a_leak_of_a_single_position_is_found():
    assert audit(leaking_at(17), VOCABULARY).verdict == "leaks"


class Constant(nn.Module):
    """Logits that no token changes, whatever the weights."""

    def __init__(self):
        super().__init__()
        self.logits = nn.Parameter(torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(0)))

    def forward(self, tokens):
        return self.logits.expand(*tokens.shape, -1)


class Silent(nn.Module):
    """A model whose output is zero at the start: only random weights show what it does."""

    def __init__(self, leaks):
        super().__init__()
        self.leaks = leaks
        self.embedding = nn.Embedding(VOCABULARY, 4)
        self.output = nn.Linear(4, VOCABULARY)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, tokens):
        x = self.embedding(tokens)
        return self.output(x.flip(1) if self.leaks else x)


@pytest.mark.parametrize(
    "model", [Constant(), lambda tokens: torch.zeros(*tokens.shape, 3)], ids=["module", "function"]
)
def test_a_constant_model_is_inconclusive(model):
    report = audit(model, VOCABULARY, LENGTHS)
    assert report.verdict == "inconclusive"
    assert not report.passed


def test_a_silent_output_is_opened_by_random_weights():
    assert audit(Silent(leaks=False), VOCABULARY, LENGTHS).passed
    report = audit(Silent(leaks=True), VOCABULARY, LENGTHS)
    assert (report.verdict, report.weights) == ("leaks", "random")


def test_a_model_deaf_to_some_tokens_is_inconclusive():
    """One changed token without an effect is enough: behind it a leak could not have been seen."""

    def model(tokens):
        logits = own_logits(tokens).clone()
        logits[:, tokens.shape[1] // 2 :] = 0
        return logits

    assert audit(model, VOCABULARY, LENGTHS).verdict == "inconclusive"


@pytest.mark.parametrize("deaf", LENGTHS)
def test_a_model_deaf_at_one_length_is_inconclusive(deaf):
    def model(tokens):
        return own_logits(tokens) * (tokens.shape[1] != deaf)

    assert audit(model, VOCABULARY, LENGTHS).verdict == "inconclusive"


def test_a_model_that_answers_differently_each_time_is_inconclusive():
    generator = torch.Generator().manual_seed(0)

    def model(tokens):
        return own_logits(tokens) + torch.rand((), generator=generator, dtype=torch.float64)

    report = audit(model, VOCABULARY, LENGTHS)
    assert report.verdict == "inconclusive"
    assert "different" in report.reason


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_are_inconclusive(value):
    def model(tokens):
        logits = own_logits(tokens).clone()
        logits[:, 1, 0] = value
        return logits

    report = audit(model, VOCABULARY, LENGTHS)
    assert report.verdict == "inconclusive"
    assert "not finite" in report.reason


def test_a_changed_token_that_makes_earlier_logits_nan_does_not_pass():
    """NaN is not larger than a tolerance, so a comparison alone would let this through."""
    last = {}

    def model(tokens):
        logits = own_logits(tokens).clone()
        unchanged = last.setdefault(tokens.shape[1], tokens[0, -1].clone())
        logits[tokens[:, -1] != unchanged, 0] = float("nan")
        return logits

    assert not audit(model, VOCABULARY, LENGTHS).passed


@pytest.mark.parametrize("kind", ["base", "tensor"])
def test_a_causal_function_in_float32_passes(kind):
    """A callable is audited as it is; how float32 rounds with another batch size is no leak."""
    torch.manual_seed(0)
    sizes = dict(dim=48, num_layers=2, num_heads=2, dropout=0.0)
    memory = dict(memory_channels=3, memory_grid=(2, 3), memory_chunk=CHUNK)
    model = (BaseLM(64, **sizes) if kind == "base" else TensorLM(64, **sizes, **memory)).eval()
    report = audit(lambda tokens: model(tokens), 64)
    assert report.passed, report


def test_a_tuple_is_taken_by_its_first_element():
    assert audit(lambda tokens: (own_logits(tokens), None), VOCABULARY, LENGTHS).passed
    leaking = leaking_at(*range(60))
    assert audit(lambda tokens: (leaking(tokens), "state", 3), VOCABULARY, LENGTHS).verdict == "leaks"


def test_a_vocabulary_of_two_is_enough():
    assert audit(own_logits, 2, LENGTHS).passed
    assert audit(leaking_at(*range(60)), 2, LENGTHS).verdict == "leaks"


@pytest.mark.parametrize(
    ("vocab_size", "lengths"), [(1, (5,)), (0, (5,)), (VOCABULARY, (1,)), (VOCABULARY, (5, 1)), (VOCABULARY, ())]
)
def test_nothing_to_change_is_an_error(vocab_size, lengths):
    with pytest.raises(ValueError, match=r"vocab_size=.*lengths=.*at least 2"):
        audit(own_logits, vocab_size, lengths)


CAUSAL = AuditReport("causal", "fine")
LEAKS = AuditReport("leaks", "changing token 5 changes position 2", "given", 9, 5, 2, 0.1)
INCONCLUSIVE = AuditReport("inconclusive", "the logits are not finite")


@pytest.mark.parametrize(("report", "allow_noncausal"), [(CAUSAL, False), (CAUSAL, True), (LEAKS, True)])
def test_require_causal_lets_through_what_passed_and_a_leak_that_is_allowed(report, allow_noncausal):
    require_causal(report, "some_model", allow_noncausal)


def test_require_causal_refuses_a_leak_and_names_the_model_and_the_ways_out():
    with pytest.raises(CausalityError, match=r"some_model .*token 5 .*threading=layer.*allow_noncausal=true"):
        require_causal(LEAKS, "some_model")


@pytest.mark.parametrize("allow_noncausal", [False, True])
def test_require_causal_never_lets_an_inconclusive_audit_through(allow_noncausal):
    with pytest.raises(CausalityError, match=r"some_model is inconclusive.*not finite"):
        require_causal(INCONCLUSIVE, "some_model", allow_noncausal)


def test_a_report_of_an_inconclusive_audit_is_plain_values_too():
    report = audit(lambda tokens: torch.full((*tokens.shape, 3), float("nan")), VOCABULARY, LENGTHS)
    assert AuditReport(**json.loads(json.dumps(report.as_dict(), allow_nan=False))) == report
