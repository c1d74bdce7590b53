"""What holds for every task: sizes as declared, batches a function of the generator, settings checked."""

import doctest
import importlib
from dataclasses import FrozenInstanceError

import pytest
import torch

from experiments.diagnostics.binding import Binding
from experiments.diagnostics.map_building import MapBuilding
from experiments.diagnostics.no_harm import NoHarm
from experiments.diagnostics.occlusion import Occlusion
from experiments.diagnostics.recall import Recall

TASKS = [
    Binding(),
    Binding(num_writes=1, noise=0.0, num_queries=1, num_values=2, key_dim=1),
    MapBuilding(),
    MapBuilding(num_views=3, grid_size=5, view_size=3),
    Occlusion(),
    Occlusion(num_frames=5, num_hidden=2, occlude="middle", frame_size=6, patch=3),
    Occlusion(num_frames=3, num_hidden=1, frame_size=4, patch=1, frames="last_visible"),
    NoHarm(),
    NoHarm(num_symbols=3, sequence_length=2),
    Recall(),
    Recall(num_pairs=3, num_symbols=5, num_queries=2, gap=4),
]
each_task = pytest.mark.parametrize("task", TASKS, ids=repr)


@each_task
def test_a_batch_has_the_declared_sizes(task):
    batch = task.sample(7, torch.Generator().manual_seed(0))
    num_answers, num_outputs = batch.answers.shape
    expected = {
        "numbers": ((7, task.length, task.num_numbers), torch.float32),
        "symbols": ((7, task.length, len(task.vocabularies)), torch.int64),
        "answers": ((num_answers, num_outputs), torch.int64),
        "targets": ((7, num_answers), torch.int64),
        "best": ((7, num_answers), torch.float32),
    }
    for field, (shape, dtype) in expected.items():
        tensor = getattr(batch, field)
        assert (tuple(tensor.shape), tensor.dtype, tensor.device.type) == (shape, dtype, "cpu"), field
    for group, mask in batch.groups.items():
        assert (mask.shape, mask.dtype) == (batch.targets.shape, torch.bool), group
    assert num_answers >= 1
    assert num_outputs >= 1


@each_task
def test_values_stay_within_what_is_declared(task):
    batch = task.sample(500, torch.Generator().manual_seed(1))
    assert batch.numbers.isfinite().all()
    assert (batch.numbers.abs() <= 1).all()
    # Every symbol of every vocabulary turns up, and none beyond it; the same of classes.
    for place, size in enumerate(task.vocabularies):
        assert batch.symbols[..., place].unique().tolist() == list(range(size))
    assert batch.targets.unique().tolist() == list(range(task.num_classes))
    assert batch.answers.min() >= 0
    assert batch.answers.max() < task.length
    assert batch.answers.unique().numel() == batch.answers.numel()
    assert (batch.best >= task.chance).all()
    assert (batch.best <= 1).all()


@each_task
def test_classes_are_equally_likely(task):
    batch = task.sample(2000, torch.Generator().manual_seed(2))
    # The first answer of each sequence: those of one sequence depend on one another.
    counts = torch.bincount(batch.targets[:, 0], minlength=task.num_classes)
    spread = (2000 * task.chance * (1 - task.chance)) ** 0.5
    assert task.chance == 1 / task.num_classes
    assert (counts - 2000 * task.chance).abs().max() < 5 * spread


@each_task
def test_a_batch_is_a_function_of_the_generator(task):
    batch = task.sample(4, torch.Generator().manual_seed(3))
    torch.manual_seed(99)
    again = task.sample(4, torch.Generator().manual_seed(3))
    other = task.sample(4, torch.Generator().manual_seed(4))
    for field in ("numbers", "symbols", "answers", "targets", "best"):
        assert torch.equal(getattr(batch, field), getattr(again, field)), field
    assert batch.groups.keys() == again.groups.keys()
    for group, mask in batch.groups.items():
        assert torch.equal(mask, again.groups[group]), group
    assert not (torch.equal(batch.numbers, other.numbers) and torch.equal(batch.symbols, other.symbols))


@each_task
def test_sample_is_encode_of_draw_and_asks_no_other_stream(task):
    state = torch.get_rng_state()
    batch = task.sample(4, torch.Generator().manual_seed(5))
    encoded = task.encode(*task.draw(4, torch.Generator().manual_seed(5)))
    assert torch.equal(batch.numbers, encoded.numbers)
    assert torch.equal(batch.symbols, encoded.symbols)
    assert torch.equal(batch.targets, encoded.targets)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("kind", sorted({type(task) for task in TASKS}, key=lambda kind: kind.name))
def test_the_worked_example_is_right(kind):
    module = importlib.import_module(kind.__module__)
    [example] = [test for test in doctest.DocTestFinder().find(module) if test.examples]
    assert example.name.endswith(f".{kind.__name__}")
    result = doctest.DocTestRunner().run(example)
    assert result.attempted >= 3
    assert result.failed == 0


@each_task
def test_names_and_difficulties(task):
    assert type(task).__module__.endswith(f".{task.name}")
    assert task.difficulty is None or isinstance(getattr(task, task.difficulty), int)


def test_changed_keeps_the_other_settings():
    task = Binding(num_writes=5, noise=0.1)
    assert task.changed(num_writes=50) == Binding(num_writes=50, noise=0.1)
    assert task == Binding(num_writes=5, noise=0.1)
    with pytest.raises(FrozenInstanceError):
        task.num_writes = 6


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_write": 5}, "binding has no setting 'num_write'; did you mean num_writes?"),
        ({"noise": 0.1, "num_value": 5}, "binding has no setting 'num_value'; did you mean num_values?"),
        ({"zzz": 5}, "binding has no setting 'zzz'; did you mean .* It has num_writes, noise, num_queries"),
        ({"num_writes": 0}, "num_writes=0 must be a whole number, at least 1"),
    ],
)
def test_changed_names_what_is_wrong(settings, message):
    with pytest.raises(ValueError, match=message):
        Binding().changed(**settings)


@pytest.mark.parametrize("value", [2.0, True, "2", None])
def test_a_count_is_a_whole_number(value):
    with pytest.raises(ValueError, match=f"num_writes={value!r} must be a whole number"):
        Binding(num_writes=value)


def test_a_batch_has_at_least_one_sequence():
    with pytest.raises(ValueError, match="batch_size=0 must be a whole number, at least 1"):
        NoHarm().sample(0, torch.Generator())
