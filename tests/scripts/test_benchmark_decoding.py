"""The benchmark of decoding runs, and its README shows its file."""

import json
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_it_measures_every_streaming_model_and_draws(tmp_path, capsys):
    benchmark = runpy.run_path(str(ROOT / "scripts" / "benchmark_decoding.py"))
    arguments = ["--scale", "smoke", "--rounds", "1", "--positions", "9", "3", "--output", str(tmp_path)]
    assert benchmark["main"](arguments) == 0
    results = json.loads((tmp_path / "decoding.json").read_text())
    assert results["positions"] == [3, 9]
    assert {"base", "local", "linear", "transformer_xl", "tensor"} <= set(results["models"])
    assert "tensor_depth" not in results["models"]
    held = {name: row["state_bytes"] for name, row in results["models"].items()}
    assert held["base"][1] == 3 * held["base"][0]
    assert held["linear"][0] == held["linear"][1]
    assert all(min(row["tokens_per_second"]) > 0 for row in results["models"].values())
    assert (tmp_path / "decoding.png").stat().st_size > 10_000
    assert "| base |" in capsys.readouterr().out
    assert benchmark["main"](["--rounds", "0"]) == 2


def test_the_readme_shows_the_table_of_record():
    folder = ROOT / "experiments" / "wikitext"
    benchmark = runpy.run_path(str(ROOT / "scripts" / "benchmark_decoding.py"))
    results = json.loads((folder / "decoding" / "decoding.json").read_text())
    readme = (folder / "README.md").read_text()
    missing = [line for line in benchmark["table"](results).splitlines() if line not in readme]
    assert missing == []
