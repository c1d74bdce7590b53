"""The page: the tables of the other renderers cell for cell, nothing raw, nothing from elsewhere, no byte by chance."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace

import pytest

from experiments import tables
from experiments.benchmarks import BENCHMARKS
from experiments.report import __main__ as report
from experiments.report.collect import collect
from experiments.report.page import as_json, make_page
from experiments.results import find_results, folders_of_record, load_results, write_result
from tests.experiments.report.reading import Page

HOSTILE = "</script><b>\"'&x"


@pytest.fixture(scope="module")
def of_record() -> Page:
    """The page of the results of record, without its figures."""
    runs, left_out = collect(folders_of_record())
    page, left_out = make_page(runs, left_out, figures=False)
    assert left_out == []
    return Page(page)


@pytest.fixture
def save(tmp_path):
    """Write results as a run root; its name."""

    def save(*results):
        for number, result in enumerate(results):
            write_result(tmp_path / "runs" / str(number) / "result.json", result)
        return str(tmp_path / "runs")

    return save


def make(root, *options):
    """The page of a run root."""
    output = f"{root}/page.html"
    assert report.main(["--output", output, "--results", root, *options]) == 0
    with open(output, encoding="utf-8") as file:
        return Page(file.read())


def check_tables(page, name, results):
    """Compare what the page shows of a benchmark with what `experiments.tables` prints."""
    printed = tables.make_table(results).splitlines()
    cells = [
        [cell.strip() for cell in line[1:-1].replace("\\*", "*").split("|")] for line in printed if line[:1] == "|"
    ]
    expected = [row for row in cells if not set(row) <= {"---", "---:"}]
    shown = [rows for label, rows in page.tables.items() if label.startswith(f"{name}-table-")]
    assert len(shown) == len(BENCHMARKS[name].tables(results))
    # A section's title is one wide cell here, and there the first of a row.
    title = re.compile("_.*_")
    assert [[f"_{row[0]}_"] if len(row) == 1 else row for rows in shown for row in rows] == [
        row[:1] if title.fullmatch(row[0]) else row for row in expected
    ]
    sentences = [line.replace("\\*", "*") for line in printed if line and line[0] != "|"]
    assert [line for line in sentences if line not in page.text] == []


@pytest.mark.parametrize("name", sorted({result["experiment"] for result in find_results(folders_of_record())}))
def test_each_cell_is_that_of_the_tables_of_record(name, of_record):
    check_tables(of_record, name, load_results(name))


def test_each_cell_is_that_of_the_tables_of_other_results(save, make_result, make_run, make_classification):
    made = {
        "wikitext": [
            make_result(training__stopped_early=True, published={"test_perplexity": 130.3}),
            make_result(seed=1, metrics__test_perplexity=212.5),
            make_result(model="tensor_depth", causal=False, scale="paper"),
        ],
        "diagnostics": [make_run("tensor", zero=0.2, groups={"seen": 0.8, "unseen": None}, diagnostic="map_building")],
        "ucf101": [
            make_classification("tensor", zero=40.0, scale="paper", data={"folder": None}),
            make_classification(),
        ],
    }
    page = make(save(*(result for results in made.values() for result in results)), "--no-figures")
    for name, results in made.items():
        check_tables(page, name, results)


def test_what_reads_the_future_is_marked(of_record):
    marked = [attributes for _, attributes in of_record.elements if attributes.get("class") == "leak"]
    printed = tables.make_table(load_results("wikitext")) + tables.make_table(load_results("quickstart"))
    assert len(marked) == printed.count("| no: reads the future |") > 0
    causal = {run["id"]: (run["result"]["experiment"], run["causal"]) for run in of_record.data["runs"]}
    assert {mark for name, mark in causal.values() if name == "cub200"} == {"na"}
    assert {mark for name, mark in causal.values() if name == "wikitext"} == {"yes", "no"}


def test_the_list_of_runs_and_the_data_are_those_of_the_result_files(of_record):
    found = find_results(folders_of_record())
    results = [result for name in BENCHMARKS for result in found if result["experiment"] == name]
    data = of_record.data["runs"]
    assert len(data) == len(results) > 10
    _, *rows = of_record.tables["runs-title"]
    for result, run, row in zip(results, data, rows, strict=True):
        history = result.pop("history")
        result.pop("loss_by_position", None)
        assert run["result"] == result
        curves = {curve["name"]: curve["y"] for curve in run["curves"]}
        assert curves == {key: values for key, values in history.items() if key not in ("step", "tokens")}
        assert row[0] == result["model"]
        assert float(row[5]) == pytest.approx(result["metrics"][row[4].replace(" ", "_")], abs=0.0051)
        assert row[8] == f"{result['parameters']['total']:,}"


def test_the_overview_counts_and_says_where_and_when(save, make_result, make_reconstruction):
    slow = make_result(seed=1, training__wall_seconds=7200.0, provenance__git_revision=None)
    page = make(save(make_result(), slow, make_reconstruction()), "--no-figures")
    _, language, images, total = page.tables["overview-title"]
    assert language == ["wikitext", "2", "2", "1", "2", "2.03", "Some CPU, 2 threads", "2 of unknown date"]
    assert images[0] == "cub200"
    assert total[:3] == ["all", "3", "3"]


def test_the_same_results_make_the_same_bytes(save, make_result, make_run):
    root = save(make_result(), make_result(model="tensor", seed=1), make_run("tensor", zero=0.2, gates=[0.4, 0.6]))
    pages = [make(root).html for _ in range(2)]
    assert pages[0] == pages[1]
    assert "data:image/png;base64," in pages[0]
    assert root not in pages[0]


def test_nothing_that_a_file_says_is_read_as_markup(save, make_result):
    root = save(
        make_result(model=HOSTILE, command=f"run {HOSTILE}", scale=HOSTILE, protocol={HOSTILE: HOSTILE}),
        make_result(model="other", protocol={HOSTILE: "else"}),
        make_result(model="third", experiment=HOSTILE),
    )
    page = make(root)
    names = [name for name, _ in page.elements]
    assert names.count("script") == 2
    assert "b" not in names
    assert HOSTILE in page.text
    assert page.data["runs"][0]["result"]["command"] == f"run {HOSTILE}"
    assert "<" not in as_json({HOSTILE: [HOSTILE]})


def test_the_page_asks_for_nothing_else(of_record, save, make_result):
    for page in (of_record, make(save(make_result()))):
        addresses = [
            value
            for _, attributes in page.elements
            for key, value in attributes.items()
            if key in ("src", "href", "srcset", "action", "data", "poster")
        ]
        assert len(addresses) > 5
        assert [address for address in addresses if not address.startswith(("#", "data:"))] == []
        assert not re.search(r"@import|url\((?!#)", page.html)
        (script,) = re.findall(r"<script>(.*?)</script>", page.html, flags=re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"script-src 'sha256-{digest}'" in page.html, "the browser would refuse the script"


def test_ids_are_unique_and_links_lead_somewhere(of_record):
    ids = [attributes["id"] for _, attributes in of_record.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    runs = {f"run/{run['id']}" for run in of_record.data["runs"]}
    links = {str(attributes["href"])[1:] for name, attributes in of_record.elements if name == "a"}
    assert runs <= links
    assert links <= runs | set(ids)
    labels = {value for _, attributes in of_record.elements if (value := attributes.get("aria-labelledby"))}
    assert labels <= set(ids)


def test_a_broken_file_is_named_in_the_page_and_on_the_console(tmp_path, save, make_result, capsys):
    root = save(make_result())
    (tmp_path / "runs" / "half").mkdir()
    (tmp_path / "runs" / "half" / "result.json").write_text('{"model": "ba')
    (tmp_path / "runs" / "0" / "metrics.jsonl").write_text('{"step": 1, "train/nats": 5}\n{"ste')
    page = make(root, "--no-figures")
    printed = capsys.readouterr().err
    for name, reason in (("runs/half/result.json", "not a JSON file"), ("/metrics.jsonl", "1 of its lines can't be")):
        assert name in "".join(page.text)
        assert reason in "".join(page.text)
        assert f"{name}: {reason}" in printed
    assert [curve["name"] for curve in page.data["runs"][0]["curves"]] == ["validation_nats", "train/nats"]


def test_a_run_that_is_not_finished_is_listed_as_such_and_in_no_table(save, make_result):
    page = make(save(make_result(), make_result(model="tensor", status="interrupted")), "--no-figures")
    (table,) = (rows for label, rows in page.tables.items() if label.startswith("wikitext-table"))
    assert [row[0] for row in table] == ["model", "base"]
    assert [(row[0], row[7]) for row in page.tables["runs-title"][1:]] == [
        ("base", "finished"),
        ("tensor", "interrupted"),
    ]


def test_without_a_finished_run_there_is_a_page_without_tables(save, make_result):
    page = make(save(make_result(status="failed")))
    assert "No run is finished: there is nothing to put into a table." in page.text
    assert len(page.data["runs"]) == 1


def test_figures_that_can_not_be_drawn_cost_no_more_than_themselves(save, make_result, monkeypatch, capsys):
    def fail(results, folder):
        raise ValueError("no ink")

    monkeypatch.setitem(BENCHMARKS, "wikitext", replace(BENCHMARKS["wikitext"], draw=fail))
    page = make(save(make_result()))
    assert "wikitext-table-1" in page.tables
    assert "left out: figures of wikitext: can't be drawn (ValueError: no ink)" in capsys.readouterr().err


def test_settings_keep_apart_what_must_not_share_a_chart(save, make_result, make_run):
    paper = {"vocabulary": "paper", "evaluation": "full", "init": "tuned"}
    page = make(
        save(
            make_result(),
            make_result(model="linear", training__tokens=5_000_000),
            make_result(model="tensor", protocol=paper),
            make_run(num_writes=20),
            make_run(num_writes=5),
            make_run(diagnostic="no_harm"),
        ),
        "--no-figures",
    )
    assert {entry["name"]: entry["settings"] for entry in page.data["benchmarks"]} == {
        "wikitext": [
            "vocabulary paper_fixed, scale cpu, 5,000,000 tokens",
            "vocabulary paper_fixed, scale cpu, 1,000,000 tokens",
            "vocabulary paper, scale cpu",
        ],
        "diagnostics": ["binding, num_writes 5, scale cpu", "binding, num_writes 20, scale cpu", "no_harm, scale cpu"],
    }


def test_the_command_line_says_what_is_wrong(tmp_path, save, make_result, monkeypatch, capsys):
    output = tmp_path / "new" / "page.html"
    assert report.main(["--output", str(output), "--results", str(tmp_path / "absent")]) == 1
    assert "absent" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert report.main(["--output", str(output), "--results", str(tmp_path / "empty")]) == 1
    assert "no result to show" in capsys.readouterr().err
    assert not output.exists()
    monkeypatch.setattr(report, "_LARGE", 1000)
    assert report.main(["--output", str(output), "--results", save(make_result()), "--no-figures"]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{output}\n"
    assert "MB; --no-figures makes it smaller" in printed.err
