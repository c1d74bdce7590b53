"""Dashboards are made without a network up to the push, and name what runs really log."""

import json
import re
import runpy
from pathlib import Path

import pytest

from experiments import runner
from experiments.benchmarks import BENCHMARKS
from experiments.logged import METRICS, read_metrics
from experiments.resolvers import resolve
from experiments.results import load_results
from experiments.runs import run_folder
from tests.experiments.composing import composed

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def dashboards():
    """The script's names; it is no module of a package."""
    return runpy.run_path(str(ROOT / "scripts" / "dashboards.py"))


@pytest.fixture(autouse=True)
def no_key(monkeypatch, tmp_path):
    for name in ("WANDB_API_KEY", "WANDB_ENTITY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_every_benchmark_has_a_workspace_and_a_report(dashboards, tmp_path, capsys):
    assert dashboards["main"](["--entity", "someone", "--output", str(tmp_path)]) == 0
    assert set(dashboards["BOARDS"]) == set(BENCHMARKS)
    assert len(list(tmp_path.glob("*.json"))) == 2 * len(dashboards["BOARDS"])
    assert "--push makes it on W&B" in capsys.readouterr().out
    report = json.loads((tmp_path / "wikitext-report.json").read_text())
    text = json.dumps(report)
    # The published number stands in the table, and what reads the future apart.
    assert "130.30" in text
    assert "read the future" in text
    workspace = (tmp_path / "wikitext-workspace.json").read_text()
    assert "summary_metrics.test_perplexity" in workspace
    assert "wikitext" in workspace


def test_a_push_needs_a_key_and_a_name(dashboards, capsys):
    for arguments in (["--push"], ["--push", "--entity", "someone"], ["wikitxt"]):
        with pytest.raises(SystemExit):
            dashboards["main"](arguments)
    assert "wandb login" in capsys.readouterr().err


def test_panels_draw_what_a_run_logs(dashboards, tmp_path):
    config = composed(
        *("experiment=diagnostics", "scale=smoke", "model=diagnostics/tensor_layer", "training.steps=8"),
        *("training.evaluate_every=4", "training.warmup_steps=1", "trainer.log_every=4", "trainer.accelerator=cpu"),
        *("logger.mode=disabled", f"runs.root={tmp_path}"),
    )
    runner.run(config)
    logged = {name for line in read_metrics(run_folder(resolve(config)) / METRICS) for name in line}
    board = dashboards["BOARDS"]["diagnostics"]
    for panels in dashboards["sections"](board).values():
        for panel in panels:
            if getattr(panel, "metric_regex", None):
                assert any(re.fullmatch(panel.metric_regex, name) for name in logged), panel.metric_regex
            elif hasattr(panel, "y"):
                assert set(panel.y) <= logged, panel.title


@pytest.mark.parametrize("benchmark", ["wikitext", "quickstart", "diagnostics", "cub200"])
def test_a_board_compares_by_a_metric_that_results_have(dashboards, benchmark):
    board = dashboards["BOARDS"][benchmark]
    for result in load_results(benchmark):
        assert board.score in result["metrics"]
        for metric in board.curves.values():
            assert metric.replace("/", "_") in result["history"] or metric.split("/")[1] in ("perplexity",)
