"""WikiText-2 loading: where files are looked for, what is checked, what the errors say."""

import re
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import datasets
import huggingface_hub
import pytest

from experiments.wikitext import corpus as corpus_module
from experiments.wikitext.corpus import (
    HUB_REVISION,
    OFFICIAL_COUNTS,
    CorpusMismatchError,
    DatasetNotFoundError,
    SplitCounts,
    load_corpus,
)

TEXTS = {
    "train": " \n = A <unk> = \n \n the cat\u2028sat \n",
    "validation": "the cat\n",
    "test": "cat the\n\n",
}
LINES = {
    "train": [[], ["=", "A", "<unk>", "="], [], ["the", "cat", "sat"]],
    "validation": [["the", "cat"]],
    "test": [["cat", "the"], []],
}
COUNTS = {"train": SplitCounts(4, 7), "validation": SplitCounts(1, 2), "test": SplitCounts(2, 2)}
NAMES = {"train": "train.txt", "validation": "valid.txt", "test": "test.txt"}


def write_files(root: Path, names: dict[str, str]) -> None:
    (root / "wikitext-2").mkdir()
    for split, name in names.items():
        (root / "wikitext-2" / name).write_text(TEXTS[split], encoding="utf-8")


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("the hub was asked")

    monkeypatch.setattr(datasets, "load_dataset", refuse)


@pytest.mark.parametrize(
    "names", [NAMES, {split: f"wiki.{name.removesuffix('.txt')}.tokens" for split, name in NAMES.items()}]
)
@pytest.mark.usefixtures("no_hub")
def test_local_files_are_read_line_by_line(tmp_path: Path, names: dict[str, str]) -> None:
    write_files(tmp_path, names)
    corpus = load_corpus(tmp_path, expected=COUNTS)
    assert corpus.splits == LINES
    assert corpus["test"] == LINES["test"]
    assert corpus.source == "local files"


@pytest.mark.usefixtures("no_hub")
def test_a_partial_folder_names_what_is_missing(tmp_path: Path) -> None:
    write_files(tmp_path, {"train": "train.txt"})
    with pytest.raises(DatasetNotFoundError) as caught:
        load_corpus(tmp_path, expected=COUNTS)
    message = str(caught.value)
    assert "wikitext-2/valid.txt, wikitext-2/test.txt" in message
    assert "train.txt" not in message
    assert "TENSORMEM_DATA" in message


def test_a_mismatch_names_split_file_and_both_numbers(tmp_path: Path) -> None:
    write_files(tmp_path, NAMES)
    wrong = COUNTS | {"validation": SplitCounts(1, 1234)}
    with pytest.raises(CorpusMismatchError, match=r"'validation' \(wikitext-2/valid.txt\)") as caught:
        load_corpus(tmp_path, expected=wrong)
    assert "expected 1 lines and 1,234 words, found 1 lines and 2 words" in str(caught.value)
    with pytest.raises(CorpusMismatchError, match=r"expected 3 lines and 7 words, found 4 lines and 7"):
        load_corpus(tmp_path, expected=COUNTS | {"train": SplitCounts(3, 7)})


def test_the_official_counts_are_the_default(tmp_path: Path) -> None:
    write_files(tmp_path, NAMES)
    with pytest.raises(CorpusMismatchError, match="2,051,910"):
        load_corpus(tmp_path)


@pytest.mark.parametrize("problem", [None, "ConnectError: no route"])
@pytest.mark.parametrize("with_root", [True, False])
def test_an_unreachable_hub_says_what_to_put_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: str | None, with_root: bool
) -> None:
    offline_when_asked = []

    def fail(*args: object, **kwargs: object) -> None:
        offline_when_asked.append(datasets.config.HF_HUB_OFFLINE)
        raise ConnectionError("no way\nto the hub")

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets, "load_dataset", fail)
    monkeypatch.setattr(corpus_module, "_hub_problem", lambda: problem)
    with pytest.raises(DatasetNotFoundError) as caught:
        load_corpus(tmp_path if with_root else None, expected=COUNTS)
    message = str(caught.value)
    assert isinstance(caught.value, FileNotFoundError)
    for needed in ("TENSORMEM_DATA", "data.root=", *(f"wikitext-2/{name}" for name in NAMES.values())):
        assert needed in message
    assert (problem or "ConnectionError: no way to the hub") in message
    assert "\n" not in message
    assert str(tmp_path) not in message
    # Known to be unreachable, the hub must not be tried again and again; the user's setting must survive.
    assert offline_when_asked == [problem is not None]
    assert datasets.config.HF_HUB_OFFLINE is False


@pytest.mark.usefixtures("no_hub")
def test_without_download_the_hub_is_not_asked(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match=r"data.download=false.*TENSORMEM_DATA"):
        load_corpus(tmp_path, download=False, expected=COUNTS)


@pytest.mark.parametrize("problem", [None, "ConnectError: no route"])
def test_hub_rows_are_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: str | None) -> None:
    asked = []

    def load_dataset(*args: object, **kwargs: object) -> dict[str, dict[str, list[str]]]:
        asked.append((args, kwargs))
        # A hub row keeps the line break; a blank line is an empty row.
        rows = {split: [" ".join(words) + "\n" if words else "" for words in LINES[split]] for split in LINES}
        return {split: {"text": text} for split, text in rows.items()}

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(corpus_module, "_hub_problem", lambda: problem)
    corpus = load_corpus(tmp_path, expected=COUNTS)
    assert corpus.splits == LINES
    assert asked == [(("Salesforce/wikitext", "wikitext-2-v1"), {"revision": HUB_REVISION})]
    assert re.fullmatch("[0-9a-f]{40}", HUB_REVISION)
    # The client's cache is not looked up by revision, so it must not be credited with one.
    assert (corpus.source == f"huggingface Salesforce/wikitext@{HUB_REVISION}") == (problem is None)
    assert ("revision not checked" in corpus.source) == (problem is not None)


def test_the_probe_tells_a_hub_that_answers_from_one_that_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    # The client of a machine that is told to be offline would refuse to try at all.
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)  # answers HEAD with "not implemented"
    monkeypatch.setattr(datasets.config, "HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    thread = Thread(target=server.handle_request, daemon=True)
    thread.start()
    try:
        assert corpus_module._hub_problem() is None
        thread.join(timeout=10)
    finally:
        server.server_close()
    problem = corpus_module._hub_problem()  # now nobody listens there
    assert problem is not None
    assert "refused" in problem.lower()


def test_the_real_corpus_has_the_official_counts(data_root: Path) -> None:
    corpus = load_corpus(data_root, download=False)
    found = {split: SplitCounts(len(lines), sum(map(len, lines))) for split, lines in corpus.splits.items()}
    assert found == OFFICIAL_COUNTS
    with_eos = [counts.lines + counts.words for counts in found.values()]
    assert with_eos == [2_088_628, 217_646, 245_569]
