"""The README of the scan shows the file of the benchmark of training steps."""

import json
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_readme_shows_the_table_of_record():
    folder = ROOT / "experiments" / "scan"
    benchmark = runpy.run_path(str(ROOT / "scripts" / "benchmark_training.py"))
    results = json.loads((folder / "benchmark" / "training.json").read_text())
    readme = (folder / "README.md").read_text()
    assert [line for line in benchmark["table"](results).splitlines() if line not in readme] == []
