"""Generated clips that several tests read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.experiments.ucf101.toy import write_toy


@pytest.fixture(scope="session")
def toy_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data root with generated clips of three classes and five groups, 24 to train on and 6 to test; read only."""
    return write_toy(tmp_path_factory.mktemp("data"))
