"""The plan of a table's runs, and the command that makes it."""

import json
import shutil
from types import SimpleNamespace

import pytest
import torch

from experiments import reproduce, train
from experiments.reproduce import estimate_minutes, plan
from tests.experiments.composing import choices
from tests.experiments.test_train import TINY


def planned(runs_root, *overrides):
    return plan("wikitext", [*TINY, f"runs.root={runs_root}", *overrides])


def test_the_table_has_the_models_of_the_sweep(tmp_path):
    runs = planned(tmp_path)
    assert [run.name for run in runs] == [f"{model}-seed0" for model in choices("model/language")]
    assert [run.name for run in runs if run.config.allow_noncausal] == ["tensor_depth-seed0"]
    assert not any(run.finished or run.steps_done for run in runs)
    assert len({run.folder for run in runs}) == len(runs)


def test_a_sweep_on_the_command_line_takes_the_place_of_the_tables(tmp_path):
    runs = planned(tmp_path, "model=language/base", "seed=3,4")
    assert [run.name for run in runs] == ["base-seed3", "base-seed4"]


def test_a_planned_run_is_the_one_that_training_does(tmp_path):
    (run,) = planned(tmp_path, "model=language/tensor")
    (again,) = planned(tmp_path, "model=language/tensor", "logger.mode=offline")
    assert run.folder == again.folder
    assert "model=language/tensor" in run.overrides


def test_a_model_outside_the_checkout_is_planned_where_it_is_named(tmp_path):
    folder = tmp_path / "mine" / "model" / "language"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("defaults: [/model/language/base@_here_, _self_]\nname: mine\n")
    search = f"hydra.searchpath=[file://{tmp_path / 'mine'}]"
    (run,) = planned(tmp_path, search, "model=language/mine")
    assert run.name == "mine-seed0"
    assert search in run.overrides


def test_an_unknown_benchmark_is_named():
    with pytest.raises(ValueError, match=r"'wikitxt' is unknown; choose one of quickstart, wikitext$"):
        plan("wikitxt")


def test_a_run_that_was_cut_off_counts_what_is_left(tmp_path):
    (run,) = planned(tmp_path, "model=language/base")
    run.folder.mkdir(parents=True)
    torch.save({"global_step": 9}, run.folder / "last.ckpt")
    (resumable,) = planned(tmp_path, "model=language/base")
    assert (resumable.steps_done, resumable.steps_left) == (9, 3)
    data = SimpleNamespace(num_evaluation_tokens=(700, 700), tokens_per_step=84)
    whole, rest = (estimate_minutes(planned_run, 100.0, data) for planned_run in (run, resumable))
    # 12 and 3 steps of 84 tokens, 3 and 0.75 evaluations, one test; an evaluation costs a third of training.
    assert whole == pytest.approx((12 * 84 + 4 * 700 / 3) / 6000)
    assert rest == pytest.approx((3 * 84 + 1.75 * 700 / 3) / 6000)


@pytest.mark.parametrize("models", ["base,tensor,tensor_depth", pytest.param(None, marks=pytest.mark.slow)])
def test_one_command_from_nothing_to_the_table(models, data_root, tmp_path, capfd):
    overrides = [*TINY, "training.steps=4", f"data.root={data_root}", f"runs.root={tmp_path}"]
    arguments = ["wikitext", *([] if models is None else ["--models", models]), *overrides]
    expected = choices("model/language") if models is None else models.split(",")
    assert reproduce.main(arguments) == 0
    out = capfd.readouterr().out
    assert "Scale smoke; data: local files" in out
    assert f"{len(expected)} runs, {len(expected)} to do: about" in out
    assert "overall [" in out
    rows = [line for line in out.splitlines() if line.startswith("| ")]
    assert [row.split("|")[1].strip() for row in rows] == [
        "model",
        "---",
        *(model for model in expected if model != "tensor_depth"),
        "_not causal: can't be ranked with the rows above_",
        "tensor_depth",
    ]
    assert rows[2].rstrip(" |").endswith("130.30")
    assert rows[-1].rstrip(" |").endswith("100.07")
    assert list(tmp_path.glob("wikitext/figures/*.png"))

    # Cut one run back to unfinished: the others are not run again.
    (base,) = plan("wikitext", [*overrides, "model=language/base"])
    stamp = (base.folder / train.RESULT).stat().st_mtime_ns
    (tensor,) = plan("wikitext", [*overrides, "model=language/tensor"])
    before = json.loads((tensor.folder / train.RESULT).read_text())
    shutil.rmtree(tensor.folder)
    assert reproduce.main(arguments) == 0
    assert "base-seed0             4 steps, 0.0M tokens: finished" in capfd.readouterr().out
    assert (base.folder / train.RESULT).stat().st_mtime_ns == stamp
    assert json.loads((tensor.folder / train.RESULT).read_text())["metrics"] == before["metrics"]


def test_without_data_it_stops_before_any_run(tmp_path, capfd):
    arguments = ["wikitext", *TINY, f"data.root={tmp_path / 'none'}", "data.download=false", f"runs.root={tmp_path}"]
    assert reproduce.main(arguments) == 1
    assert "wikitext-2/train.txt" in capfd.readouterr().err
    assert not list(tmp_path.rglob("last.ckpt"))
