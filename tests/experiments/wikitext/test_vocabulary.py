"""The three vocabularies: the published bug reproduced, and the two honest ones."""

from pathlib import Path

import pytest
import torch

from experiments.wikitext.corpus import Corpus, load_corpus
from experiments.wikitext.vocabulary import Vocabulary

# Ranks: the (4), <unk> (3), and (3, later), cat (2), dog (2, later), mat (1).
TRAIN = [["the", "<unk>", "and"], [], ["the", "<unk>", "and", "cat"], ["the", "<unk>", "and", "cat", "dog"]]
TRAIN += [["the", "dog", "mat"]]
TOY = Corpus({"train": TRAIN, "validation": [["the", "mat"]], "test": [["dog", "and"]]}, "toy")


@pytest.fixture(scope="module")
def real(data_root: Path) -> Corpus:
    return load_corpus(data_root, download=False)


def test_paper_gives_unk_and_the_next_word_one_id() -> None:
    vocabulary = Vocabulary.build("paper", TOY, limit=6)  # 5 words: all but mat
    assert vocabulary.ids == {"the": 1, "<unk>": 2, "and": 2, "cat": 3, "dog": 4}
    assert vocabulary.size == 5
    assert vocabulary.words == ("<out-of-vocabulary>", "the", "<unk> | and", "cat", "dog")
    encoded = vocabulary.encode([["<unk>", "and", "mat"], [], ["dog"]])
    assert encoded.tolist() == [2, 2, 0, 4]  # mat, out of vocabulary, does not get <unk>'s id
    assert not vocabulary.appends_eos


def test_paper_has_room_for_its_last_id_where_unk_is_the_last_word() -> None:
    vocabulary = Vocabulary.build("paper", TOY, limit=3)
    assert vocabulary.ids == {"the": 1, "<unk>": 2}
    assert vocabulary.size == 3


def test_paper_fixed_keeps_unk_apart_and_sends_the_rest_to_it() -> None:
    vocabulary = Vocabulary.build("paper_fixed", TOY, limit=5)
    assert vocabulary.words == ("the", "<unk>", "and", "cat", "dog")
    assert vocabulary.encode([["and", "mat"], ["never seen"]]).tolist() == [2, 1, 1]
    assert not vocabulary.appends_eos


def test_standard_has_every_word_and_ends_every_line() -> None:
    vocabulary = Vocabulary.build("standard", TOY)
    assert set(vocabulary.words) == {"the", "<unk>", "and", "cat", "dog", "mat", "<eos>"}
    encoded = vocabulary.encode([["the", "mat"], [], ["dog"]])
    assert encoded.dtype == torch.int64
    assert [vocabulary.word(int(i)) for i in encoded] == ["the", "mat", "<eos>", "<eos>", "dog", "<eos>"]
    with pytest.raises(ValueError, match=r"'horse' is not in vocabulary 'standard'"):
        vocabulary.encode([["the", "horse"]])


def test_standard_names_a_word_that_training_lacks() -> None:
    corpus = Corpus(TOY.splits | {"test": [["the", "horse"]]}, "toy")
    with pytest.raises(ValueError, match=r"'horse' of split 'test'"):
        Vocabulary.build("standard", corpus)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"'papper' is unknown: use one of paper, paper_fixed, standard"):
        Vocabulary.build("papper", TOY)
    with pytest.raises(ValueError, match="limit=1"):
        Vocabulary.build("paper", TOY, limit=1)
    raw = Corpus({"train": [["a", "b"]], "validation": [], "test": []}, "raw")
    for kind in ("paper", "paper_fixed"):
        with pytest.raises(ValueError, match=f"vocabulary={kind} needs '<unk>'"):
            Vocabulary.build(kind, raw)
    doubled = Corpus({"train": [["a", "<eos>"]], "validation": [], "test": []}, "doubled")
    with pytest.raises(ValueError, match="already contains '<eos>'"):
        Vocabulary.build("standard", doubled)
    vocabulary = Vocabulary.build("standard", TOY)
    for index in (-1, vocabulary.size):
        with pytest.raises(IndexError, match=f"token id {index} "):
            vocabulary.word(index)


def test_real_paper_vocabulary_has_the_published_bug(real: Corpus) -> None:
    vocabulary = Vocabulary.build("paper", real)
    assert vocabulary.size == 29_999
    shared = vocabulary.ids["<unk>"]
    assert vocabulary.ids["and"] == shared == 5
    assert vocabulary.word(shared) == "<unk> | and"
    assert sorted(set(vocabulary.ids.values())) == list(range(1, 29_999))
    test = vocabulary.encode(real["test"])
    assert len(test) == 241_211
    words = [word for line in real["test"] for word in line]
    unknown, conjunction = words.count("<unk>"), words.count("and")
    assert (round(100 * unknown / len(words), 1), round(100 * conjunction / len(words), 1)) == (6.3, 2.4)
    assert int((test == shared).sum()) == unknown + conjunction
    assert int((test == 0).sum()) == sum(word not in vocabulary.ids for word in words) > 0


def test_real_paper_fixed_vocabulary(real: Corpus) -> None:
    vocabulary = Vocabulary.build("paper_fixed", real)
    assert vocabulary.size == len(set(vocabulary.words)) == 30_000
    assert vocabulary.ids["<unk>"] != vocabulary.ids["and"]
    test = vocabulary.encode(real["test"])
    assert len(test) == 241_211
    words = [word for line in real["test"] for word in line]
    rare = sum(word not in vocabulary.ids for word in words)
    assert int((test == vocabulary.ids["<unk>"]).sum()) == words.count("<unk>") + rare
    assert rare > 0


def test_real_standard_vocabulary(real: Corpus) -> None:
    vocabulary = Vocabulary.build("standard", real)
    assert vocabulary.size == 33_278
    lengths = {split: len(vocabulary.encode(lines)) for split, lines in real.splits.items()}
    assert lengths == {"train": 2_088_628, "validation": 217_646, "test": 245_569}
    ends = (vocabulary.encode(real["test"]) == vocabulary.ids["<eos>"]).sum()
    assert int(ends) == 4_358
