"""Whole runs of action recognition, a few steps long."""

from __future__ import annotations

import json

import pytest
import torch
from hydra.utils import instantiate

from experiments import runner
from experiments.loading import load_model
from experiments.resolvers import resolve
from experiments.results import RESULT, read_result
from experiments.runs import run_folder
from experiments.ucf101.decoding import decoder
from experiments.ucf101.metrics import ClipScores, mean_over_views
from experiments.ucf101.task import ClassificationTask
from tests.experiments.composing import choices, composed

TINY = [
    "experiment=ucf101",
    "scale=smoke",
    "training.steps=4",
    "training.evaluate_every=2",
    "data.max_clips=null",
    "trainer.accelerator=cpu",
    "trainer.checkpoint_every=3",
    "trainer.log_every=2",
    "logger.mode=disabled",
]


def finished(config):
    """Run; the result, which is also that of the file."""
    result = json.loads(json.dumps(runner.run(config)))
    assert read_result(run_folder(resolve(config)) / RESULT) == result
    return result


@pytest.mark.parametrize("model", choices("model/video"))
def test_every_model_runs_to_a_result_and_is_loaded_again(model, toy_root, tmp_path):
    config = composed(*TINY, f"model=video/{model}", f"data.root={toy_root}", f"runs.root={tmp_path}")
    result = finished(config)
    assert (result["model"], result["experiment"], result["scale"]) == (model, "ucf101", "smoke")
    assert result["history"]["step"] == [2, 4]
    assert result["training"]["tokens"] == 4 * 4 * 4 * 16
    assert result["metrics"]["test_clips"] == 6
    with_memory = model.startswith("tensor")
    assert list(dict.fromkeys(test["subject"] for test in result["tests"])) == ["memory", "zero"][: 1 + with_memory]
    assert (result["gates"] is not None) == with_memory
    assert result["streaming"] == ("none" if model.startswith("base") else "frame")
    assert "root" not in result["config"]["data"]
    shown = (run_folder(resolve(config)) / "sample.txt").read_text().splitlines()
    assert len(shown) == 4
    assert all(line.partition(":")[0] in ("Bend", "Jack", "Wave") and line.count("%") == 3 for line in shown)

    # The weights that are loaded are those that the test number is of.
    loaded, scores = load_model(run_folder(resolve(config))), ClipScores()
    data = instantiate(config.data)
    data.setup()
    with torch.no_grad():
        for batch in data.test_dataloader():
            logits = torch.stack([loaded(batch.frames[:, 0])[0]], dim=1)
            scores.update(mean_over_views(logits), batch.labels)
    assert scores.compute()["nats"] == pytest.approx(result["metrics"]["test_nats"], rel=1e-5)
    assert 100 * scores.compute()["top1"] == result["metrics"]["test_top1"]


def test_where_frames_are_kept_is_the_machine_s_own_matter(toy_root, tmp_path):
    plain = [*TINY, "model=video/base", f"data.root={toy_root}"]
    kept = [*plain, "data.cache=disk", f"data.cache_folder={tmp_path / 'frames'}"]
    results = [finished(composed(*words, f"runs.root={tmp_path / str(len(words))}")) for words in (plain, kept)]
    assert list((tmp_path / "frames").rglob("*.npy"))
    for block in ("config", "config_hash", "metrics", "history"):
        assert results[0][block] == results[1][block]
    assert load_model(run_folder(resolve(composed(*kept, f"runs.root={tmp_path / str(len(kept))}"))))


def test_an_interrupted_run_goes_on_to_the_same_result(toy_root, tmp_path, monkeypatch):
    overrides = [*TINY, "model=video/tensor", f"data.root={toy_root}"]
    whole = finished(composed(*overrides, f"runs.root={tmp_path / 'whole'}"))
    step = ClassificationTask.training_step

    def fail(self, batch, batch_idx):
        if self.global_step == 3:
            raise RuntimeError("out of power")
        return step(self, batch, batch_idx)

    config = composed(*overrides, f"runs.root={tmp_path / 'parts'}")
    with monkeypatch.context() as patch:
        patch.setattr(ClassificationTask, "training_step", fail)
        with pytest.raises(RuntimeError, match="out of power"):
            runner.run(config)
    parts = finished(config)
    assert parts["history"]["validation_nats"] == whole["history"]["validation_nats"]
    assert parts["tests"] == whole["tests"]


def test_the_real_clips_go_from_file_to_logits_of_all_classes(data_root, tmp_path):
    config = composed(
        *TINY,
        "model=video/tensor",
        f"data.root={data_root}",
        "data.folder=UCF101",
        "data.missing=drop",
        "data.num_test_views=2",
        f"runs.root={tmp_path}",
    )
    result = finished(config)
    assert result["metrics"]["test_clips"] == 9
    assert result["metrics"]["chance"] == pytest.approx(100 / 101)
    assert result["protocol"]["views"] == 2
    assert result["clips"] == {"found": "18 of 13,320 clips of 101 classes: a part", "decoder": decoder()}
    assert load_model(run_folder(resolve(config))).readout.out_features == 101
