"""A video that plays to trained models, through the command line's own function."""

import shutil

import pytest
import torch

from experiments import runner, stream_video
from experiments.loading import load_model
from experiments.resolvers import resolve
from experiments.runs import run_folder
from experiments.ucf101.data import UcfData
from tests.experiments.composing import composed
from tests.experiments.ucf101.toy import make_frames, write_clip


@pytest.fixture(scope="module")
def run(toy_root, tmp_path_factory):
    """Train a model of video for two steps on the generated clips; returns its run folder."""

    def build(model, *overrides):
        config = composed(
            "experiment=ucf101", "scale=smoke", "training.steps=2", "training.evaluate_every=2", "data.num_frames=6",
            "trainer.accelerator=cpu", "logger.mode=disabled", f"model=video/{model}", f"data.root={toy_root}",
            f"runs.root={tmp_path_factory.mktemp('runs')}", *overrides,
        )  # fmt: skip
        runner.run(config)
        return run_folder(resolve(config))

    return build


@pytest.fixture(scope="module")
def tensor_run(run):
    """A run whose model knows six frames."""
    return run("tensor")


@pytest.fixture(scope="module")
def endless_run(run):
    """A run whose model knows no end."""
    return run("registers", "model.network.times=none")


@pytest.fixture(autouse=True)
def the_data_of_the_training(toy_root, monkeypatch):
    monkeypatch.setenv("TENSORMEM_DATA", str(toy_root))


@pytest.fixture
def printed(capsys):
    """Run the command line; returns the lines that it prints."""

    def run(**arguments):
        assert stream_video.main([f"{key}={value}" for key, value in arguments.items()]) == 0
        return capsys.readouterr().out.splitlines()

    return run


@pytest.fixture
def error(capsys):
    """Run a command line that must fail; returns what it says."""

    def run(**arguments):
        assert stream_video.main([f"{key}={value}" for key, value in arguments.items()]) == 1
        return capsys.readouterr().err

    return run


def data_of(toy_root):
    data = UcfData(root=toy_root, num_frames=6, image_size=32, patch=8, batch_size=1)
    data.setup()
    return data


def line_of(number, logits, classes):
    shares = dict(zip(classes, logits.softmax(-1).tolist(), strict=True))
    best = sorted(shares, key=shares.__getitem__, reverse=True)
    return f"frame {number}: " + ", ".join(f"{name} {shares[name]:.1%}" for name in best)


def test_the_last_line_is_the_test_s_answer(tensor_run, toy_root, printed):
    data, model = data_of(toy_root), load_model(tensor_run)
    batch = next(iter(data.test_dataloader()))
    clip = toy_root / "UCF-101" / min(path.name for path in (toy_root / "UCF-101").iterdir())
    file = min(clip.glob("*_g01_c01.avi"))
    lines = printed(checkpoint=tensor_run, file=file)
    assert len(lines) == 6
    for shown, line in enumerate(lines, start=1):
        with torch.no_grad():
            logits = model(batch.frames[:, 0, :shown])[0][0]
        number = int(line.removeprefix("frame ").partition(":")[0])
        assert line == line_of(number, logits, data.classes)


def test_every_so_many_th_frame_of_a_video_without_end(endless_run, tmp_path, printed):
    write_clip(tmp_path / "long.avi", make_frames(31))
    lines = printed(checkpoint=endless_run, file=tmp_path / "long.avi", every=5, top=1)
    assert [line.partition(":")[0] for line in lines] == [f"frame {number}" for number in range(0, 31, 5)]
    assert all(line.count("%") == 1 for line in lines)


def test_of_a_short_video_the_last_frame_is_given_again(tensor_run, tmp_path, printed):
    write_clip(tmp_path / "short.avi", make_frames(4))
    lines = printed(checkpoint=tensor_run, file=tmp_path / "short.avi")
    assert [line.partition(":")[0] for line in lines] == [f"frame {number}" for number in (0, 1, 2, 3, 3, 3)]


def test_more_frames_than_the_model_has_times_for(tensor_run, tmp_path, error):
    write_clip(tmp_path / "long.avi", make_frames(9))
    assert "times=none" in error(checkpoint=tensor_run, file=tmp_path / "long.avi", every=1)


def test_a_model_that_sees_all_frames_at_once_says_what_streams(run, tmp_path, error):
    assert "a BaseVideo, which takes no video frame by frame: give a run" in error(checkpoint=run("base"), file="x.avi")


def test_mistakes_name_what_is_wrong(tensor_run, toy_root, tmp_path, error, monkeypatch):
    assert "nowhere: no such run folder" in error(checkpoint="nowhere", file="x.avi")
    assert "x.avi is not there" in error(checkpoint=tensor_run, file="x.avi")
    assert "top=0" in error(checkpoint=tensor_run, file="x.avi", top=0)
    assert "file=... is missing" in error(checkpoint=tensor_run)

    lists = shutil.copytree(toy_root / "ucfTrainTestlist", tmp_path / "ucfTrainTestlist")
    monkeypatch.setenv("TENSORMEM_DATA", str(tmp_path))
    (lists / "classInd.txt").write_text("1 Bend\n")
    assert "the model knows 3 classes, the list has 1" in error(checkpoint=tensor_run, file="x.avi")
    (lists / "classInd.txt").unlink()
    assert "classInd.txt is not there" in error(checkpoint=tensor_run, file="x.avi")


def test_help_names_every_argument(capsys):
    assert stream_video.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"\n{key} " in text for key in stream_video.Request._fields)
