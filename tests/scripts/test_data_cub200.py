"""The script that fetches CUB-200-2011: its arguments, and how it ends."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.download import Archive
from tests.experiments.cub200.toy import write_toy

_PATH = Path(__file__).resolve().parents[2] / "scripts" / "data_cub200.py"
_SPEC = importlib.util.spec_from_file_location("data_cub200", _PATH)
data_cub200 = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(data_cub200)

NOWHERE = Archive("CUB_200_2011.tgz", "http://127.0.0.1:9/CUB_200_2011.tgz", "http://127.0.0.1:9/", None)


def test_the_data_root_is_the_environments_or_the_arguments(tmp_path, monkeypatch, capsys):
    write_toy(tmp_path / "one", per_class=2)
    write_toy(tmp_path / "two", per_class=3)
    monkeypatch.setenv("TENSORMEM_DATA", str(tmp_path / "one"))
    assert data_cub200.main([], NOWHERE) == 0
    assert "6 of 11,788 images" in capsys.readouterr().out
    assert data_cub200.main(["--root", str(tmp_path / "two")], NOWHERE) == 0
    assert "9 of 11,788 images" in capsys.readouterr().out


def test_without_a_data_root_it_says_how_to_name_one(monkeypatch, capsys):
    monkeypatch.delenv("TENSORMEM_DATA", raising=False)
    with pytest.raises(SystemExit) as caught:
        data_cub200.main([], NOWHERE)
    assert caught.value.code == 2
    assert "set TENSORMEM_DATA" in capsys.readouterr().err


def test_a_failure_is_a_line_and_a_status(tmp_path, capsys):
    assert data_cub200.main(["--root", str(tmp_path)], NOWHERE) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: http://127.0.0.1:9/CUB_200_2011.tgz can't be reached")
    assert str(tmp_path / "CUB_200_2011.tgz") in error


def test_it_runs_on_the_standard_library_alone(tmp_path):
    write_toy(tmp_path, per_class=2)
    # -S leaves the installed packages out.
    command = [sys.executable, "-S", str(_PATH), "--root", str(tmp_path)]
    environment = {"PYTHONPATH": str(_PATH.parents[1])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "6 of 11,788 images: a part" in done.stdout


def test_the_command_that_errors_name_is_there():
    subprocess.run(["make", "data-cub200", "--dry-run"], cwd=_PATH.parents[1], check=True, capture_output=True)
