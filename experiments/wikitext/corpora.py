"""The corpora as token ids: WikiText-2, tiny Shakespeare, or a generated language of known entropy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from experiments.wikitext.corpus import OFFICIAL_COUNTS, SplitCounts, load_corpus
from experiments.wikitext.shakespeare import load_characters
from experiments.wikitext.synthetic import MarkovSource
from experiments.wikitext.vocabulary import KINDS, Vocabulary

# The vocabularies that each corpus can be read with.
VOCABULARIES: dict[str, tuple[str, ...]] = {
    "wikitext-2": KINDS,
    "shakespeare": ("characters",),
    "synthetic": ("symbols",),
}
_SYNTHETIC_TOKENS = {"train": 200_000, "validation": 10_000, "test": 20_000}


@dataclass(frozen=True)
class TokenCorpus:
    """A corpus ready for training.

    Attributes:
        tokens: (N,) int64 ids of ``train``, ``validation`` and ``test``.
        vocabulary: what the ids stand for: words, characters or numbered symbols.
        origin: where it came from, without a path.
        source: the true source, for a generated corpus.
    """

    tokens: dict[str, Tensor]
    vocabulary: Vocabulary
    origin: str
    source: MarkovSource | None = None


def check_choice(corpus: str, vocabulary: str, markov: Mapping[str, Any] | None) -> None:
    """Raise ValueError for a corpus that does not exist, or a combination that can't be."""
    if corpus not in VOCABULARIES:
        raise ValueError(f"corpus={corpus!r} is unknown: use one of {', '.join(VOCABULARIES)}")
    if vocabulary not in VOCABULARIES[corpus]:
        raise ValueError(
            f"vocabulary={vocabulary!r} does not go with corpus={corpus}: use one of {', '.join(VOCABULARIES[corpus])}"
        )
    if markov and corpus != "synthetic":
        raise ValueError(f"markov={dict(markov)} does not go with corpus={corpus}: only corpus=synthetic takes it")


def load_tokens(
    corpus: str,
    vocabulary: str,
    root: str | Path | None,
    download: bool = True,
    markov: Mapping[str, Any] | None = None,
    expected_counts: Mapping[str, SplitCounts] = OFFICIAL_COUNTS,
) -> TokenCorpus:
    """Load, check and encode a corpus.

    Args:
        corpus: a key of VOCABULARIES. Text that is not there is an error: a generated corpus never takes its place.
        vocabulary: one that goes with it.
        root: data root, for the two real ones; None: no local files.
        download: whether a real one may be fetched.
        markov: arguments of MarkovSource, for the generated one.
        expected_counts: lines and words of WikiText-2's splits.

    Raises:
        DatasetNotFoundError, CorpusMismatchError: a real corpus is not there, or is another one.
    """
    if corpus == "synthetic":
        source = MarkovSource(**(markov or {}))
        tokens = {
            split: source.sample(count, seed=number) for number, (split, count) in enumerate(_SYNTHETIC_TOKENS.items())
        }
        symbols = Vocabulary.of_names("symbols", [str(symbol) for symbol in range(source.num_symbols)])
        return TokenCorpus(tokens, symbols, "generated", source)
    if corpus == "shakespeare":
        tokens, alphabet, origin = load_characters(root, download)
        return TokenCorpus(tokens, Vocabulary.of_names("characters", alphabet, separator=""), origin)
    text = load_corpus(root, download, expected_counts)
    words = Vocabulary.build(vocabulary, text)
    tokens = {split: words.encode(lines) for split, lines in text.splits.items()}
    return TokenCorpus(tokens, words, text.source)
