"""Text from every language model that carries a state, one word at a time."""

from __future__ import annotations

import math

import pytest
import torch

from tests.models.zoo import BATCH, LANGUAGE, LENGTH, POSITIONS, VOCABULARY, make_words


@pytest.mark.parametrize("stem", LANGUAGE.found_streaming)
@pytest.mark.parametrize("positions", POSITIONS)
def test_generate_takes_the_likeliest_word_of_a_full_forward_at_each_step(stem, positions):
    model, tokens = LANGUAGE.make_random(stem, positions=positions), make_words(5)
    expected = tokens
    for _ in range(8):
        expected = torch.cat([expected, model(expected)[0][:, -1].argmax(-1, keepdim=True)], dim=1)
    assert torch.equal(model.generate(tokens, 8, temperature=0.0), expected)


@pytest.mark.parametrize("stem", LANGUAGE.found_streaming)
def test_generate_goes_on_and_is_the_same_with_the_same_generator(stem):
    model, tokens = LANGUAGE.make_random(stem), make_words(5)
    first, again, other = (
        model.generate(tokens, 20, generator=torch.Generator().manual_seed(seed)) for seed in (4, 4, 5)
    )
    assert first.shape == (BATCH, 25)
    assert torch.equal(first[:, :5], tokens)
    assert 0 <= int(first.min()) <= int(first.max()) < VOCABULARY
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(model.generate(tokens, 0), tokens)


@pytest.mark.parametrize("stem", LANGUAGE.found_streaming)
def test_generate_ends_with_the_learned_positions(stem):
    model = LANGUAGE.make(stem, positions="learned", max_length=LENGTH)
    assert model.generate(make_words(5), LENGTH - 5, temperature=0.0).shape == (BATCH, LENGTH)
    with pytest.raises(ValueError, match="positions=rope"):
        model.generate(make_words(5), LENGTH)


@pytest.mark.parametrize("stem", LANGUAGE.found_one_call)
def test_a_model_of_one_call_does_not_generate_and_names_what_would(stem):
    with pytest.raises(ValueError, match=r"(?s)layer.*time"):
        LANGUAGE.make(stem).generate(make_words(5), 2)


def test_generate_draws_from_the_softmax_at_the_temperature():
    """Many equal rows of one step against the probabilities that the logits say."""
    model, rows, temperature = LANGUAGE.make_random("base"), 4000, 2.0
    tokens = make_words(3)[:1].expand(rows, -1)
    drawn = model.generate(tokens, 1, temperature, torch.Generator().manual_seed(0))[:, -1]
    expected = (model(tokens[:1])[0][0, -1] / temperature).softmax(-1)
    shares = torch.bincount(drawn, minlength=VOCABULARY) / rows
    # Five standard deviations of a share of 4,000 draws.
    assert (shares - expected).abs().max() < 5 * math.sqrt(0.25 / rows)
    assert (expected - 1 / VOCABULARY).abs().max() > 0.1


def test_generate_with_top_k_draws_from_the_likeliest_alone():
    model, rows, k = LANGUAGE.make_random("base"), 4000, 3
    tokens = make_words(3)[:1].expand(rows, -1)
    drawn = model.generate(tokens, 1, 2.0, torch.Generator().manual_seed(0), top_k=k)[:, -1]
    values, words = (model(tokens[:1])[0][0, -1] / 2.0).topk(k)
    shares = torch.bincount(drawn, minlength=VOCABULARY) / rows
    assert shares[words].sum() == 1
    # Five standard deviations of a share of 4,000 draws.
    assert (shares[words] - values.softmax(-1)).abs().max() < 5 * math.sqrt(0.25 / rows)


def test_generate_with_the_extremes_of_top_k_and_temperature():
    model, tokens = LANGUAGE.make_random("base"), make_words(5)
    likeliest = model.generate(tokens, 8, temperature=0.0)
    assert torch.equal(model.generate(tokens, 8, top_k=1), likeliest)
    for temperature in (1e-38, 1e-44, 1e-46, 1e-300):
        assert torch.equal(model.float().generate(tokens, 8, temperature=temperature), likeliest)
    drawn = [
        model.generate(tokens, 8, generator=torch.Generator().manual_seed(3), top_k=top_k)
        for top_k in (None, VOCABULARY, VOCABULARY + 1)
    ]
    assert all(torch.equal(other, drawn[0]) for other in drawn[1:])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"top_k": 0}, "top_k=0 must be at least 1"),
        ({"top_k": -3}, "top_k=-3 must be at least 1"),
        ({"temperature": -0.5}, r"temperature=-0\.5 must be finite and not negative"),
        ({"temperature": math.nan}, "temperature=nan"),
        ({"temperature": math.inf}, "temperature=inf"),
    ],
)
def test_generate_refuses_what_it_cannot_draw_by(arguments, message):
    with pytest.raises(ValueError, match=message):
        LANGUAGE.make("base").generate(make_words(5), 2, **arguments)


def test_generate_refuses_what_it_cannot_continue():
    model = LANGUAGE.make("base")
    with pytest.raises(ValueError, match="at least one token"):
        model.generate(make_words(0), 2)
    with pytest.raises(ValueError, match="num_tokens=-3"):
        model.generate(make_words(5), -3)


def test_generate_says_before_it_starts_how_many_tokens_fit(monkeypatch):
    model = LANGUAGE.make("base", positions="learned", max_length=LENGTH)
    # The last token is never fed back: one more fits than there are positions left.
    assert model.generate(make_words(5), LENGTH - 4).shape == (BATCH, LENGTH + 1)
    monkeypatch.setattr(model, "hidden", lambda *_: pytest.fail("it started"))
    with pytest.raises(ValueError, match=rf"num_tokens=30 after 5 given tokens.* {LENGTH - 4} fit"):
        model.generate(make_words(5), 30)
    with pytest.raises(ValueError, match=r"num_tokens=1 after 20 given tokens.* 0 fit"):
        model.generate(make_words(20), 1)
