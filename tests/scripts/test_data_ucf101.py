"""The script that fetches UCF-101: its arguments, and how it ends."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.download import Archive
from experiments.ucf101.download import Counts, Source
from tests.experiments.ucf101.toy import write_toy

_PATH = Path(__file__).resolve().parents[2] / "scripts" / "data_ucf101.py"
_SPEC = importlib.util.spec_from_file_location("data_ucf101", _PATH)
data_ucf101 = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(data_ucf101)

NOWHERE = Source(
    Archive("UCF101.rar", "http://127.0.0.1:9/UCF101.rar", "http://127.0.0.1:9/", None),
    Archive("lists.zip", "http://127.0.0.1:9/lists.zip", "http://127.0.0.1:9/", None),
    dict.fromkeys((1, 2, 3), Counts(12, 6)),
)


def test_the_data_root_is_the_environments_or_the_arguments(tmp_path, monkeypatch, capsys):
    write_toy(tmp_path / "one", num_groups=3, num_splits=3)
    monkeypatch.setenv("TENSORMEM_DATA", str(tmp_path / "one"))
    assert data_ucf101.main([], NOWHERE) == 0
    assert "all 18 clips of 3 classes" in capsys.readouterr().out
    monkeypatch.setenv("TENSORMEM_DATA", str(tmp_path / "two"))
    assert data_ucf101.main(["--root", str(tmp_path / "one")], NOWHERE) == 0
    assert "all 18 clips of 3 classes" in capsys.readouterr().out


def test_without_a_data_root_it_says_how_to_name_one(monkeypatch, capsys):
    monkeypatch.delenv("TENSORMEM_DATA", raising=False)
    with pytest.raises(SystemExit) as caught:
        data_ucf101.main([], NOWHERE)
    assert caught.value.code == 2
    assert "set TENSORMEM_DATA" in capsys.readouterr().err


def test_a_failure_is_a_line_and_a_status(tmp_path, capsys):
    assert data_ucf101.main(["--root", str(tmp_path)], NOWHERE) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: http://127.0.0.1:9/lists.zip can't be reached")
    assert str(tmp_path / "lists.zip") in error


def test_it_runs_on_the_standard_library_alone(tmp_path):
    write_toy(tmp_path, num_groups=3, num_splits=3)
    # -S leaves the installed packages out; these clips are not the official ones, which the end says.
    command = [sys.executable, "-S", str(_PATH), "--root", str(tmp_path)]
    environment = {"PYTHONPATH": str(_PATH.parents[1])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "12 clips to train and 6 to test, must be 9,537 and 3,783" in done.stderr


def test_the_command_that_errors_name_is_there():
    subprocess.run(["make", "data-ucf101", "--dry-run"], cwd=_PATH.parents[1], check=True, capture_output=True)
