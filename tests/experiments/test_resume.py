"""A run that was cut off, by whatever, ends as one that was not."""

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

from experiments import runner
from experiments.checkpoints import DamagedCheckpointError, resume_point
from experiments.logged import METRICS, read_metrics
from experiments.results import RESULT
from experiments.sweeps import INTERRUPTED
from experiments.wikitext.task import LanguageTask
from tests.experiments.composing import TINY, folder_of, tiny

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("model", [pytest.param("tensor", marks=pytest.mark.slow), "transformer_xl"])
def test_a_killed_run_ends_with_the_weights_of_one_that_was_not(model, data_root, tmp_path):
    """SIGKILL, after a step drawn anew each time: no handler runs, nothing is flushed."""
    # Steps 4 and 8 are those of an evaluation; the checkpoints are at 3, 6 and 9.
    last_step = random.choice([4, 6, 8, 10])
    print(f"killed after step {last_step}")
    whole = runner.run(tiny(data_root, tmp_path / "whole", f"model=language/{model}"))

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
    assert not (folder_of(killed) / RESULT).exists()
    resumed = runner.run(killed)

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

    runner.run(tiny(data_root, roots[1]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LanguageTask, "training_step", fail)
        with pytest.raises(RuntimeError, match="out of power"):
            runner.run(tiny(data_root, roots[0]))
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
    runner.run(stopped)
    printed = capsys.readouterr().out
    assert "last.ckpt is damaged" in printed
    assert f"resuming from {folder_of(stopped) / 'previous.ckpt'}" in printed
    assert_same_end(stopped, whole)


def test_a_kill_between_two_moves_leaves_the_one_before(stopped_run):
    stopped, whole = stopped_run
    (folder_of(stopped) / "last.ckpt").unlink()
    runner.run(stopped)
    assert_same_end(stopped, whole)


def test_a_run_of_which_no_checkpoint_is_whole_says_so(stopped_run):
    stopped, _ = stopped_run
    for name in ("last.ckpt", "previous.ckpt"):
        _cut(folder_of(stopped) / name)
    with pytest.raises(
        DamagedCheckpointError, match=r"last\.ckpt is damaged.*previous\.ckpt is damaged.*move the folder"
    ):
        runner.run(stopped)


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
    runner.run(stopped)
    assert_same_end(stopped, whole)


def _same_threads():
    """The number of threads decides the order of sums, so both processes must have the same."""
    return {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}


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
    assert process.returncode == INTERRUPTED
    assert "the same command goes on from the last checkpoint" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)], ids=["SIGTERM", "SIGINT"]
)
def test_an_interrupt_in_the_test_is_one_too(number, data_root, tmp_path):
    """Lightning would end the process with the status of a success."""
    script = (
        "import os, runpy\nfrom experiments.wikitext.task import LanguageTask\n"
        f"LanguageTask.test_step = lambda *_: os.kill(os.getpid(), {int(number)})\n"
        "runpy.run_module('experiments.train', run_name='__main__', alter_sys=True)"
    )
    command = [sys.executable, "-c", script, *TINY, f"runs.root={tmp_path}", "training.steps=4"]
    command += [f"data.root={Path(data_root).resolve()}", "training.evaluate_every=4"]
    process = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.returncode == INTERRUPTED, process.stderr
    assert "interrupted at step 4: the same command goes on" in process.stderr
    assert list(tmp_path.rglob("result.json")) == []


@pytest.mark.parametrize(
    "flipped",
    # The bit of a folder is one that no checksum guards and that empties what it is set for.
    [0xFF, 0x10, *(pytest.param(1 << bit, marks=pytest.mark.slow) for bit in range(8) if bit != 4)],
    ids=hex,
)
def test_what_damage_a_byte_may_do_is_found(flipped, tmp_path):
    """Every byte of a small checkpoint in turn: contents, their headers, the directory at its end."""
    weights = {name: torch.arange(1.0, 4.0) for name in ("weight", "bias")}
    for name in ("last.ckpt", "previous.ckpt"):
        torch.save({"state_dict": weights, "global_step": 7}, tmp_path / name)
    whole = (tmp_path / "last.ckpt").read_bytes()
    found = 0
    for place in range(len(whole)):
        content = bytearray(whole)
        content[place] ^= flipped
        (tmp_path / "last.ckpt").write_bytes(bytes(content))
        path, problem = resume_point(tmp_path)
        if path.name == "previous.ckpt":
            assert "last.ckpt is damaged" in problem
            found += 1
            continue
        # A byte that nothing is read from, such as a date's.
        assert problem == ""
        actual = torch.load(path, weights_only=True)
        assert actual["global_step"] == 7, place
        assert all(torch.equal(actual["state_dict"][name], value) for name, value in weights.items()), place
    assert found > sum(value.nbytes for value in weights.values())


def test_a_checkpoint_that_may_not_be_read_is_not_taken_for_a_damaged_one(stopped_run, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("experiments.checkpoints.zipfile.ZipFile", refuse)
    with pytest.raises(PermissionError):
        resume_point(folder_of(stopped_run[0]))
