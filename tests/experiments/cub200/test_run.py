"""Whole runs of masked reconstruction, a few steps long."""

from __future__ import annotations

import json

import pytest
import torch
from hydra.utils import instantiate
from PIL import Image

from experiments import reproduce, runner
from experiments.cub200.masks import masked_patches
from experiments.cub200.metrics import MaskedPsnr, PaperPsnr
from experiments.cub200.task import PICTURE, ReconstructionTask
from experiments.errors import USER_ERRORS
from experiments.loading import load_model
from experiments.results import RESULT, read_result
from tests.experiments.composing import choices
from tests.experiments.cub200.runs import TINY, folder_of, tiny

FIGURES = ("psnr", "ssim", "reconstructions")


def finished(config):
    """Run; the result, which is also that of the file."""
    result = json.loads(json.dumps(runner.run(config)))
    assert read_result(folder_of(config) / RESULT) == result
    return result


@pytest.mark.parametrize("target", ["pixels", "normalised"])
@pytest.mark.parametrize("model", choices("model/vision"))
def test_every_model_runs_to_a_result_and_is_loaded_again(model, target, toy_root, tmp_path):
    config = tiny(toy_root, tmp_path, f"model=vision/{model}", f"model.network.target={target}")
    result = finished(config)
    assert (result["model"], result["experiment"], result["scale"]) == (model, "cub200", "smoke")
    assert result["protocol"] == {"target": target, "token_order": "raster", "init": "tuned", "preset": "small"}
    assert result["history"]["step"] == [2, 4]
    assert result["training"]["tokens"] == 4 * 4 * 16
    assert result["metrics"]["test_images"] == 6
    # Of its memory's reads a model is asked where it has one, and only such a model has gates.
    subjects = ["memory", "zero", "control"] if model == "tensor" else ["memory", "control"]
    assert list(dict.fromkeys(test["subject"] for test in result["tests"])) == subjects
    assert (result["gates"] is not None) == (model == "tensor")
    assert result["published"] == {}
    assert "root" not in result["config"]["data"]

    # The weights that are loaded are those that the test number is of.
    loaded, metric = load_model(folder_of(config)), (MaskedPsnr if target == "pixels" else PaperPsnr)()
    data = instantiate(config.data)
    data.setup()
    with torch.no_grad():
        for batch in data.test_dataloader():
            hidden = masked_patches(batch.noise, 0.75)
            metric.update(loaded(batch.images, hidden, batch.noise), batch.images, hidden)
    assert float(metric.compute()) == result["metrics"]["test_psnr"]


def test_the_published_order_of_tokens_is_another_run_and_protocol(toy_root, tmp_path):
    raster, shuffled = (
        tiny(toy_root, tmp_path, "model=vision/tensor", f"model.network.token_order={order}")
        for order in ("raster", "shuffled")
    )
    one, other = finished(raster), finished(shuffled)
    assert folder_of(raster) != folder_of(shuffled)
    assert other["protocol"]["token_order"] == "shuffled"
    assert one["metrics"]["test_psnr"] != other["metrics"]["test_psnr"]


def test_a_run_leaves_a_picture_in_its_folder_and_in_wandb(toy_root, tmp_path):
    config = tiny(toy_root, tmp_path, "logger.mode=offline")
    finished(config)
    with Image.open(folder_of(config) / PICTURE) as picture:
        # Three columns and six images of at least 128 pixels.
        assert picture.width == 3 * 132 + 4
        assert picture.height > 6 * 132
        expected = picture.tobytes()
    (copy,) = folder_of(config).glob("wandb/offline-run-*/files/media/images/test/reconstructions_*.png")
    with Image.open(copy) as picture:
        assert picture.tobytes() == expected


@pytest.mark.parametrize("model", ["base", "tensor"])
def test_a_run_that_was_cut_off_ends_as_one_that_was_not(model, toy_root, tmp_path, monkeypatch):
    # Checkpoints before steps 3 and 6; evaluations after 4 and 8; dropout, whose numbers go wrong first.
    longer = ["training.steps=8", "training.evaluate_every=4", "model.network.dropout=0.2", f"model=vision/{model}"]
    config, cut = (tiny(toy_root, tmp_path / name, *longer) for name in ("whole", "cut"))
    whole = finished(config)
    loss = ReconstructionTask.loss

    def until_step_7(task, batch):
        if task.global_step == 7:
            raise RuntimeError("cut off")
        return loss(task, batch)

    monkeypatch.setattr(ReconstructionTask, "loss", until_step_7)
    with pytest.raises(RuntimeError, match="cut off"):
        runner.run(cut)
    monkeypatch.undo()
    assert torch.load(folder_of(cut) / "last.ckpt")["global_step"] == 6
    resumed = finished(cut)
    for block in ("metrics", "history", "tests", "gates"):
        assert resumed[block] == whole[block], block


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.network.target=colours", r"model\.network\.target='colours'"),
        ("model.network.token_order=random", r"model\.network\.token_order='random'"),
        ("model.network.num_heads=5", r"num_heads=5"),
        ("data.patch=7", r"image_size=32: must be a multiple of patch=7"),
        ("data.mask_ratio=1.0", r"mask_ratio=1\.0"),
        ("data.mask_ratio=0.001", r"data\.mask_ratio=0\.001 hides 0 of \d+ patches"),
        ("data.patch=32", r"hides \d of 1 patches.*data\.patch=32"),
        ("data.root=nowhere", r"make data-cub200"),
    ],
)
def test_a_mistake_is_named_before_any_work(override, message, toy_root, tmp_path):
    with pytest.raises(Exception, match=message) as raised:
        runner.run(tiny(toy_root, tmp_path, override))
    causes = (raised.value, raised.value.__cause__)
    assert any(isinstance(cause, USER_ERRORS) for cause in causes), "it would be shown with a traceback"
    assert list(tmp_path.iterdir()) == []


def test_one_command_makes_runs_tables_figures_and_pictures(toy_root, tmp_path, capfd):
    overrides = [*TINY[1:], f"data.root={toy_root}", f"runs.root={tmp_path}"]
    assert reproduce.main(["cub200", "--models", "tensor", *overrides]) == 0
    out = capfd.readouterr().out
    assert "2 runs, 2 to do" in out
    assert out.count("| tensor, reads set to zero |") == 2
    assert out.index("| mean colour of the visible patches |") < out.index("| 0 everywhere, paper protocol |")
    drawn = [f"{kind}-{target}-smoke.png" for kind in FIGURES for target in ("normalised", "pixels")]
    assert sorted(path.name for path in tmp_path.glob("cub200/figures/*.png")) == sorted(drawn)
    assert all(name in out for name in drawn)


def test_a_run_on_real_images(data_root, tmp_path):
    result = finished(tiny(data_root, tmp_path, "data.max_images=8", "model=vision/tensor"))
    assert result["metrics"]["test_images"] == 8
    assert 0 < result["metrics"]["test_psnr"] < 40
    control = [test["psnr"] for test in result["tests"] if test["subject"] == "control"]
    assert all(8 < psnr < 30 for psnr in control)
