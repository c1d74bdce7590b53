"""Which mode W&B runs in."""

import pytest

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


def test_disabled_makes_no_logger(tmp_path):
    assert tracking.make_logger("disabled", "p", tmp_path, "g", "n", "id", {}) is False
    assert list(tmp_path.iterdir()) == []
