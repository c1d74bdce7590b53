"""What the tests of experiments share: results by hand, figures' axes, finished runs to load."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.experiments import made
from tests.experiments.composing import finished_run
from tests.experiments.cub200.made import make_reconstruction as reconstruction
from tests.experiments.diagnostics.made import make_run as diagnostic_run
from tests.experiments.ucf101.made import make_classification as classification


@pytest.fixture
def axes_of(monkeypatch, tmp_path):
    """Draw one figure; its axes."""

    def draw(make, what, *more):
        module, seen = sys.modules[make.__module__], []
        original = module.new_figure

        def spy(*labels):
            axes, save = original(*labels)
            seen.append(axes)
            return axes, save

        with monkeypatch.context() as patch:
            patch.setattr(module, "new_figure", spy)
            make(what, tmp_path / "figure.png", *more)
        return seen[-1]

    return draw


@pytest.fixture(scope="session")
def symbols_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a finished run of `tensor` on the generated language."""
    return finished_run(tmp_path_factory.mktemp("runs"), "corpus=synthetic", "model=language/tensor")


@pytest.fixture(scope="session")
def words_run(data_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a finished run of `base` on WikiText-2."""
    return finished_run(tmp_path_factory.mktemp("runs"), f"data.root={data_root}")


@pytest.fixture(scope="session")
def characters_run(data_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a finished run of `base` on tiny Shakespeare, with rotary positions."""
    overrides = ["corpus=shakespeare", "model.network.positions=rope", f"data.root={data_root}"]
    return finished_run(tmp_path_factory.mktemp("runs"), *overrides)


@pytest.fixture
def make_result() -> Callable[..., dict[str, Any]]:
    """See made.make_result."""
    return made.make_result


@pytest.fixture
def make_run() -> Callable[..., dict[str, Any]]:
    """See diagnostics.made.make_run."""
    return diagnostic_run


@pytest.fixture
def make_reconstruction() -> Callable[..., dict[str, Any]]:
    """See cub200.made.make_reconstruction."""
    return reconstruction


@pytest.fixture
def make_classification() -> Callable[..., dict[str, Any]]:
    """See ucf101.made.make_classification."""
    return classification
