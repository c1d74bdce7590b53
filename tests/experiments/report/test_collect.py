"""What a report finds: each run once, and every file that tells of none by name and reason."""

from __future__ import annotations

import json

import pytest

from experiments.report.collect import collect
from experiments.results import find_results, write_result


@pytest.fixture
def root(tmp_path, make_result):
    """Three runs, one of them twice."""
    for folder, result in (
        ("tensor", make_result(model="tensor")),
        ("base", make_result()),
        ("again", make_result()),
        ("cut", make_result(seed=1, status="interrupted")),
    ):
        write_result(tmp_path / "runs" / folder / "result.json", result)
    return tmp_path / "runs"


def test_each_run_is_found_once_in_the_order_of_the_tables(root):
    runs, left_out = collect([root, root / "base"])
    assert [run.result for run in runs] == find_results([root])
    assert [run.name for run in runs] == ["base-seed0-base-0-cpu", "base-seed1-base-1-cpu", "tensor-seed0-tensor-0-cpu"]
    assert left_out == []
    assert runs[0].log == root / "again" / "metrics.jsonl"


def test_files_that_tell_of_no_run_are_named_with_the_reason(root, make_result):
    half = json.dumps(make_result(model="half"))[:200]
    no_table = make_result(model="no_table")
    del no_table["config"]["model"]["network"]
    endless = make_result(model="endless", status="failed")
    endless["training"]["budget_tokens"] = "endless"
    older = make_result(model="older")
    del older["metrics"]["test_nats"]
    spoilt = {
        "half": half,
        "other": json.dumps(make_result(experiment="other")),
        "older": json.dumps(older),
        "list": "[1, 2]",
        "no_table": json.dumps(no_table),
        "endless": json.dumps(endless),
        "newer": json.dumps(make_result(model="newer", schema_version=99)),
    }
    for name, text in spoilt.items():
        (root / name).mkdir()
        (root / name / "result.json").write_text(text)
    (root / "going").mkdir()
    (root / "going" / "metrics.jsonl").write_text('{"step": 1, "train/nats": 5.0}\n')
    runs, left_out = collect([root])
    assert len(runs) == 3
    reasons = {left.what: left.reason for left in left_out}
    assert reasons.keys() == {f"runs/{name}/result.json" for name in spoilt} | {"runs/going"}
    for name, words in {
        "half/result.json": "not a JSON file",
        "other/result.json": "experiment 'other' has no tables; those that have: wikitext",
        "older/result.json": "metrics.test_nats is missing",
        "list/result.json": "holds a list",
        "no_table/result.json": "no table can be made of it (KeyError: 'network')",
        "endless/result.json": "no table can be made of it (ValueError",
        "newer/result.json": "schema_version 99 is newer",
        "going": "has no result.json",
    }.items():
        assert reasons[f"runs/{name}"].startswith(words)
    assert str(root.parent) not in str(left_out), "the page is to be read on other machines"


def test_a_file_below_two_roots_is_left_out_once(root):
    (root / "base" / "result.json").write_text("{")
    _, left_out = collect([root, root / "base"])
    assert [left.what for left in left_out] == ["runs/base/result.json"]


def test_a_root_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="absent"):
        collect([tmp_path / "absent"])
