"""Figures of the diagnostics: which files come out, and that what they show is what was measured."""

import pytest

from experiments.diagnostics import figures
from experiments.diagnostics.groups import group_results
from experiments.drawing import COLOURS
from experiments.results import ResultError

PNG = b"\x89PNG\r\n\x1a\n"


def drawn(results, folder):
    """The names of the figures, all of which are there."""
    written = figures.draw_all(results, folder)
    names = [path.name for path in written]
    assert sorted(names) == sorted(path.name for path in folder.glob("*.png"))
    assert len(set(names)) == len(names)
    for path in written:
        content = path.read_bytes()
        assert content.startswith(PNG)
        assert len(content) > 5000, f"{path.name} is empty"
    return names


@pytest.fixture
def binding(make_run):
    """Two models over two difficulties, seeds, conditions, a missing cell, gates and an ablation."""
    further = [({"noise": 0.0}, 0.95), ({"num_writes": 50, "noise": 0.0}, 0.2), ({"num_writes": 50}, 0.3)]
    return [
        make_run("tensor", 0.9, zero=0.2, num_writes=5, published=(0.75, 0.91), gates=[0.4, 0.6], others=further),
        make_run("tensor", 0.7, zero=0.1, num_writes=20, published=(0.75, 0.91), gates=[0.3, 0.5]),
        make_run("tensor", 0.8, zero=0.1, num_writes=20, seed=1, published=(0.75, 0.91), gates=[0.4, 0.5]),
        make_run("base", 0.3, num_writes=5, published=(0.07, 0.14), others=further),
        make_run("tensor_2d", 0.6, zero=0.1, num_writes=20, gates=[0.9, 0.9], ablation=True),
    ]


def test_the_files_of_a_suite(tmp_path, make_run, binding):
    runs = [
        *binding,
        make_run("base", diagnostic="no_harm"),
        make_run("tensor", diagnostic="no_harm", gates=[0.5], scale="smoke"),
        make_run("base", diagnostic="occlusion", occlude="middle", num_hidden=0, others=[({"num_hidden": 2}, 0.4)]),
        make_run("base", diagnostic="occlusion", occlude="middle", num_hidden=6),
        make_run("base", steps="converge"),
    ]
    assert drawn(runs, tmp_path) == [
        "accuracy-binding-cpu.png",
        "steps-binding-cpu.png",
        "beyond-binding-cpu-5.png",
        "ablations-tensor-binding-cpu.png",
        "steps-binding-converge-cpu.png",
        "accuracy-occlusion-occlude-middle-cpu.png",
        "steps-occlusion-occlude-middle-cpu.png",
        "beyond-occlusion-occlude-middle-cpu-0.png",
        "steps-no_harm-cpu.png",
        "steps-no_harm-smoke.png",
        "gates-cpu.png",
        "gates-smoke.png",
    ]


def test_groups_of_one_name_do_not_overwrite_each_other(tmp_path, make_run):
    runs = [make_run(), make_run(training={"learning_rate": 1e-2}), make_run(data={"batch_size": 8})]
    names = ["steps-binding-cpu.png", "steps-binding-cpu-2.png", "steps-binding-cpu-3.png"]
    assert drawn(runs, tmp_path) == names


def test_ablations_alone_are_drawn(tmp_path, make_run):
    runs = [make_run("tensor_2d", ablation=True), make_run("tensor_2d", diagnostic="no_harm", ablation=True)]
    assert drawn(runs, tmp_path) == ["ablations-tensor-binding-cpu.png", "ablations-tensor-no_harm-cpu.png"]


def test_nothing_finished_is_nothing_drawn(tmp_path, make_run):
    with pytest.raises(ResultError, match=r"no finished result to draw; resume the runs with `make reproduce-diag"):
        figures.draw_all([make_run() | {"status": "failed"}], tmp_path)
    assert list(tmp_path.iterdir()) == []


def lines_by_label(axes):
    """Points of the labelled lines of a plot, in the order of the legend."""
    handles, labels = axes.get_legend_handles_labels()
    return {
        label: [list(map(float, values)) for values in line.get_data()]
        for handle, label in zip(handles, labels, strict=True)
        if (line := handle[0] if isinstance(handle, tuple) else handle) and hasattr(line, "get_data")
    }


def test_accuracy_by_difficulty_is_what_was_measured(axes_of, binding):
    (group,) = group_results(binding)
    axes = axes_of(figures.accuracy_by_difficulty, group)
    lines = lines_by_label(axes)
    assert lines == {
        "base": [[5], [30]],
        "tensor": [[5, 20], [90, pytest.approx(75)]],
        "tensor, reads set to zero": [[5, 20], [20, 10]],
        "best achievable": [[5, 20], [100, 100]],
        "chance": [[5, 20], [3.125, 3.125]],
    }
    silent = [line for line in axes.get_lines() if line.get_linestyle() == "--"]
    assert [list(line.get_ydata()) for line in silent] == [[20, 10]]
    # The lines of a model, as trained and with reads set to zero, have its colour.
    assert {line.get_color() for line in silent} == {COLOURS["tensor"]}
    assert [line.get_color() for line in axes.get_lines() if list(line.get_ydata()) == [30]] == [COLOURS["base"]]
    labels = axes.get_legend_handles_labels()[1]
    assert {"the paper: tensor", "the paper: attention baselines"} <= set(labels)
    assert (axes.get_xlabel(), axes.get_title()) == ("num_writes", "binding")


def test_accuracy_beyond_the_training_is_that_of_the_difficulty_alone(axes_of, binding):
    (group,) = group_results(binding)
    axes = axes_of(figures.accuracy_beyond, group, 5)
    lines = lines_by_label(axes)
    # Conditions that change something else are not on this axis.
    assert (lines["tensor"], lines["base"]) == ([[5, 50], [90, 30]], [[5, 50], [30, 30]])
    assert axes.get_title() == "binding, trained with num_writes 5"


def test_accuracy_by_step_is_of_the_greatest_difficulty_a_line_a_run(axes_of, binding):
    (group,) = group_results(binding)
    axes = axes_of(figures.accuracy_by_step, group)
    tensors = [line for line in axes.get_lines() if line.get_color() == COLOURS["tensor"]]
    assert [list(line.get_ydata()) for line in tensors] == [[35, 70], [40, 80]]
    assert [list(line.get_xdata()) for line in tensors] == [[500, 1000]] * 2
    assert list(lines_by_label(axes)) == ["tensor", "best achievable", "chance"]
    assert axes.get_title() == "binding, num_writes 20"


def test_accuracy_by_step_is_of_what_the_models_were_trained_with(axes_of, make_run):
    runs = [make_run("tensor", num_writes=5), make_run("tensor_2d", num_writes=20, ablation=True)]
    (group,) = group_results(runs)
    assert "tensor" in lines_by_label(axes_of(figures.accuracy_by_step, group))


def test_a_difficulty_of_the_ablations_alone_draws_no_line_of_the_models(tmp_path, make_run):
    runs = [make_run("tensor", num_writes=5), make_run("tensor_2d", num_writes=20, ablation=True)]
    assert drawn(runs, tmp_path) == ["steps-binding-cpu.png", "ablations-tensor-binding-cpu.png"]


def test_ablations_are_bars_from_the_worst_to_the_best(axes_of, binding):
    (group,) = group_results(binding)
    axes = axes_of(figures.ablations, group, "tensor")
    assert [text.get_text() for text in axes.get_yticklabels()] == ["tensor_2d", "tensor"]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([60, 75])


def test_a_task_without_a_difficulty_names_none(axes_of, make_run):
    runs = [make_run("tensor", diagnostic="no_harm"), make_run("tensor_2d", diagnostic="no_harm", ablation=True)]
    (group,) = group_results(runs)
    assert axes_of(figures.accuracy_by_step, group).get_title() == "no_harm"
    assert axes_of(figures.ablations, group, "tensor").get_title() == "no_harm"


def test_gates_are_points_of_runs_by_task_and_layer(axes_of, make_run, binding):
    groups = group_results([*binding, make_run("base", diagnostic="no_harm")])
    axes = axes_of(figures.gates, groups)
    points = [float(line.get_ydata()[0]) for line in axes.get_lines() if line.get_marker() == "o"]
    assert points == [0.4, 0.6, 0.3, 0.5, 0.4, 0.5], "those of the ablation are left out"
    assert [text.get_text() for text in axes.get_xticklabels()] == ["binding", "no_harm"]
