"""Tiny Shakespeare as characters."""

import urllib.error

import pytest
import torch

from experiments.wikitext import shakespeare
from experiments.wikitext.corpus import CorpusMismatchError, DatasetNotFoundError
from experiments.wikitext.data import LanguageData
from experiments.wikitext.shakespeare import NUM_CHARACTERS, load_characters


def test_the_real_text(data_root):
    splits, alphabet, origin = load_characters(data_root, download=False)
    assert len(alphabet) == 65
    assert [len(splits[split]) for split in ("train", "validation", "test")] == [1_003_855, 55_769, 55_770]
    assert sum(map(len, splits.values())) == NUM_CHARACTERS
    text = (data_root / "shakespeare" / "input.txt").read_text()
    assert "".join(alphabet[index] for index in splits["train"][:14]) == "First Citizen:"
    assert "".join(alphabet[index] for index in splits["test"][-20:]) == text[-20:]
    assert origin == "local file"


def test_as_a_data_module(data_root):
    data = LanguageData(root=data_root, corpus="shakespeare", vocabulary="characters", window=64, download=False)
    data.setup()
    assert data.vocab_size == 65
    assert data.floor is None
    inputs, targets = next(iter(data.train_dataloader()))
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    start = "First Citizen:\nBefore we"
    ids = data.vocabulary.encode([data.vocabulary.split(start)])
    assert torch.equal(ids, data.train_tokens[: len(start)])
    assert data.vocabulary.text(ids.tolist()) == start


def test_another_text_is_refused(tmp_path):
    (tmp_path / "shakespeare").mkdir()
    (tmp_path / "shakespeare" / "input.txt").write_text("To be, or not to be")
    with pytest.raises(CorpusMismatchError, match=r"has 19 bytes.*1,115,394"):
        load_characters(tmp_path)


def test_without_text_and_download_it_says_what_to_put_where(tmp_path, monkeypatch):
    with pytest.raises(DatasetNotFoundError, match=r"download=false.*TENSORMEM_DATA.*shakespeare/input\.txt"):
        load_characters(tmp_path, download=False)

    def unreachable(*args, **kwargs):
        raise urllib.error.URLError("no route")

    monkeypatch.setattr(shakespeare.urllib.request, "urlopen", unreachable)
    with pytest.raises(DatasetNotFoundError, match=r"no route.*shakespeare/input\.txt"):
        load_characters(tmp_path)
