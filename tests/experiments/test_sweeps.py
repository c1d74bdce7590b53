"""Jobs of a sweep: each its own process, none stopped by another, all told at the end."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from experiments import sweeps, train
from experiments.results import read_result
from experiments.sweeps import STATUS, run_job, statuses, summary
from tests.experiments.composing import composed

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def jobs(tmp_path, monkeypatch):
    """Run a job that does what its override says, in the place of a training."""
    program = tmp_path / "job.py"
    program.write_text(
        textwrap.dedent(
            """
            import os, sys
            what = sys.argv[-1]
            print("something that is no error", file=sys.stderr)
            if what == "raise":
                raise RuntimeError("it is broken")
            if what == "exit":
                raise SystemExit("error: it is mistaken")
            if what == "kill":
                os.kill(os.getpid(), 9)
            if what == "interrupt":
                sys.exit(130)
            """
        )
    )
    popen = subprocess.Popen
    monkeypatch.setattr(
        sweeps.subprocess, "Popen", lambda command, **kwargs: popen([command[0], str(program), *command[3:]], **kwargs)
    )
    numbers = iter(range(100))

    def run(what, done=False, fail_fast=False):
        folder = tmp_path / "sweep" / str(next(numbers))
        run_job(folder, f"run-{what}", [what], done, fail_fast)
        return json.loads((folder / STATUS).read_text())

    run.sweep = tmp_path / "sweep"
    return run


def test_what_a_job_dies_of_is_kept_with_its_traceback(jobs, capfd):
    assert jobs("go") == {"state": "finished", "name": "run-go", "overrides": ["go"]}
    raised = jobs("raise")
    assert (raised["state"], raised["reason"]) == ("failed", "RuntimeError: it is broken")
    assert "Traceback (most recent call last)" in raised["traceback"]
    assert "something that is no error" in raised["traceback"]
    left = jobs("exit")
    assert (left["state"], left["reason"]) == ("failed", "error: it is mistaken")
    killed = jobs("kill")
    assert (killed["state"], killed["reason"]) == ("killed", "killed by SIGKILL")
    # What a job says is seen as it is said.
    assert capfd.readouterr().err.count("something that is no error") == 4

    text, well = summary(statuses(jobs.sweep))
    assert not well
    assert "4 jobs: 1 finished, 2 failed, 1 killed" in text
    for line in ("failed: run-raise: RuntimeError: it is broken", "experiments.train kill", "runs the 3 that are"):
        assert line in text


def test_a_finished_run_is_not_started(jobs):
    assert jobs("raise", done=True)["state"] == "finished"
    assert summary(statuses(jobs.sweep)) == ("1 jobs: 1 finished", True)


def test_fail_fast_stops_at_the_first(jobs):
    states = [jobs(what, fail_fast=True)["state"] for what in ("go", "exit", "go", "go")]
    assert states == ["finished", "failed", "skipped", "skipped"]
    assert "runs the 3 that are missing" in summary(statuses(jobs.sweep))[0]


def test_an_interrupt_ends_the_sweep(jobs):
    with pytest.raises(KeyboardInterrupt):
        jobs("interrupt")
    assert statuses(jobs.sweep)[0]["state"] == "interrupted"


def test_a_job_whose_config_names_no_run_is_run_to_say_so(monkeypatch, tmp_path):
    jobs = []
    monkeypatch.setattr(sweeps, "job_folder", lambda: tmp_path)
    monkeypatch.setattr(sweeps, "job_overrides", lambda: ["model.network._target_=nowhere.Model"])
    monkeypatch.setattr(sweeps, "run_job", lambda *arguments: jobs.append(arguments))
    train._run_job(composed("model.network._target_=nowhere.Model"))
    assert jobs == [(tmp_path, "base", ["model.network._target_=nowhere.Model"], False, False)]


def test_jobs_are_told_by_their_numbers_and_half_written_ones_are_passed_over(tmp_path):
    for number in (10, 9, 0):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / STATUS).write_text(json.dumps({"state": "finished", "name": str(number)}))
    (tmp_path / "3").mkdir()
    (tmp_path / "3" / STATUS).write_text('{"state": "fin')
    assert [status["name"] for status in statuses(tmp_path)] == ["0", "9", "10"]


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["basic", "submitit_local"])
def test_a_sweep_of_runs_goes_past_those_that_fail_and_then_runs_what_is_missing(launcher, tmp_path):
    def sweep(rates):
        command = [sys.executable, "-m", "experiments.train", "--multirun", "experiment=diagnostics", "scale=smoke"]
        command += ["training.steps=2", "training.evaluate_every=1", "trainer.log_every=1", "trainer.accelerator=cpu"]
        command += ["logger.mode=disabled", f"training.learning_rate={rates}", f"runs.root={tmp_path}"]
        command += [f"hydra/launcher={launcher}"]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)

    first = sweep("1e-3,1e30,1e-4")
    assert first.returncode == 1, first.stderr
    assert "3 jobs: 2 finished, 1 failed" in first.stderr
    assert "lower training.learning_rate" in first.stderr
    results = list(tmp_path.glob("diagnostics/*/result.json"))
    assert len({read_result(path)["config_hash"] for path in results}) == 2
    times = {path: path.stat().st_mtime_ns for path in results}

    again = sweep("1e-3,1e-4,1e-5")
    assert again.returncode == 0, again.stderr
    if launcher == "basic":
        # Elsewhere each job's output goes to a file of its own.
        assert again.stdout.count("finished before") == 2
    assert "3 jobs: 3 finished" in again.stdout
    assert {path: path.stat().st_mtime_ns for path in results} == times


@pytest.mark.slow
def test_the_offline_wandb_runs_of_a_sweep_hold_the_numbers_of_its_results(tmp_path):
    command = [sys.executable, "-m", "experiments.train", "--multirun", "experiment=diagnostics", "scale=smoke"]
    command += ["model=diagnostics/tensor_layer", "seed=0,1,2", "training.steps=6", "training.evaluate_every=3"]
    command += ["trainer.log_every=2", "trainer.accelerator=cpu", "logger.mode=offline", f"runs.root={tmp_path}"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert process.returncode == 0, process.stderr
    # What W&B says where a step comes after a later one.
    assert "step" not in "".join(line for line in process.stderr.splitlines() if "wandb" in line.lower())

    results = sorted(tmp_path.glob("diagnostics/*/result.json"))
    assert len(results) == 3
    for path in results:
        (log,) = path.parent.glob("wandb/offline-run-*/*.wandb")
        inspect = [sys.executable, "-m", "wandb", "leet", "inspect", "--summary", "--json", str(log)]
        shown = json.loads(subprocess.run(inspect, check=True, capture_output=True, text=True, timeout=60).stdout)
        result = read_result(path)
        for name, value in result["metrics"].items():
            assert shown["summary"][name] == pytest.approx(value, rel=1e-6), name
        assert shown["summary"]["trainer/global_step"] == 6
        assert shown["summary"]["validation/nats"] == pytest.approx(result["history"]["validation_nats"][-1], rel=1e-6)
