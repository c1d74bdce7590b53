"""Fetching and unpacking UCF-101's two archives, from servers on this machine."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.download import Archive, DownloadError
from experiments.ucf101.download import OFFICIAL, Counts, Source, prepare
from experiments.ucf101.index import read_index
from tests.experiments.server import Server, serving
from tests.experiments.ucf101.toy import write_toy

LISTS, CLIPS = "lists.zip", "clips.rar"
PAGE = "http://127.0.0.1:9/page"
DESCRIPTION = "all 18 clips of 3 classes"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What there is when all is done."""
    return write_toy(tmp_path_factory.mktemp("whole"), num_groups=3, num_splits=3)


@pytest.fixture(scope="module")
def lists(whole: Path) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for file in sorted((whole / "ucfTrainTestlist").iterdir()):
            archive.write(file, f"ucfTrainTestlist/{file.name}")
        archive.writestr("ucfTrainTestlist/../../evil.txt", "evil")
        archive.writestr("__MACOSX/ucfTrainTestlist/._classInd.txt", "")
    return buffer.getvalue()


@pytest.fixture(scope="module")
def clips(whole: Path) -> bytes:
    """Not RAR, which nothing here can write: see `programs`."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(whole / "UCF-101", "UCF-101")
    return buffer.getvalue()


@pytest.fixture
def servers(lists: bytes, clips: bytes) -> Iterator[tuple[Server, Server]]:
    with serving(lists, LISTS) as first, serving(clips, CLIPS) as second:
        yield first, second


@pytest.fixture
def source(servers: tuple[Server, Server], lists: bytes, clips: bytes) -> Source:
    checksum = f"sha256:{hashlib.sha256(lists).hexdigest()}"
    return Source(
        clips=Archive(CLIPS, servers[1].url, PAGE, None, len(clips)),
        lists=Archive(LISTS, servers[0].url, PAGE, checksum, len(lists)),
        counts=dict.fromkeys((1, 2, 3), Counts(12, 6)),
    )


def install(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def programs(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only programs that are found: an `unrar` that takes what tar wrote."""
    folder = tmp_path_factory.mktemp("bin")
    # unrar x -idq -o+ FILE FOLDER/
    unpack = "import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2], filter='fully_trusted')"
    install(folder, "unrar", f'exec {sys.executable} -c "{unpack}" "$4" "$5"')
    monkeypatch.setenv("PATH", str(folder))
    return folder


def names(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()}


def test_both_archives_are_fetched_checked_and_unpacked(
    tmp_path: Path, servers: tuple[Server, Server], source: Source, programs: Path
) -> None:
    said: list[str] = []
    prepare(tmp_path / "root", source, said.append)
    assert names(tmp_path / "root") == {LISTS, CLIPS, "ucfTrainTestlist", "UCF-101"}
    assert read_index(tmp_path / "root", split=3).describe() == DESCRIPTION
    assert DESCRIPTION in said[-1]
    assert not list(tmp_path.rglob("evil*"))
    # And again: nothing is left to do, with the archives or without.
    for name in (LISTS, CLIPS):
        (tmp_path / "root" / name).unlink()
    prepare(tmp_path / "root", source, said.append)
    assert [len(server.ranges) for server in servers] == [1, 1]


def test_a_part_is_gone_on_from(tmp_path: Path, servers: tuple[Server, Server], source: Source, programs: Path) -> None:
    servers[1].breaks_off_at = 5_000
    with pytest.raises(DownloadError, match="broke off after 5,000 bytes"):
        prepare(tmp_path, source)
    assert names(tmp_path) == {LISTS, "ucfTrainTestlist", f"{CLIPS}.part"}
    servers[1].breaks_off_at = None
    prepare(tmp_path, source)
    assert servers[0].ranges == [None]
    assert servers[1].ranges == [None, "bytes=5000-"]


def test_what_can_not_be_reached_says_where_to_put_it(tmp_path: Path, source: Source, clips: bytes, programs) -> None:
    away = source._replace(clips=Archive(CLIPS, "http://127.0.0.1:9/x.rar", PAGE, None, len(clips)))
    with pytest.raises(DownloadError, match="can't be reached") as caught:
        prepare(tmp_path, away)
    assert f"download {CLIPS} from {PAGE} in a browser, put it at {tmp_path / CLIPS}" in str(caught.value)
    (tmp_path / CLIPS).write_bytes(clips)
    prepare(tmp_path, away)
    assert read_index(tmp_path).describe() == DESCRIPTION


def test_an_archive_of_another_length_is_refused(tmp_path: Path, source: Source, clips: bytes, programs) -> None:
    (tmp_path / CLIPS).write_bytes(clips[:-1])
    with pytest.raises(DownloadError, match=rf"clips.rar is not the official archive: .* must be {len(clips):,}"):
        prepare(tmp_path, source)
    assert (tmp_path / CLIPS).is_file()


def test_the_lists_folder_under_the_root_is_completed(
    tmp_path: Path, whole: Path, servers: tuple[Server, Server], source: Source, programs: Path
) -> None:
    shutil.copytree(whole / "ucfTrainTestlist", tmp_path / "UCF101" / "ucfTrainTestlist")
    prepare(tmp_path, source)
    assert names(tmp_path) == {"UCF101"}
    assert (tmp_path / "UCF101" / "UCF-101").is_dir()
    assert servers[0].ranges == []


def test_without_a_program_for_rar_it_says_which(tmp_path: Path, source: Source, programs: Path) -> None:
    (programs / "unrar").unlink()
    with pytest.raises(DownloadError, match=r"one of the programs unrar, unar, 7z, bsdtar: install one"):
        prepare(tmp_path, source)
    assert names(tmp_path) == {LISTS, CLIPS, "ucfTrainTestlist"}


def test_a_program_that_fails_is_quoted_and_the_next_one_tried(tmp_path: Path, source: Source, programs: Path) -> None:
    os.rename(programs / "unrar", programs / "good")
    install(programs, "unrar", "echo volume is missing >&2; exit 3")
    with pytest.raises(DownloadError, match=r"\(unrar ended with 3: volume is missing\); nothing was unpacked"):
        prepare(tmp_path, source)
    assert names(tmp_path) == {LISTS, CLIPS, "ucfTrainTestlist"}
    # bsdtar -x -f FILE -C FOLDER
    install(programs, "bsdtar", f'exec {programs / "good"} . . . "$3" "$5"')
    prepare(tmp_path, source)
    assert "UCF-101" in names(tmp_path)


@pytest.mark.parametrize("kind", ["no folder", "a link"])
def test_an_archive_of_other_things_leaves_nothing(tmp_path: Path, source: Source, programs: Path, kind: str) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo("UCF-101/evil" if kind == "a link" else "other")
        if kind == "a link":
            member.type, member.linkname = tarfile.SYMTYPE, "/etc"
        archive.addfile(member)
    (tmp_path / CLIPS).write_bytes(buffer.getvalue())
    other = source._replace(clips=Archive(CLIPS, PAGE, PAGE, None))
    with pytest.raises(DownloadError, match=r"holds no folder UCF-101|UCF-101/evil leads elsewhere"):
        prepare(tmp_path, other)
    assert names(tmp_path) == {LISTS, CLIPS, "ucfTrainTestlist"}


def test_lists_that_are_no_archive_leave_nothing(tmp_path: Path, source: Source) -> None:
    (tmp_path / LISTS).write_bytes(b"spoilt")
    with pytest.raises(DownloadError, match=r"can't be unpacked \(File is not a zip file\); nothing was unpacked"):
        prepare(tmp_path, source._replace(lists=Archive(LISTS, PAGE, PAGE, None)))
    assert names(tmp_path) == {LISTS}


def test_what_is_there_is_checked_and_left(tmp_path: Path, whole: Path, source: Source) -> None:
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    with pytest.raises(DownloadError, match=r"split 1: 12 clips to train and 6 to test, must be 9,537 and 3,783"):
        prepare(tmp_path, source._replace(counts=OFFICIAL.counts))
    lost = tmp_path / "UCF-101" / "Jack" / "v_Jack_g02_c01.avi"
    lost.unlink()
    with pytest.raises(DownloadError, match=r"1 listed clips \(Jack/v_Jack_g02_c01.avi\) are not there.*left as it is"):
        prepare(tmp_path, source)
    assert names(tmp_path) == {"ucfTrainTestlist", "UCF-101"}


def test_the_official_archives_are_ucfs():
    assert OFFICIAL.clips.url == "https://www.crcv.ucf.edu/data/UCF101/UCF101.rar"
    assert OFFICIAL.lists.url == "https://www.crcv.ucf.edu/data/UCF101/UCF101TrainTestSplits-RecognitionTask.zip"
    assert OFFICIAL.lists.num_bytes == 113_943
    assert {sum(counts) for counts in OFFICIAL.counts.values()} == {13_320}
