"""Kills at random moments cost no more than time."""

import runpy
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def script():
    """The script's names; it is no module of a package."""
    return runpy.run_path(str(ROOT / "scripts" / "kill_runs.py"))


@pytest.mark.slow
def test_a_run_survives_twenty_kills(script, capsys):
    assert script["main"](["--kills", "20"]) == 0
    assert "no difference" in capsys.readouterr().out


def test_what_differs_is_found(script):
    one = {"a": [1, {"b": torch.tensor([1.0, 2.0])}], "wall_seconds": 1.0, "c": 1}
    other = {"a": [1, {"b": torch.tensor([1.0, 2.5])}], "wall_seconds": 2.0}
    assert list(script["_unlike"](one, one)) == []
    assert list(script["_unlike"](one, other)) == [".a[1].b", ".c is there once"]
    assert list(script["_unlike"]([1, 2], [1])) == [": 2 and 1 entries"]
    assert list(script["_unlike"]({"x": 1}, {"x": 1.5})) == [".x: 1 and 1.5"]
