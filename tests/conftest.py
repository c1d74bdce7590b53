"""Fixtures that all tests share."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Folder of the real data sets (`TENSORMEM_DATA`); absent, the test is skipped, and fails under `CI`."""
    value = os.environ.get("TENSORMEM_DATA")
    if value and Path(value).is_dir():
        return Path(value)
    reason = "real data needed: set TENSORMEM_DATA to the folder that holds wikitext-2/"
    if value:
        reason += f" (now {value!r}, which is no folder)"
    # A skip under CI would let a broken data path pass unseen.
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
