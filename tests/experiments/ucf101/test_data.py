"""UcfData: arguments, set-up, loaders, and the real clips through them."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.ucf101 import data as data_module
from experiments.ucf101.data import UcfData
from experiments.ucf101.decoding import ClipError, count_frames, decoder
from experiments.ucf101.index import UcfNotFoundError
from tests.experiments.ucf101.toy import write_toy


@pytest.fixture
def arguments(toy_root: Path) -> dict[str, Any]:
    """Arguments of a small, valid data module: 18 clips to train, 6 to validate, 6 to test."""
    return {"root": toy_root, "image_size": 16, "patch": 8, "num_frames": 3, "batch_size": 4, "validation_share": 0.25}


def set_up(arguments: dict[str, Any], **changes: Any) -> UcfData:
    data = UcfData(**{**arguments, **changes})
    data.setup()
    return data


def ids(loader: Any) -> list[int]:
    return [id_ for batch in loader for id_ in batch.ids.tolist()]


def test_set_up_splits_and_says_what_was_there(arguments: dict[str, Any]) -> None:
    data = set_up(arguments)
    train = set(ids(itertools.islice(data.train_dataloader(), 9)))
    validation, test = ids(data.val_dataloader()), ids(data.test_dataloader())
    assert (len(train), len(validation), len(test)) == (18, 6, 6)
    assert train | {*validation, *test} == set(range(30))
    assert data.classes == ("Bend", "Jack", "Wave")
    assert data.network_arguments == {"num_classes": 3, "num_frames": 3, "image_size": 16, "patch": 8}
    assert data.tokens_per_step == 4 * 3 * 4
    assert data.num_evaluation_tokens == (6 * 3 * 4, 6 * 3 * 4)
    assert set_up(arguments, num_test_views=2).num_evaluation_tokens == (6 * 3 * 4, 2 * 6 * 3 * 4)
    assert data.source == "split 1, all 30 clips of 3 classes"
    assert data.extra_result == {"clips": {"found": "all 30 clips of 3 classes", "decoder": decoder()}}


def test_what_a_run_asks_before_set_up(arguments: dict[str, Any], tmp_path: Path) -> None:
    data = UcfData(**arguments)
    for name in ("source", "extra_result", "num_evaluation_tokens", "network_arguments", "classes"):
        with pytest.raises(RuntimeError, match=r"call setup\(\) first"):
            getattr(data, name)
    with pytest.raises(UcfNotFoundError, match="make data-ucf101"):
        set_up(arguments, root=tmp_path / "nowhere")


def test_set_up_runs_once(arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    data = set_up(arguments)
    monkeypatch.setattr(data_module, "read_index", lambda *args: pytest.fail("read again"))
    data.setup("test")


def test_the_test_has_as_many_views_as_are_asked_for(arguments: dict[str, Any]) -> None:
    data = set_up(arguments, num_test_views=3)
    assert next(iter(data.test_dataloader())).frames.shape == (4, 3, 3, 3, 16, 16)
    assert next(iter(data.val_dataloader())).frames.shape == (4, 1, 3, 3, 16, 16)
    assert next(iter(data.train_dataloader())).frames.shape == (4, 1, 3, 3, 16, 16)


def test_neither_seed_nor_cache_changes_the_evaluation(arguments: dict[str, Any], tmp_path: Path) -> None:
    expected = set_up(arguments)
    others = [
        set_up(arguments, seed=5, batch_size=1),
        set_up(arguments, seed=6, cache="disk", cache_folder=tmp_path / "cache"),
    ]
    for other in others:
        for name in ("val_dataloader", "test_dataloader"):
            for one, two in zip(*(zip(*getattr(each, name)(), strict=True) for each in (expected, other)), strict=True):
                assert torch.equal(torch.cat(one), torch.cat(two))


@pytest.mark.parametrize(("num_workers", "cache"), [pytest.param(1, "none", marks=pytest.mark.slow), (2, "disk")])
def test_spawned_workers_give_the_same_batches(
    arguments: dict[str, Any], tmp_path: Path, num_workers: int, cache: str
) -> None:
    folder = {"cache_folder": tmp_path} if cache == "disk" else {}
    alone = itertools.islice(set_up(arguments).train_dataloader(), 5)
    helped = iter(set_up(arguments, num_workers=num_workers, cache=cache, **folder).train_dataloader())
    for one in alone:
        assert all(torch.equal(a, b) for a, b in zip(one, next(helped), strict=True))


def test_a_smoke_run_has_a_few_clips_of_each_split(arguments: dict[str, Any]) -> None:
    data = set_up(arguments, max_clips=2)
    assert data.num_evaluation_tokens == (24, 24)
    assert len(set(ids(itertools.islice(data.train_dataloader(), 3)))) == 2


def test_a_clip_that_fails_ends_the_pass_and_is_named(arguments: dict[str, Any], tmp_path: Path) -> None:
    write_toy(tmp_path, num_groups=3)
    spoilt = tmp_path / "UCF-101" / "Jack" / "v_Jack_g01_c02.avi"
    spoilt.write_bytes(spoilt.read_bytes()[:300])
    data = set_up(arguments, root=tmp_path)
    with pytest.raises(ClipError, match=str(spoilt)):
        list(data.test_dataloader())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image_size": 0}, "image_size=0: must be at least 1"),
        ({"num_frames": 0}, "num_frames=0: must be at least 1"),
        ({"num_test_views": 0}, "num_test_views=0: must be at least 1"),
        ({"batch_size": 0}, "batch_size=0: must be at least 1"),
        ({"seed": -1}, "seed=-1: must be at least 0"),
        ({"num_workers": -1}, "num_workers=-1: must be at least 0"),
        ({"max_clips": 0}, "max_clips=0: must be at least 1"),
        ({"evaluation_resize": 0.9}, "evaluation_resize=0.9: must be at least 1"),
        ({"split": 4}, "split=4 is unknown: use one of 1, 2, 3"),
        ({"missing": "skip"}, "missing='skip' is unknown: use one of error, drop"),
        ({"damaged": "skip"}, "damaged='skip' is unknown: use one of error, repeat"),
        ({"patch": 7}, "image_size=16: must be a multiple of patch=7"),
        ({"validation_share": 0.0}, "validation_share=0.0: must be above 0"),
        ({"colour_jitter": 1.5}, "colour_jitter=1.5: must be from 0 to 1"),
        ({"label_smoothing": -0.1}, "label_smoothing=-0.1: must be from 0 to 1"),
        ({"crop_scale": (0.5, 0.2)}, r"crop_scale=\(0.5, 0.2\): must be two shares"),
        ({"cache": "ram"}, "cache='ram' is unknown: use one of none, disk"),
        ({"cache": "disk"}, "cache='disk', cache_folder=None: a folder goes with 'disk'"),
        ({"cache_folder": "here"}, "cache='none', cache_folder=here"),
    ],
)
def test_arguments_out_of_range_are_named(arguments: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        UcfData(**{**arguments, **changes})


def counted(data_root: Path) -> dict[str, int]:
    """The frames of each real clip, as they were counted once."""
    with (data_root / "UCF101" / "clips.csv").open() as file:
        return {row["path"]: int(row["frames"]) for row in csv.DictReader(file)}


@pytest.mark.parametrize("num_workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_real_clips_have_their_frames_through_the_loader(data_root: Path, num_workers: int) -> None:
    """More frames are asked for than any clip has: what comes before the last one's repetition is the whole clip."""
    expected = {path.removeprefix("UCF-101/"): count for path, count in counted(data_root).items()}
    data = set_up(
        {"root": data_root, "folder": "UCF101", "missing": "drop", "split": 2},
        image_size=32,
        patch=8,
        num_frames=450,
        batch_size=1,
        num_workers=num_workers,
        crop_scale=(1.0, 1.0),
        flip=False,
        colour_jitter=0.0,
    )
    pool = data.train_dataloader().dataset.pool
    found: dict[str, int] = {}
    for batch in itertools.islice(data.train_dataloader(), len(pool)):
        place = pool.places[pool.ids.index(int(batch.ids))]
        path = pool.clips.paths[place]
        differs = (batch.frames[0, 0] != batch.frames[0, 0, -1]).flatten(1).any(1)
        found[f"{path.parent.name}/{path.name}"] = int(differs.nonzero().max()) + 2
    assert len(found) == 12
    assert found == {path: expected[path] for path in found}


def test_every_real_file_decodes_to_its_frames(data_root: Path) -> None:
    expected = counted(data_root)
    assert len(expected) == 27
    assert {path: count_frames(data_root / "UCF101" / path) for path in expected} == expected
    with (data_root / "Weizmann4" / "manifest.csv").open() as file:
        small = {row["clip"]: int(row["frames"]) for row in csv.DictReader(file)}
    assert len(small) == 72
    assert {path: count_frames(data_root / "Weizmann4" / path) for path in small} == small


def test_the_small_action_set_makes_batches(data_root: Path) -> None:
    for split in (1, 2, 3):
        data = set_up({"root": data_root, "folder": "Weizmann4", "split": split}, image_size=64, patch=8, batch_size=8)
        assert data.network_arguments["num_classes"] == 4
        assert (len(ids(data.val_dataloader())), len(ids(data.test_dataloader()))) == (8, 24)
        batch = next(iter(data.train_dataloader()))
        assert batch.frames.shape == (8, 1, 8, 3, 64, 64)
        assert (batch.frames.std(dim=2) > 0.01).flatten(1).any(1).all()  # something moves
