"""Which diagnostic runs may be compared, which of them are seeds of a row, and what they measured."""

import itertools
import statistics

import pytest

from experiments.diagnostics.groups import find_test, group_results


@pytest.fixture
def grid(make_run):
    """Two models trained with two numbers of writes each."""
    return [
        make_run(model, accuracy, num_writes=writes)
        for model, writes, accuracy in [
            ("tensor", 20, 0.8),
            ("tensor", 5, 0.9),
            ("base", 20, 0.1),
            ("base", 5, 0.2),
        ]
    ]


def test_the_difficulty_is_no_group_of_its_own(grid):
    (group,) = group_results(grid)
    assert (group.diagnostic, group.setting, group.difficulties) == ("binding", "num_writes", (5, 20))
    assert [row.label for row in group.rows] == ["base", "tensor"]
    base, tensor = group.rows
    assert (base.measured(5).mean, base.measured(20).mean) == (0.2, 0.1)
    assert (tensor.measured(5).mean, tensor.measured(20).mean) == (0.9, 0.8)
    assert [result["metrics"]["test_accuracy"] for result in group.results] == [0.2, 0.1, 0.9, 0.8]


@pytest.mark.parametrize(
    "change",
    [
        {"noise": 0.1},
        {"num_values": 8},
        {"steps": "converge", "training": {"steps": 6000}},
        {"scale": "smoke"},
        {"training": {"learning_rate": 1e-2}},
        {"data": {"batch_size": 8}},
        {"diagnostic": "recall"},
    ],
)
def test_what_cannot_be_compared_shares_no_group(make_run, change):
    groups = group_results([make_run("base"), make_run("tensor", **change)])
    assert [[row.label for row in group.rows] for group in groups] in ([["base"], ["tensor"]], [["tensor"], ["base"]])


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"others": [({"noise": 0.0}, 0.9)]},
        # Written out or left out, a default is the same setting.
        {"noise": 0.05},
        {"num_values": 32, "key_dim": 3},
        {"training": {"precision": "32-true"}},
        {"network": {"dropout": 0.1}},
    ],
)
def test_how_a_model_is_measured_parts_no_runs(make_run, change):
    (group,) = group_results([make_run(), make_run(seed=1, **change)])
    (row,) = group.rows
    assert len(row.runs[20]) == 2


@pytest.mark.parametrize("change", [{"num_test_batches": 5}, {"num_validation_batches": 5}])
def test_other_answers_or_another_choice_of_the_checkpoint_are_another_group(make_run, change):
    assert len(group_results([make_run(), make_run(seed=1, data=change)])) == 2


def test_a_seed_that_was_run_with_several_tests_is_one_seed(make_run):
    runs = [make_run(), make_run(others=[({"noise": 0.0}, 0.9)]), make_run(seed=1)]
    for order in (runs, runs[::-1]):
        (group,) = group_results(order)
        (row,) = group.rows
        assert [(run["seed"], len(run["tests"])) for run in row.runs[20]] == [(0, 2), (1, 1)]


def test_a_key_of_the_data_that_came_later_parts_no_old_runs_from_new_ones(make_run, monkeypatch):
    from experiments.diagnostics import data

    class Later(data.DiagnosticsData):
        def __init__(self, *, shuffle=False, **kwargs):
            super().__init__(**kwargs)

    monkeypatch.setattr(data, "DiagnosticsData", Later)
    assert len(group_results([make_run(), make_run(seed=1, data={"shuffle": False})])) == 1
    assert len(group_results([make_run(), make_run(seed=1, data={"shuffle": True})])) == 2


def test_seeds_are_pooled_by_their_mean_and_sample_deviation(make_run):
    values = [0.4, 0.5, 0.9]
    runs = [make_run("tensor", value, zero=value / 10, seed=seed) for seed, value in enumerate(values)]
    ((row,),) = (group.rows for group in group_results(reversed(runs)))
    assert [result["seed"] for result in row.runs[20]] == [0, 1, 2]
    assert row.measured(20).mean == pytest.approx(0.6)
    assert row.measured(20).deviation == pytest.approx(((0.2**2 + 0.1**2 + 0.3**2) / 2) ** 0.5)
    assert row.measured(20, reads="zero").mean == pytest.approx(0.06)
    assert row.measured(20).deviation == pytest.approx(statistics.stdev(values))


def test_one_seed_has_no_deviation_and_what_was_not_measured_is_none(make_run):
    ((row,),) = (group.rows for group in group_results([make_run("base", 0.3)]))
    assert row.measured(20).deviation is None
    assert row.measured(5) is None
    assert row.measured(20, {"noise": 0.0}) is None
    assert row.measured(20, reads="zero") is None


def test_conditions_and_reads_are_told_apart(make_run):
    run = make_run("tensor", 0.8, zero=0.1, others=[({"noise": 0.0}, 0.9), ({"noise": 0.0, "num_writes": 50}, 0.3)])
    ((row,),) = (group.rows for group in group_results([run]))
    assert row.measured(20, {"noise": 0.0}).mean == 0.9
    assert row.measured(20, {"num_writes": 50, "noise": 0.0}).mean == 0.3
    assert row.measured(20, {"noise": 0.0}, "zero").mean == 0.45
    assert find_test(run, {"num_writes": 50}, "memory") is None


def test_groups_of_answers_are_measured_apart(make_run):
    runs = [
        make_run("base", 0.7, diagnostic="map_building", num_views=views, groups={"seen": seen, "unseen": unseen})
        for views, seen, unseen in [(16, 0.8, 0.5), (64, 0.6, None)]
    ]
    (group,) = group_results(runs)
    (row,) = group.rows
    assert group.answer_groups == ("seen", "unseen")
    assert row.measured(16, group="seen").mean == 0.8
    assert row.measured(16, group="unseen").mean == 0.5
    # With 64 views no cell was unseen.
    assert row.measured(64, group="unseen") is None
    assert group.reference(64, "best", "unseen") is None
    assert group.reference(64, "chance", "unseen") == 0.5
    assert group.reference(64, "best", "seen") == 1.0
    assert group.reference(32, "best") is None


def test_settings_tell_variants_of_a_model_apart(make_run):
    runs = [make_run("tensor", network={"memory_grid": [side] * 3}) for side in (4, 8)]
    (group,) = group_results(runs)
    assert [row.label for row in group.rows] == ["tensor (memory_grid=[4, 4, 4])", "tensor (memory_grid=[8, 8, 8])"]


def test_ablations_come_last(make_run):
    runs = [make_run("a_ablation", ablation=True), make_run("tensor"), make_run("base_wide"), make_run("base")]
    (group,) = group_results(runs)
    assert [(row.label, row.ablation) for row in group.rows] == [
        ("base", None),
        ("base_wide", None),
        ("tensor", None),
        ("a_ablation", "tensor"),
    ]


def test_ablations_are_of_the_memory_beside_attention_or_of_the_memory_alone(make_run):
    alone = {"window": 1}
    runs = [make_run("tensor"), make_run("tensor_local", network=alone), make_run("tensor_2d", ablation=True)]
    (group,) = group_results([*runs, make_run("tensor_2d", network=alone, ablation=True)])
    assert group.ablated == ("tensor", "tensor_local")
    compared = {model: [row.label for row in group.ablations(model)] for model in group.ablated}
    assert compared == {
        "tensor": ["tensor", "tensor_2d (window=null)"],
        "tensor_local": ["tensor_local", "tensor_2d (window=1)"],
    }


def test_the_main_rows_leave_out_what_only_ablations_have(make_run):
    runs = [make_run("tensor", num_writes=5), make_run("tensor_2d", num_writes=20, ablation=True)]
    (group,) = group_results(runs)
    assert group.difficulties == (5, 20)
    assert group.main.difficulties == (5,)
    assert [row.label for row in group.main.rows] == ["tensor"]
    (alone,) = group_results(runs[1:])
    assert (alone.main.rows, alone.main.difficulties) == ((), ())


def test_a_task_without_a_difficulty_has_one_column(make_run):
    (group,) = group_results([make_run(diagnostic="no_harm"), make_run("tensor", diagnostic="no_harm")])
    assert (group.setting, group.difficulties) == (None, (None,))
    assert group.rows[0].measured(None).mean == 0.5


def test_groups_go_by_task_then_scale_then_steps(make_run):
    runs = [
        make_run(diagnostic="recall"),
        make_run(scale="smoke"),
        make_run(steps="converge"),
        make_run(diagnostic="occlusion", frames="last_visible", occlude="middle", num_hidden=2),
        make_run(),
        make_run(scale="paper"),
        make_run(noise=0.0),
    ]
    expected = [
        "binding-paper",
        "binding-cpu",
        "binding-noise-0-cpu",
        "binding-converge-cpu",
        "binding-smoke",
        "occlusion-frames-last_visible-occlude-middle-cpu",
        "recall-cpu",
    ]
    assert [group.slug for group in group_results(runs)] == expected
    assert [group.slug for group in group_results(reversed(runs))] == expected


def test_the_order_of_the_results_makes_no_difference(make_run):
    # Two groups of one name among them: they differ in the learning rate.
    runs = [make_run("base"), make_run("tensor"), make_run("base", seed=1)]
    runs.append(make_run("base", 0.9, training={"learning_rate": 1e-2}))
    found = [group_results(order) for order in itertools.permutations(runs)]
    assert len(found[0]) == 2
    assert all(groups == found[0] for groups in found)


@pytest.mark.parametrize("status", ["interrupted", "failed"])
def test_unfinished_runs_are_left_out(make_run, status):
    unfinished = make_run("tensor") | {"status": status}
    assert group_results([unfinished]) == []
    assert group_results([make_run(), unfinished]) == group_results([make_run()])


def test_the_caption_says_what_all_rows_have_in_common(make_run):
    (fixed,) = group_results([make_run(noise=0.1)])
    assert fixed.caption == (
        "binding, noise 0.1: accuracy in %. Scale cpu, as many steps for every model: 1,000 steps of 32 sequences, "
        "learning rate 0.001; 640 test answers; on Some CPU, 2 threads."
    )
    (converged,) = group_results([make_run(steps="converge")])
    assert "each model until validation stops improving: at most 1,000 steps" in converged.caption
