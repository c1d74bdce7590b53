"""CubData: arguments, set-up, loaders, and resuming under a Lightning trainer."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from experiments.cub200 import data as data_module
from experiments.cub200.data import CubData
from experiments.cub200.index import CubNotFoundError
from tests.experiments.cub200.toy import write_toy


@pytest.fixture
def arguments(tmp_path: Path) -> dict[str, Any]:
    """Arguments of a small, valid data module: 9 images to train, 3 to validate, 6 to test, 4 patches each."""
    write_toy(tmp_path)
    return {"root": tmp_path, "image_size": 16, "patch": 8, "batch_size": 4, "validation_share": 0.25}


def set_up(arguments: dict[str, Any], **changes: Any) -> CubData:
    data = CubData(**{**arguments, **changes})
    data.setup()
    return data


class Recorder(pl.LightningModule):
    """Keeps the batches that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen: list[Any] = []
        self.evaluated: list[int] = []

    def training_step(self, batch: Any, batch_index: int) -> torch.Tensor:
        self.seen.append(batch)
        return self.weight * batch.images.mean()

    def validation_step(self, batch: Any, batch_index: int) -> None:
        self.evaluated += batch.ids.tolist()

    def test_step(self, batch: Any, batch_index: int) -> None:
        self.evaluated += batch.ids.tolist()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def make_trainer(root: Path, max_steps: int, **options: Any) -> pl.Trainer:
    return pl.Trainer(
        max_steps=max_steps,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=root,
        num_sanity_val_steps=0,
        **options,
    )


def test_set_up_splits_and_says_what_was_there(arguments: dict[str, Any]) -> None:
    data = set_up(arguments)
    validation = [id_ for batch in data.val_dataloader() for id_ in batch.ids.tolist()]
    test = [id_ for batch in data.test_dataloader() for id_ in batch.ids.tolist()]
    train = {id_ for batch in itertools.islice(data.train_dataloader(), 9) for id_ in batch.ids.tolist()}
    assert test == [3, 6, 9, 12, 15, 18]
    assert len(validation) == 3
    assert train == set(range(1, 19)) - {*validation, *test}
    assert data.num_patches == 4
    assert data.num_evaluation_tokens == (3 * 4, 6 * 4)
    assert data.source == "18 of 11,788 images: a part"


def test_what_a_run_asks_before_set_up(arguments: dict[str, Any], tmp_path: Path) -> None:
    data = CubData(**arguments)
    assert data.network_arguments == {"image_size": 16, "patch": 8}
    assert data.tokens_per_step == 4 * 4
    for name in ("source", "num_evaluation_tokens"):
        with pytest.raises(RuntimeError, match=r"call setup\(\) first"):
            getattr(data, name)
    with pytest.raises(CubNotFoundError, match="make data-cub200"):
        set_up(arguments, root=tmp_path / "nowhere")


def test_set_up_runs_once(arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    data = set_up(arguments)
    monkeypatch.setattr(data_module, "read_index", lambda *args: pytest.fail("read again"))
    data.setup("test")


def test_neither_seed_nor_cache_changes_the_evaluation(arguments: dict[str, Any], tmp_path: Path) -> None:
    expected = set_up(arguments)
    others = [
        set_up(arguments, seed=5, cache="none", batch_size=1),
        set_up(arguments, seed=6, cache="disk", cache_folder=tmp_path / "cache"),
    ]
    for other in others:
        for name in ("val_dataloader", "test_dataloader"):
            for one, two in zip(*(zip(*getattr(each, name)(), strict=True) for each in (expected, other)), strict=True):
                assert torch.equal(torch.cat(one), torch.cat(two))


def test_the_shorter_side_is_resized_in_proportion(arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    opened = data_module.open_images
    monkeypatch.setattr(
        data_module, "open_images", lambda paths, side, *rest: asked.append(side) or opened(paths, side, *rest)
    )
    set_up(arguments)
    set_up(arguments, image_size=224, patch=16, cache="none")
    set_up(arguments, evaluation_resize=1.5)
    assert asked == [18, 256, 24]


def test_a_smoke_run_has_a_few_images_of_each_split(arguments: dict[str, Any]) -> None:
    data = set_up(arguments, max_images=2)
    assert data.num_evaluation_tokens == (8, 8)
    assert len({id_ for batch in itertools.islice(data.train_dataloader(), 3) for id_ in batch.ids.tolist()}) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image_size": 0}, "image_size=0: must be at least 1"),
        ({"batch_size": 0}, "batch_size=0: must be at least 1"),
        ({"seed": -1}, "seed=-1: must be at least 0"),
        ({"num_workers": -1}, "num_workers=-1: must be at least 0"),
        ({"max_images": 0}, "max_images=0: must be at least 1"),
        ({"evaluation_resize": 0.9}, "evaluation_resize=0.9: must be at least 1"),
        ({"patch": 7}, "image_size=16: must be a multiple of patch=7"),
        ({"validation_share": 0.0}, r"validation_share=0.0: must be above 0"),
        ({"validation_share": 1.0}, r"validation_share=1.0: must be above 0 and below 1"),
        ({"crop_scale": (0.5, 0.2)}, r"crop_scale=\(0.5, 0.2\): must be two shares"),
        ({"crop_scale": (0.0, 1.0)}, r"crop_scale=\(0.0, 1.0\)"),
        ({"crop_scale": (0.2,)}, r"crop_scale=\(0.2,\)"),
        ({"cache": "ram"}, "cache='ram' is unknown: use one of none, memory, disk"),
        ({"cache": "disk"}, "cache='disk', cache_folder=None: a folder goes with 'disk'"),
        ({"cache_folder": "here"}, "cache='memory', cache_folder=here"),
    ],
)
def test_arguments_out_of_range_are_named(arguments: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CubData(**{**arguments, **changes})


def test_a_resumed_run_sees_the_batches_that_were_left(arguments: dict[str, Any], tmp_path: Path) -> None:
    options = {"accumulate_grad_batches": 2, "limit_val_batches": 0}
    whole, half, rest = Recorder(), Recorder(), Recorder()
    make_trainer(tmp_path, 4, **options).fit(whole, datamodule=CubData(**arguments))
    trainer = make_trainer(tmp_path, 2, **options)
    trainer.fit(half, datamodule=CubData(**arguments))
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    make_trainer(tmp_path, 4, **options).fit(
        rest, datamodule=CubData(**arguments), ckpt_path=tmp_path / "half.ckpt", weights_only=True
    )
    assert len(whole.seen) == 8
    resumed = half.seen + rest.seen
    assert len(resumed) == 8
    for one, two in zip(whole.seen, resumed, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_a_trainer_evaluates_every_image_once(arguments: dict[str, Any], tmp_path: Path) -> None:
    model = Recorder()
    trainer = make_trainer(tmp_path, 1)
    trainer.validate(model, datamodule=CubData(**arguments), verbose=False)
    assert len(model.evaluated) == len(set(model.evaluated)) == 3
    model.evaluated.clear()
    trainer.test(model, datamodule=CubData(**arguments), verbose=False)
    assert model.evaluated == [3, 6, 9, 12, 15, 18]


def test_a_spawned_worker_gives_the_same_batches(arguments: dict[str, Any]) -> None:
    alone = itertools.islice(set_up(arguments).train_dataloader(), 5)
    helped = iter(set_up(arguments, num_workers=1).train_dataloader())
    for one in alone:
        assert all(torch.equal(a, b) for a, b in zip(one, next(helped), strict=True))


@pytest.mark.parametrize(("count", "ids"), [(1, [3]), (3, [3, 9, 18]), (6, [3, 6, 9, 12, 15, 18]), (50, None)])
def test_examples_are_spread_over_the_test_and_have_its_masks(
    arguments: dict[str, Any], count: int, ids: list[int] | None
) -> None:
    data = set_up(arguments)
    test = [torch.cat(parts) for parts in zip(*data.test_dataloader(), strict=True)]
    examples = data.test_examples(count)
    assert examples.ids.tolist() == (ids or test[2].tolist())
    places = [test[2].tolist().index(id_) for id_ in examples.ids.tolist()]
    assert all(torch.equal(found, whole[places]) for found, whole in zip(examples, test, strict=True))


def test_real_images_make_batches(data_root: Path) -> None:
    data = set_up({"root": data_root}, image_size=64, batch_size=8, max_images=12)
    training = next(iter(data.train_dataloader()))
    assert training.images.shape == (8, 3, 64, 64)
    assert [len(batch.ids) for batch in data.test_dataloader()] == [8, 4]
    for batch in (training, *data.val_dataloader(), *data.test_dataloader()):
        assert batch.noise.shape == (len(batch.ids), 16)
        assert (batch.images.std(dim=(1, 2, 3)) > 0.02).all()
    assert data.source.startswith(("all 11,788 images", "2,889 of 11,788 images"))
