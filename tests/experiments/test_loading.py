"""A model comes back from its path alone, as it was saved."""

import shutil

import pytest
import torch

from experiments.checkpoints import BUILT_FROM
from experiments.loading import CheckpointError, load_model
from tensormem.models.language import TensorLM


@pytest.fixture
def save(tmp_path):
    """Write a checkpoint into an empty folder."""

    def write(content, name="best.ckpt"):
        torch.save(content, tmp_path / name)
        return tmp_path / name

    return write


@pytest.fixture
def content(symbols_run):
    """What the best checkpoint holds."""
    return torch.load(symbols_run / "best.ckpt", weights_only=True)


def test_a_folder_is_its_best_checkpoint(symbols_run, content):
    model = load_model(symbols_run)
    assert isinstance(model, TensorLM)
    assert not model.training
    state = model.state_dict()
    assert {f"model.{name}" for name in state} == set(content["state_dict"])
    for name, value in state.items():
        assert torch.equal(value, content["state_dict"][f"model.{name}"]), name


@pytest.mark.parametrize("name", ["best.ckpt", "last.ckpt"])
def test_a_checkpoint_needs_nothing_beside_it(symbols_run, tmp_path, name):
    moved = shutil.copy(symbols_run / name, tmp_path / "moved.ckpt")
    model = load_model(str(moved))
    weights = torch.load(moved, weights_only=True)["state_dict"]
    assert torch.equal(model.embedding.weight, weights["model.embedding.weight"])


def test_a_checkpoint_holds_plain_containers_and_no_path(content):
    def kinds(value):
        yield type(value)
        children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        for child in children:
            yield from kinds(child)

    built_from = content[BUILT_FROM]
    assert set(kinds(built_from)) <= {dict, list, str, int, float, bool, type(None)}
    assert built_from["network"]["_target_"] == "tensormem.models.language.TensorLM"
    assert built_from["arguments"] == {"vocab_size": 24}
    assert "root" not in built_from["data"]


def test_an_older_checkpoint_takes_the_config_beside_it(symbols_run, content, save, tmp_path):
    del content[BUILT_FROM]
    path = save(content)
    with pytest.raises(CheckpointError, match=r"does not say what builds its model.*no config\.yaml beside it"):
        load_model(path)
    shutil.copy(symbols_run / "config.yaml", tmp_path)
    tokens = torch.arange(10)[None]
    assert torch.equal(load_model(path)(tokens)[0], load_model(symbols_run)(tokens)[0])
    (tmp_path / "config.yaml").write_text("seed: 0\n")
    with pytest.raises(CheckpointError, match=r"config\.yaml has no model\.network"):
        load_model(path)


def test_a_path_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere: no such run folder or checkpoint"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"holds no best\.ckpt: give the folder of a run$"):
        load_model(tmp_path)
    (tmp_path / "last.ckpt").touch()
    with pytest.raises(FileNotFoundError, match=r"before its first evaluation, give .*last\.ckpt"):
        load_model(tmp_path)


@pytest.mark.parametrize("raw", [b"", b"no checkpoint\n", b"PK\x03\x04 half an archive", bytes(range(256))])
def test_a_file_that_is_no_checkpoint_is_named(tmp_path, raw):
    (tmp_path / "best.ckpt").write_bytes(raw)
    with pytest.raises(CheckpointError, match=r"best\.ckpt is no checkpoint: give a run folder"):
        load_model(tmp_path)


def test_weights_that_the_disk_changed_are_not_taken(save, content):
    first = next(iter(content["state_dict"].values()))
    path = save(content)
    raw, weights = path.read_bytes(), first.numpy().tobytes()
    place = raw.index(weights)
    path.write_bytes(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])
    with pytest.raises(CheckpointError, match=r"best\.ckpt is damaged \(.*fails its checksum\)"):
        load_model(path)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ([1, 2], "it has no state_dict"),
        ({"weights": {}}, "it has no state_dict"),
        ({"state_dict": {"layer.weight": torch.zeros(2)}}, "its weights have no embedding"),
    ],
)
def test_a_checkpoint_of_something_else_is_named(save, other, message):
    with pytest.raises(CheckpointError, match=message):
        load_model(save(other))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dim": 8}, r"the weights are not those of the model.*result\.json"),
        ({"no_such_argument": 1}, "is another class now .*no_such_argument"),
        ({"_target_": "tensormem.models.language.GoneLM"}, "GoneLM' can't be found"),
        # A file from elsewhere must not run what it likes.
        ({"_target_": "os.system", "command": "true"}, "os.system' is no ZooModel"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(content, save, change, message):
    content[BUILT_FROM]["network"].update(change)
    with pytest.raises(CheckpointError, match=message):
        load_model(save(content))
