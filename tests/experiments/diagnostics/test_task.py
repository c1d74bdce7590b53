"""The diagnostics task: how answers are counted, what is tested, and what is refused before any work."""

import copy
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import cross_entropy

from experiments.diagnostics.binding import Binding
from experiments.diagnostics.data import DiagnosticsData
from experiments.diagnostics.map_building import MapBuilding
from experiments.diagnostics.occlusion import Occlusion
from experiments.diagnostics.task import Answers, DiagnosticsTask, answer
from experiments.training import Training
from tensormem.memory import without_reads
from tensormem.models.diagnostics import BaseDiagnostic, SlotsDiagnostic, TensorDiagnostic, Tokens
from tests.helpers import EXACT_FLOAT64, FLOAT32, assert_close, randomise

TRAINING = Training(steps=4, learning_rate=1e-3, warmup_steps=0, evaluate_every=2)
SMALL = {"dim": 8, "num_layers": 2, "num_heads": 2, "dropout": 0.0}
MEMORY = {"memory_channels": 4, "memory_grid": (3, 3), "memory_options": {"scan": "reference"}}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def make_task(data, kind=TensorDiagnostic, **arguments):
    model = kind(**data.network_arguments, **SMALL, **(MEMORY if kind is TensorDiagnostic else {}), **arguments)
    randomise(model, generator(1))
    return DiagnosticsTask.of_run(model, TRAINING, data, seed=0)


def run_test(task, data):
    """The task after a test, as Lightning runs it."""
    logged = {}
    task.log = lambda name, value: logged.update({name: value})
    task.eval()
    task.on_test_epoch_start()
    with torch.no_grad():
        for place, loader in enumerate(data.test_dataloader()):
            for number, batch in enumerate(loader):
                task.test_step(batch, number, place)
    task.on_test_epoch_end()
    return logged


@torch.no_grad()
def by_hand(model, batches, group=None):
    """Accuracy and nats of a model over the answers of batches, one after the other."""
    correct, nats = [], []
    for batch in batches:
        logits, _ = model(Tokens(batch.numbers, batch.symbols))
        for row in range(len(batch.targets)):
            for place, tokens in enumerate(batch.answers):
                if group is None or batch.groups[group][row, place]:
                    mean = torch.stack([logits[row, token] for token in tokens]).mean(0)
                    correct.append(float(mean.argmax() == batch.targets[row, place]))
                    nats.append(float(cross_entropy(mean, batch.targets[row, place])))
    return sum(correct) / len(correct), sum(nats) / len(nats)


def test_answers_are_counted_one_by_one():
    metric = Answers(["seen", "unseen", "never"])
    expected = {name: {"accuracy": [], "nats": [], "best": []} for name in metric.groups}
    for seed in range(3):
        logits = torch.randn(5, 2, 3, generator=generator(seed))
        batch = MapBuilding(num_views=1, grid_size=2, view_size=1).sample(5, generator(seed))
        seen = torch.rand(5, 2, generator=generator(10 + seed)) < 0.5
        batch = batch._replace(
            targets=torch.randint(3, (5, 2), generator=generator(seed)),
            best=torch.rand(5, 2, generator=generator(seed)),
            groups={"seen": seen, "unseen": ~seen, "never": torch.zeros_like(seen)},
        )
        metric.update(logits, batch)
        for row in range(5):
            for place in range(2):
                target = batch.targets[row, place]
                for name in ("all", "seen" if seen[row, place] else "unseen"):
                    expected[name]["accuracy"].append(float(logits[row, place].argmax() == target))
                    expected[name]["nats"].append(float(-logits[row, place].log_softmax(-1)[target]))
                    expected[name]["best"].append(float(batch.best[row, place]))
    found = metric.compute()
    assert found.pop("never") == {"answers": 0, "accuracy": None, "nats": None, "best": None}
    assert list(found) == ["all", "seen", "unseen"]
    for name, values in found.items():
        assert values.pop("answers") == len(expected[name]["accuracy"]) > 0
        for key, value in values.items():
            assert value == pytest.approx(sum(expected[name][key]) / len(expected[name][key]), rel=1e-5), (name, key)


def test_an_answer_is_the_mean_over_its_tokens():
    batch = Occlusion(num_frames=2, frame_size=4, patch=2).sample(3, generator())
    logits = torch.randn(3, 8, 4, dtype=torch.float64, generator=generator())
    # The four patches of the last frame.
    expected = (logits[:, 4] + logits[:, 5] + logits[:, 6] + logits[:, 7])[:, None] / 4
    assert_close(answer(lambda tokens: (logits, None), batch), expected, "answer", EXACT_FLOAT64)


def test_the_loss_is_the_mean_over_all_answers():
    data = DiagnosticsData(diagnostic=Binding(num_writes=4, num_queries=3), batch_size=5)
    task = make_task(data)
    batch = next(iter(data.train_dataloader()))
    logits, _ = task.model(Tokens(batch.numbers, batch.symbols))
    expected = cross_entropy(logits[:, -3:].reshape(15, 32), batch.targets.reshape(15))
    assert_close(task.loss(batch), expected, "loss", FLOAT32)
    task.loss(batch).backward()
    assert all(parameter.grad is not None for parameter in task.model.readout.parameters())


@pytest.mark.parametrize("threading", ["depth", "layer"])
def test_reads_set_to_zero_are_those_of_a_copy(threading):
    data = DiagnosticsData(
        diagnostic=Binding(num_writes=4), batch_size=16, tests=[{"num_writes": 7}], num_test_batches=2
    )
    task = make_task(data, threading=threading)
    before = copy.deepcopy(task.model.state_dict())
    logged = run_test(task, data)
    assert [metric.compute()["all"]["answers"] for metric in task.test_answers] == [2 * 16 * 4] * 4
    models = {"memory": task.model, "zero": without_reads(task.model)}
    for place, loader in enumerate(data.test_dataloader()):
        for offset, model in enumerate(models.values()):
            found = task.test_answers[2 * place + offset].compute()["all"]
            accuracy, nats = by_hand(model, loader)
            assert found["accuracy"] == pytest.approx(accuracy)
            assert found["nats"] == pytest.approx(nats, rel=1e-5)
    nats = [metric.compute()["all"]["nats"] for metric in task.test_answers]
    assert len(set(nats)) == 4, "conditions and reads all make a difference"
    assert logged == {"test/accuracy": task.test_answers[0].compute()["all"]["accuracy"]}
    assert task.model.state_dict().keys() == before.keys()
    for name, value in task.model.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize("kind", [BaseDiagnostic, SlotsDiagnostic])
def test_a_model_without_a_memory_has_no_reads_to_set_to_zero(kind):
    data = DiagnosticsData(diagnostic=MapBuilding(num_views=2), batch_size=8, num_test_batches=2)
    task = make_task(data, kind)
    run_test(task, data)
    best = SimpleNamespace(losses=[0.8, 0.6, 0.7], values={"validation/accuracy": [0.5, 0.55, 0.6]}, best_step=4)
    [test] = task.result(best)["tests"]
    assert (test["changes"], test["reads"], test["chance"]) == ({}, "memory", 0.5)
    assert test["accuracy"] == pytest.approx(by_hand(task.model, data.test_dataloader()[0])[0])


def test_the_result_is_of_the_best_evaluation_and_of_every_condition():
    task_of_data = MapBuilding(num_views=3)
    data = DiagnosticsData(diagnostic=task_of_data, batch_size=32, tests=[{"num_views": 9}], num_test_batches=2)
    task = make_task(data)
    run_test(task, data)
    best = SimpleNamespace(losses=[0.8, 0.6, 0.7], values={"validation/accuracy": [0.5, 0.55, 0.6]}, best_step=4)
    result = task.result(best)
    first = result["tests"][0]
    assert result["metrics"] == {
        "test_accuracy": first["accuracy"],
        "test_nats": first["nats"],
        "test_best": first["best"],
        "test_answers": 64,
        "chance": 0.5,
        "validation_nats": 0.6,
        "validation_accuracy": 0.55,
        "best_step": 4,
    }
    assert result["difficulty"] == {"setting": "num_views", "value": 3}
    assert [(test["changes"], test["reads"]) for test in result["tests"]] == [
        ({}, "memory"),
        ({}, "zero"),
        ({"num_views": 9}, "memory"),
        ({"num_views": 9}, "zero"),
    ]
    for test, loader in zip(result["tests"][::2], data.test_dataloader(), strict=True):
        assert list(test["groups"]) == ["seen", "unseen"]
        for name, values in test["groups"].items():
            accuracy, nats = by_hand(task.model, loader, name)
            assert values["accuracy"] == pytest.approx(accuracy)
            assert values["nats"] == pytest.approx(nats, rel=1e-5)
            assert values["best"] == {"seen": 1.0, "unseen": 0.5}[name]
        assert sum(values["answers"] for values in test["groups"].values()) == test["answers"]
    # More views leave fewer cells unseen.
    assert result["tests"][2]["best"] > result["tests"][0]["best"]
    assert result["state_bytes"]["window"] == 4
    assert len(result["gates"]) == 2


def test_a_validation_starts_anew():
    data = DiagnosticsData(diagnostic=Binding(num_writes=4), batch_size=8, num_validation_batches=2)
    task = make_task(data).eval()
    logged = []
    task.log = lambda name, value: logged.append((name, value))
    expected = []
    for seed in range(2):
        # As if it had been trained in between.
        randomise(task.model, generator(seed))
        with torch.no_grad():
            for number, batch in enumerate(data.val_dataloader()):
                task.validation_step(batch, number)
        task.on_validation_epoch_end()
        accuracy, nats = by_hand(task.model, data.val_dataloader())
        expected.append(("validation/nats", pytest.approx(nats, rel=1e-5)))
        expected.append(("validation/accuracy", pytest.approx(accuracy)))
    assert logged == expected


def test_the_longest_condition_is_tried_before_any_work():
    data = DiagnosticsData(diagnostic=Binding(num_writes=4), tests=[{"num_writes": 30}, {"num_writes": 2}])
    asked = []

    def build(max_length, **arguments):
        asked.append(max_length)
        return BaseDiagnostic(max_length=max_length - shorter, positions="learned", **arguments, **SMALL)

    shorter = 0
    assert DiagnosticsTask.preflight(build, "base", data, False) is None
    assert asked == [34]
    shorter = 1
    with pytest.raises(ValueError, match="knows 33 positions, but position 33 is asked for"):
        DiagnosticsTask.preflight(build, "base", data, False)
