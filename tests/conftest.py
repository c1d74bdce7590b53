"""Fixtures that all tests share; shapes are checked in every test."""

import os
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

import jaxtyping
import pytest

# The hook rewrites modules as they are imported: one imported before it would go unchecked without a word.
if "tensormem" in sys.modules:
    raise RuntimeError("tensormem was imported before tests/conftest.py, so its annotations would not be checked")
jaxtyping.install_import_hook("tensormem", "beartype.beartype")


class _LoadedAsIs(MetaPathFinder):
    """What torch.compile traces is loaded without the hook, whose checks it can't trace."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, path) if name == "tensormem.memory.kernels_traced" else None


sys.meta_path.insert(0, _LoadedAsIs())


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Switches the check of annotations off, to see the error that a user gets, who has no such check."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


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
