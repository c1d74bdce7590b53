"""What a run logged lies in its folder, each step once."""

import json

import pytest
from pytorch_lightning.loggers import Logger

from experiments.logged import METRICS, read_metrics
from experiments.metrics_file import MetricsFile


class FakeTrainer:
    """As far as the file looks."""

    global_step = 0


@pytest.fixture
def metrics(tmp_path):
    file = MetricsFile(tmp_path)
    file.trainer = FakeTrainer()
    return file


def test_a_line_has_the_steps_that_are_done(metrics, tmp_path):
    assert isinstance(metrics, Logger)
    metrics.trainer.global_step = 20
    # Lightning counts from 0.
    metrics.log_metrics({"train/nats": 5.5, "epoch": 0}, step=19)
    metrics.log_metrics({"epoch": 0}, step=19)
    metrics.log_metrics({"validation/nats": float("nan")}, step=19)
    text = (tmp_path / METRICS).read_text()
    assert [json.loads(line) for line in text.splitlines()] == [
        {"step": 20, "train/nats": 5.5},
        {"step": 20, "validation/nats": None},
    ]


def test_a_resumed_run_forgets_what_it_does_again(metrics, tmp_path):
    metrics.rewind(0)
    for step in (10, 20, 30):
        metrics.trainer.global_step = step
        metrics.log_metrics({"train/nats": float(step)})
    metrics.rewind(20)
    metrics.trainer.global_step = 30
    metrics.log_metrics({"train/nats": 31.0})
    assert [(line["step"], line["train/nats"]) for line in read_metrics(metrics.path)] == [
        (10, 10.0),
        (20, 20.0),
        (30, 31.0),
    ]
    assert [path.name for path in tmp_path.iterdir()] == [METRICS]


@pytest.mark.parametrize("tail", [b'{"step": 30, "train', b"\x00\x00\x00", b"[1]\n", b'{"train/nats": 1}\n'])
def test_a_line_that_was_cut_off_is_left_out(metrics, tail):
    metrics.trainer.global_step = 10
    metrics.log_metrics({"train/nats": 1.0})
    with metrics.path.open("ab") as file:
        file.write(tail)
    assert [line["step"] for line in read_metrics(metrics.path)] == [10]
    metrics.rewind(10)
    metrics.log_metrics({"train/nats": 2.0})
    assert [line["train/nats"] for line in read_metrics(metrics.path)] == [1.0, 2.0]
