"""A run in two processes is the run in one: the same batches, an exact evaluation, and one of them writes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from experiments.logged import METRICS, read_metrics
from experiments.results import read_result

ROOT = Path(__file__).resolve().parents[2]
# Without dropout, whose random numbers belong to a process. The batches of a smoke run can be halved.
SHORT = ["scale=smoke", "training.steps=6", "training.evaluate_every=3", "training.warmup_steps=1"]
SHORT += ["trainer.checkpoint_every=2", "trainer.log_every=2", "trainer.accelerator=cpu", "logger.mode=disabled"]
DIAGNOSTICS = ["experiment=diagnostics", "model=diagnostics/tensor_layer", "model.network.dropout=0.0"]
TASKS = {
    "diagnostics": DIAGNOSTICS,
    "wikitext": ["experiment=wikitext", "model=language/tensor", "model.network.dropout=0.0"],
    "cub200": ["experiment=cub200", "model=vision/tensor", "model.network.dropout=0.0", "model.network.drop_path=0.0"],
    "ucf101": [
        *("experiment=ucf101", "model=video/tensor", "data.folder=Weizmann4"),
        *("model.network.dropout=0.0", "model.network.drop_path=0.0"),
    ],
}


def run(root, data_root, *overrides):
    """Train; the result and what was logged."""
    command = [sys.executable, "-m", "experiments.train", *SHORT, *overrides, f"data.root={data_root}"]
    if "experiment=diagnostics" in overrides:
        command.pop()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.run(
        [*command, f"runs.root={root}"], cwd=ROOT, capture_output=True, text=True, env=environment, timeout=280
    )
    assert process.returncode == 0, process.stderr
    (path,) = root.glob("*/*/result.json")
    return read_result(path), read_metrics(path.parent / METRICS), process.stdout


@pytest.mark.slow
@pytest.mark.parametrize("benchmark", TASKS)
def test_two_processes_come_to_the_numbers_of_one(benchmark, data_root, tmp_path):
    root = Path(data_root).resolve()
    one, logged_one, _ = run(tmp_path / "one", root, *TASKS[benchmark])
    two, logged_two, printed = run(
        tmp_path / "two", root, *TASKS[benchmark], "trainer.devices=2", "trainer.strategy=ddp"
    )
    assert (one["training"]["processes"], two["training"]["processes"]) == (1, 2)
    assert two["config_hash"] == one["config_hash"]
    for name, value in one["metrics"].items():
        if isinstance(value, int):
            # Counts: no sample twice, none left out.
            assert two["metrics"][name] == value, name
        else:
            assert two["metrics"][name] == pytest.approx(value, rel=1e-3), name
    for name, values in one["history"].items():
        assert two["history"][name] == pytest.approx(values, rel=1e-3), name
    assert [line["step"] for line in logged_two] == [line["step"] for line in logged_one]
    # One of them speaks.
    assert printed.count("step 2/6  train") == 1


@pytest.mark.slow
def test_a_run_goes_on_in_another_number_of_processes(data_root, tmp_path):
    root = Path(data_root).resolve()
    whole, *_ = run(tmp_path / "whole", root, *DIAGNOSTICS)
    two, *_ = run(tmp_path / "parts", root, *DIAGNOSTICS, "trainer.devices=2", "trainer.strategy=ddp")
    folder = next((tmp_path / "parts").glob("*/*/result.json")).parent
    (folder / "result.json").unlink()
    assert torch.load(folder / "last.ckpt", weights_only=True)["global_step"] == 4
    one, _, printed = run(tmp_path / "parts", root, *DIAGNOSTICS)
    assert "resuming from" in printed
    assert one["history"]["validation_nats"] == pytest.approx(whole["history"]["validation_nats"], rel=1e-3)
    assert two["config_hash"] == one["config_hash"]
