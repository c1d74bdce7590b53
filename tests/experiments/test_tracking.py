"""Which mode W&B runs in."""

from types import SimpleNamespace

import pytest
import wandb
from pytorch_lightning.loggers import WandbLogger

from experiments import tracking


@pytest.fixture
def no_key(monkeypatch, tmp_path):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_offline_without_a_key(no_key):
    assert tracking.resolve_mode("auto") == "offline"


def test_online_with_a_key(no_key, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
    assert tracking.resolve_mode("auto") == "online"


def test_online_with_a_key_in_netrc(no_key, tmp_path):
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine api.wandb.ai login user password key\n")
    netrc.chmod(0o600)
    assert tracking.resolve_mode("auto") == "online"


def test_the_environment_decides_auto(no_key, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert tracking.resolve_mode("auto") == "disabled"


def test_the_config_beats_the_environment(no_key, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "online")
    assert tracking.resolve_mode("offline") == "offline"


def test_an_unknown_mode_is_named():
    with pytest.raises(ValueError, match=r"logger\.mode='sometimes'.*offline"):
        tracking.resolve_mode("sometimes")


@pytest.fixture
def unreachable(monkeypatch):
    """W&B whose server does not answer; the modes that were tried."""
    tried = []

    def init(**settings):
        tried.append(settings["mode"])
        if settings["mode"] == "online":
            raise wandb.Error("no answer")
        return SimpleNamespace(define_metric=lambda *_, **__: None)

    monkeypatch.setattr(wandb, "init", init)
    monkeypatch.setattr(tracking, "WandbLogger", lambda experiment: experiment)
    return tried


def test_without_a_server_auto_goes_on_offline_and_online_is_an_error(
    no_key, unreachable, monkeypatch, tmp_path, capsys
):
    monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
    assert tracking.make_logger("auto", "p", tmp_path, "g", "n", "id", {})
    assert unreachable == ["online", "offline"]
    assert "W&B is not reached (no answer); logging offline" in capsys.readouterr().err
    with pytest.raises(OSError, match=r"logger\.mode=online: no answer; logger\.mode=offline needs no server"):
        tracking.make_logger("online", "p", tmp_path, "g", "n", "id", {})


def test_an_end_that_wandb_does_not_take_is_told(monkeypatch, capsys):
    class Logger(WandbLogger):
        def __init__(self):
            self.summary = {}

        experiment = property(lambda self: self)

    def finish(exit_code):
        raise wandb.Error(f"no answer to {exit_code}")

    monkeypatch.setattr(wandb, "finish", finish)
    logger = Logger()
    tracking.end_logging(logger, summary={"test_nats": 5.0})
    assert logger.summary == {"test_nats": 5.0}
    assert "no answer to 0" in capsys.readouterr().err
    tracking.end_logging(False)


def test_disabled_makes_no_logger(tmp_path):
    assert tracking.make_logger("disabled", "p", tmp_path, "g", "n", "id", {}) is False
    assert list(tmp_path.iterdir()) == []
