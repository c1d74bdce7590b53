"""Training and evaluation batches of clips: what they depend on, and what they don't."""

from __future__ import annotations

import itertools
import pickle
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.ucf101.batches import Augmentation, ClipBatch, EvaluationBatches, Pool, TrainingBatches
from experiments.ucf101.clips import open_clips
from experiments.ucf101.index import read_index
from experiments.ucf101.sampling import frame_indices
from tests.helpers import FLOAT32, assert_close

PLAIN = Augmentation(crop_scale=(1.0, 1.0), flip=False, colour_jitter=0.0, shift_times=False)


@pytest.fixture(scope="module")
def pool(toy_root: Path) -> Pool:
    """10 clips of 30, the last of them first, with other ids than places."""
    index = read_index(toy_root)
    clips = sorted(index.train + index.test)
    places = list(range(29, 19, -1))
    return Pool(
        open_clips([index.file(clip) for clip in clips], 20),
        places,
        [clips[place].id + 100 for place in places],
        [clips[place].label for place in places],
        image_size=16,
        num_frames=4,
    )


def training(pool: Pool, augmentation: Augmentation | None = None, seed: int = 0, **options: Any) -> TrainingBatches:
    return TrainingBatches(pool, 4, seed, augmentation or Augmentation(), **options)


def first(batches: TrainingBatches, count: int) -> list[ClipBatch]:
    return list(itertools.islice(batches, count))


def assert_same(actual: ClipBatch, expected: ClipBatch) -> None:
    for name, one, other in zip(ClipBatch._fields, actual, expected, strict=True):
        assert one.dtype == other.dtype, name
        assert torch.equal(one, other), name


def test_a_batch_has_its_shapes_and_ranges(pool: Pool) -> None:
    for batch, views in (
        (first(training(pool), 1)[0], 1),
        (next(iter(EvaluationBatches(pool, 4))), 1),
        (next(iter(EvaluationBatches(pool, 4, num_views=3))), 3),
    ):
        assert (batch.frames.shape, batch.frames.dtype) == ((4, views, 4, 3, 16, 16), torch.float32)
        assert (batch.labels.shape, batch.labels.dtype) == ((4,), torch.int64)
        assert (batch.ids.shape, batch.ids.dtype) == ((4,), torch.int64)
        assert batch.frames.min() >= 0
        assert 0.5 < batch.frames.max() <= 1
        for id_, label in zip(batch.ids.tolist(), batch.labels.tolist(), strict=True):
            assert label == pool.labels[pool.ids.index(id_)]


def test_an_epoch_has_every_clip_once_in_an_order_of_its_own(pool: Pool) -> None:
    ids = torch.cat([batch.ids for batch in first(training(pool), 5)]).tolist()
    epochs = [ids[:10], ids[10:20]]
    assert all(Counter(epoch) == Counter(pool.ids) for epoch in epochs)
    assert epochs[0] != epochs[1]


def test_batch_g_is_a_function_of_seed_and_g(pool: Pool) -> None:
    batches = first(training(pool), 6)
    assert_same(training(pool).batch(5), batches[5])
    assert_same(first(training(pool, start=3), 1)[0], batches[3])
    assert_same(pickle.loads(pickle.dumps(training(pool))).batch(1), batches[1])
    torch.manual_seed(123)
    assert_same(first(training(pool), 1)[0], batches[0])
    assert not torch.equal(training(pool, seed=1).batch(0).ids, batches[0].ids)


def test_processes_share_out_the_rows(pool: Pool) -> None:
    whole = training(pool).batch(2)
    shares = [training(pool, rank=rank, world_size=2).batch(2) for rank in range(2)]
    assert_same(ClipBatch(*(torch.cat(parts) for parts in zip(*shares, strict=True))), whole)
    with pytest.raises(ValueError, match="batch_size=4 must be a multiple of the 3 processes"):
        training(pool, world_size=3)


@pytest.mark.parametrize(
    "augmentation",
    [
        replace(PLAIN, crop_scale=(0.3, 0.6)),
        replace(PLAIN, flip=True),
        replace(PLAIN, colour_jitter=0.6),
        Augmentation(),
    ],
    ids=["crop", "flip", "colours", "all"],
)
def test_augmentation_is_the_same_for_every_frame_of_a_clip(pool: Pool, augmentation: Augmentation) -> None:
    """A clip whose frames are all one picture stays one, and most become another picture."""

    class Still(type(pool.clips)):
        def frames(self, place, indices):
            return super().frames(place, [0] * len(indices))

    still = Pool(Still(pool.clips.paths, 20), pool.places, pool.ids, pool.labels, 16, 4)
    augmented = torch.cat([batch.frames for batch in first(training(still, augmentation), 3)])
    plain = torch.cat([batch.frames for batch in first(training(still, PLAIN), 3)])
    assert torch.equal(augmented, augmented[:, :, :1].expand_as(augmented))
    changed = (augmented != plain).flatten(1).any(1)
    assert changed.sum() >= 3


def test_training_frames_keep_their_distance_wherever_they_start(pool: Pool) -> None:
    class Numbered(type(pool.clips)):
        def frames(self, place, indices):
            return torch.tensor(indices, dtype=torch.uint8).reshape(-1, 1, 1, 1).expand(-1, 3, 24, 24)

    numbered = Pool(Numbered(pool.clips.paths, 20), pool.places, pool.ids, pool.labels, 16, 4)
    lengths = {id_: pool.clips.num_frames(place) for id_, place in zip(pool.ids, pool.places, strict=True)}
    shifts = set()
    for batch in first(training(numbered, replace(PLAIN, shift_times=True)), 20):
        for id_, frames in zip(batch.ids.tolist(), (255 * batch.frames[:, 0, :, 0, 0, 0]).round(), strict=True):
            parts = 4 * frames / lengths[id_]
            assert (parts > torch.arange(4) - 4 / lengths[id_]).all()
            assert (parts < torch.arange(1, 5)).all()
            assert (frames.diff() - lengths[id_] / 4).abs().max() < 1
            shifts.add(frames[0].item())
    assert len(shifts) >= 3


def test_evaluation_has_the_middle_of_the_frames_that_are_spread_over_the_clip(pool: Pool) -> None:
    batches = list(EvaluationBatches(pool, 4))
    assert [len(batch.ids) for batch in batches] == [4, 4, 2]
    assert len(EvaluationBatches(pool, 4)) == 3
    assert torch.cat([batch.ids for batch in batches]).tolist() == list(pool.ids)
    place = pool.places[5]
    indices = frame_indices(pool.clips.num_frames(place), 4)[0].tolist()
    expected = pool.clips.frames(place, indices)[:, :, 2:18, 5:21].float() / 255
    assert_close(batches[1].frames[1, 0], expected, "frames", FLOAT32)


def test_views_are_those_of_their_own_frames(pool: Pool) -> None:
    batch = next(iter(EvaluationBatches(pool, 2, num_views=2)))
    for member in range(2):
        indices = frame_indices(pool.clips.num_frames(pool.places[member]), 4, 2)
        for view in range(2):
            expected = pool.clips.frames(pool.places[member], indices[view].tolist())[:, :, 2:18, 5:21].float() / 255
            assert_close(batch.frames[member, view], expected, "frames", FLOAT32)
    assert not torch.equal(batch.frames[:, 0], batch.frames[:, 1])


def test_a_short_clip_repeats_its_last_frame(pool: Pool) -> None:
    long = Pool(pool.clips, pool.places, pool.ids, pool.labels, 16, num_frames=20)
    frames = next(iter(EvaluationBatches(long, 1))).frames[0, 0]
    count = pool.clips.num_frames(pool.places[0])
    assert count < 20
    assert torch.equal(frames[count:], frames[count - 1 : count].expand(20 - count, -1, -1, -1))
    assert not torch.equal(frames[count - 2], frames[count - 1])
