"""Fetching and unpacking the archive, from a server on this machine."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event

import pytest

from experiments import download as download_module
from experiments.cub200.download import OFFICIAL, RECORD, prepare
from experiments.cub200.index import read_index
from experiments.download import Archive, DownloadError
from tests.experiments.cub200.toy import write_toy
from tests.experiments.server import Server, serving

DESCRIPTION = "6 of 11,788 images: a part"


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small archive with the official one's layout."""
    folder = write_toy(tmp_path_factory.mktemp("official"), per_class=2)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        add(archive, "attributes.txt", b"1 has_bill_shape::curved")
        archive.add(folder, "./CUB_200_2011")
    return buffer.getvalue()


@pytest.fixture
def server(content: bytes) -> Iterator[Server]:
    with serving(content, "CUB_200_2011.tgz") as server:
        yield server


@pytest.fixture
def archive(server: Server) -> Archive:
    return Archive("CUB_200_2011.tgz", server.url, RECORD, f"md5:{md5(server.content)}")


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def add(archive: tarfile.TarFile, name: str, content: bytes = b"", **attributes: object) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    for key, value in attributes.items():
        setattr(member, key, value)
    archive.addfile(member, io.BytesIO(content))


def names(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()}


def test_a_fresh_download_is_checked_and_unpacked(tmp_path: Path, server: Server, archive: Archive, capsys) -> None:
    lines: list[str] = []
    prepare(tmp_path / "new" / "root", archive, lines.append)
    assert read_index(tmp_path / "new" / "root").describe() == DESCRIPTION
    assert names(tmp_path / "new" / "root") == {"CUB_200_2011", "CUB_200_2011.tgz"}
    assert server.ranges == [None]
    assert lines[0] == f"downloading {server.url}"
    assert DESCRIPTION in lines[-1]
    size = f"{len(server.content) / 1e6:,.1f}"
    assert f"{size} of {size} MB (100%)" in capsys.readouterr().err


def test_a_part_is_gone_on_from(tmp_path: Path, server: Server, archive: Archive) -> None:
    server.breaks_off_at = 700
    with pytest.raises(DownloadError, match=r"broke off after 700 bytes. Run this again"):
        prepare(tmp_path, archive)
    assert names(tmp_path) == {"CUB_200_2011.tgz.part"}
    server.breaks_off_at = None
    prepare(tmp_path, archive)
    assert server.ranges == [None, "bytes=700-"]
    assert read_index(tmp_path).describe() == DESCRIPTION
    assert (tmp_path / "CUB_200_2011.tgz").read_bytes() == server.content


def test_a_connection_that_hangs_is_given_up(
    tmp_path: Path, server: Server, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download_module, "_TIMEOUT_SECONDS", 0.2)
    server.breaks_off_at, server.hangs = 0, Event()
    with pytest.raises(DownloadError, match=r"broke off after 0 bytes \(TimeoutError: .*Run this again"):
        prepare(tmp_path, archive)
    server.hangs.set()


def test_trouble_with_the_disk_is_not_blamed_on_the_network(tmp_path: Path, server: Server, archive: Archive) -> None:
    (tmp_path / "CUB_200_2011.tgz.part").mkdir()
    with pytest.raises(IsADirectoryError):
        prepare(tmp_path, archive)


def test_a_server_without_ranges_sends_it_all_again(tmp_path: Path, server: Server, archive: Archive) -> None:
    (tmp_path / "CUB_200_2011.tgz.part").write_bytes(server.content[:700])
    server.takes_ranges = False
    prepare(tmp_path, archive)
    assert (tmp_path / "CUB_200_2011.tgz").read_bytes() == server.content


def test_a_part_that_is_whole_is_not_fetched_again(tmp_path: Path, server: Server, archive: Archive) -> None:
    (tmp_path / "CUB_200_2011.tgz.part").write_bytes(server.content)
    prepare(tmp_path, archive)
    assert read_index(tmp_path).describe() == DESCRIPTION


def test_another_part_than_was_asked_for_is_refused(tmp_path: Path, server: Server, archive: Archive) -> None:
    (tmp_path / "CUB_200_2011.tgz.part").write_bytes(server.content[:700])
    server.shift = 5
    with pytest.raises(DownloadError, match="sent another part than was asked for"):
        prepare(tmp_path, archive)
    assert (tmp_path / "CUB_200_2011.tgz.part").read_bytes() == server.content[:700]


@pytest.mark.parametrize("part", [b"", b"not the first 13", b"far too much" * 10_000])
def test_a_wrong_download_is_removed(
    tmp_path: Path, content: bytes, server: Server, archive: Archive, part: bytes
) -> None:
    (tmp_path / "CUB_200_2011.tgz.part").write_bytes(part)
    if not part:
        server.content = server.content[:-1] + b"?"
    with pytest.raises(DownloadError, match=f"MD5 [0-9a-f]{{32}}, must be {md5(content)}; it has been removed"):
        prepare(tmp_path, archive)
    assert names(tmp_path) == set()


@pytest.mark.parametrize("how", ["nobody listens", "no such file"])
def test_an_address_that_fails_says_where_to_put_the_file(
    tmp_path: Path, server: Server, archive: Archive, how: str
) -> None:
    if how == "nobody listens":
        archive, message = replace(archive, url="http://127.0.0.1:9/x.tgz"), r"can't be reached \("
    else:
        archive, message = replace(archive, url=f"{archive.url}x"), "answers 404 Not Found"
    with pytest.raises(DownloadError, match=message) as caught:
        prepare(tmp_path, archive)
    assert str(tmp_path / "CUB_200_2011.tgz") in str(caught.value)
    assert "https://data.caltech.edu/records/65de6-vp158" in str(caught.value)
    # And there it is found.
    (tmp_path / "CUB_200_2011.tgz").write_bytes(server.content)
    prepare(tmp_path, archive)
    assert read_index(tmp_path).describe() == DESCRIPTION


def test_an_archive_that_is_there_is_checked_not_fetched(tmp_path: Path, server: Server, archive: Archive) -> None:
    (tmp_path / "CUB_200_2011.tgz").write_bytes(server.content[:-9])
    with pytest.raises(DownloadError, match=r"is not the official archive: MD5 .*; remove it, or put the file from"):
        prepare(tmp_path, archive)
    assert names(tmp_path) == {"CUB_200_2011.tgz"}  # it is not ours to remove
    (tmp_path / "CUB_200_2011.tgz").write_bytes(server.content)
    prepare(tmp_path, archive)
    assert server.ranges == []


def test_a_folder_that_is_there_is_checked_and_left(tmp_path: Path, server: Server, archive: Archive) -> None:
    folder = write_toy(tmp_path, per_class=2)
    lines: list[str] = []
    prepare(tmp_path, archive, lines.append)
    assert lines == [f"{folder} is there: {DESCRIPTION}"]
    (folder / "classes.txt").unlink()
    with pytest.raises(DownloadError, match=r"is there, but CUB_200_2011 is incomplete, without classes.txt.*as it is"):
        prepare(tmp_path, archive)
    assert (folder / "images.txt").is_file()
    assert server.ranges == []


@pytest.mark.parametrize(
    ("name", "attributes", "refused"),
    [
        ("CUB_200_2011/../../evil", {}, True),
        ("../evil", {}, True),
        ("CUB_200_2011/evil", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}, True),
        ("CUB_200_2011/evil", {"type": tarfile.LNKTYPE, "linkname": "CUB_200_2011/images.txt"}, True),
        ("CUB_200_2011/evil", {"type": tarfile.FIFOTYPE}, True),
        ("CUB_200_2011/../evil", {}, False),
        ("/tmp/evil", {}, False),
    ],
)
def test_no_entry_leads_out_of_the_folder(
    tmp_path: Path, content: bytes, name: str, attributes: dict[str, object], refused: bool
) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(content)) as good, tarfile.open(fileobj=buffer, mode="w") as bad:
        for member in good:
            bad.addfile(member, good.extractfile(member))
        add(bad, name, **attributes)
    root = tmp_path / "outer" / "root"
    root.mkdir(parents=True)
    (root / "CUB_200_2011.tgz").write_bytes(buffer.getvalue())
    archive = Archive("CUB_200_2011.tgz", "http://127.0.0.1:9/", RECORD, f"md5:{md5(buffer.getvalue())}")
    if refused:
        with pytest.raises(DownloadError, match=r"has an entry that is refused .*nothing was unpacked"):
            prepare(root, archive)
        assert names(root) == {"CUB_200_2011.tgz"}
    else:
        prepare(root, archive)
        assert names(root) == {"CUB_200_2011.tgz", "CUB_200_2011"}
    assert not [path for path in tmp_path.rglob("evil")]


@pytest.mark.parametrize("kind", ["no archive", "cut short", "without the folder"])
def test_what_cannot_be_unpacked_leaves_nothing(tmp_path: Path, content: bytes, kind: str) -> None:
    spoilt = b"no archive" if kind == "no archive" else content[:-200]
    if kind == "without the folder":
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as other:
            add(other, "attributes.txt")
        spoilt = buffer.getvalue()
    (tmp_path / "CUB_200_2011.tgz").write_bytes(spoilt)
    with pytest.raises(DownloadError, match=r"can't be unpacked \(.*nothing was unpacked"):
        prepare(tmp_path, Archive("CUB_200_2011.tgz", "http://127.0.0.1:9/", RECORD, f"md5:{md5(spoilt)}"))
    assert names(tmp_path) == {"CUB_200_2011.tgz"}


def test_progress_is_written_over_on_a_terminal(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download_module.sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(download_module.time, "monotonic", partial(next, iter([1.0, 1.1, 2.0])))
    progress = download_module._Progress(2_000_000)
    for received in (500_000, 1_000_000, 2_000_000):  # the second comes too soon after the first
        progress.show(received)
    progress.end()
    assert capsys.readouterr().err == "\r  0.5 of 2.0 MB (25%)\r  2.0 of 2.0 MB (100%)\n"


def test_without_a_length_there_is_no_share(capsys) -> None:
    progress = download_module._Progress(None)
    for received in (1_000_000, 2_000_000, 200_000_000):
        progress.show(received)
    assert capsys.readouterr().err == "  1.0 MB\n  200.0 MB\n"


def test_the_official_archive_is_caltechs():
    assert OFFICIAL.url == "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz"
    assert OFFICIAL.checksum == "md5:97eceeb196236b17998738112f37df78"
