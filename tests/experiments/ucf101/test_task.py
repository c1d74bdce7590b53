"""The classification task: its loss, what the test scores and under which conditions."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from experiments.training import Training
from experiments.ucf101.batches import ClipBatch
from experiments.ucf101.data import UcfData
from experiments.ucf101.occlusion import CONDITIONS, Condition, shown
from experiments.ucf101.task import ClassificationTask
from tensormem.memory import without_reads
from tensormem.models.video import BaseVideo, TensorVideo
from tests.helpers import randomise

SIZE, PATCH, CLASSES = 16, 8, 7
TRAINING = Training(steps=4, learning_rate=1e-3, warmup_steps=0, evaluate_every=2)
SMALL = {"dim": 8, "num_layers": 2, "num_heads": 2, "num_classes": CLASSES, "num_frames": 4, "dropout": 0.0}
MEMORY = {"memory_channels": 4, "memory_grid": (3, 3), "memory_chunk": 2}


def make_task(kind=TensorVideo, label_smoothing=0.0):
    memory = MEMORY if kind is TensorVideo else {}
    model = kind(image_size=SIZE, patch=PATCH, drop_path=0.0, **SMALL, **memory)
    randomise(model, torch.Generator().manual_seed(1))
    return ClassificationTask.of_run(model, TRAINING, SimpleNamespace(label_smoothing=label_smoothing), seed=0)


def make_batches(*sizes, views=1):
    generator = torch.Generator().manual_seed(2)
    return [
        ClipBatch(
            torch.rand(size, views, 4, 3, SIZE, SIZE, generator=generator),
            torch.randint(CLASSES, (size,), generator=generator),
            torch.arange(size) + 10 * number,
        )
        for number, size in enumerate(sizes)
    ]


def run_test(task, batches):
    """What is logged in a test, as Lightning runs it."""
    logged = {}
    task.log = lambda name, value: logged.update({name: float(value)})
    task.eval()
    task.on_test_epoch_start()
    with torch.no_grad():
        for number, batch in enumerate(batches):
            task.test_step(batch, number)
    task.on_test_epoch_end()
    return logged


@torch.no_grad()
def by_hand(model, batches, condition):
    """Top-1 and nats over the clips of all batches; a video at a time."""
    hits, nats = [], []
    for batch in batches:
        frames = shown(batch.frames, batch.ids.tolist(), condition)
        for clip, label in zip(frames, batch.labels.tolist(), strict=True):
            mean = torch.stack([model(view[None])[0][0].softmax(-1) for view in clip]).mean(0)
            hits.append(int(mean.argmax()) == label)
            nats.append(-float(mean[label].log()))
    return sum(hits) / len(hits), sum(nats) / len(nats)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.3])
def test_the_loss_is_the_cross_entropy_with_smoothed_labels(label_smoothing):
    task, (batch,) = make_task(label_smoothing=label_smoothing), make_batches(3)
    expected = F.cross_entropy(task.model(batch.frames[:, 0])[0], batch.labels, label_smoothing=label_smoothing)
    assert float(task.loss(batch).detach()) == pytest.approx(float(expected.detach()))


def test_validation_is_without_smoothing_and_over_all_clips():
    task, batches = make_task(label_smoothing=0.3), make_batches(3, 5)
    logged = {}
    task.log = lambda name, value: logged.update({name: float(value)})
    task.eval()
    for _ in range(2):  # a second validation starts afresh
        with torch.no_grad():
            for number, batch in enumerate(batches):
                task.validation_step(batch, number)
        task.on_validation_epoch_end()
        top1, nats = by_hand(task.model, batches, CONDITIONS[0])
        assert (logged["validation/top1"], logged["validation/nats"]) == pytest.approx((top1, nats), rel=1e-4)
    assert task.monitor == "validation/nats"
    assert task.evaluation_line(logged) == f"{nats:.4f} nats, top-1 {100 * top1:.2f}%"


@pytest.mark.parametrize("views", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_every_subject_is_scored_under_every_condition(views):
    task, batches = make_task(), make_batches(3, 4, views=views)
    logged = run_test(task, batches)
    result = task.result(
        SimpleNamespace(losses=[2.0, 1.5, 1.7], values={"validation/top1": [0.1, 0.3, 0.2]}, best_step=4)
    )
    assert len(result["tests"]) == 2 * len(CONDITIONS)
    for test in result["tests"]:
        model = task.model if test["subject"] == "memory" else without_reads(task.model)
        top1, nats = by_hand(model, batches, Condition(test["condition"], test["fraction"]))
        assert test["top1"] == pytest.approx(100 * top1)
        assert test["nats"] == pytest.approx(nats, rel=1e-4)
        assert test["clips"] == 7
    metrics = result["metrics"]
    assert metrics["test_top1"] == result["tests"][0]["top1"] == pytest.approx(100 * logged["test/top1"])
    assert metrics["chance"] == pytest.approx(100 / CLASSES)
    assert (metrics["validation_nats"], metrics["validation_top1"]) == (1.5, 30)
    assert result["streaming"] == "frame"
    assert result["state_bytes"]["window"] == 4 * 5
    assert len({test["nats"] for test in result["tests"]}) == 2 * len(CONDITIONS)


def test_a_model_without_a_memory_is_not_asked_for_its_reads():
    task = make_task(BaseVideo)
    run_test(task, make_batches(2))
    assert task.subjects == ("memory",)
    assert ClassificationTask.headline({"test_top1": 89.214, "test_top5": 97}) == "test top-1 89.21%, top-5 97.00%"


def test_what_does_not_fit_is_refused_before_any_work():
    data = UcfData(root=None, image_size=SIZE, patch=PATCH, num_frames=4)
    ClassificationTask.preflight(
        lambda **more: BaseVideo(dim=8, num_layers=1, num_heads=2, **more), "base", data, False
    )
    with pytest.raises(ValueError, match="num_heads=3"):
        ClassificationTask.preflight(lambda **more: BaseVideo(dim=8, num_heads=3, **more), "base", data, False)
