"""Fetching, checking and unpacking the official archive of CUB-200-2011; the standard library alone."""

from __future__ import annotations

import hashlib
import http.client
import os
import posixpath
import shutil
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from experiments.cub200.index import FOLDER, CubMismatchError, CubNotFoundError, read_index

RECORD = "https://data.caltech.edu/records/65de6-vp158"
_BLOCK = 1 << 20
_TIMEOUT_SECONDS = 60

Say = Callable[[str], None]


class DownloadError(OSError):
    """The archive can't be had, or isn't what it should be."""


@dataclass(frozen=True)
class Archive:
    """A file to download.

    Attributes:
        name: of the file.
        url: where it is.
        md5: its checksum, in hexadecimal digits.
    """

    name: str
    url: str
    md5: str


OFFICIAL = Archive("CUB_200_2011.tgz", f"{RECORD}/files/CUB_200_2011.tgz", "97eceeb196236b17998738112f37df78")


def prepare(root: Path, archive: Archive = OFFICIAL, say: Say = print) -> None:
    """Make sure that ``CUB_200_2011/`` lies under the data root, whole and checked, and do only what is left to do.

    A folder that is there is checked and left as it is. An archive that is there is checked and unpacked. Otherwise
    the archive is downloaded first, from where an earlier attempt ended. Nothing half done can pass for the real one:
    both the archive and the folder get their names when they are complete.

    Args:
        root: data root; made where it isn't there.
        archive: what to download.
        say: takes a line about each step.

    Raises:
        DownloadError: the archive can't be downloaded, has another checksum or can't be unpacked; or a folder that
            is there is incomplete or wrong.
    """
    root.mkdir(parents=True, exist_ok=True)
    if (root / FOLDER).exists():
        try:
            say(f"{root / FOLDER} is there: {read_index(root).describe()}")
        except (CubNotFoundError, CubMismatchError) as error:
            # It may be the user's own; what to do with it is for the user to say.
            raise DownloadError(f"{root / FOLDER} is there, but {error} It is left as it is.") from error
        return
    file = root / archive.name
    if file.is_file():
        say(f"{file} is there")
        _check(file, archive, f"remove it, or put the file from {RECORD} in its place, and run this again")
    else:
        part = file.with_name(f"{file.name}.part")
        say(f"downloading {archive.url}")
        _download(part, archive, file)
        try:
            _check(part, archive, "it has been removed; run this again to download it afresh")
        except DownloadError:
            part.unlink()
            raise
        os.replace(part, file)
    say(f"unpacking {file}")
    _unpack(file, root)
    say(f"{root / FOLDER}: {read_index(root).describe()}. {file.name} is needed no more.")


def _download(part: Path, archive: Archive, by_hand: Path) -> None:
    """Bring ``part`` to the length of the archive."""
    start = part.stat().st_size if part.is_file() else 0
    request = urllib.request.Request(archive.url, headers={"Range": f"bytes={start}-"} if start else {})
    hint = (
        f"Run this again, which goes on from what is there, or download {archive.name} from {RECORD} in a browser, "
        f"put it at {by_hand}, and run this again."
    )
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        # The part is as long as the whole, or longer: its checksum will tell.
        if error.code == 416 and start:
            return
        raise DownloadError(f"{archive.url} answers {error.code} {error.reason}. {hint}") from error
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise DownloadError(f"{archive.url} can't be reached ({type(error).__name__}: {reason}). {hint}") from error
    with response:
        if response.status != 206:  # the server sends all of it, whatever it was asked for
            start = 0
        elif not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            raise DownloadError(f"{archive.url} sent another part than was asked for; remove {part}. {hint}")
        length = response.headers.get("Content-Length")
        total = None if length is None else start + int(length)
        received, problem = _receive(response, part, start, total)
    if problem is not None or (total is not None and received < total):
        reason = "" if problem is None else f" ({type(problem).__name__}: {problem})"
        raise DownloadError(f"{archive.url} broke off after {received:,} bytes{reason}. {hint}") from problem


def _receive(
    response: http.client.HTTPResponse, part: Path, start: int, total: int | None
) -> tuple[int, Exception | None]:
    """The length that ``part`` has reached, and what the connection ended with; errors of the disk are raised."""
    progress = _Progress(total)
    received, problem = start, None
    with part.open("ab" if start else "wb") as file:
        while True:
            try:
                block = response.read(_BLOCK)
            except (OSError, http.client.HTTPException) as error:
                problem = error
                break
            if not block:
                break
            file.write(block)
            received += len(block)
            progress.show(received)
    progress.end()
    return received, problem


class _Progress:
    """A line on the standard error that is written over; where that is no terminal, one for each tenth."""

    def __init__(self, total: int | None) -> None:
        self.total = total
        self.terminal = sys.stderr.isatty()
        self.shown_at = 0.0
        self.tenth = -1

    def show(self, received: int) -> None:
        tenth = 10 * received // self.total if self.total else received // (100 << 20)
        now = time.monotonic()
        if (now - self.shown_at < 0.2) if self.terminal else (tenth == self.tenth):
            return
        self.shown_at, self.tenth = now, tenth
        share = f" of {self.total / 1e6:,.1f} MB ({100 * received / self.total:.0f}%)" if self.total else " MB"
        text = f"  {received / 1e6:,.1f}{share}"
        print(f"\r{text}" if self.terminal else text, end="" if self.terminal else "\n", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self.terminal:
            print(file=sys.stderr)


def _check(file: Path, archive: Archive, fix: str) -> None:
    digest = hashlib.md5(usedforsecurity=False)
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    if digest.hexdigest() != archive.md5:
        raise DownloadError(
            f"{file} is not the official archive: MD5 {digest.hexdigest()}, must be {archive.md5}; {fix}"
        )


def _unpack(file: Path, root: Path) -> None:
    """Unpack the folder, aside first, so that it is under its name only when it is complete."""
    if not hasattr(tarfile, "data_filter"):
        raise DownloadError(f"Python {sys.version.split()[0]} can't unpack safely: use 3.11.4 or later")
    aside = Path(tempfile.mkdtemp(dir=root, prefix=f".{FOLDER}."))
    try:
        with tarfile.open(file) as archive:
            archive.extractall(aside, filter=_chosen)
        read_index(aside)
        os.replace(aside / FOLDER, root / FOLDER)
    except tarfile.FilterError as error:
        raise DownloadError(f"{file} has an entry that is refused ({error}); {_BAD_ARCHIVE}") from error
    except (tarfile.TarError, EOFError, CubNotFoundError, CubMismatchError) as error:
        reason = " ".join(str(error).split())
        raise DownloadError(f"{file} can't be unpacked ({reason}); {_BAD_ARCHIVE}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _chosen(member: tarfile.TarInfo, destination: str) -> tarfile.TarInfo | None:
    """What is unpacked: files and folders of the data set, none of which may lie outside the destination."""
    # The archive has a list of attributes beside the folder, which nothing here reads; what leads out is an error.
    if posixpath.normpath(member.name).split("/")[0] not in (FOLDER, ".."):
        return None
    if not (member.isfile() or member.isdir()):
        raise tarfile.SpecialFileError(member)
    return tarfile.data_filter(member, destination)


_BAD_ARCHIVE = f"nothing was unpacked; put the file from {RECORD} in its place and run this again"
