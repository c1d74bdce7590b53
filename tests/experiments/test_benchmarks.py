"""The registry of benchmarks: each is at home somewhere, has checked results, and is found by them."""

from __future__ import annotations

from pathlib import Path

import pytest

import experiments
from experiments.benchmarks import BENCHMARKS, benchmark_of
from experiments.results import ResultError, home_of
from experiments.schema import SCHEMA_OF_EXPERIMENT

PACKAGES = Path(experiments.__file__).parent


def test_every_experiment_has_tables():
    """Else `experiments.reproduce` would train for hours and then have nothing to show."""
    configured = {path.stem for path in (PACKAGES.parent / "conf" / "experiment").glob("*.yaml")}
    assert {"wikitext", "quickstart"} <= configured <= BENCHMARKS.keys()


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_has_a_home_a_schema_and_its_name(name):
    benchmark = BENCHMARKS[name]
    assert benchmark.name == name
    assert benchmark.home == home_of(name), "publishing and showing must agree where results lie"
    assert (PACKAGES / benchmark.home / "__init__.py").is_file()
    assert name in SCHEMA_OF_EXPERIMENT


@pytest.mark.parametrize("name", BENCHMARKS)
def test_each_view_says_in_a_line_what_it_is(name):
    for view, function in BENCHMARKS[name].more.items():
        assert function.__doc__, view


def test_results_say_which_benchmark_is_theirs(make_result):
    quick = [make_result(experiment="quickstart"), make_result(experiment="quickstart", status="failed")]
    assert benchmark_of(quick) is BENCHMARKS["quickstart"]


def test_results_of_none_or_several_benchmarks_are_refused(make_result):
    with pytest.raises(ResultError, match="results are of no experiment"):
        benchmark_of([])
    with pytest.raises(ResultError, match="results are of quickstart, wikitext"):
        benchmark_of([make_result(), make_result(experiment="quickstart")])


def test_an_unknown_benchmark_is_refused(make_result):
    with pytest.raises(ResultError, match="experiment 'other' has no tables or figures; those that have: wikitext, "):
        benchmark_of([make_result(experiment="other")])
