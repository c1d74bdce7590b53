"""The lists of UCF-101: what is read, and what each error says."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from experiments.ucf101.index import UcfMismatchError, UcfNotFoundError, read_index
from tests.experiments.ucf101.toy import CLASSES, write_lists, write_toy


@pytest.fixture
def root(tmp_path: Path, toy_root: Path) -> Path:
    """A copy of the generated data set, to be spoilt."""
    return shutil.copytree(toy_root, tmp_path / "data")


def edit(root: Path, name: str, old: str, new: str) -> None:
    file = root / "ucfTrainTestlist" / name
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_clips_have_labels_and_groups_and_are_numbered_by_path(toy_root: Path) -> None:
    index = read_index(toy_root)
    assert index.classes == CLASSES
    assert (len(index.train), len(index.test), index.num_listed) == (24, 6, 30)
    assert sorted(clip.id for clip in index.train + index.test) == list(range(30))
    clip = next(clip for clip in index.test if clip.path == "Jack/v_Jack_g01_c02.avi")
    assert (clip.id, clip.label, clip.group) == (11, 1, 1)
    assert index.file(clip) == toy_root / "UCF-101" / "Jack" / "v_Jack_g01_c02.avi"
    assert {clip.group for clip in index.test} == {1}
    assert {clip.group for clip in index.train} == {2, 3, 4, 5}
    assert index.describe() == "all 30 clips of 3 classes"


@pytest.mark.parametrize("end", ["\r\n", "\n\n", " \r\n"])
def test_line_ends_are_no_matter(root: Path, end: str) -> None:
    expected = read_index(root)
    paths = [[clip.path for clip in clips] for clips in (expected.train, expected.test)]
    write_lists(root, paths[0][::-1], paths[1], end=end)
    assert read_index(root) == expected


def test_clips_may_lie_beside_the_lists_and_in_any_folder(tmp_path: Path) -> None:
    write_toy(tmp_path / "mine", num_groups=2, beside=True)
    index = read_index(tmp_path, "mine")
    assert index.describe() == "all 12 clips of 3 classes"
    assert index.file(index.test[0]).is_file()
    # Where no folder is named, the root's UCF101 is looked into.
    (tmp_path / "mine").rename(tmp_path / "UCF101")
    assert read_index(tmp_path).describe() == index.describe()


def test_nothing_there_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(UcfNotFoundError, match=r"no data root is set.*TENSORMEM_DATA.*make data-ucf101"):
        read_index(None)
    with pytest.raises(UcfNotFoundError, match=rf"looked for ucfTrainTestlist/ in {tmp_path} and in its UCF101/"):
        read_index(tmp_path)
    with pytest.raises(UcfNotFoundError, match=rf"looked for ucfTrainTestlist/ in {tmp_path}/Weizmann4\."):
        read_index(tmp_path, "Weizmann4")


def test_each_split_has_lists_of_its_own(root: Path) -> None:
    with pytest.raises(UcfNotFoundError, match=r"incomplete, without trainlist02.txt, testlist02.txt"):
        read_index(root, split=2)
    with pytest.raises(ValueError, match="split=4: must be one of 1, 2, 3"):
        read_index(root, split=4)


def test_a_missing_clip_is_an_error_unless_it_is_to_be_dropped(root: Path) -> None:
    whole = read_index(root)
    (root / "UCF-101" / "Jack" / "v_Jack_g01_c02.avi").unlink()
    (root / "UCF-101" / "Wave" / "v_Wave_g04_c01.avi").unlink()
    with pytest.raises(UcfNotFoundError, match=r"2 listed clips \(Jack/v_Jack_g01_c02.avi, .*data.missing=drop"):
        read_index(root)
    part = read_index(root, missing="drop")
    assert part.describe() == "28 of 30 clips of 3 classes: a part"
    assert part.test == tuple(clip for clip in whole.test if clip.path != "Jack/v_Jack_g01_c02.avi")
    assert len(part.train) == 23
    with pytest.raises(ValueError, match="missing='ignore' is unknown: use one of error, drop"):
        read_index(root, missing="ignore")


def test_no_clip_at_all_is_an_error_whatever_is_dropped(root: Path) -> None:
    shutil.rmtree(root / "UCF-101")
    with pytest.raises(UcfNotFoundError, match=r"30 listed clips .* are not there"):
        read_index(root, missing="drop")


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("trainlist01.txt", "Jack/v_Jack_g02", "Juggle/v_Jack_g02", "line 9: classInd.txt does not know the class of"),
        ("testlist01.txt", "Jack/v", "jack/v", "line 3: classInd.txt does not know the class of jack/v_Jack_g01_c01"),
        (
            "trainlist01.txt",
            "g02_c01.avi 1",
            "g02_c01.avi 2",
            "class number 2, but classInd.txt gives Bend the .* 1",
        ),
        (
            "trainlist01.txt",
            "_g02_c01",
            "_02_01",
            r"line 1: .* '<class>/v_<name>_gXX_cYY.avi \[<class number>\]'",
        ),
        ("trainlist01.txt", "g02_c01.avi 1", "g02_c01.avi one", r"line 1: .* is not '<class>"),
        ("trainlist01.txt", "g02_c01.avi 1", "g02_c01.avi 1 1", r"line 1: .* is not '<class>"),
        ("trainlist01.txt", "Bend/v_Bend_g02", "Bend/more/v_Bend_g02", r"line 1: .* is not '<class>"),
        ("trainlist01.txt", "_g02_c02", "_g02_c01", "line 2: Bend/v_Bend_g02_c01.avi is there twice"),
        (
            "testlist01.txt",
            "_g01_c02",
            "_g02_c02",
            r"1 clips \(Bend/v_Bend_g02_c02.avi\) are in trainlist01.txt",
        ),
        ("testlist01.txt", "_g01_c02", "_g02_c03", r"1 clips \(Bend/v_Bend_g02_c03.avi\) are of recordings"),
        ("classInd.txt", "2 Jack", "4 Jack", "must be numbered 1, 2, 3"),
        ("classInd.txt", "2 Jack", "1 Jack", "line 2: '1 Jack' is there twice"),
        ("classInd.txt", "2 Jack", "2 Bend", "line 2: '2 Bend' is there twice"),
        ("classInd.txt", "2 Jack", "Jack", "line 2: 'Jack' is not '<number> <class>'"),
    ],
)
def test_lists_that_disagree_are_errors(root: Path, name: str, old: str, new: str, message: str) -> None:
    edit(root, name, old, new)
    with pytest.raises(UcfMismatchError, match=message):
        read_index(root, missing="drop")


@pytest.mark.parametrize("name", ["classInd.txt", "testlist01.txt"])
def test_an_empty_list_is_an_error(root: Path, name: str) -> None:
    (root / "ucfTrainTestlist" / name).write_text("\n")
    with pytest.raises(UcfMismatchError, match=r"without a gap|names no clip"):
        read_index(root)


@pytest.mark.parametrize(("split", "train", "test"), [(1, 9_537, 3_783), (2, 9_586, 3_734), (3, 9_624, 3_696)])
def test_the_official_lists_are_read(data_root: Path, split: int, train: int, test: int) -> None:
    index = read_index(data_root, split=split, missing="drop")
    assert index.num_listed == train + test == 13_320
    assert len(index.classes) == 101
    assert (index.classes[0], index.classes[100]) == ("ApplyEyeMakeup", "YoYo")


def test_the_small_action_set_is_read_as_it_is(data_root: Path) -> None:
    for split in (1, 2, 3):
        index = read_index(data_root, "Weizmann4", split)
        assert index.describe() == "all 72 clips of 4 classes"
        assert (len(index.train), len(index.test)) == (48, 24)
