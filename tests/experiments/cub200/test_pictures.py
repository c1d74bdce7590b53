"""Pictures: that each column shows what it says, of the same images and masks as the test."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from PIL import Image

from experiments import runner
from experiments.cub200 import pictures
from experiments.cub200.batches import ImageBatch
from experiments.cub200.masks import masked_patches, masked_pixels
from experiments.cub200.patches import patchify, unnormalised, unpatchify
from experiments.loading import load_model
from tensormem.models.vision import BaseMAE
from tests.experiments.cub200.runs import folder_of, tiny
from tests.helpers import FLOAT32, assert_close, randomise

SIZE, PATCH = 32, 8
SMALL = {"dim": 8, "num_layers": 1, "num_heads": 2, "decoder_dim": 8, "decoder_layers": 1, "decoder_heads": 2}


def make_model(seed=0, **arguments):
    model = BaseMAE(image_size=SIZE, patch=PATCH, **SMALL, **arguments)
    randomise(model, torch.Generator().manual_seed(seed))
    return model.eval()


@pytest.fixture
def batch():
    """Two images and their noise."""
    generator = torch.Generator().manual_seed(3)
    return ImageBatch(
        torch.rand(2, 3, SIZE, SIZE, generator=generator), torch.rand(2, 16, generator=generator), torch.arange(2)
    )


def cell(picture, row, column):
    """(32, 32, 3) uint8: a cell of a picture, not enlarged any more."""
    side = 128
    top, left = 20 + 4 + row * (side + 4), 4 + column * (side + 4)
    return np.asarray(picture)[top : top + side : 4, left : left + side : 4]


def as_bytes(image):
    return (image * 255).byte().permute(1, 2, 0).numpy()


@pytest.mark.parametrize("target", ["pixels", "normalised"])
def test_hidden_patches_are_as_predicted_and_visible_ones_as_they_are(batch, target):
    model = make_model(target=target)
    found = pictures.reconstruction(model, batch, 0.5)
    hidden = masked_patches(batch.noise, 0.5)
    with torch.no_grad():
        predicted = model(batch.images, hidden, batch.noise)
    if target == "normalised":
        predicted = unnormalised(predicted, patchify(batch.images, PATCH))
    predicted = unpatchify(predicted, SIZE, SIZE).clamp(0, 1)
    where = masked_pixels(hidden, SIZE, SIZE).expand(-1, 3, -1, -1)
    assert torch.equal(found[~where], batch.images[~where])
    assert_close(found[where], predicted[where], "hidden", FLOAT32)


def test_a_sheet_has_a_row_an_image_and_a_column_a_model(batch):
    models = {"one": make_model(1), "other": make_model(2)}
    picture = pictures.sheet(models, batch, 0.5)
    assert picture.size == (4 * 132 + 4, 20 + 2 * 132 + 4)
    hidden = masked_pixels(masked_patches(batch.noise, 0.5), SIZE, SIZE)[:, 0].numpy()
    for row, image in enumerate(batch.images):
        assert np.abs(cell(picture, row, 0).astype(int) - as_bytes(image)).max() <= 1
        shown = cell(picture, row, 1)
        assert set(shown[hidden[row]].flat) <= {127, 128}
        assert np.array_equal(shown[~hidden[row]], cell(picture, row, 0)[~hidden[row]])
        for column, model in enumerate(models.values(), start=2):
            expected = as_bytes(pictures.reconstruction(model, batch, 0.5)[row])
            assert np.abs(cell(picture, row, column).astype(int) - expected).max() <= 1
    # The titles stand in the strip above.
    strip = np.asarray(picture)[:20]
    assert all((strip[:, 132 * column : 132 * (column + 1)] < 128).any() for column in range(4))


@pytest.fixture(scope="module")
def finished_runs(toy_root, tmp_path_factory):
    """Folders of runs of two models, one in two seeds, and one trained for the other target."""
    runs = tmp_path_factory.mktemp("runs")
    short = ["training.steps=1", "training.evaluate_every=1", "training.warmup_steps=0"]
    changes = [[], ["seed=1"], ["model=vision/registers"], ["model.network.target=normalised"]]
    configs = [tiny(toy_root, runs, *short, *more) for more in changes]
    for config in configs:
        runner.run(config)
    return [folder_of(config) for config in configs]


def test_models_of_one_target_stand_side_by_side(finished_runs, toy_root, tmp_path, capsys):
    arguments = ["--runs", *map(str, finished_runs), "--output", str(tmp_path / "new")]
    assert pictures.main(arguments) == 0
    names = ["reconstructions-pixels-smoke.png", "reconstructions-normalised-smoke.png"]
    assert capsys.readouterr().out.split() == [str(tmp_path / "new" / name) for name in names]
    config = tiny(toy_root, tmp_path)
    data = instantiate(config.data)
    data.setup()
    batch = data.test_examples(6)
    assert batch.ids.tolist() == [3, 6, 9, 12, 15, 18]
    with Image.open(tmp_path / "new" / names[0]) as picture:
        # Of the seeds of a model the first.
        models = {"base": load_model(finished_runs[0]), "registers": load_model(finished_runs[2])}
        assert picture.tobytes() == pictures.sheet(models, batch).tobytes()
    with Image.open(tmp_path / "new" / names[1]) as picture:
        assert picture.tobytes() == pictures.sheet({"base": load_model(finished_runs[3])}, batch).tobytes()


def test_where_the_images_went_is_said(finished_runs, tmp_path, capsys):
    where = ["--root", str(tmp_path / "nowhere"), "--output", str(tmp_path)]
    assert pictures.main(["--runs", str(finished_runs[0]), *where]) == 1
    assert "make data-cub200" in capsys.readouterr().err


def test_a_folder_without_a_finished_run_is_named(finished_runs, symbols_run, tmp_path, capsys):
    output = ["--output", str(tmp_path / "out")]
    assert pictures.main(["--runs", str(tmp_path / "none"), *output]) == 1
    assert "none/result.json" in capsys.readouterr().err
    kept = shutil.copytree(finished_runs[0], tmp_path / "kept")
    (kept / "best.ckpt").unlink()
    assert pictures.main(["--runs", str(kept), *output]) == 1
    assert "holds no best.ckpt" in capsys.readouterr().err
    assert pictures.main(["--runs", str(symbols_run), *output]) == 1
    assert "is a run of wikitext: give runs of cub200" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
