"""Whole runs on the real text, a few steps long."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from experiments import runner
from experiments.benchmarks import BENCHMARKS
from experiments.results import RESULT, read_result
from experiments.runs import ConfigChangedError
from tensormem.audit import CausalityError
from tests.experiments.composing import TINY, choices, composed, folder_of, tiny

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("model", choices("model/language"))
def test_every_model_runs_to_a_result(model, data_root, tmp_path):
    config = tiny(data_root, tmp_path, "+sweep=wikitext", f"model=language/{model}")
    result = runner.run(config)
    stored = read_result(folder_of(config) / RESULT)
    assert stored == json.loads(json.dumps(result))
    assert stored["model"] == model
    assert stored["causal"] == (stored["audit"]["start"]["verdict"] == "causal")
    assert stored["history"]["step"] == [4, 8, 12]
    assert stored["metrics"]["test_targets"] == 699
    assert sum(stored["loss_by_position"]["targets"]) == 699
    assert stored["training"]["tokens"] == 12 * 4 * 21
    # The weighted mean over positions is the whole loss.
    by_position = stored["loss_by_position"]
    total = sum(n * t for n, t in zip(by_position["nats"], by_position["targets"], strict=True))
    assert total / 699 == pytest.approx(stored["metrics"]["test_nats"], rel=1e-12)
    sample = folder_of(config) / "sample.txt"
    assert sample.exists() == (stored["streaming"] == "token")
    if sample.exists():
        given, made = sample.read_text().split("=>")
        assert (len(given.split()), len(made.split())) == (5, 16)


# One step of one short window, whatever the config's own sizes.
SHORT = [
    "training.steps=1",
    "training.evaluate_every=1",
    "training.warmup_steps=0",
    "data.batch_size=1",
    "data.window=32",
    "data.max_eval_tokens=100",
    "logger.mode=disabled",
]


@pytest.mark.parametrize(
    "choice",
    [
        *(f"corpus={corpus}" for corpus in choices("corpus")),
        *(pytest.param(f"scale={s}", marks=pytest.mark.slow if s == "paper" else ()) for s in choices("scale")),
        *(f"experiment={name}" for name in choices("experiment") if BENCHMARKS[name].domain == "language"),
        *(f"+sweep={sweep}" for sweep in choices("sweep")),
    ],
)
def test_every_shipped_choice_runs_to_a_result(choice, data_root, tmp_path):
    # The quickstart has a scale of its own; the rest is tried at the smallest, but for the scales themselves.
    scale = [] if choice.startswith(("scale=", "experiment=quickstart")) else ["scale=smoke"]
    config = composed(choice, *scale, *SHORT, f"data.root={data_root}", f"runs.root={tmp_path}")
    result = runner.run(config)
    assert result["training"]["steps"] == 1
    assert result["metrics"]["test_targets"] == 99
    assert read_result(folder_of(config) / RESULT)["protocol"]["corpus"] == config.data.corpus


def test_a_model_that_reads_the_future_is_refused_before_any_work(tmp_path):
    config = tiny(tmp_path / "no-data-here", tmp_path / "runs", "model=language/tensor_depth")
    with pytest.raises(CausalityError, match=r"tensor_depth reads the future.*allow_noncausal=true"):
        runner.run(config)
    assert not (tmp_path / "runs").exists()


def test_a_finished_run_is_not_run_again(data_root, tmp_path, capsys):
    config = tiny(data_root, tmp_path)
    first = runner.run(config)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    again = runner.run(tiny("no-data-here", tmp_path))
    assert again == json.loads(json.dumps(first))
    assert "finished before" in capsys.readouterr().out
    before.pop(folder_of(config) / ".lock")
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_checkpoints_load_with_weights_only(data_root, tmp_path):
    config = tiny(data_root, tmp_path)
    runner.run(config)
    for name in ("last.ckpt", "best.ckpt"):
        assert torch.load(folder_of(config) / name, weights_only=True)["state_dict"]


@pytest.mark.slow
def test_multirun_gives_every_job_its_own_folder_run_and_result(data_root, tmp_path):
    command = [sys.executable, "-m", "experiments.train", "--multirun", *TINY, "training.steps=4"]
    command += ["logger.mode=offline", "model=language/base,language/tensor", "seed=0,1"]
    command += [f"data.root={Path(data_root).resolve()}", f"runs.root={tmp_path}"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=280)
    results = [read_result(path) for path in tmp_path.glob("wikitext/*/result.json")]
    assert sorted((result["model"], result["seed"]) for result in results) == [
        ("base", 0),
        ("base", 1),
        ("tensor", 0),
        ("tensor", 1),
    ]
    assert len({result["config_hash"] for result in results}) == 4
    wandb_runs = sorted(path.name.split("-", 3)[3] for path in tmp_path.glob("wikitext/*/wandb/offline-run-*"))
    assert wandb_runs == sorted(path.parent.name for path in tmp_path.glob("wikitext/*/result.json"))


def test_a_user_error_is_one_message(tmp_path):
    command = [sys.executable, "-m", "experiments.train", *TINY, "data.root=nowhere", "data.download=false"]
    command += [f"runs.root={tmp_path}"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert process.returncode == 1
    assert "error: WikiText-2 not found" in process.stderr
    assert "wikitext-2/train.txt" in process.stderr
    assert "Traceback" not in process.stderr


def test_a_run_without_gain_stops_early(data_root, tmp_path):
    # A rate so small that float32 weights do not move: no evaluation gains on the first.
    result = runner.run(tiny(data_root, tmp_path, "training.learning_rate=1e-30", "training.patience=1"))
    assert result["training"]["stopped_early"]
    assert result["training"]["steps"] == 8
    assert result["training"]["budget_tokens"] == 12 * 4 * 21


def test_a_config_that_cannot_train_is_refused(data_root, tmp_path):
    with pytest.raises(Exception, match=r"training\.evaluate_every=5 must divide training\.steps=12"):
        runner.run(tiny(data_root, tmp_path, "training.evaluate_every=5"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_failed_job_of_a_multirun_leaves_its_wandb_run_to_itself(data_root, tmp_path):
    command = [sys.executable, "-m", "experiments.train", "--multirun", *TINY, "training.steps=4"]
    command += ["logger.mode=offline", "training.learning_rate=1e30,1e-3", "trainer.log_every=1"]
    command += [f"data.root={Path(data_root).resolve()}", f"runs.root={tmp_path}"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert process.returncode == 1
    assert "lower training.learning_rate" in process.stdout + process.stderr
    assert len(list(tmp_path.glob("wikitext/*/wandb/offline-run-*/*.wandb"))) == 2
    assert len(list(tmp_path.glob("wikitext/*/result.json"))) == 1


def test_an_unwritable_run_root_is_named(data_root, tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(OSError, match=r"can't write under the run root.*runs\.root"):
        runner.run(tiny(data_root, tmp_path / "file"))


def test_a_default_that_changed_since_is_refused(data_root, tmp_path):
    config = tiny(data_root, tmp_path)
    runner.run(config)
    path = folder_of(config) / "effective.json"
    effective = json.loads(path.read_text())
    # As if the run had been made when mlp_ratio, which no key of the hash names, had another default.
    effective["network"]["mlp_ratio"] = 3.0
    path.write_text(json.dumps(effective))
    with pytest.raises(ConfigChangedError, match=r"network\.mlp_ratio=3\.0, which is 4\.0 now"):
        runner.run(config)


@pytest.mark.slow
def test_the_fused_scan_trains_as_the_reference_does(data_root, tmp_path):
    losses = []
    for scan in ("reference", "fused"):
        overrides = ["model=language/tensor", "scale=cpu", "model.network.dropout=0.0", "logger.mode=disabled"]
        overrides += [
            "training.steps=50",
            "training.evaluate_every=1",
            "training.warmup_steps=10",
            "training.patience=50",
        ]
        overrides += ["data.max_eval_tokens=512", f"+model.network.memory_options.scan={scan}"]
        result = runner.run(composed(*overrides, f"data.root={data_root}", f"runs.root={tmp_path}"))
        losses.append(result["history"]["validation_nats"])
    assert len(losses[0]) == 50
    # It learns: a loss that never moves would agree as well.
    assert losses[0][-1] < losses[0][0] - 1
    assert losses[1] == pytest.approx(losses[0], abs=1e-3)
