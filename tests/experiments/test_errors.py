"""A user's error is one message that says what is wrong and where."""

from __future__ import annotations

import pytest
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from pytorch_lightning import Trainer
from pytorch_lightning.accelerators import CUDAAccelerator, MPSAccelerator

from experiments import figures, tables
from experiments.errors import USER_ERRORS, explain
from experiments.report import __main__ as report
from tests.experiments.composing import composed


def test_what_a_call_is_refused_for_comes_without_the_call():
    config = composed("model.network.num_heads=3")
    with pytest.raises(InstantiationException) as raised:
        instantiate(config.model.network, vocab_size=5)
    assert explain(raised.value).startswith("num_heads=3 must")
    assert explain(raised.value).endswith("(in model.network)")
    assert "\n" not in explain(raised.value)


def test_other_errors_are_their_messages():
    assert explain(ValueError("x=3 must be 4")) == "x=3 must be 4"
    assert explain(InstantiationException("no cause")) == "no cause"


def test_what_lightning_refuses_is_a_users_error(monkeypatch):
    for kind in (CUDAAccelerator, MPSAccelerator):
        monkeypatch.setattr(kind, "is_available", staticmethod(lambda: False))
    with pytest.raises(USER_ERRORS):
        Trainer(accelerator="gpu")


@pytest.mark.parametrize(
    ("main", "arguments"),
    [
        (figures.main, ["wikitext", "--output"]),
        (tables.main, ["wikitext", "--output"]),
        (report.main, ["--no-figures", "--output"]),
    ],
    ids=["figures", "tables", "report"],
)
def test_a_place_that_cannot_be_written_is_one_message(main, arguments, tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main([*arguments, str(tmp_path / "file" / "inside")]) == 1
    message = capsys.readouterr().err.splitlines()[-1]
    assert message.startswith("error: ")
    assert "inside" in message or "file" in message
