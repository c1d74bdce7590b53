"""Figures: which results are drawn; the command line; what is imported where nothing is drawn."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from experiments import figures
from experiments.figures import draw_all
from experiments.results import ResultError, write_result


def test_command_line(tmp_path, make_result, capsys):
    write_result(tmp_path / "runs" / "result.json", make_result())
    output = tmp_path / "figures"
    assert figures.main(["wikitext", "--results", str(tmp_path / "runs"), "--output", str(output)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    (tmp_path / "empty").mkdir()
    assert figures.main(["wikitext", "--results", str(tmp_path / "empty"), "--output", str(output)]) == 1
    assert "make reproduce-wikitext" in capsys.readouterr().err


def test_only_finished_runs_of_one_benchmark_are_drawn(tmp_path, make_result):
    with pytest.raises(ResultError, match="no finished result to draw; resume the runs with `make reproduce-wikitext`"):
        draw_all([make_result(status="failed")], tmp_path)
    with pytest.raises(ResultError, match="results are of quickstart, wikitext"):
        draw_all([make_result(), make_result(experiment="quickstart")], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_tables_and_figures_import_without_matplotlib_or_torch():
    code = (
        "import sys, experiments.tables, experiments.figures; "
        "assert {'experiments.diagnostics.tables', 'experiments.wikitext.tables'} <= set(sys.modules); "
        "print(*({'matplotlib', 'torch', 'torchmetrics', 'pytorch_lightning', 'hydra'} & set(sys.modules)))"
    )
    root = Path(figures.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
