"""Fetching, checking and unpacking the official archive of CUB-200-2011; the standard library alone."""

from __future__ import annotations

import os
import posixpath
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

from experiments.cub200.index import FOLDER, CubMismatchError, CubNotFoundError, read_index
from experiments.download import Archive, DownloadError, Say, fetch

RECORD = "https://data.caltech.edu/records/65de6-vp158"
OFFICIAL = Archive(
    "CUB_200_2011.tgz", f"{RECORD}/files/CUB_200_2011.tgz", RECORD, "md5:97eceeb196236b17998738112f37df78"
)


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
    file = fetch(archive, root, say)
    say(f"unpacking {file}")
    _unpack(file, root)
    say(f"{root / FOLDER}: {read_index(root).describe()}. {file.name} is needed no more.")


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
