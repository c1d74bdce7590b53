"""Tables of the diagnostics: columns by difficulty, reads set to zero, answers apart, conditions and gates."""

import csv
import io

import pytest

from experiments.diagnostics.tables import condition_table, diagnostics_tables, gate_table
from experiments.results import ResultError
from experiments.tables import make_table


def rows_of(section):
    """The cells of a section, by the first of each row."""
    assert len({row[0] for row in section.rows}) == len(section.rows)
    return {row[0]: list(row[1:]) for row in section.rows}


def markdown_rows(text):
    """The cells of all lines of Markdown tables."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]


@pytest.fixture
def suite(make_run):
    """Binding with two numbers of writes: a memory in two seeds, a base without the harder one, an ablation."""
    return [
        make_run("tensor", 0.9, zero=0.1, num_writes=5, published=(0.75, 0.91), gates=[0.5]),
        make_run("tensor", 0.8, zero=0.05, seed=1, num_writes=5, published=(0.75, 0.91), gates=[0.6]),
        make_run("tensor", 0.7, zero=0.06, num_writes=20, published=(0.75, 0.91), gates=[0.7]),
        make_run("base", 0.2, num_writes=5, published=(0.07, 0.14)),
        make_run("tensor_2d", 0.65, zero=0.02, num_writes=20, ablation=True),
    ]


def test_a_table_by_hand(suite):
    table, ablations = diagnostics_tables(suite)
    assert table.header == (
        "model",
        "streams",
        "seeds",
        "parameters",
        "state bytes",
        "num_writes 5",
        "num_writes 20",
        "paper",
    )
    (section,) = table.sections
    assert section.title is None
    assert rows_of(section) == {
        "best achievable": ["", "", "", "", "100.0", "100.0", ""],
        "chance": ["", "", "", "", "3.1", "3.1", ""],
        "base": ["yes", "1", "4,700,000", "5,000", "20.0", "", "7 to 14"],
        "tensor": ["yes", "1-2", "4,700,000", "20,000", "85.0 ± 7.1", "70.0", "75 to 91"],
        "tensor, reads set to zero": ["", "", "", "", "7.5 ± 3.5", "6.0", ""],
    }
    assert table.caption.startswith("binding: accuracy in %. Scale cpu")
    assert any(note.startswith("paper: ") for note in table.notes)

    assert ablations.caption.startswith("Ablations of tensor. binding: accuracy in %.")
    assert ablations.header == (
        "model",
        "seeds",
        "parameters",
        "state bytes",
        "num_writes 20",
        "num_writes 20, reads set to zero",
    )
    # base and the runs with 5 writes are no part of it, nor of the seeds and the state.
    assert rows_of(ablations.sections[0]) == {
        "tensor": ["1", "4,700,000", "20,000", "70.0", "6.0"],
        "tensor_2d": ["1", "4,700,000", "20,000", "65.0", "2.0"],
    }


def test_a_model_in_two_configurations_keeps_its_ablations_company(suite, make_run):
    suite.append(make_run("tensor", 0.6, zero=0.06, num_writes=20, network={"gamma": -2.0}, gates=[0.2]))
    _, ablations = diagnostics_tables(suite)
    assert [row[0].split(" ")[0] for row in ablations.sections[0].rows] == ["tensor", "tensor", "tensor_2d"]
    assert "they start at 0.119 or 0.5." in gate_table(suite)


def test_a_model_that_sees_the_whole_sequence_does_not_stream(make_run):
    runs = [make_run("tensor") | {"streaming": "none", "causal": False}, make_run("tensor_layer")]
    (table,) = diagnostics_tables(runs)
    rows = rows_of(table.sections[0])
    assert (rows["tensor"][0], rows["tensor_layer"][0]) == ("no", "yes")


def test_without_a_published_value_there_is_no_column_for_it(make_run):
    (table,) = diagnostics_tables([make_run(diagnostic="recall")])
    assert "paper" not in table.header
    assert not any(note.startswith("paper") for note in table.notes)
    (exact,) = diagnostics_tables([make_run(diagnostic="no_harm", published=(1.0, 1.0))])
    assert exact.header[-2:] == ("accuracy", "paper")
    assert rows_of(exact.sections[0])["base"][-2:] == ["50.0", "100"]


def test_answers_to_seen_and_unseen_cells_stand_apart(make_run):
    groups = [({"seen": 0.9, "unseen": 0.55}, 16), ({"seen": 0.7, "unseen": None}, 64)]
    runs = [
        make_run("tensor", 0.8, zero=0.5, diagnostic="map_building", num_views=views, groups=values)
        for values, views in groups
    ]
    (table,) = diagnostics_tables(runs)
    whole, seen, unseen = table.sections
    assert [section.title for section in table.sections] == [None, "seen alone", "unseen alone"]
    assert rows_of(whole)["tensor"][-2:] == ["80.0", "80.0"]
    assert rows_of(seen)["tensor"][-2:] == ["90.0", "70.0"]
    # No cell was unseen in the test with 64 views: there is nothing to say of it.
    assert rows_of(unseen)["tensor"][-2:] == ["55.0", ""]
    assert rows_of(unseen)["best achievable"][-2:] == ["100.0", ""]
    assert rows_of(seen)["tensor, reads set to zero"][-2:] == ["50.0", "50.0"]


def test_another_setting_or_another_way_to_train_is_another_table(make_run):
    runs = [make_run(), make_run(noise=0.1), make_run(steps="converge"), make_run(scale="smoke")]
    captions = [table.caption for table in diagnostics_tables(runs)]
    assert len(captions) == 4
    assert ["noise 0.1" in caption for caption in captions] == [False, True, False, False]
    assert ["until validation stops improving" in caption for caption in captions] == [False, False, True, False]
    assert "Scale smoke" in captions[-1]


def test_a_run_is_in_one_table_of_its_kind(make_run):
    (table,) = diagnostics_tables([make_run("tensor_2d", 0.4, ablation=True)])
    assert table.caption.startswith("Ablations of tensor.")
    assert rows_of(table.sections[0]) == {"tensor_2d": ["1", "4,700,000", "20,000", "40.0", ""]}


def test_an_ablation_of_a_task_without_a_difficulty(make_run):
    runs = [make_run(model, diagnostic="no_harm", ablation=model != "tensor") for model in ("tensor", "tensor_2d")]
    _, table = diagnostics_tables(runs)
    assert table.header[-2:] == ("accuracy", "accuracy, reads set to zero")
    assert rows_of(table.sections[0])["tensor_2d"][-2:] == ["50.0", ""]


def test_the_order_of_the_results_makes_no_difference(suite):
    orders = [[*suite[turn:], *suite[:turn]][::step] for turn in range(len(suite)) for step in (1, -1)]
    for style in ("markdown", "csv", "latex"):
        assert len({make_table(order, style) for order in orders}) == 1
    assert len({condition_table(order) + gate_table(order) for order in orders}) == 1


def test_unfinished_runs_are_left_out(suite, make_run):
    unfinished = make_run("base", 0.9, num_writes=20) | {"status": "interrupted"}
    assert make_table([*suite, unfinished]) == make_table(suite)
    with pytest.raises(ResultError, match=r"no finished result; resume the runs with `make reproduce-diagnostics`"):
        make_table([unfinished])
    assert condition_table([unfinished]) == gate_table([unfinished]) == ""


def test_the_records_have_every_number_unrounded(suite, make_run):
    map_building = {"diagnostic": "map_building", "grid_size": 9, "groups": {"seen": 0.123456, "unseen": None}}
    runs = [*suite, make_run("slots", 0.6, others=[({"num_views": 32}, 0.55)], **map_building)]
    rows = list(csv.DictReader(io.StringIO(make_table(runs, "csv"))))
    # A row for each run, test and group of answers.
    assert len(rows) == 4 * 2 + 1 + 2 * 3
    first = next(row for row in rows if row["model"] == "tensor" and row["seed"] == "1" and row["reads"] == "zero")
    assert first == {
        "diagnostic": "binding",
        "steps": "fixed",
        "scale": "cpu",
        "model": "tensor",
        "seed": "1",
        "trained_setting": "num_writes",
        "trained_value": "5",
        "test_changes": "",
        "reads": "zero",
        "answers_of": "all",
        "accuracy": "0.05",
        "best_achievable": "1.0",
        "chance": "0.03125",
        "answers": "640",
        "trained_grid_size": "",
    }
    apart = [row for row in rows if row["model"] == "slots" and not row["test_changes"]]
    assert [(row["answers_of"], row["accuracy"], row["answers"]) for row in apart] == [
        ("all", "0.6", "640"),
        ("seen", "0.123456", "320"),
        ("unseen", "", "0"),
    ]
    assert {row["trained_grid_size"] for row in apart} == {"9"}
    assert {row["test_changes"] for row in rows if row["model"] == "slots"} == {"", '{"num_views": 32}'}
    assert sum(row["model"] == "tensor_2d" for row in rows) == 2


def test_ablations_alone_have_records_too(make_run):
    rows = list(csv.DictReader(io.StringIO(make_table([make_run("tensor_2d", 0.4, ablation=True)], "csv"))))
    assert [(row["model"], row["accuracy"]) for row in rows] == [("tensor_2d", "0.4")]


def test_conditions_stand_beside_one_another(make_run):
    others = [({"noise": 0.0}, 0.9), ({"num_writes": 50, "noise": 0.1}, 0.4)]
    runs = [
        make_run("tensor", 0.8, zero=0.1, others=others),
        make_run("base", 0.2, others=others[:1]),
        make_run("tensor_2d", 0.7, others=others, ablation=True),
        make_run("base", 0.3, num_writes=5),
    ]
    text = condition_table(runs)
    assert text.startswith("Trained with num_writes 20. binding: accuracy in %.")
    assert text.count("Trained with") == 1, "nothing to compare where only the training's condition was tested"
    assert markdown_rows(text)[0] == ["model", "as trained", "noise 0.0", "num_writes 50, noise 0.1"]
    assert markdown_rows(text)[2:] == [
        ["best achievable", "100.0", "100.0", "100.0"],
        ["chance", "3.1", "3.1", "3.1"],
        ["base", "20.0", "90.0", ""],
        ["tensor", "80.0", "90.0", "40.0"],
        ["tensor, reads set to zero", "10.0", "45.0", "20.0"],
    ]


def test_conditions_of_a_task_without_a_difficulty(make_run):
    text = condition_table([make_run(diagnostic="no_harm", others=[({"sequence_length": 64}, 0.9)])])
    assert text.startswith("no_harm: accuracy in %.")
    assert markdown_rows(text)[0] == ["model", "as trained", "sequence_length 64"]


def test_gates_by_layer(make_run):
    runs = [
        make_run("tensor", gates=[0.4, 0.6], num_writes=5),
        make_run("tensor", gates=[0.5, 0.8], num_writes=5, seed=1),
        make_run("tensor", gates=[0.45, 0.55], num_writes=20),
        make_run("tensor_deep", gates=[0.1, 0.2, 0.3], num_writes=5),
        make_run("base", num_writes=5),
        make_run("tensor", gates=[0.5], diagnostic="no_harm"),
        make_run("base", diagnostic="recall"),
    ]
    text = gate_table(runs)
    assert "they start at 0.5" in text
    assert markdown_rows(text) == [
        ["model", "num_writes", "layer 1", "layer 2", "layer 3"],
        ["---", "---", "---:", "---:", "---:"],
        ["tensor", "5", "0.450 ± 0.071", "0.700 ± 0.141", ""],
        ["tensor", "20", "0.450", "0.550", ""],
        ["tensor_deep", "5", "0.100", "0.200", "0.300"],
        ["model", "setting", "layer 1"],
        ["---", "---", "---:"],
        ["tensor", "", "0.500"],
    ]


def test_latex_is_escaped_and_balanced(suite):
    text = make_table(suite, "latex")
    assert r"base" in text
    assert r"num\_writes 5" in text
    assert r"85.0 $\pm$ 7.1" in text
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 2
