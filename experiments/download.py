"""Fetching an archive of a data set and checking it; the standard library alone."""

from __future__ import annotations

import argparse
import hashlib
import http.client
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

_BLOCK = 1 << 20
_TIMEOUT_SECONDS = 60

Say = Callable[[str], None]


class DownloadError(OSError):
    """An archive can't be had, isn't what it should be, or can't be unpacked."""


@dataclass(frozen=True)
class Archive:
    """A file to download.

    Attributes:
        name: of the file.
        url: where it is.
        page: where a person finds it.
        checksum: ``md5:`` or ``sha256:`` and hexadecimal digits; None where none was ever published.
        num_bytes: its length, where that is known.
    """

    name: str
    url: str
    page: str
    checksum: str | None
    num_bytes: int | None = None


def run_command(arguments: Sequence[str] | None, description: str, prepare: Callable[[Path], None]) -> int:
    """The command line of a download script; returns the exit status.

    Args:
        arguments: of the command line; None: those of the process.
        description: for ``--help``.
        prepare: brings the data under a root; its OSError or ValueError is said, without a traceback.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--root", type=Path, help="data root (default: the environment variable TENSORMEM_DATA)")
    options = parser.parse_args(arguments)
    root = options.root or os.environ.get("TENSORMEM_DATA")
    if not root:
        parser.error("no data root: set TENSORMEM_DATA to the folder for data sets, or give --root FOLDER")
    try:
        prepare(Path(root))
    except (OSError, ValueError) as error:  # of the download, the archives and the lists; of the disk, too
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def fetch(archive: Archive, root: Path, say: Say) -> Path:
    """The archive's file in ``root``, whole and checked.

    One that is there is checked. Otherwise it is downloaded, from where an earlier attempt ended, and gets its name
    when it is complete.

    Raises:
        DownloadError: it can't be downloaded, or is not the one that it should be.
    """
    file = root / archive.name
    if file.is_file():
        say(f"{file} is there")
        _check(file, archive, f"remove it, or put the file from {archive.page} in its place, and run this again")
        return file
    part = file.with_name(f"{file.name}.part")
    say(f"downloading {archive.url}")
    _download(part, archive, file)
    try:
        _check(part, archive, "it has been removed; run this again to download it afresh")
    except DownloadError:
        part.unlink()
        raise
    os.replace(part, file)
    return file


def _download(part: Path, archive: Archive, by_hand: Path) -> None:
    """Bring ``part`` to the length of the archive."""
    start = part.stat().st_size if part.is_file() else 0
    request = urllib.request.Request(archive.url, headers={"Range": f"bytes={start}-"} if start else {})
    hint = (
        f"Run this again, which goes on from what is there, or download {archive.name} from {archive.page} in a "
        f"browser, put it at {by_hand}, and run this again."
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
    found = file.stat().st_size
    if archive.num_bytes is not None and found != archive.num_bytes:
        raise DownloadError(
            f"{file} is not the official archive: {found:,} bytes, must be {archive.num_bytes:,}; {fix}"
        )
    if archive.checksum is None:
        return
    algorithm, _, expected = archive.checksum.partition(":")
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    if digest.hexdigest() != expected:
        raise DownloadError(
            f"{file} is not the official archive: {algorithm.upper()} {digest.hexdigest()}, must be {expected}; {fix}"
        )
