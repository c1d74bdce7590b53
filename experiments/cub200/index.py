"""The lists of CUB-200-2011: which images there are, of what class, in which official split.

Only the standard library is imported here: the download script checks with it what it has unpacked.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

FOLDER = "CUB_200_2011"
IMAGES, LABELS, SPLIT, CLASSES = LISTS = (
    "images.txt",
    "image_class_labels.txt",
    "train_test_split.txt",
    "classes.txt",
)

# How many of the things that are wrong an error names.
_NAMED = 5


class Counts(NamedTuple):
    """Images of the two official splits."""

    train: int
    test: int


OFFICIAL_COUNTS = Counts(train=5_994, test=5_794)


class CubNotFoundError(FileNotFoundError):
    """CUB-200-2011, or one of its lists, is not under the data root."""


class CubMismatchError(ValueError):
    """The lists of CUB-200-2011 disagree with one another, with the files or with the official counts."""


class CubImage(NamedTuple):
    """An image of the lists.

    Attributes:
        id: its official number, from 1.
        path: file, relative to the folder ``images/``, with forward slashes.
        class_id: number of its class, from 1.
        is_train: whether the official split trains on it.
    """

    id: int
    path: str
    class_id: int
    is_train: bool


@dataclass(frozen=True)
class CubIndex:
    """A whole CUB-200-2011, or a part whose lists agree.

    Attributes:
        folder: the folder ``CUB_200_2011/``.
        images: by ascending id.
        classes: names of the classes by their ids.
        official: counts of the whole.
    """

    folder: Path
    images: tuple[CubImage, ...]
    classes: Mapping[int, str]
    official: Counts = OFFICIAL_COUNTS

    @property
    def train(self) -> tuple[CubImage, ...]:
        """The images that the official split trains on, by ascending id."""
        return tuple(image for image in self.images if image.is_train)

    @property
    def test(self) -> tuple[CubImage, ...]:
        """The images of the official test split, by ascending id."""
        return tuple(image for image in self.images if not image.is_train)

    def file(self, image: CubImage) -> Path:
        """Where the image lies."""
        return self.folder / "images" / image.path

    def describe(self) -> str:
        """How much of the official data set this is, without a path."""
        found, whole = len(self.images), sum(self.official)
        return f"all {whole:,} images" if found == whole else f"{found:,} of {whole:,} images: a part"


def read_index(root: str | Path | None, official: Counts = OFFICIAL_COUNTS) -> CubIndex:
    """Read and check the lists under a data root.

    Args:
        root: data root that holds ``CUB_200_2011/`` in the official layout; None: there is none.
        official: counts of the whole data set; tests with toy images pass their own.

    Raises:
        CubNotFoundError: the folder or one of its lists is not there.
        CubMismatchError: a malformed line, an id that is twice in a list or missing in one, an unknown class, an
            image that is not there or lies in another class's folder, or a split larger than the official one.
    """
    if root is None or not (Path(root) / FOLDER).is_dir():
        raise CubNotFoundError(f"CUB-200-2011 not found: {_where_to_put_it(root)}")
    folder = Path(root) / FOLDER
    missing = [name for name in (*LISTS, "images") if not (folder / name).exists()]
    if missing:
        raise CubNotFoundError(f"{FOLDER} is incomplete, without {', '.join(missing)}: {_where_to_put_it(root)}")

    classes = _read_list(folder, CLASSES)
    paths = _read_list(folder, IMAGES)
    labels = {id_: _number(value, LABELS, id_) for id_, value in _read_list(folder, LABELS).items()}
    split = {id_: _number(value, SPLIT, id_) for id_, value in _read_list(folder, SPLIT).items()}
    if not paths:
        raise CubMismatchError(f"{FOLDER}/{IMAGES} is empty; {_FIX}.")
    for name, ids in ((LABELS, labels.keys()), (SPLIT, split.keys())):
        _check_same_ids(name, ids, paths.keys())
    _check_labels(paths, labels, classes)
    for id_, flag in split.items():
        if flag not in (0, 1):
            raise CubMismatchError(f"{FOLDER}/{SPLIT}: image {id_} has {flag}, must be 1 (train) or 0 (test); {_FIX}.")
    _check_files(folder / "images", paths.values())

    images = tuple(CubImage(id_, paths[id_], labels[id_], split[id_] == 1) for id_ in sorted(paths))
    index = CubIndex(folder, images, classes, official)
    found = Counts(train=len(index.train), test=len(index.test))
    if found.train > official.train or found.test > official.test:
        raise CubMismatchError(
            f"{FOLDER}/{SPLIT}: {found.train:,} images to train and {found.test:,} to test, more than the official "
            f"{official.train:,} and {official.test:,}; {_FIX}."
        )
    return index


_FIX = f"correct the lists, or remove the folder {FOLDER} and run `make data-cub200`"


def _where_to_put_it(root: str | Path | None) -> str:
    place = "no data root is set" if root is None else f"looked for the folder {FOLDER}/ in {root}"
    return (
        f"{place}. Set the data root (environment variable TENSORMEM_DATA, or data.root=...) to the folder that holds "
        f"{FOLDER}/, or run `make data-cub200`, which downloads it there if no such folder is in its way."
    )


def _read_list(folder: Path, name: str) -> dict[int, str]:
    """What a list says of each id."""
    entries: dict[int, str] = {}
    for number, line in enumerate((folder / name).read_text(encoding="utf-8").splitlines(), start=1):
        fields = line.split()
        if not fields:
            continue
        if len(fields) != 2 or not fields[0].isdecimal():
            raise CubMismatchError(f"{FOLDER}/{name}, line {number}: {line!r} is not '<id> <value>'; {_FIX}.")
        id_ = int(fields[0])
        if id_ in entries:
            raise CubMismatchError(f"{FOLDER}/{name}, line {number}: id {id_} is there twice; {_FIX}.")
        entries[id_] = fields[1]
    return entries


def _number(value: str, name: str, id_: int) -> int:
    if not value.isdecimal():
        raise CubMismatchError(f"{FOLDER}/{name}: image {id_} has {value!r}, which is no number; {_FIX}.")
    return int(value)


def _check_same_ids(name: str, ids: Iterable[int], expected: Iterable[int]) -> None:
    ids, expected = set(ids), set(expected)
    for wrong, words in ((expected - ids, f"are in {IMAGES} only"), (ids - expected, f"are not in {IMAGES}")):
        if wrong:
            raise CubMismatchError(f"{FOLDER}/{name}: {_some(sorted(wrong), 'ids')} {words}; {_FIX}.")


def _check_labels(paths: Mapping[int, str], labels: Mapping[int, int], classes: Mapping[int, str]) -> None:
    for id_, path in paths.items():
        if labels[id_] not in classes:
            raise CubMismatchError(
                f"{FOLDER}/{LABELS}: image {id_} is of class {labels[id_]}, which {CLASSES} does not know; {_FIX}."
            )
        # A list that slipped by a line has the right ids all the same; the folder's name gives it away.
        directory, _, file = path.rpartition("/")
        if directory != classes[labels[id_]] or not file:
            raise CubMismatchError(
                f"{FOLDER}/{IMAGES}: image {id_} is {path}, but its class {labels[id_]} is "
                f"{classes[labels[id_]]}; {_FIX}."
            )


def _check_files(folder: Path, paths: Iterable[str]) -> None:
    paths = list(paths)
    # A look at each folder: asking for every file takes seconds on a network drive.
    present: set[str] = set()
    for directory in {path.rpartition("/")[0] for path in paths}:
        if (folder / directory).is_dir():
            present.update(f"{directory}/{entry.name}" for entry in os.scandir(folder / directory) if entry.is_file())
    missing = [path for path in paths if path not in present]
    if missing:
        raise CubMismatchError(f"{FOLDER}/images: {_some(missing, 'listed images')} are not there; {_FIX}.")
    twice = {path for path in paths if paths.count(path) > 1} if len(set(paths)) < len(paths) else set()
    if twice:
        raise CubMismatchError(f"{FOLDER}/{IMAGES}: {_some(sorted(twice), 'images')} have two ids; {_FIX}.")


def _some(wrong: list[int] | list[str], noun: str) -> str:
    """The number of things and the first of them."""
    named = ", ".join(map(str, wrong[:_NAMED]))
    return f"{len(wrong):,} {noun} ({named}{', ...' if len(wrong) > _NAMED else ''})"
