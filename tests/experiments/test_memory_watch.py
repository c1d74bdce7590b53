"""What is logged of a memory is what it did, and looking changes nothing."""

import pytest
import torch

from experiments import runner
from experiments.logged import METRICS, read_metrics
from experiments.memory_watch import memory_summary
from experiments.resolvers import resolve
from experiments.runs import run_folder
from tensormem import TensorMemory
from tensormem.memory.observe import observed
from tests.experiments.composing import composed


def test_numbers_by_hand():
    torch.manual_seed(0)
    memory = TensorMemory(6, channels=2, grid=(3, 4), chunk=2)
    x, y = torch.randn(2, 3, 8, 6).unbind(0)
    with observed(memory) as seen:
        # Two layers, two frames.
        for tokens in (x, y, x + 1, y + 1):
            memory(tokens)
    found = memory_summary(seen, (0, 3), memory.update)
    assert {name.split("/")[1] for name in found} == {"layer_0", "layer_3"}
    sigma = torch.cat([seen[1].inputs.sigma, seen[3].inputs.sigma]).flatten()
    assert found["memory/layer_3/spread_p50"].item() == pytest.approx(sigma.median().item(), rel=0.05)
    assert found["memory/layer_3/spread_p05"] < found["memory/layer_3/spread_p95"]
    writes = torch.cat([seen[0].inputs.write_coordinates, seen[2].inputs.write_coordinates]).flatten(0, 1)
    assert found["memory/layer_0/write_1_mean"].item() == pytest.approx(writes[:, 1].mean().item(), abs=1e-6)
    assert found["memory/layer_0/write_1_deviation"].item() == pytest.approx(writes[:, 1].std(correction=0).item())
    assert 0 < found["memory/layer_0/occupancy"] <= 0.95
    # At the start the gates' biases are zero and the state is small.
    for gate in ("input", "forget", "output"):
        assert found[f"memory/layer_0/{gate}_gate"].item() == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("model", ["tensor_layer", "base"])
def test_a_run_logs_its_memory_at_each_validation(model, tmp_path):
    config = composed(
        *("experiment=diagnostics", "scale=smoke", f"model=diagnostics/{model}", "training.steps=4"),
        *("training.evaluate_every=2", "training.warmup_steps=1", "trainer.accelerator=cpu", "logger.mode=disabled"),
        "trainer.deterministic=true",
        f"runs.root={tmp_path}",
    )
    runner.run(config)
    lines = read_metrics(run_folder(resolve(config)) / METRICS)
    watched = [line for line in lines if any(name.startswith("memory/layer_1/") for name in line)]
    assert [line["step"] for line in watched] == ([2, 4] if model == "tensor_layer" else [])
    assert all("validation/nats" in line for line in watched)
    shown = (run_folder(resolve(config)) / "sample.txt").read_text().splitlines()
    assert len(shown) == 8
    assert all(line.startswith("right ") and " given " in line for line in shown)
