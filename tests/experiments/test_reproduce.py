"""The command that makes a table: what it says, what it runs, what it does not run again."""

import json
import shutil
from types import SimpleNamespace

import pytest
import torch

from experiments import reproduce
from experiments.plan import plan
from experiments.reproduce import estimate_minutes
from experiments.results import RESULT
from tests.experiments.composing import choices
from tests.experiments.test_train import TINY


def test_a_run_that_was_cut_off_counts_what_is_left(tmp_path):
    overrides = [*TINY, f"runs.root={tmp_path}", "model=language/base"]
    (run,) = plan("wikitext", overrides)
    run.folder.mkdir(parents=True)
    torch.save({"global_step": 9}, run.folder / "last.ckpt")
    (resumable,) = plan("wikitext", overrides)
    assert (resumable.steps_done, resumable.steps_left) == (9, 3)
    data = SimpleNamespace(num_evaluation_tokens=(700, 700), tokens_per_step=84)
    whole, rest = (estimate_minutes(planned_run, 100.0, data) for planned_run in (run, resumable))
    # 12 and 3 steps of 84 tokens, 3 and 0.75 evaluations, one test; an evaluation costs a third of training.
    start = reproduce._MINUTES_TO_START
    assert whole == pytest.approx((12 * 84 + 4 * 700 / 3) / 6000 + start)
    assert rest == pytest.approx((3 * 84 + 1.75 * 700 / 3) / 6000 + start)
    (run.folder / RESULT).touch()
    assert resumable.steps_left == 0


@pytest.mark.parametrize("models", ["base,tensor_depth", pytest.param(None, marks=pytest.mark.slow)])
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
    stamp = (base.folder / RESULT).stat().st_mtime_ns
    (depth,) = plan("wikitext", [*overrides, "model=language/tensor_depth"])
    before = json.loads((depth.folder / RESULT).read_text())
    shutil.rmtree(depth.folder)
    assert reproduce.main(arguments) == 0
    assert "base-seed0             4 steps, 0.0M tokens: finished" in capfd.readouterr().out
    assert (base.folder / RESULT).stat().st_mtime_ns == stamp
    assert json.loads((depth.folder / RESULT).read_text())["metrics"] == before["metrics"]


def test_without_data_it_stops_before_any_run(tmp_path, capfd):
    arguments = ["wikitext", *TINY, f"data.root={tmp_path / 'none'}", "data.download=false", f"runs.root={tmp_path}"]
    assert reproduce.main(arguments) == 1
    assert "wikitext-2/train.txt" in capfd.readouterr().err
    assert not list(tmp_path.rglob("last.ckpt"))


def test_a_suite_is_announced_part_by_part(tmp_path, capsys):
    overrides = ["scale=smoke", "seed=0,1", "trainer.accelerator=cpu", f"runs.root={tmp_path}"]
    arguments = ["diagnostics", "--plan", "--parts", "no_harm, recall", "--models", "base", *overrides]
    assert reproduce.main(arguments) == 0
    out = capsys.readouterr().out
    assert "Scale smoke; data: generated" in out
    lines = [line.split(":")[0].split() for line in out.splitlines() if line.startswith("  ")]
    assert [line[:-4] for line in lines] == [
        ["no_harm", "base-seed0"],
        ["no_harm", "base-seed1"],
        ["recall", "num_pairs=4", "base-seed0"],
        ["recall", "num_pairs=4", "base-seed1"],
    ]
    assert {" ".join(line[-4:]) for line in lines} == {"20 steps, 0.0M tokens"}
    assert "4 runs, 4 to do: about" in out
    assert "PARTS=no_harm,recall too" in out
    assert not list(tmp_path.rglob("*"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["diagnostics", "--parts", "bindng"], "error: part 'bindng' is unknown; did you mean binding?"),
        (["wikitext", "--parts", "binding"], "error: part 'binding' is unknown; wikitext is one sweep"),
        (["diagnostics", "scale=tiny"], "error: scale=tiny: no such choice"),
        (
            ["diagnostics", "--models", "slot"],
            "error: model=diagnostics/slot: no such choice; did you mean diagnostics/",
        ),
        (["diagnostics", "data.diagnostic.num_writs=3"], "did you mean data.diagnostic.num_writes?"),
    ],
)
def test_what_does_not_exist_is_named_before_any_run(arguments, message, tmp_path, capsys):
    assert reproduce.main([*arguments, f"runs.root={tmp_path}"]) == 1
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_smoke_suite_makes_its_tables_and_figures(tmp_path, capfd):
    overrides = ["scale=smoke", "trainer.accelerator=cpu", "logger.mode=disabled", f"runs.root={tmp_path}"]
    assert reproduce.main(["diagnostics", *overrides]) == 0
    out = capfd.readouterr().out
    for caption in ("binding:", "Ablations of tensor. binding:", "map_building:", "no_harm:", "recall:"):
        assert f"\n{caption} accuracy in %. Scale smoke" in out
    assert "occlusion, patch 8: accuracy" in out
    assert "occlusion, patch 8, frames last_visible: accuracy" in out
    assert "until validation stops improving" in out
    assert list(tmp_path.glob("diagnostics/figures/*.png"))
    results = list(tmp_path.glob("diagnostics/*/result.json"))
    assert len(results) == len(plan("diagnostics", overrides)) > 10
    # Again: nothing is run.
    assert reproduce.main(["diagnostics", *overrides]) == 0
    assert f"{len(results)} runs, 0 to do" in capfd.readouterr().out
