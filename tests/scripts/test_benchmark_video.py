"""The benchmark of video runs, and its README shows its file."""

import json
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def benchmark():
    """The script's names; it is no module of a package."""
    return runpy.run_path(str(ROOT / "scripts" / "benchmark_video.py"))


def test_it_measures_every_model_and_draws(benchmark, tmp_path, capsys, monkeypatch):
    # A process for each model and length takes too long here.
    monkeypatch.setitem(benchmark["main"].__globals__, "train_mib", lambda name, scale, frames, recompute: 1.0 + frames)
    arguments = ["--scale", "smoke", "--rounds", "1", "--frames", "3", "1", "--output", str(tmp_path)]
    assert benchmark["main"](arguments) == 0
    results = json.loads((tmp_path / "video.json").read_text())
    assert results["frames"] == [1, 3]
    assert set(results["models"]) == {path.stem for path in (ROOT / "conf" / "model" / "video").glob("*.yaml")}
    held = {name: row["state_bytes"] for name, row in results["models"].items()}
    assert held["base"][1] == 3 * held["base"][0]
    assert held["tensor"][0] == held["tensor"][1]
    assert all(min(row["frame_ms"]) > 0 for row in results["models"].values())
    assert (tmp_path / "video.png").stat().st_size > 10_000
    assert "| base |" in capsys.readouterr().out
    assert benchmark["main"](["--rounds", "0"]) == 2


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_memory_to_train_is_bounded_where_activations_are_computed_again(benchmark):
    # What a frame more adds: its pixels, a state and autograd's notes, against all that its layers compute.
    (few, many), (few_kept, many_kept) = (
        [benchmark["train_mib"]("tensor", "cpu", frames, recompute) for frames in (8, 64)]
        for recompute in (True, False)
    )
    # At this scale autograd's notes on a frame are as much as a third of its activations.
    assert many - few < (many_kept - few_kept) / 2


def test_the_readme_shows_the_table_of_record(benchmark):
    folder = ROOT / "experiments" / "ucf101"
    results = json.loads((folder / "benchmark" / "video.json").read_text())
    readme = (folder / "README.md").read_text()
    assert [line for line in benchmark["table"](results).splitlines() if line not in readme] == []
