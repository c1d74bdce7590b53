"""The generated language and its floor."""

import math

import numpy as np
import pytest
import torch

from experiments.wikitext.data import LanguageData
from experiments.wikitext.synthetic import MarkovSource
from experiments.wikitext.windows import evaluation_batches


@pytest.mark.parametrize("order", [1, 2, 3])
def test_nats_are_those_of_a_slow_loop(order):
    source = MarkovSource(num_symbols=4, order=order, seed=3)
    tokens = source.sample(50, seed=1)
    expected = []
    for place, symbol in enumerate(tokens.tolist()):
        if place < order:
            expected.append(math.log(4))
            continue
        row = 0
        for earlier in tokens[place - order : place].tolist():
            row = row * 4 + earlier
        expected.append(-math.log(source.probabilities[row, symbol]))
    assert source.nats(tokens).tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("order", [1, 2])
def test_samples_follow_the_rows(order):
    source = MarkovSource(num_symbols=3, order=order, concentration=1.0, seed=5)
    tokens = source.sample(60_000, seed=0).numpy()
    context = sum(tokens[place : len(tokens) - order + place] * 3 ** (order - 1 - place) for place in range(order))
    for row in range(3**order):
        following = tokens[order:][context == row]
        found = np.bincount(following, minlength=3) / len(following)
        # Five standard deviations of a frequency of so many draws.
        assert np.abs(found - source.probabilities[row]).max() < 5 * 0.5 / math.sqrt(len(following))


def test_the_floor_is_near_the_entropy_rate():
    source = MarkovSource(num_symbols=6, concentration=0.5, seed=2)
    rows = source.probabilities
    values, vectors = np.linalg.eig(rows.T)
    stationary = np.real(vectors[:, np.argmax(np.real(values))])
    stationary /= stationary.sum()
    entropy = -(stationary[:, None] * rows * np.log(rows)).sum()
    assert float(source.nats(source.sample(100_000, seed=0)).mean()) == pytest.approx(entropy, abs=0.01)


def test_samples_are_a_function_of_both_seeds():
    source = MarkovSource()
    assert torch.equal(source.sample(100, seed=1), MarkovSource().sample(100, seed=1))
    assert not torch.equal(source.sample(100, seed=1), source.sample(100, seed=2))
    assert not torch.equal(source.sample(100, seed=1), MarkovSource(seed=1).sample(100, seed=1))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_symbols": 1}, "num_symbols=1"),
        ({"order": 0}, "order=0"),
        ({"num_symbols": 100, "order": 4}, "over a million contexts"),
        ({"concentration": 0.0}, "concentration=0.0"),
    ],
)
def test_an_impossible_source_is_named(settings, message):
    with pytest.raises(ValueError, match=message):
        MarkovSource(**settings)


@pytest.mark.parametrize("evaluation", ["full", "paper"])
def test_the_floor_is_over_the_very_targets_of_the_evaluation(evaluation):
    data = LanguageData(
        root=None, corpus="synthetic", vocabulary="symbols", window=20, batch_size=4, evaluation=evaluation
    )
    data.setup()
    source = MarkovSource()
    for split, tokens in (("validation", data.validation_tokens), ("test", data.test_tokens)):
        # Each scored target, found again in the stream by its place.
        places = [
            int(place)
            for _, targets in evaluation_batches(torch.arange(len(tokens)), 20, 4, evaluation)
            for place in targets.flatten()
        ]
        nats = source.nats(tokens)
        assert data.floor[f"{split}_nats"] == pytest.approx(sum(float(nats[p]) for p in places) / len(places))
    assert data.vocab_size == 24


def test_the_symbols_are_written_as_numbers():
    data = LanguageData(root=None, corpus="synthetic", vocabulary="symbols", window=20)
    data.setup()
    symbols = data.vocabulary
    assert symbols.size == data.vocab_size == MarkovSource().num_symbols
    assert symbols.text([0, 11, 7]) == "0 11 7"
    assert symbols.encode([symbols.split(" 0 11\n7")]).tolist() == [0, 11, 7]
    with pytest.raises(ValueError, match=r"'24' is not in vocabulary 'symbols'.*use its 24 symbols"):
        symbols.encode([["24"]])


def test_the_splits_are_different_text():
    data = LanguageData(root=None, corpus="synthetic", vocabulary="symbols", window=20)
    data.setup()
    assert not torch.equal(data.validation_tokens, data.test_tokens)
    assert not torch.equal(data.train_tokens[:1000], data.test_tokens[:1000])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"corpus": "wikitext-3"}, "corpus='wikitext-3' is unknown"),
        ({"corpus": "synthetic"}, "vocabulary='paper_fixed' does not go with corpus=synthetic: use one of symbols"),
        ({"corpus": "shakespeare", "vocabulary": "symbols"}, "use one of characters"),
        ({"markov": {"order": 2}}, "only corpus=synthetic takes it"),
    ],
)
def test_an_impossible_combination_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        LanguageData(root=None, **settings)


def test_a_generated_language_never_stands_in_for_text(tmp_path):
    data = LanguageData(root=tmp_path, download=False)
    with pytest.raises(FileNotFoundError, match="WikiText-2 not found"):
        data.setup()
