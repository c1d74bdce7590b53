"""Tables of the language models: what shares a ranking, in which order, with which marks; the three formats."""

from __future__ import annotations

import csv
import io
import itertools
import math
import statistics

import pytest

from experiments.results import ResultError, load_results
from experiments.tables import make_table
from experiments.wikitext.tables import group_results, language_tables


def cells(table: str) -> list[list[str]]:
    """The body rows of the first Markdown table."""
    lines = [line for line in table.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.fixture
def zoo(make_result):
    """A base, two honest memories and one that reads the future and therefore scores best."""
    return [
        make_result(
            model="tensor_depth",
            causal=False,
            streaming="none",
            metrics__test_perplexity=90.0,
            published={"test_perplexity": 100.07},
        ),
        make_result(model="tensor", metrics__test_perplexity=150.0),
        make_result(model="alpha", metrics__test_perplexity=140.0),
        make_result(model="base", metrics__test_perplexity=160.0, published={"test_perplexity": 130.30}),
    ]


def test_causal_rows_come_first_and_the_leaking_one_is_marked_below_a_separator(zoo):
    table = make_table(zoo)
    rows = cells(table)
    assert [row[0] for row in rows[:3]] == ["base", "alpha", "tensor"]
    assert rows[3][0].startswith("_not causal")
    assert not any(rows[3][1:])
    assert rows[4][:2] == ["tensor_depth", "no: reads the future"]
    assert [row[1] for row in rows[:3]] == ["yes"] * 3
    assert len({len(row) for row in rows}) == 1


def test_the_papers_value_stands_in_its_own_row_with_a_note(zoo):
    table = make_table(zoo)
    assert {row[0]: row[-1] for row in cells(table) if row[-1]} == {
        "base": "130.30",
        "tensor_depth": "100.07",
    }
    assert "paper: test perplexity as published, from the paper's own protocol" in table


def test_no_separator_without_a_leaking_row(zoo):
    assert "not causal" not in make_table([result for result in zoo if result["causal"]])


def test_the_table_does_not_depend_on_the_order_of_the_files(zoo):
    more = [*zoo[:2], zoo[2] | {"scale": "paper"}, zoo[3]]
    assert len({make_table(list(order)) for order in itertools.permutations(more)}) == 1


def test_seeds_of_a_model_are_one_row_with_sample_deviation(make_result):
    values = [100.0, 104.0, 111.0]
    results = [make_result(seed=s, metrics__test_perplexity=v) for s, v in enumerate(values)]
    (group,) = group_results(results)
    (row,) = group.rows
    assert row.seeds == (0, 1, 2)
    assert row.test_perplexity.mean == pytest.approx(105.0)
    assert row.test_perplexity.deviation == pytest.approx(statistics.stdev(values))
    assert cells(make_table(results))[0][7] == "105.00 ± 5.57"
    assert "sample standard deviation" in make_table(results)


def test_one_seed_has_no_deviation(make_result):
    table = make_table([make_result()])
    assert "±" not in table
    assert cells(table)[0][2:9] == ["1", "4,700,000", "1,048,576", "10,000", "220.00", "210.00", ""]


@pytest.mark.parametrize(
    "change",
    [
        {"protocol": {"vocabulary": "paper", "evaluation": "full", "init": "tuned"}},
        {"scale": "smoke"},
        {"training__tokens": 2_000_000},
    ],
)
def test_what_cannot_be_compared_never_shares_a_table(make_result, change):
    groups = group_results([make_result(), make_result(model="tensor", **change)])
    assert [len(group.rows) for group in groups] == [1, 1]
    table = make_table([make_result(), make_result(model="tensor", **change)])
    assert table.count("| model |") == 2


def test_the_honest_protocol_and_the_larger_scale_come_first(make_result):
    published = make_result(protocol={"vocabulary": "paper", "evaluation": "paper"}, scale="paper")
    results = [published, make_result(scale="smoke"), make_result(scale="cpu")]
    groups = group_results(results)
    assert [group.scale for group in groups] == ["cpu", "smoke", "paper"]
    assert "Published protocol, not ours, in: evaluation, vocabulary." in groups[2].caption
    assert "Published" not in groups[0].caption
    assert groups[0].caption.startswith(
        "Scale cpu, 1,000,000 training tokens in windows of 8, 241,210 test targets; "
        "attn_dropout matched, evaluation full, init tuned"
    )
    assert "Some CPU, 2 threads" in groups[0].caption


def test_a_run_that_stopped_early_stays_with_its_budget_and_is_marked(make_result):
    early = make_result(model="tensor", training__tokens=400_000, training__stopped_early=True)
    early["training"]["budget_tokens"] = 1_000_000
    (group,) = group_results([make_result(), early])
    assert [row.stopped_early for row in group.rows] == [False, True]
    table = make_table([make_result(), early])
    assert cells(table)[1][0] == "tensor\\*"
    assert "stopped before the budget" in table


def test_a_key_that_came_later_does_not_part_old_runs_from_new_ones(make_result):
    before = make_result(config_hash="a")
    after = make_result(config_hash="b", seed=1)
    after["config"]["model"]["network"]["attn_dropout"] = "matched"
    after["config"]["data"]["corpus"] = "wikitext-2"
    after["protocol"]["attn_dropout"] = "matched"
    (group,) = group_results([before, after])
    assert [(row.model, row.seeds) for row in group.rows] == [("base", (0, 1))]


@pytest.mark.parametrize("change", [{"state_bytes__window": 16}, {"metrics__test_targets": 700}])
def test_another_window_or_a_cut_evaluation_is_another_table(make_result, change):
    assert len(group_results([make_result(), make_result(config_hash="b", **change)])) == 2


@pytest.mark.parametrize("change", [{"seed": 7}, {"num_symbols": 8}, {"concentration": 1.0}])
def test_another_generated_language_is_another_table_with_its_own_floor(make_result, change):
    markov = {"num_symbols": 24, "order": 1, "concentration": 0.3, "seed": 0}
    results = []
    for language, floor, reached in ((markov, 9.0, 9.5), (markov | change, 3.0, 3.5)):
        nats = {"validation_nats": math.log(floor), "test_nats": math.log(floor)}
        results.append(make_result(experiment="quickstart", floor=nats, metrics__test_perplexity=reached))
        results[-1]["config"]["data"] |= {"corpus": "synthetic", "markov": language}
    for order in (results, results[::-1]):
        groups = {group.results[0]["floor"]["test_nats"]: group for group in group_results(order)}
        assert sorted(groups) == [pytest.approx(math.log(3.0)), pytest.approx(math.log(9.0))]
        assert all(len(group.results) == 1 for group in groups.values())
        key, value = next(iter(change.items()))
        assert f"{key}={value}" in groups[math.log(3.0)].caption
        text = make_table(order)
        assert text.count("Below the floor on test: none.") == 2


def test_the_source_of_a_generated_language_is_the_floor(make_result):
    floor = {"validation_nats": math.log(9.0), "test_nats": math.log(8.0)}
    runs = [
        make_result(experiment="quickstart", floor=floor, metrics__test_perplexity=8.5),
        make_result(
            experiment="quickstart",
            model="tensor_depth",
            causal=False,
            config_hash="b",
            floor=floor,
            metrics__test_perplexity=6.0,
        ),
    ]
    table = make_table(runs)
    assert cells(table)[0] == ["the source itself (the floor)", "yes", "", "", "", "", "9.00", "8.00", ""]
    assert "Below the floor on test: tensor_depth." in table
    assert "the source itself" in make_table(runs, "latex")
    last = list(csv.DictReader(io.StringIO(make_table(runs, "csv"))))[-1]
    assert float(last["test_perplexity"]) == pytest.approx(8.0)
    assert float(last["validation_perplexity"]) == pytest.approx(9.0)


def test_unfinished_runs_are_left_out(make_result):
    unfinished = make_result(model="tensor", status="interrupted")
    assert language_tables([unfinished]) == []
    assert language_tables([make_result(), unfinished]) == language_tables([make_result()])


def test_speeds_from_different_machines_are_flagged(make_result):
    other = make_result(model="tensor", provenance__hardware__name="Other CPU")
    assert "do not compare" in make_table([make_result(), other])
    assert "do not compare" not in make_table([make_result()])


def test_csv_has_plain_numbers_and_the_group_in_every_row(zoo):
    rows = list(csv.DictReader(io.StringIO(make_table(zoo, "csv"))))
    assert [row["model"] for row in rows] == ["base", "alpha", "tensor", "tensor_depth"]
    assert [row["causal"] for row in rows] == ["true", "true", "true", "false"]
    assert float(rows[3]["test_perplexity"]) == 90.0
    assert rows[3]["paper_test_perplexity"] == "100.07"
    assert rows[0]["test_perplexity_std"] == ""
    assert {row["protocol"] for row in rows} == {
        "attn_dropout=matched;evaluation=full;init=tuned;vocabulary=paper_fixed"
    }
    assert {row["training_token_budget"] for row in rows} == {"1000000"}


def test_latex_is_escaped_and_balanced(zoo):
    table = make_table(zoo, "latex")
    assert r"tensor\_depth & no: reads the future &" in table
    assert table.count(r"\begin{table}") == table.count(r"\end{table}") == 1
    assert table.index(r"\emph{not causal") < table.index(r"tensor\_depth &")
    assert all(line.endswith(r" \\") for line in table.splitlines() if "&" in line)
    assert {line.count("&") for line in table.splitlines() if "&" in line} == {8}


def test_the_results_of_record_make_a_table():
    """Whatever is committed must be readable and, for a model that reads the future, marked so."""
    try:
        results = load_results("wikitext")
    except ResultError:
        pytest.skip("no results of record yet")
    assert make_table(results)
    assert all(not r["causal"] for r in results if r["model"].startswith("tensor_depth"))
