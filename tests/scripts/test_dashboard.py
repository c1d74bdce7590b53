"""The dashboard script: the runs it finds, what it hands to `wandb leet`, what it says without runs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

_PATH = Path(__file__).resolve().parents[2] / "scripts" / "dashboard.py"
_SPEC = importlib.util.spec_from_file_location("dashboard", _PATH)
dashboard = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(dashboard)


@pytest.fixture
def root(tmp_path):
    for folder, run in (
        ("base-1", "offline-run-20260101_000000-aa"),
        ("tensor-2", "offline-run-20260301_000000-bb"),
    ):
        log = tmp_path / "runs" / folder / "wandb" / run / f"run-{run[-2:]}.wandb"
        log.parent.mkdir(parents=True)
        log.write_bytes(folder.encode())
    (tmp_path / "runs" / "half" / "wandb" / "offline-run-20260401_000000-cc").mkdir(parents=True)
    return tmp_path / "runs"


def test_runs_with_a_log_are_found_newest_first(root):
    assert [run.name[-2:] for run in dashboard.find_runs(root)] == ["bb", "aa"]
    assert [run.name[-2:] for run in dashboard.find_runs(root, "base-1")] == ["aa"]


def test_all_runs_are_gathered_into_one_folder(root, tmp_path):
    folder = dashboard.gather(dashboard.find_runs(root), tmp_path / "workspace")
    assert folder.name == "wandb"
    contents = {log.parent.name[-2:]: log.read_bytes() for log in folder.glob("offline-run-*/*.wandb")}
    assert contents == {"aa": b"base-1", "bb": b"tensor-2"}


def test_listing_takes_the_run_root_from_the_environment(root, monkeypatch, capsys):
    monkeypatch.setenv("TENSORMEM_RUNS", str(root))
    assert dashboard.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("2 offline run(s)")
    assert lines[1].strip().startswith("tensor-2/wandb/")


def test_without_runs_it_says_what_to_do(tmp_path, capsys):
    assert dashboard.main(["--root", str(tmp_path / "nothing")]) == 1
    assert "make reproduce-wikitext" in capsys.readouterr().err
