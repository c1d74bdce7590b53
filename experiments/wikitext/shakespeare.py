"""Tiny Shakespeare as characters, the authors' second corpus: a local file first, else a download."""

from __future__ import annotations

import hashlib
import urllib.error
import urllib.request
from pathlib import Path

import torch
from torch import Tensor

from experiments.wikitext.corpus import SPLITS, CorpusMismatchError, DatasetNotFoundError

FILE = "shakespeare/input.txt"
ADDRESS = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
NUM_CHARACTERS = 1_115_394
# Training, validation and test follow one another in the text.
FRACTIONS = (0.9, 0.05, 0.05)
DOWNLOAD_SECONDS = 20.0


def load_characters(root: str | Path | None, download: bool = True) -> tuple[dict[str, Tensor], list[str], str]:
    """The splits as ids of characters.

    Args:
        root: data root that holds ``shakespeare/input.txt``; None: no local file.
        download: whether the text may be fetched when there is no local file.

    Returns:
        (N,) int64 ids of each split, the character of each id, and where the text came from.

    Raises:
        DatasetNotFoundError: no local file, and no download.
        CorpusMismatchError: the text is not the one that is meant.
    """
    path = None if root is None else Path(root) / FILE
    if path is not None and path.is_file():
        raw, source = path.read_bytes(), "local file"
    elif download:
        raw, source = _download(), "download"
    else:
        raise DatasetNotFoundError(_where_to_put_it("download is off (data.download=false)"))
    found = hashlib.sha256(raw).hexdigest()
    if found != SHA256:
        raise CorpusMismatchError(
            f"{FILE} has {len(raw):,} bytes and SHA-256 {found}; tiny Shakespeare has {NUM_CHARACTERS:,} and {SHA256}"
        )
    text = raw.decode("ascii")
    alphabet = sorted(set(text))
    index = {character: index for index, character in enumerate(alphabet)}
    ids = torch.tensor([index[character] for character in text])
    first, second = round(FRACTIONS[0] * len(ids)), round((FRACTIONS[0] + FRACTIONS[1]) * len(ids))
    parts = ids[:first], ids[first:second], ids[second:]
    return dict(zip(SPLITS, parts, strict=True)), alphabet, source


def _download() -> bytes:
    try:
        with urllib.request.urlopen(ADDRESS, timeout=DOWNLOAD_SECONDS) as response:
            return bytes(response.read())
    except (urllib.error.URLError, TimeoutError) as error:
        raise DatasetNotFoundError(_where_to_put_it(f"the download failed ({error})")) from error


def _where_to_put_it(reason: str) -> str:
    return (
        f"tiny Shakespeare not found: {reason}. Set the data root (environment variable TENSORMEM_DATA, or "
        f"data.root=...) to a folder that holds {FILE}."
    )
