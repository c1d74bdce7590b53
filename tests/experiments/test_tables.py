"""Tables: which benchmark's they are, in which of the formats; the command line."""

from __future__ import annotations

import pytest

from experiments import tables
from experiments.benchmarks import BENCHMARKS, Benchmark
from experiments.render import Table
from experiments.results import ResultError, write_result
from experiments.tables import make_table


@pytest.fixture
def runs(make_result):
    return [make_result(), make_result(model="tensor")]


@pytest.fixture
def bare(monkeypatch):
    """A benchmark of one empty table, without other views."""
    table = Table("Bare.", ("model",), 1, ())
    bare = Benchmark("bare", "bare", "bare", lambda results: [table], lambda results, _: [])
    monkeypatch.setitem(BENCHMARKS, "bare", bare)


def test_the_results_choose_the_tables(bare, runs, make_result):
    results = [make_result(experiment="bare")]
    assert make_table(results) == "Bare.\n\n| model |\n| --- |\n"
    with pytest.raises(ResultError, match="results are of bare, wikitext; tables and figures show those of one"):
        make_table([*runs, *results])


def test_a_view_that_the_benchmark_lacks_is_refused(bare, capsys):
    with pytest.raises(SystemExit) as stopped:
        tables.main(["bare", "--by-position"])
    assert stopped.value.code == 2
    assert "bare has no --by-position" in capsys.readouterr().err


@pytest.mark.parametrize("benchmark", ["wikitext", "quickstart"])
def test_the_loss_by_position_is_a_view_of_the_language_models(benchmark, tmp_path, make_result, capsys):
    write_result(tmp_path / "result.json", make_result(experiment=benchmark))
    assert tables.main([benchmark, "--results", str(tmp_path), "--by-position"]) == 0
    assert "| test nats per token at position |" in capsys.readouterr().out


@pytest.mark.parametrize(("view", "caption"), [("conditions", "binding: accuracy"), ("gates", "The memory's gates")])
def test_conditions_and_gates_are_views_of_the_diagnostics(view, caption, tmp_path, make_run, capsys):
    run = make_run("tensor", gates=[0.4, 0.6], others=[({"noise": 0.0}, 0.7)])
    write_result(tmp_path / "result.json", run)
    assert tables.main(["diagnostics", "--results", str(tmp_path), f"--{view}"]) == 0
    assert caption in capsys.readouterr().out


def test_unfinished_runs_make_no_table(make_result):
    with pytest.raises(ResultError, match="no finished result"):
        make_table([make_result(status="interrupted")])


def test_an_unknown_format_is_refused(runs):
    with pytest.raises(ValueError, match="format is 'html'; use one of markdown, csv, latex"):
        make_table(runs, "html")


def test_command_line_reads_run_roots_and_writes_a_file(tmp_path, runs, make_result, capsys):
    for result in [*runs, make_result(seed=1, status="interrupted")]:
        write_result(tmp_path / "runs" / result["config_hash"] / "result.json", result)
    assert tables.main(["wikitext", "--results", str(tmp_path / "runs")]) == 0
    printed = capsys.readouterr()
    assert printed.out == make_table(runs)
    assert printed.err == "left out, not finished: base seed 1 (interrupted)\n"

    target = tmp_path / "new" / "table.tex"
    arguments = [
        "wikitext",
        "--results",
        str(tmp_path / "runs"),
        "--format",
        "latex",
        "--output",
        str(target),
    ]
    assert tables.main(arguments) == 0
    assert capsys.readouterr().out == ""
    assert target.read_text(encoding="utf-8") == make_table(runs, "latex")


def test_command_line_says_what_to_run_where_there_is_nothing(tmp_path, make_result, capsys):
    assert tables.main(["wikitext", "--results", str(tmp_path)]) == 1
    assert "run `make reproduce-wikitext`" in capsys.readouterr().err
    assert tables.main(["wikitext", "--results", str(tmp_path / "absent")]) == 1
    assert "absent" in capsys.readouterr().err
    write_result(tmp_path / "result.json", make_result(experiment="other"))
    assert tables.main(["wikitext", "--results", str(tmp_path)]) == 1
    assert "no wikitext result" in capsys.readouterr().err
