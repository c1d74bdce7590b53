"""Training and evaluation batches: what they depend on, and what they don't."""

from __future__ import annotations

import itertools
from collections import Counter
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from experiments import batches as batches_module
from experiments.cub200.batches import EvaluationBatches, ImageBatch, Pool, TrainingBatches
from experiments.cub200.cache import open_images
from experiments.cub200.index import read_index
from tests.experiments.cub200.toy import write_toy
from tests.helpers import FLOAT32, assert_close


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Pool:
    """10 images of 18, the last of them first, with other ids than places."""
    root = tmp_path_factory.mktemp("data")
    write_toy(root)
    index = read_index(root)
    images = open_images([index.file(image) for image in index.images], 20, "memory")
    places = list(range(17, 7, -1))
    return Pool(images, places, [index.images[place].id for place in places], image_size=16, num_patches=16)


def training(pool: Pool, batch_size: int = 4, seed: int = 0, flip: bool = True, **options: Any) -> TrainingBatches:
    return TrainingBatches(pool, batch_size, seed, (0.2, 1.0), flip, **options)


def first(batches: TrainingBatches, count: int) -> list[ImageBatch]:
    return list(itertools.islice(batches, count))


def assert_same(actual: ImageBatch, expected: ImageBatch) -> None:
    for name, one, other in zip(ImageBatch._fields, actual, expected, strict=True):
        assert one.dtype == other.dtype, name
        assert torch.equal(one, other), name


def test_a_batch_has_its_shapes_and_ranges(pool: Pool) -> None:
    for batch in (first(training(pool), 1)[0], next(iter(EvaluationBatches(pool, 4)))):
        assert (batch.images.shape, batch.images.dtype) == ((4, 3, 16, 16), torch.float32)
        assert (batch.noise.shape, batch.noise.dtype) == ((4, 16), torch.float32)
        assert (batch.ids.shape, batch.ids.dtype) == ((4,), torch.int64)
        assert batch.images.min() >= 0
        assert 0.5 < batch.images.max() <= 1
        assert batch.noise.min() >= 0
        assert batch.noise.max() < 1
        assert len(set(batch.noise.flatten().tolist())) == 64


def test_an_epoch_has_every_image_once_in_an_order_of_its_own(pool: Pool) -> None:
    # Batches of 4 lie across epochs of 10; batches of 30 hold three.
    for size, count in ((4, 5), (30, 1)):
        ids = torch.cat([batch.ids for batch in first(training(pool, size), count)]).tolist()
        epochs = [ids[:10], ids[10:20]]
        assert all(Counter(epoch) == Counter(pool.ids) for epoch in epochs)
        assert epochs[0] != epochs[1]
        assert epochs[0] != sorted(epochs[0])


def test_batch_g_is_a_function_of_seed_and_g(pool: Pool) -> None:
    batches = first(training(pool), 8)
    for index in (7, 2, 5):
        assert_same(training(pool).batch(index), batches[index])
    for later, batch in zip(first(training(pool, start=3), 5), batches[3:], strict=True):
        assert_same(later, batch)
    torch.manual_seed(123)
    assert_same(first(training(pool), 1)[0], batches[0])
    other = training(pool, seed=1).batch(0)
    assert not torch.equal(other.ids, batches[0].ids)
    assert not torch.equal(other.noise, batches[0].noise)


def test_an_image_is_seen_differently_each_time(pool: Pool) -> None:
    views: dict[int, list[torch.Tensor]] = {}
    for batch in first(training(pool, 10), 4):
        for view, id_ in zip(batch.images, batch.ids.tolist(), strict=True):
            views.setdefault(id_, []).append(view)
    for seen in views.values():
        assert len(seen) == 4
        assert not any(torch.equal(one, other) for one, other in itertools.combinations(seen, 2))
    noise = torch.cat([batch.noise for batch in first(training(pool, 10), 4)])
    assert len(noise.unique()) == noise.numel()


def test_workers_take_turns(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = first(training(pool, start=2), 6)
    for worker in range(3):
        info = partial(SimpleNamespace, id=worker, num_workers=3)
        monkeypatch.setattr(batches_module, "get_worker_info", info)
        for one, two in zip(first(training(pool, start=2), 2), expected[worker::3], strict=True):
            assert_same(one, two)


def test_processes_share_a_batch(pool: Pool) -> None:
    whole = training(pool).batch(6)
    parts = [training(pool, rank=rank, world_size=2).batch(6) for rank in (0, 1)]
    assert_same(ImageBatch(*(torch.cat(fields) for fields in zip(*parts, strict=True))), whole)
    with pytest.raises(ValueError, match=r"data.batch_size=4 must be a multiple of the 3 processes"):
        training(pool, world_size=3)


@pytest.mark.parametrize("size", [3, 5, 10, 100])
def test_evaluation_has_every_image_once_whatever_the_batch_size(pool: Pool, size: int) -> None:
    batches = EvaluationBatches(pool, size)
    for _ in range(2):  # a second pass must not be empty
        seen = list(batches)
        assert len(seen) == len(batches)
        assert [len(batch.ids) for batch in seen[:-1]] == [size] * (len(seen) - 1)
        assert torch.cat([batch.ids for batch in seen]).tolist() == list(pool.ids)
    (whole,) = EvaluationBatches(pool, 10)
    assert_same(ImageBatch(*(torch.cat(fields) for fields in zip(*seen, strict=True))), whole)


def test_an_evaluation_image_is_the_centre_of_its_own_file(pool: Pool) -> None:
    (batch,) = EvaluationBatches(pool, 10)
    for member, image in enumerate(batch.images):
        stored = pool.images[pool.places[member]]
        top, left = ((side - 16) / 2 for side in stored.shape[1:])
        centre = stored[:, round(top) : round(top) + 16, round(left) : round(left) + 16]
        assert_close(image, centre / 255, f"image {member}", FLOAT32)


def test_the_noise_of_evaluation_belongs_to_the_id(pool: Pool) -> None:
    (batch,) = EvaluationBatches(pool, 10)
    reverse = Pool(pool.images, pool.places[::-1], pool.ids[::-1], pool.image_size, pool.num_patches)
    (turned,) = EvaluationBatches(reverse, 10)
    assert torch.equal(turned.noise, batch.noise.flip(0))
    assert len(batch.noise.unique()) == batch.noise.numel()
