"""Whole runs on the real text, a few steps long."""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from experiments import train
from experiments.benchmarks import BENCHMARKS
from experiments.checkpoints import DamagedCheckpointError
from experiments.metrics_file import METRICS, read_metrics
from experiments.results import read_result
from experiments.runs import ConfigChangedError, run_folder
from experiments.wikitext.task import LanguageTask
from tensormem.audit import CausalityError
from tests.experiments.composing import choices, composed

ROOT = Path(__file__).resolve().parents[2]
# 12 steps; dropout on, because its random numbers are what a resumed run gets wrong first.
TINY = [
    "scale=smoke",
    "training.steps=12",
    "training.evaluate_every=4",
    "training.warmup_steps=2",
    "data.batch_size=4",
    "data.window=21",
    "data.max_eval_tokens=700",
    "model.network.dropout=0.2",
    "trainer.accelerator=cpu",
    "trainer.log_every=2",
    "trainer.checkpoint_every=3",
    "logger.mode=disabled",
]


def tiny(data_root, runs, *overrides):
    return composed(*TINY, f"data.root={data_root}", f"runs.root={runs}", *overrides)


def folder_of(config):
    return run_folder(train.resolve(config))


@pytest.mark.parametrize("model", choices("model/language"))
def test_every_model_runs_to_a_result(model, data_root, tmp_path):
    config = tiny(data_root, tmp_path, "+sweep=wikitext", f"model=language/{model}")
    result = train.run(config)
    stored = read_result(folder_of(config) / train.RESULT)
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
    result = train.run(config)
    assert result["training"]["steps"] == 1
    assert result["metrics"]["test_targets"] == 99
    assert read_result(folder_of(config) / train.RESULT)["protocol"]["corpus"] == config.data.corpus


def test_a_model_that_reads_the_future_is_refused_before_any_work(tmp_path):
    config = tiny(tmp_path / "no-data-here", tmp_path / "runs", "model=language/tensor_depth")
    with pytest.raises(CausalityError, match=r"tensor_depth reads the future.*allow_noncausal=true"):
        train.run(config)
    assert not (tmp_path / "runs").exists()


def test_a_finished_run_is_not_run_again(data_root, tmp_path, capsys):
    config = tiny(data_root, tmp_path)
    first = train.run(config)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    again = train.run(tiny("no-data-here", tmp_path))
    assert again == json.loads(json.dumps(first))
    assert "finished before" in capsys.readouterr().out
    before.pop(folder_of(config) / ".lock")
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_checkpoints_load_with_weights_only(data_root, tmp_path):
    config = tiny(data_root, tmp_path)
    train.run(config)
    for name in ("last.ckpt", "best.ckpt"):
        assert torch.load(folder_of(config) / name, weights_only=True)["state_dict"]


@pytest.mark.parametrize("model", [pytest.param("tensor", marks=pytest.mark.slow), "transformer_xl"])
def test_a_killed_run_ends_with_the_weights_of_one_that_was_not(model, data_root, tmp_path):
    """SIGKILL, after a step drawn anew each time: no handler runs, nothing is flushed."""
    # Steps 4 and 8 are those of an evaluation; the checkpoints are at 3, 6 and 9.
    last_step = random.choice([4, 6, 8, 10])
    print(f"killed after step {last_step}")
    whole = train.run(tiny(data_root, tmp_path / "whole", f"model=language/{model}"))

    killed = tiny(data_root, tmp_path / "killed", f"model=language/{model}")
    command = [sys.executable, "-m", "experiments.train", *TINY, f"model=language/{model}"]
    command += [f"data.root={Path(data_root).resolve()}", f"runs.root={tmp_path / 'killed'}"]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=_same_threads()
    )
    try:
        for line in process.stdout:
            print(line, end="")
            if f"step {last_step}/12  train" in line:
                break
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    assert not (folder_of(killed) / train.RESULT).exists()
    resumed = train.run(killed)

    for name in ("last.ckpt", "best.ckpt"):
        expected = torch.load(folder_of(tiny(data_root, tmp_path / "whole", f"model=language/{model}")) / name)
        actual = torch.load(folder_of(killed) / name)
        for key, value in expected["state_dict"].items():
            assert torch.equal(actual["state_dict"][key], value), f"{key} of {name}"
    for block in ("metrics", "history", "loss_by_position", "gates"):
        assert resumed[block] == whole[block]
    logged = [logged_by(tiny(data_root, tmp_path / name, f"model=language/{model}")) for name in ("whole", "killed")]
    assert logged[0] == logged[1]
    assert [line["step"] for line in logged[0] if "train/nats" in line] == [2, 4, 6, 8, 10, 12]


def logged_by(config):
    """What a run logged, but for its speed."""
    lines = read_metrics(folder_of(config) / METRICS)
    return [{name: value for name, value in line.items() if "tokens_per_second" not in name} for line in lines]


@pytest.fixture(scope="module")
def stopped_and_whole(data_root, tmp_path_factory):
    """Roots of a run that stopped at its 9th step, with checkpoints before the 4th and the 7th, and of its twin."""
    roots = tmp_path_factory.mktemp("stopped"), tmp_path_factory.mktemp("whole")
    step = LanguageTask.training_step

    def fail(self, batch, batch_idx):
        if self.global_step == 8:
            raise RuntimeError("out of power")
        return step(self, batch, batch_idx)

    train.run(tiny(data_root, roots[1]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LanguageTask, "training_step", fail)
        with pytest.raises(RuntimeError, match="out of power"):
            train.run(tiny(data_root, roots[0]))
    return roots


@pytest.fixture
def stopped_run(data_root, stopped_and_whole, tmp_path):
    """Configs of a copy of the stopped run, and of its whole twin."""
    stopped, whole = stopped_and_whole
    shutil.copytree(stopped, tmp_path / "stopped")
    return tiny(data_root, tmp_path / "stopped"), tiny(data_root, whole)


def assert_same_end(config, twin):
    for name in ("last.ckpt", "best.ckpt"):
        actual, expected = (torch.load(folder_of(each) / name)["state_dict"] for each in (config, twin))
        for key, value in expected.items():
            assert torch.equal(actual[key], value), f"{key} of {name}"
    assert logged_by(config) == logged_by(twin)


def _cut(file):
    file.write_bytes(file.read_bytes()[:-1000])


def _flip(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))


@pytest.mark.parametrize("damage", [_cut, _flip, lambda file: file.write_bytes(b"")], ids=["cut", "flipped", "empty"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(damage, stopped_run, capsys):
    stopped, whole = stopped_run
    damage(folder_of(stopped) / "last.ckpt")
    train.run(stopped)
    printed = capsys.readouterr().out
    assert "last.ckpt is damaged" in printed
    assert f"resuming from {folder_of(stopped) / 'previous.ckpt'}" in printed
    assert_same_end(stopped, whole)


def test_a_kill_between_two_moves_leaves_the_one_before(stopped_run):
    stopped, whole = stopped_run
    (folder_of(stopped) / "last.ckpt").unlink()
    train.run(stopped)
    assert_same_end(stopped, whole)


def test_a_run_of_which_no_checkpoint_is_whole_says_so(stopped_run):
    stopped, _ = stopped_run
    for name in ("last.ckpt", "previous.ckpt"):
        _cut(folder_of(stopped) / name)
    with pytest.raises(
        DamagedCheckpointError, match=r"last\.ckpt is damaged.*previous\.ckpt is damaged.*move the folder"
    ):
        train.run(stopped)


def test_a_full_disk_costs_no_more_than_the_steps_since_the_last_checkpoint(data_root, stopped_run):
    stopped, whole = stopped_run
    command = [sys.executable, "-m", "experiments.train", *TINY]
    command += [f"data.root={Path(data_root).resolve()}", f"runs.root={Path(stopped.runs.root)}"]
    # No file may grow beyond 16 kB: the next checkpoint can't be written.
    process = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=_same_threads(),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (16_384, 16_384)),
    )
    assert process.returncode == 1
    assert "is the disk full? The same command resumes" in process.stderr
    assert sorted(path.name for path in folder_of(stopped).glob("*.ckpt")) == [
        "best.ckpt",
        "last.ckpt",
        "previous.ckpt",
    ]
    assert not list(folder_of(stopped).glob(".*.partial"))
    train.run(stopped)
    assert_same_end(stopped, whole)


def _same_threads():
    """The number of threads decides the order of sums, so both processes must have the same."""
    return {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}


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
    result = train.run(tiny(data_root, tmp_path, "training.learning_rate=1e-30", "training.patience=1"))
    assert result["training"]["stopped_early"]
    assert result["training"]["steps"] == 8
    assert result["training"]["budget_tokens"] == 12 * 4 * 21


def test_a_config_that_cannot_train_is_refused(data_root, tmp_path):
    with pytest.raises(Exception, match=r"training\.evaluate_every=5 must divide training\.steps=12"):
        train.run(tiny(data_root, tmp_path, "training.evaluate_every=5"))
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_says_how_to_go_on(data_root, tmp_path):
    command = [sys.executable, "-m", "experiments.train", *TINY, f"runs.root={tmp_path}"]
    # So long that the signal can't come too late.
    command += [f"data.root={Path(data_root).resolve()}", "training.steps=100000", "training.evaluate_every=50000"]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell starts what it puts into the background deaf to this signal, and so would the run be.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    for line in process.stdout:
        if "step 4/100000  train" in line:
            break
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == train.INTERRUPTED
    assert "the same command goes on from the last checkpoint" in errors
    assert "Traceback" not in errors


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
        train.run(tiny(data_root, tmp_path / "file"))


def test_a_default_that_changed_since_is_refused(data_root, tmp_path):
    config = tiny(data_root, tmp_path)
    train.run(config)
    path = folder_of(config) / "effective.json"
    effective = json.loads(path.read_text())
    # As if the run had been made when mlp_ratio, which no key of the hash names, had another default.
    effective["network"]["mlp_ratio"] = 3.0
    path.write_text(json.dumps(effective))
    with pytest.raises(ConfigChangedError, match=r"network\.mlp_ratio=3\.0, which is 4\.0 now"):
        train.run(config)


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
        result = train.run(composed(*overrides, f"data.root={data_root}", f"runs.root={tmp_path}"))
        losses.append(result["history"]["validation_nats"])
    assert len(losses[0]) == 50
    # It learns: a loss that never moves would agree as well.
    assert losses[0][-1] < losses[0][0] - 1
    assert losses[1] == pytest.approx(losses[0], abs=1e-3)
