"""The lists of UCF-101, or of any data set in its layout: which clips there are, of what class, in which split.

Only the standard library is imported here: the download script checks with it what it has unpacked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

LISTS, CLASSES = "ucfTrainTestlist", "classInd.txt"
# Where the clips' folders are: in this one where it is there, else beside the lists.
CLIPS = "UCF-101"
# Looked into where the data root itself has no lists.
FOLDER = "UCF101"
SPLITS = (1, 2, 3)
MISSING = ("error", "drop")

# How many of the things that are wrong an error names.
_NAMED = 5
_GROUP = re.compile(r"_g(\d+)_c\d+\.\w+$")


class UcfNotFoundError(FileNotFoundError):
    """UCF-101, one of its lists, or a listed clip is not under the data root."""


class UcfMismatchError(ValueError):
    """The lists disagree with one another or with the layout."""


class Clip(NamedTuple):
    """A clip of the lists.

    Attributes:
        id: its place, from 0, among all clips that the split's two lists name, by path.
        path: file, relative to the folder of the clips, with forward slashes.
        label: its class, from 0: one less than the number in the list of classes.
        group: the recording it was cut from, the XX of its name's gXX.
    """

    id: int
    path: str
    label: int
    group: int


@dataclass(frozen=True)
class UcfIndex:
    """One official split of the data set.

    Attributes:
        folder: holds the classes' folders.
        classes: names of the classes by their labels.
        train: clips that the official split trains on, by id.
        test: clips of the official test split, by id.
        num_listed: clips of both lists, those that are not there among them.
    """

    folder: Path
    classes: tuple[str, ...]
    train: tuple[Clip, ...]
    test: tuple[Clip, ...]
    num_listed: int

    def file(self, clip: Clip) -> Path:
        """Where the clip lies."""
        return self.folder / clip.path

    def describe(self) -> str:
        """How much of what is listed is there, without a path."""
        found = len(self.train) + len(self.test)
        classes = f"{len(self.classes)} classes"
        if found == self.num_listed:
            return f"all {found:,} clips of {classes}"
        return f"{found:,} of {self.num_listed:,} clips of {classes}: a part"


def read_index(root: str | Path | None, folder: str | None = None, split: int = 1, missing: str = "error") -> UcfIndex:
    """Read and check the lists of one split, whatever their line ends.

    Args:
        root: data root; None: there is none.
        folder: the data set's folder under it; None: the root itself where it holds ``ucfTrainTestlist/``, else
            its ``UCF101/``.
        split: number of the official split, 1 to 3.
        missing: what is done about listed clips that are not there: ``error``, or ``drop`` them, which
            `UcfIndex.describe` then says.

    Raises:
        ValueError: an unknown split or ``missing``.
        UcfNotFoundError: no such folder, no such list, a listed clip that is not there, or none that is.
        UcfMismatchError: a malformed line, an unknown class, a clip that is listed twice, under another class's
            number or in both lists, or a recording of which one clip trains and another tests.
    """
    if split not in SPLITS:
        raise ValueError(f"split={split}: must be one of {', '.join(map(str, SPLITS))}")
    if missing not in MISSING:
        raise ValueError(f"missing={missing!r} is unknown: use one of {', '.join(MISSING)}")
    home = find_folder(root, folder)
    names = f"trainlist{split:02d}.txt", f"testlist{split:02d}.txt"
    absent = [name for name in (CLASSES, *names) if not (home / LISTS / name).is_file()]
    if absent:
        raise UcfNotFoundError(f"{home / LISTS} is incomplete, without {', '.join(absent)}; {_FIX}.")
    classes = _read_classes(home / LISTS / CLASSES)
    train, test = (_read_clips(home / LISTS / name, classes) for name in names)
    listed = sorted(train | test)
    _check_apart(train, test, names)

    clips = home / CLIPS if (home / CLIPS).is_dir() else home
    there = _present(clips, listed)
    if not there or (missing == "error" and len(there) < len(listed)):
        lost = [path for path in listed if path not in there]
        hint = " To go on with the others, set data.missing=drop." if there else ""
        raise UcfNotFoundError(
            f"{clips}: {_some(lost, 'listed clips')} are not there; put them there, or {_FIX}.{hint}"
        )
    numbered = [(path, Clip(number, path, *(train | test)[path])) for number, path in enumerate(listed)]
    chosen = [tuple(clip for path, clip in numbered if path in part and path in there) for part in (train, test)]
    return UcfIndex(clips, tuple(classes), chosen[0], chosen[1], len(listed))


def read_classes(root: str | Path | None, folder: str | None = None) -> tuple[str, ...]:
    """The names of the classes by their labels; arguments and errors as `read_index`."""
    file = find_folder(root, folder) / LISTS / CLASSES
    if not file.is_file():
        raise UcfNotFoundError(f"{file} is not there; {_FIX}.")
    return tuple(_read_classes(file))


def find_folder(root: str | Path | None, folder: str | None = None) -> Path:
    """The folder that holds ``ucfTrainTestlist/``; arguments and errors as `read_index`."""
    if root is not None:
        for home in [Path(root) / folder] if folder is not None else [Path(root), Path(root) / FOLDER]:
            if (home / LISTS).is_dir():
                return home
    place = "no data root is set" if root is None else f"looked for {LISTS}/ in {Path(root) / (folder or '')}"
    if root is not None and folder is None:
        place += f" and in its {FOLDER}/"
    raise UcfNotFoundError(
        f"UCF-101 not found: {place}. Set the data root (environment variable TENSORMEM_DATA, or data.root=...) to the "
        f"folder that holds {CLIPS}/ and {LISTS}/, name another folder under it with data.folder=..., or run "
        "`make data-ucf101`, which downloads it there."
    )


_FIX = "correct the lists, or get the official files with `make data-ucf101`"


def _read_classes(file: Path) -> list[str]:
    """The names of the classes, by their numbers from 1."""
    names: dict[int, str] = {}
    for number, fields in _lines(file):
        if len(fields) != 2 or not fields[0].isdecimal():
            raise UcfMismatchError(f"{file}, line {number}: {' '.join(fields)!r} is not '<number> <class>'; {_FIX}.")
        if int(fields[0]) in names or fields[1] in names.values():
            raise UcfMismatchError(f"{file}, line {number}: {' '.join(fields)!r} is there twice; {_FIX}.")
        names[int(fields[0])] = fields[1]
    if not names or sorted(names) != list(range(1, len(names) + 1)):
        raise UcfMismatchError(f"{file}: the classes must be numbered 1, 2, 3, ... without a gap; {_FIX}.")
    return [names[number] for number in sorted(names)]


def _read_clips(file: Path, classes: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Label and group of each clip of a list, by its path."""
    labels = {name: label for label, name in enumerate(classes)}
    clips: dict[str, tuple[int, int]] = {}
    for number, fields in _lines(file):
        path = fields[0]
        name, _, stem = path.partition("/")
        group = _GROUP.search(stem)
        if len(fields) > 2 or "/" in stem or group is None or (len(fields) == 2 and not fields[1].isdecimal()):
            raise UcfMismatchError(
                f"{file}, line {number}: {' '.join(fields)!r} is not '<class>/v_<name>_gXX_cYY.avi [<class number>]'; "
                f"{_FIX}."
            )
        if name not in labels:
            raise UcfMismatchError(f"{file}, line {number}: {CLASSES} does not know the class of {path}; {_FIX}.")
        if len(fields) == 2 and int(fields[1]) != labels[name] + 1:
            raise UcfMismatchError(
                f"{file}, line {number}: {path} has class number {fields[1]}, but {CLASSES} gives {name} the number "
                f"{labels[name] + 1}; {_FIX}."
            )
        if path in clips:
            raise UcfMismatchError(f"{file}, line {number}: {path} is there twice; {_FIX}.")
        clips[path] = labels[name], int(group[1])
    if not clips:
        raise UcfMismatchError(f"{file} names no clip; {_FIX}.")
    return clips


def _lines(file: Path) -> Iterable[tuple[int, list[str]]]:
    """Number and fields of each line that is not blank."""
    # Universal newlines; a mark at the start is what some editors leave.
    for number, line in enumerate(file.read_text(encoding="utf-8-sig").splitlines(), start=1):
        if line.split():
            yield number, line.split()


def _check_apart(
    train: Mapping[str, tuple[int, int]], test: Mapping[str, tuple[int, int]], names: tuple[str, str]
) -> None:
    """No clip in both lists, nor two clips of one recording."""
    both = sorted(train.keys() & test.keys())
    if both:
        raise UcfMismatchError(f"{_some(both, 'clips')} are in {names[0]} and in {names[1]}; {_FIX}.")
    recordings = set(train.values())
    shared = sorted(path for path, recording in test.items() if recording in recordings)
    if shared:
        raise UcfMismatchError(
            f"{names[1]}: {_some(shared, 'clips')} are of recordings (gXX) of which {names[0]} has others; {_FIX}."
        )


def _present(folder: Path, paths: Iterable[str]) -> set[str]:
    """Those of the files that are there."""
    # A look at each folder: asking for every file takes seconds on a network drive.
    present: set[str] = set()
    for name in sorted({path.partition("/")[0] for path in paths}):
        if (folder / name).is_dir():
            present.update(f"{name}/{entry.name}" for entry in os.scandir(folder / name) if entry.is_file())
    return present & set(paths)


def _some(wrong: Sequence[str], noun: str) -> str:
    """The number of things and the first of them."""
    return f"{len(wrong):,} {noun} ({', '.join(wrong[:_NAMED])}{', ...' if len(wrong) > _NAMED else ''})"
