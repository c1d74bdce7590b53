"""Generated images that several tests train on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.experiments.cub200.toy import write_toy


@pytest.fixture(scope="session")
def toy_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data root with generated images, 9 to train, 3 to validate and 6 to test."""
    root = tmp_path_factory.mktemp("data")
    write_toy(root)
    return root
