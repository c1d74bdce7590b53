"""Whole runs of the diagnostics, a few steps long."""

import json

import pytest
import torch
from hydra.utils import instantiate

from experiments import runner
from experiments.checkpoints import BUILT_FROM
from experiments.diagnostics.task import Answers, DiagnosticsTask, answer
from experiments.errors import USER_ERRORS
from experiments.loading import load_model
from experiments.resolvers import resolve
from experiments.results import RESULT, read_result
from experiments.runs import run_folder
from tests.experiments.composing import choices, composed

TINY = [
    "experiment=diagnostics",
    "scale=smoke",
    "training.steps=4",
    "training.evaluate_every=2",
    "data.batch_size=4",
    "data.num_validation_batches=1",
    "data.num_test_batches=2",
    "data.tests=[]",
    "trainer.accelerator=cpu",
    "trainer.checkpoint_every=3",
    "trainer.log_every=2",
    "logger.mode=disabled",
]
# The textbook loop: what is compiled for a large grid would take longer than its few steps.
REFERENCE = "+model.network.memory_options.scan=reference"


def tiny(runs, *overrides):
    return composed(*TINY, f"runs.root={runs}", *overrides)


def folder_of(config):
    return run_folder(resolve(config))


def finished(config):
    """Run; the result, which is also that of the file."""
    result = json.loads(json.dumps(runner.run(config)))
    assert read_result(folder_of(config) / RESULT) == result
    return result


@pytest.mark.parametrize("model", choices("model/diagnostics"))
def test_every_model_runs_to_a_result_and_is_loaded_again(model, tmp_path):
    config = tiny(tmp_path, f"model=diagnostics/{model}", "data.diagnostic.num_writes=4")
    result = finished(config)
    assert (result["model"], result["experiment"], result["scale"]) == (model, "diagnostics", "smoke")
    assert result["protocol"] == {"diagnostic": "binding", "steps": "fixed"}
    assert result["difficulty"] == {"setting": "num_writes", "value": 4}
    assert result["history"]["step"] == [2, 4]
    assert result["training"]["tokens"] == 4 * 4 * 8
    # Of its memory's reads a model is asked where it has one, and only such a model has gates.
    assert [test["reads"] for test in result["tests"]] == ["memory", "zero"][: 1 + model.startswith("tensor")]
    assert (result["gates"] is not None) == model.startswith("tensor")
    assert result["causal"] == (result["streaming"] != "none") == (model not in ("tensor", "tensor_local", "slots"))
    # The paper has no row of a memory by layer, or of one alone.
    assert ("test_accuracy" in result["published"]) == (model not in ("tensor_layer", "tensor_local"))

    # The weights that are loaded are those that the test number is of.
    loaded, metric = load_model(folder_of(config)), Answers()
    with torch.no_grad():
        for batch in instantiate(config.data).test_dataloader()[0]:
            metric.update(answer(loaded, batch), batch)
    found = metric.compute()["all"]
    assert found["answers"] == result["metrics"]["test_answers"] == 2 * 4 * 4
    assert found["nats"] == result["metrics"]["test_nats"]
    assert found["accuracy"] == result["metrics"]["test_accuracy"]


@pytest.mark.parametrize("model", choices("model/diagnostics/ablations"))
def test_every_ablation_runs_to_a_result(model, tmp_path):
    changes = ["data.diagnostic.num_writes=4", "training.steps=1", "training.evaluate_every=1", REFERENCE]
    result = finished(tiny(tmp_path, f"model=diagnostics/ablations/{model}", *changes))
    assert result["model"] == model
    assert result["config"]["model"]["ablation"]
    assert result["published"] == {}
    assert len(result["tests"]) == 2


@pytest.mark.parametrize("diagnostic", choices("diagnostic"))
def test_every_diagnostic_runs_to_a_result(diagnostic, tmp_path):
    shorter = ["training.steps=2", "training.evaluate_every=1"]
    config = tiny(tmp_path, f"diagnostic={diagnostic}", "model=diagnostics/tensor", *shorter)
    result = finished(config)
    task = instantiate(config.data.diagnostic)
    assert task.name == diagnostic == result["protocol"]["diagnostic"]
    assert result["difficulty"]["setting"] == task.difficulty
    assert result["state_bytes"]["window"] == task.length
    assert result["metrics"]["chance"] == task.chance
    groups = ["seen", "unseen"] if diagnostic == "map_building" else []
    assert [list(test["groups"]) for test in result["tests"]] == [groups] * 2
    assert len(result["gates"]) == config.model.network.num_layers


def test_what_is_tested_besides_the_training_is_in_the_result(tmp_path):
    tests = "data.tests=[{num_writes: 4}, {num_writes: 9}, {noise: 0.0}]"
    changes = ["model.network.positions=learned", "data.diagnostic.num_writes=4", tests]
    config = tiny(tmp_path, *changes)
    result = finished(config)
    assert [test["changes"] for test in result["tests"]] == [{}, {"num_writes": 9}, {"noise": 0.0}]
    # So many positions are learned as the longest test has.
    assert torch.load(folder_of(config) / "best.ckpt")[BUILT_FROM]["arguments"]["max_length"] == 13


def test_a_run_to_convergence_stops_where_nothing_is_gained(tmp_path):
    # A rate so small that float32 weights do not move: no evaluation gains on the first.
    still = ["training.learning_rate=1e-30", "training.patience=1", "training.steps=8"]
    result = finished(tiny(tmp_path, "steps=converge", *still))
    assert result["protocol"]["steps"] == "converge"
    assert result["training"]["stopped_early"]
    assert result["training"]["steps"] == 4
    assert result["training"]["budget_tokens"] == 2 * result["training"]["tokens"]
    assert result["history"]["step"] == [2, 4]
    assert result["metrics"]["best_step"] == 2


def test_a_run_of_fixed_steps_goes_on_without_a_gain(tmp_path):
    result = finished(tiny(tmp_path, "training.learning_rate=1e-30", "training.steps=8"))
    assert not result["training"]["stopped_early"]
    assert result["history"]["step"] == [2, 4, 6, 8]


@pytest.mark.parametrize("model", ["base", "tensor"])
def test_a_run_that_was_cut_off_ends_as_one_that_was_not(model, tmp_path, monkeypatch):
    # Checkpoints before steps 3, 6 and 9; evaluations after 4, 8 and 12; dropout, whose numbers go wrong first.
    longer = ["training.steps=12", "training.evaluate_every=4", "model.network.dropout=0.2"]
    arguments = [*longer, f"model=diagnostics/{model}", "data.diagnostic.num_writes=4"]
    config, cut = (tiny(tmp_path / name, *arguments) for name in ("whole", "cut"))
    whole = finished(config)

    loss = DiagnosticsTask.loss

    def until_step_7(task, batch):
        if task.global_step == 7:
            raise RuntimeError("cut off")
        return loss(task, batch)

    monkeypatch.setattr(DiagnosticsTask, "loss", until_step_7)
    with pytest.raises(RuntimeError, match="cut off"):
        runner.run(cut)
    monkeypatch.undo()
    assert not (folder_of(cut) / RESULT).exists()
    assert torch.load(folder_of(cut) / "last.ckpt")["global_step"] == 6
    resumed = finished(cut)

    for name in ("last.ckpt", "best.ckpt"):
        expected = torch.load(folder_of(config) / name)
        actual = torch.load(folder_of(cut) / name)
        for key, value in expected["state_dict"].items():
            assert torch.equal(actual["state_dict"][key], value), f"{key} of {name}"
    assert whole["history"]["step"] == [4, 8, 12]
    for block in ("metrics", "history", "tests", "gates"):
        assert resumed[block] == whole[block], block


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.diagnostic.num_writes=0", "num_writes=0 must be a whole number, at least 1"),
        ("data.diagnostic.num_writes=many", r"data\.diagnostic\.num_writes='many'"),
        ("data.tests=[{num_writs: 9}]", r"data\.tests: binding has no setting 'num_writs'; did you mean num_writes\?"),
        ("data.tests=[{num_values: 9}]", r"data\.tests: \{'num_values': 9\} changes what tokens or answers are"),
        ("model.network.num_heads=3", r"num_heads=3"),
        ("training.schedule=linear", r"training\.schedule='linear'"),
        ("data.batch_size=0", "batch_size=0: must be at least 1"),
    ],
)
def test_a_mistake_is_named_before_any_work(override, message, tmp_path):
    with pytest.raises(Exception, match=message) as raised:
        runner.run(tiny(tmp_path, override))
    assert isinstance(raised.value, USER_ERRORS), "it would be shown with a traceback"
    assert list(tmp_path.iterdir()) == []
