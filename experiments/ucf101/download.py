"""Fetching, checking and unpacking the official archives of UCF-101; the standard library and a program for RAR."""

from __future__ import annotations

import os
import posixpath
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from experiments.download import Archive, DownloadError, Say, fetch
from experiments.ucf101.index import (
    CLASSES,
    CLIPS,
    LISTS,
    SPLITS,
    UcfMismatchError,
    UcfNotFoundError,
    find_folder,
    read_index,
)

PAGE = "https://www.crcv.ucf.edu/data/UCF101.php"
_FILES = "https://www.crcv.ucf.edu/data/UCF101"


class Counts(NamedTuple):
    """Clips of the two lists of a split."""

    train: int
    test: int


class Source(NamedTuple):
    """What is fetched, and what it must hold.

    Attributes:
        clips: the archive of ``UCF-101/``.
        lists: the archive of ``ucfTrainTestlist/``.
        counts: clips of each split, by its number.
    """

    clips: Archive
    lists: Archive
    counts: Mapping[int, Counts]


OFFICIAL = Source(
    # Nobody publishes a checksum of the clips; RAR has one of each file, which unpacking checks.
    clips=Archive("UCF101.rar", f"{_FILES}/UCF101.rar", PAGE, None, 6_932_971_618),
    lists=Archive(
        "UCF101TrainTestSplits-RecognitionTask.zip",
        f"{_FILES}/UCF101TrainTestSplits-RecognitionTask.zip",
        PAGE,
        "sha256:5c0d1a53b8ed364a2ac830a73f405e51bece7d98ce1254fd19ed4a36b224bd27",
        113_943,
    ),
    counts={1: Counts(9_537, 3_783), 2: Counts(9_586, 3_734), 3: Counts(9_624, 3_696)},
)

# What unpacks a RAR archive: a program's arguments for a file and a folder. The first that is installed and can does.
_PROGRAMS: dict[str, Callable[[str, str], list[str]]] = {
    "unrar": lambda file, folder: ["x", "-idq", "-o+", file, folder + os.sep],
    "unar": lambda file, folder: ["-quiet", "-force-overwrite", "-no-directory", "-output-directory", folder, file],
    "7z": lambda file, folder: ["x", "-bd", "-y", f"-o{folder}", file],
    "bsdtar": lambda file, folder: ["-x", "-f", file, "-C", folder],
}


def prepare(root: Path, source: Source = OFFICIAL, say: Say = print) -> None:
    """Make sure that ``UCF-101/`` and ``ucfTrainTestlist/`` lie together, whole and checked, and do only what is left.

    A folder that is there is checked and left as it is. An archive that is there is checked and unpacked. Otherwise
    the archive is downloaded first, from where an earlier attempt ended. Nothing half done can pass for the real one:
    archives and folders get their names when they are complete.

    Args:
        root: data root; made where it isn't there. Where its ``UCF101/`` holds the lists, that is completed.
        source: what to download, and what it must hold.
        say: takes a line about each step.

    Raises:
        DownloadError: an archive can't be downloaded, is not the official one or can't be unpacked; or a folder that
            is there is incomplete or wrong.
    """
    root.mkdir(parents=True, exist_ok=True)
    try:
        home = find_folder(root)
    except UcfNotFoundError:
        home = root
    if (home / LISTS).exists():
        say(f"{home / LISTS} is there")
    else:
        _unpack(fetch(source.lists, home, say), home / LISTS, _unzip, source.lists.page, say)
    if (home / CLIPS).exists():
        say(f"{home / CLIPS} is there")
    else:
        _unpack(fetch(source.clips, home, say), home / CLIPS, _unrar, source.clips.page, say)
    say(f"{home}: {_check(home, source)}. The archives are needed no more.")


def _check(home: Path, source: Source) -> str:
    """How much is there; raises DownloadError where that is not the whole of each split."""
    description = ""
    for split in SPLITS:
        try:
            index = read_index(home, ".", split)
        except (UcfNotFoundError, UcfMismatchError) as error:
            raise DownloadError(
                f"{home}, split {split}: {error} What is there is left as it is: remove {CLIPS} or {LISTS} there to "
                "have it unpacked again."
            ) from error
        found = Counts(len(index.train), len(index.test))
        if found != source.counts[split]:
            raise DownloadError(
                f"{home / LISTS}, split {split}: {found.train:,} clips to train and {found.test:,} to test, must be "
                f"{source.counts[split].train:,} and {source.counts[split].test:,}. It is left as it is: remove it to "
                "have it fetched again."
            )
        description = index.describe()
    return description


def _unpack(file: Path, folder: Path, how: Callable[[Path, Path], None], page: str, say: Say) -> None:
    """Unpack a folder, aside first, so that it is under its name only when it is complete."""
    say(f"unpacking {file}")
    aside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        how(file, aside)
        if not (aside / folder.name).is_dir():
            raise DownloadError(f"it holds no folder {folder.name}")
        for path in (aside / folder.name).rglob("*"):
            if path.is_symlink():
                raise DownloadError(f"{path.relative_to(aside)} leads elsewhere")
        os.replace(aside / folder.name, folder)
    except (DownloadError, zipfile.BadZipFile) as error:
        reason = " ".join(str(error).split())
        raise DownloadError(
            f"{file} can't be unpacked ({reason}); nothing was unpacked. If it is spoilt, put the file from {page} in "
            "its place; then run this again"
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _unzip(file: Path, aside: Path) -> None:
    """The lists, none of which may lie outside the destination."""
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            folder, name = posixpath.split(member.filename)
            if folder == LISTS and name.endswith(".txt"):
                archive.extract(member, aside)
    if not (aside / LISTS / CLASSES).is_file():
        raise DownloadError(f"it holds no {LISTS}/{CLASSES}")


def _unrar(file: Path, aside: Path) -> None:
    failures = []
    for name, arguments in _PROGRAMS.items():
        program = shutil.which(name)
        if program is None:
            continue
        done = subprocess.run(
            [program, *arguments(str(file), str(aside))], capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode == 0:
            return
        said = (done.stderr or done.stdout).strip().splitlines()
        failures.append(f"{name} ended with {done.returncode}: {said[-1] if said else 'without a word'}")
    if failures:
        raise DownloadError("; ".join(failures))
    raise DownloadError(f"it takes one of the programs {', '.join(_PROGRAMS)}: install one")
