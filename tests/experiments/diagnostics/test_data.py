"""The data module: what a batch is a function of, what the conditions are, and what is refused."""

import itertools

import pytest
import torch
from hydra.utils import instantiate

from experiments.diagnostics.binding import Binding
from experiments.diagnostics.data import Condition, DiagnosticsData, TrainingBatches, share_of
from experiments.diagnostics.map_building import MapBuilding
from experiments.diagnostics.no_harm import NoHarm
from experiments.diagnostics.occlusion import Occlusion
from experiments.diagnostics.recall import Recall
from tests.experiments.composing import composed

TASK = Binding(num_writes=5, num_queries=2)


def first(batches, count):
    return list(itertools.islice(batches, count))


def tensors(batch):
    """All that a batch holds, by name."""
    return {**batch._asdict(), **batch.groups} | {"groups": torch.tensor(len(batch.groups))}


def assert_same(actual, expected):
    for one, other in zip(actual, expected, strict=True):
        for name, tensor in tensors(other).items():
            assert torch.equal(tensors(one)[name], tensor), name


def assert_all_differ(batches):
    for one, other in itertools.combinations(batches, 2):
        assert not torch.equal(one.numbers, other.numbers)


def test_a_training_batch_is_a_function_of_seed_and_number():
    whole = first(TrainingBatches(TASK, 4, seed=3), 5)
    torch.manual_seed(99)
    assert_same(first(TrainingBatches(TASK, 4, seed=3), 5), whole)
    assert_same(first(TrainingBatches(TASK, 4, seed=3, start=2), 3), whole[2:])
    assert_all_differ([*whole, *first(TrainingBatches(TASK, 4, seed=4), 5)])


@pytest.mark.parametrize("task", [TASK, MapBuilding(num_views=3)], ids=["binding", "map_building"])
def test_the_shares_of_the_processes_are_the_whole_batch(task):
    whole = first(TrainingBatches(task, 6, seed=0, start=1), 2)
    for rank in range(2):
        share = first(TrainingBatches(task, 6, seed=0, start=1, rank=rank, world_size=2), 2)
        assert_same(share, [share_of(batch, slice(3 * rank, 3 * rank + 3)) for batch in whole])
        assert [len(batch.targets) for batch in share] == [3, 3]
    halves = [share_of(whole[0], slice(0, 3)), share_of(whole[0], slice(3, 6))]
    for name in ("numbers", "symbols", "targets", "best"):
        assert torch.equal(torch.cat([getattr(half, name) for half in halves]), getattr(whole[0], name)), name
    for name, mask in whole[0].groups.items():
        assert torch.equal(torch.cat([half.groups[name] for half in halves]), mask), name


def test_processes_share_a_batch_evenly_or_not_at_all():
    with pytest.raises(ValueError, match=r"data\.batch_size=5 must be a multiple of the 2 processes"):
        TrainingBatches(TASK, 5, seed=0, world_size=2)


class Trainer:
    """What the data module asks of the trainer that it is attached to."""

    def __init__(self, step=0, accumulate=1, rank=0, world_size=1):
        self.global_step, self.accumulate_grad_batches = step, accumulate
        self.global_rank, self.world_size = rank, world_size


@pytest.mark.parametrize(("step", "accumulate", "start"), [(0, 1, 0), (3, 1, 3), (3, 2, 6)])
def test_a_resumed_run_goes_on_with_the_next_batch(step, accumulate, start):
    data = DiagnosticsData(diagnostic=TASK, batch_size=4, seed=7)
    data.trainer = Trainer(step, accumulate)
    assert_same(first(data.train_dataloader(), 2), first(TrainingBatches(TASK, 4, seed=7, start=start), 2))


def test_a_process_gets_its_share():
    data = DiagnosticsData(diagnostic=TASK, batch_size=4)
    data.trainer = Trainer(rank=1, world_size=2)
    assert_same(first(data.train_dataloader(), 2), first(TrainingBatches(TASK, 4, 0, rank=1, world_size=2), 2))


def test_evaluations_are_the_same_for_every_seed_and_share_no_batch():
    zero, one = (
        DiagnosticsData(diagnostic=TASK, batch_size=4, seed=seed, num_validation_batches=2, num_test_batches=3)
        for seed in range(2)
    )
    validation, [test] = list(zero.val_dataloader()), map(list, zero.test_dataloader())
    assert (len(validation), len(test)) == (2, 3)
    assert_same(one.val_dataloader(), validation)
    assert_same(one.test_dataloader()[0], test)
    assert_same(zero.val_dataloader(), validation)
    # The evaluation's seed is 0, as that of these training batches is.
    assert_all_differ([*validation, *test, *first(zero.train_dataloader(), 3)])


def test_without_tests_the_condition_is_that_of_the_training():
    data = DiagnosticsData(diagnostic=TASK)
    assert data.conditions == [Condition({}, TASK)]
    assert data.conditions[0].diagnostic is TASK


def test_conditions_are_the_training_then_what_is_changed():
    tests = [{"num_writes": 5}, {"noise": 0.05, "num_queries": 2}, {"num_writes": 9, "noise": 0.05}, {"noise": 0.0}, {}]
    data = DiagnosticsData(diagnostic=TASK, tests=tests)
    assert data.conditions == [
        Condition({}, TASK),
        Condition({"num_writes": 9}, Binding(num_writes=9, num_queries=2)),
        Condition({"noise": 0.0}, Binding(num_writes=5, num_queries=2, noise=0.0)),
    ]
    assert [len(loader) for loader in data.test_dataloader()] == [20, 20, 20]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_writs": 9}, r"data\.tests: binding has no setting 'num_writs'; did you mean num_writes\?"),
        # Not dropped either where the task has an attribute of this name or a value that looks like no value.
        ({"num_writs": None}, r"data\.tests: binding has no setting 'num_writs'"),
        ({"length": 7}, r"data\.tests: binding has no setting 'length'"),
        ({"num_writes": 0}, r"data\.tests: num_writes=0 must be a whole number, at least 1"),
        ({"num_values": 8}, r"data\.tests: \{'num_values': 8\} changes what tokens or answers are"),
        ({"key_dim": 2}, r"data\.tests: \{'key_dim': 2\} changes what tokens or answers are"),
    ],
)
def test_a_test_that_the_model_could_not_take_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        DiagnosticsData(diagnostic=TASK, tests=[{"noise": 0.0}, changes])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("batch_size", 0, "batch_size=0: must be at least 1"),
        ("seed", -1, "seed=-1: must be at least 0"),
        ("num_validation_batches", 0, "num_validation_batches=0: must be at least 1"),
        ("num_test_batches", 0, "num_test_batches=0: must be at least 1"),
    ],
)
def test_bad_arguments_are_named(name, value, message):
    with pytest.raises(ValueError, match=message):
        DiagnosticsData(diagnostic=TASK, **{name: value})


def test_the_network_knows_the_longest_sequence():
    data = DiagnosticsData(diagnostic=TASK, tests=[{"num_writes": 30}, {"num_writes": 3}])
    assert data.longest == 32
    assert data.network_arguments == {
        "num_numbers": 3,
        "vocabularies": [2, 33],
        "num_classes": 32,
        "max_length": 32,
    }
    assert DiagnosticsData(diagnostic=TASK, tests=[{"num_writes": 3}]).longest == 7


@pytest.mark.parametrize(
    ("task", "longer"),
    [
        (Binding(), {"num_writes": 50}),
        (MapBuilding(), {"num_views": 32}),
        (NoHarm(), {"sequence_length": 40}),
        (Recall(), {"num_pairs": 16}),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_longer_test_changes_the_length_alone(task, longer):
    (expected, longest) = (DiagnosticsData(diagnostic=task, tests=tests).network_arguments for tests in ([], [longer]))
    assert longest.pop("max_length") > expected.pop("max_length")
    assert longest == expected


def test_tokens_are_counted():
    data = DiagnosticsData(
        diagnostic=TASK, batch_size=4, tests=[{"num_writes": 30}], num_validation_batches=3, num_test_batches=2
    )
    assert data.tokens_per_step == 4 * 7
    assert data.num_evaluation_tokens == (3 * 4 * 7, 2 * 4 * (7 + 32))
    assert sum(batch.symbols[..., 0].numel() for batch in data.val_dataloader()) == data.num_evaluation_tokens[0]
    tested = sum(batch.symbols[..., 0].numel() for loader in data.test_dataloader() for batch in loader)
    assert tested == data.num_evaluation_tokens[1]
    assert data.source == "generated"


def test_the_config_makes_it():
    data = instantiate(composed("experiment=diagnostics", "diagnostic=occlusion", "scale=smoke", "seed=5").data)
    assert data.diagnostic == Occlusion(num_hidden=4, patch=8)
    assert (data.seed, data.batch_size) == (5, 16)
    # The test with as many hidden frames as in the training is the training's.
    assert [condition.changes for condition in data.conditions] == [{}, {"num_hidden": 2}, {"num_hidden": 6}]
