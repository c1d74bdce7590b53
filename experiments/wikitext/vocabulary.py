"""What the ids of a corpus stand for; WikiText-2 has three: ``paper`` (with its bug), ``paper_fixed``, ``standard``."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from experiments.wikitext.corpus import SPLITS, Corpus, Lines

KINDS = ("paper", "paper_fixed", "standard")
UNKNOWN = "<unk>"
END_OF_LINE = "<eos>"
OUT_OF_VOCABULARY = "<out-of-vocabulary>"
DEFAULT_LIMIT = 30_000


@dataclass(frozen=True)
class Vocabulary:
    """A map from words to ids, and the names of the ids.

    Attributes:
        kind: ``paper``, ``paper_fixed`` or ``standard`` (see `Vocabulary.build`), or that of `Vocabulary.of_names`.
        words: name of each id; two words that share an id are joined by `` | ``.
        appends_eos: whether `encode` ends each line with ``<eos>``.
        unknown_id: id of a word that is not in ``ids``; None: such a word is an error.
        ids: id of each known word.
        separator: what stands between two words of a text.
    """

    kind: str
    words: tuple[str, ...]
    appends_eos: bool
    unknown_id: int | None
    ids: Mapping[str, int] = field(repr=False, compare=False)
    separator: str = " "

    @property
    def size(self) -> int:
        """Number of ids, which is the number of embedding rows."""
        return len(self.words)

    def word(self, index: int) -> str:
        """Name of id ``index``; raises IndexError outside ``0 .. size - 1``."""
        if not 0 <= index < self.size:
            raise IndexError(f"token id {index} is not in 0..{self.size - 1} of vocabulary '{self.kind}'")
        return self.words[index]

    def split(self, text: str) -> list[str]:
        """The words of a text, known or not: between white space, or single characters."""
        return text.split() if self.separator else list(text)

    def text(self, indices: Iterable[int]) -> str:
        """The names of ids as one text."""
        return self.separator.join(self.word(index) for index in indices)

    @classmethod
    def of_names(cls, kind: str, names: Sequence[str], separator: str = " ") -> "Vocabulary":
        """A closed vocabulary (another word is an error): id k is that of ``names[k]``."""
        ids = {name: index for index, name in enumerate(names)}
        return cls(kind, tuple(names), appends_eos=False, unknown_id=None, ids=ids, separator=separator)

    @classmethod
    def build(cls, kind: str, corpus: Corpus, limit: int = DEFAULT_LIMIT) -> "Vocabulary":
        """Vocabulary of the training split; words of equal count are ranked by first appearance.

        - ``paper``: what the published tokenizer really does. It reserves id 0 for ``<unk>``, then gives each
          of the ``limit - 1`` commonest words the present size of its table as id. But ``<unk>`` is itself
          one of the commonest words of the text: giving it an id overwrites the reserved entry, the table
          does not grow, and the next word (``and``) gets the same id. So ``<unk>`` and ``and`` can't be told
          apart, which makes them cheaper to predict; and the words beyond the limit still go to id 0, away
          from ``<unk>``. 29,999 ids on the official corpus.
        - ``paper_fixed``: the ``limit`` commonest words, ``<unk>`` being one with an id of its own, to which
          every other word is mapped. 30,000 ids.
        - ``standard``: every training word, and ``<eos>`` at the end of each line, as the literature reports
          perplexity. A validation or test word unknown to training is an error. 33,278 ids.

        Args:
            kind: one of the above.
            corpus: the text; all but ``standard`` look at its training split only.
            limit: vocabulary limit of the paper; ``standard`` has none.

        Raises:
            ValueError: unknown kind; limit below 2; ``<unk>`` missing (``paper``, ``paper_fixed``); ``<eos>``
                already in the text, or a word of validation or test that training lacks (``standard``).
        """
        builders = {"paper": _paper, "paper_fixed": _paper_fixed, "standard": _standard}
        if kind not in builders:
            raise ValueError(f"vocabulary={kind!r} is unknown: use one of {', '.join(KINDS)}")
        if limit < 2:
            raise ValueError(f"limit={limit} leaves no room for words: use at least 2")
        return builders[kind](corpus, limit)

    def encode(self, lines: Lines) -> Int64[Tensor, " N"]:
        """Ids of all words of ``lines`` in order, ``N`` of them, with one ``<eos>`` a line if `appends_eos`.

        Raises:
            ValueError: a word that is not in the vocabulary, where that has no id for such words.
        """
        words: Iterable[str] = chain.from_iterable(
            chain(line, (END_OF_LINE,)) if self.appends_eos else line for line in lines
        )
        ids, unknown_id = self.ids, self.unknown_id
        if unknown_id is None:
            indices: Iterable[int] = map(self._known_id, words)
        else:
            indices = (ids.get(word, unknown_id) for word in words)
        return torch.from_numpy(np.fromiter(indices, dtype=np.int64))

    def _known_id(self, word: str) -> int:
        try:
            return self.ids[word]
        except KeyError:
            fix = (
                "vocabulary=paper_fixed, or the official files"
                if self.kind in KINDS
                else f"its {self.size} {self.kind}"
            )
            raise ValueError(
                f"word {word!r} is not in vocabulary '{self.kind}', which has no id for unknown words: use {fix}"
            ) from None


def _count_words(lines: Lines) -> Counter[str]:
    return Counter(chain.from_iterable(lines))


def _commonest(kind: str, corpus: Corpus, number: int) -> tuple[str, ...]:
    words = tuple(word for word, _ in _count_words(corpus["train"]).most_common(number))
    if UNKNOWN not in words:
        raise ValueError(
            f"vocabulary={kind} needs {UNKNOWN!r} among the {number:,} commonest training words: "
            "use the word-level WikiText-2, not the raw variant"
        )
    return words


def _paper(corpus: Corpus, limit: int) -> Vocabulary:
    commonest = _commonest("paper", corpus, limit - 1)
    ids = {UNKNOWN: 0}
    for word in commonest:
        ids[word] = len(ids)  # the bug, kept on purpose: see Vocabulary.build
    names: list[list[str]] = [[] for _ in range(max(ids.values()) + 1)]
    for word, index in ids.items():
        names[index].append(word)
    words = tuple(" | ".join(shared) if shared else OUT_OF_VOCABULARY for shared in names)
    return Vocabulary("paper", words, appends_eos=False, unknown_id=0, ids=ids)


def _paper_fixed(corpus: Corpus, limit: int) -> Vocabulary:
    words = _commonest("paper_fixed", corpus, limit)
    ids = {word: index for index, word in enumerate(words)}
    return Vocabulary("paper_fixed", words, appends_eos=False, unknown_id=ids[UNKNOWN], ids=ids)


def _standard(corpus: Corpus, limit: int) -> Vocabulary:
    counts = _count_words(corpus["train"])
    if END_OF_LINE in counts:
        raise ValueError(f"the text already contains {END_OF_LINE!r}: give the files without end-of-line tokens")
    counts[END_OF_LINE] = len(corpus["train"])
    words = tuple(word for word, _ in counts.most_common())
    ids = {word: index for index, word in enumerate(words)}
    for split in SPLITS:
        for word in chain.from_iterable(corpus[split]):
            if word not in ids:
                raise ValueError(
                    f"vocabulary=standard: word {word!r} of split '{split}' does not occur in training; "
                    "use vocabulary=paper_fixed, or the official files"
                )
    return Vocabulary("standard", words, appends_eos=True, unknown_id=None, ids=ids)
