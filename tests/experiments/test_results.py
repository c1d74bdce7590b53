"""Result files: what is refused and how it is said, atomic writing, finding, publishing, provenance."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch

from experiments import provenance, results
from experiments.results import (
    ResultError,
    check_portable,
    collect_provenance,
    find_results,
    portable_command,
    publish,
    read_result,
    write_result,
)


def test_what_is_written_is_read_back_unchanged(tmp_path, make_result):
    path = tmp_path / "run" / "result.json"
    result = make_result(metrics__test_perplexity=210.123456789012345)
    write_result(path, result)
    assert read_result(path) == result
    assert [item.name for item in path.parent.iterdir()] == ["result.json"]


@pytest.mark.parametrize(
    "dotted",
    ["model", "protocol", "provenance.hardware.threads", "metrics.test_perplexity", "training.stopped_early"],
)
def test_a_missing_key_is_named(tmp_path, make_result, dotted):
    result = make_result()
    *blocks, last = dotted.split(".")
    target = result
    for block in blocks:
        target = target[block]
    del target[last]
    with pytest.raises(ResultError, match=rf"result\.json: {dotted} is missing"):
        write_result(tmp_path / "result.json", result)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": "0"}, r"seed is '0' \(str\); it must be int"),
        ({"seed": True}, r"seed is True \(bool\)"),
        ({"causal": 1}, r"causal is 1 \(int\); it must be bool"),
        ({"metrics__test_perplexity": "210"}, r"metrics\.test_perplexity is '210'"),
        ({"metrics__test_targets": 1.5}, r"metrics\.test_targets is 1\.5"),
        ({"metrics__test_nats": float("nan")}, r"metrics\.test_nats is nan"),
        ({"history__validation_nats": [6.0, float("inf")]}, r"history\.validation_nats\[1\] is inf"),
        ({"history__tokens": [1]}, r"lists of history differ in length"),
        ({"loss_by_position__targets": [1]}, r"lists of loss_by_position differ in length"),
        ({"status": "done"}, r"status is 'done'; use one of finished"),
        ({"streaming": "tokens"}, r"streaming is 'tokens'; use one of token"),
        ({"gates": 0.5}, r"gates is 0\.5 \(float\); it must be list or null"),
        ({"schema_version": 2}, r"schema_version 2 is newer than 1"),
        ({"schema_version": 0}, r"schema_version 0 is unknown"),
        ({"audit__start": object()}, r"not JSON serializable"),
    ],
)
def test_a_bad_value_is_refused_by_key_and_nothing_is_written(tmp_path, make_result, change, message):
    with pytest.raises(ResultError, match=message):
        write_result(tmp_path / "result.json", make_result(**change))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["/data/wikitext", "~/data", "~someone/data", "C:\\data", "d:/data"])
def test_an_absolute_path_is_refused_wherever_it_hides(tmp_path, make_result, path):
    config = {"data": {"folders": ["here", {"root": path}]}}
    with pytest.raises(ResultError, match=r"config\.data\.folders\[1\]\.root is an absolute path"):
        check_portable(config)
    with pytest.raises(ResultError, match=r"result\.json: config\.data\.folders\[1\]\.root"):
        write_result(tmp_path / "result.json", make_result(config=config))
    with pytest.raises(ResultError, match=r"protocol\.corpus is an absolute path"):
        write_result(tmp_path / "result.json", make_result(protocol={"corpus": path}))


@pytest.mark.parametrize("text", ["wikitext-2", "outputs/run", "a/b", "C", "language/tensor", ""])
def test_relative_strings_are_no_absolute_paths(text):
    check_portable({"key": text})


def test_a_command_loses_its_absolute_paths(tmp_path, make_result):
    command = "python -m experiments.train model=language/base data.root=/srv/data 'x=[/a,b/c]' ~logger y=~/z"
    clean = portable_command(command)
    assert clean == "python -m experiments.train model=language/base data.root=PATH 'x=[PATH,b/c]' ~logger y=PATH"
    write_result(tmp_path / "result.json", make_result(command=clean))
    with pytest.raises(ResultError, match=r"command holds the absolute path '/srv/data'"):
        write_result(tmp_path / "result.json", make_result(command=command))


def test_a_failed_replacement_keeps_the_old_file_and_leaves_no_litter(tmp_path, make_result, monkeypatch):
    path = tmp_path / "result.json"
    write_result(path, make_result(seed=1))

    def broken(source, target):
        assert Path(source).parent == Path(target).parent
        raise OSError("disk full")

    monkeypatch.setattr(results.os, "replace", broken)
    with pytest.raises(OSError, match="disk full"):
        write_result(path, make_result(seed=2))
    assert read_result(path)["seed"] == 1
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("text", ["", "{", "[1]", '"text"', "\xff"])
def test_a_file_that_is_no_result_is_named(tmp_path, text):
    path = tmp_path / "result.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ResultError, match=r"result\.json: "):
        read_result(path)


def test_nan_in_a_file_is_refused(tmp_path, make_result):
    path = tmp_path / "result.json"
    result = make_result(metrics__test_nats=float("nan"))
    path.write_text(json.dumps(result), encoding="utf-8")
    with pytest.raises(ResultError, match=r"metrics\.test_nats is nan"):
        read_result(path)


def test_runs_are_found_at_any_depth_once_and_in_one_order(tmp_path, make_result):
    for folder, result in {
        "outputs/z": make_result(model="tensor"),
        "outputs/deep/er/y": make_result(seed=1),
        "outputs/x": make_result(seed=0),
    }.items():
        write_result(tmp_path / folder / "result.json", result)
    record = tmp_path / "experiments" / "wikitext" / "results"
    write_result(record / "base.json", make_result(seed=0, metrics__best_step=999))
    write_result(record / "two.json", make_result(seed=2))

    names = [(r["model"], r["seed"]) for r in find_results([tmp_path / "outputs"])]
    assert names == [("base", 0), ("base", 1), ("tensor", 0)]
    assert [r["seed"] for r in find_results([record])] == [0, 2]
    assert [r["seed"] for r in find_results([tmp_path / "experiments"])] == [0, 2]
    both = find_results([record, tmp_path / "outputs"])
    assert [(r["model"], r["seed"]) for r in both] == [("base", 0), ("base", 1), ("base", 2), ("tensor", 0)]
    assert both[0]["metrics"]["best_step"] == 999, "the first root's file counts"
    assert find_results([tmp_path / "outputs" / "x" / "result.json"]) == [make_result(seed=0)]


def test_a_missing_root_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no result file or folder at .*nowhere"):
        find_results([tmp_path / "nowhere"])


def test_publish_names_the_copy_and_refuses_the_unfinished(tmp_path, make_result):
    (tmp_path / "experiments" / "wikitext").mkdir(parents=True)
    source = tmp_path / "result.json"
    write_result(source, make_result(model="tensor_depth", seed=3, config_hash="beef"))
    copy = publish(source, tmp_path / "experiments")
    assert copy == tmp_path / "experiments" / "wikitext" / "results" / "tensor_depth-cpu-seed3-beef.json"
    assert read_result(copy) == read_result(source)

    write_result(source, make_result(status="interrupted"))
    with pytest.raises(ResultError, match="status is 'interrupted'"):
        publish(source, tmp_path / "experiments")
    write_result(source, make_result(model="../x"))
    with pytest.raises(ResultError, match=r"model '\.\./x' can't be part of a file name"):
        publish(source, tmp_path / "experiments")
    write_result(source, make_result(scale="smoke"))
    with pytest.raises(ResultError, match="scale is 'smoke', whose numbers mean nothing"):
        publish(source, tmp_path / "experiments")
    with pytest.raises(FileNotFoundError, match="give the folder of a finished run"):
        publish(tmp_path / "no.json", tmp_path / "experiments")
    write_result(source, make_result(experiment="quickstart"))
    assert publish(source, tmp_path / "experiments").parent == tmp_path / "experiments" / "wikitext" / "results"


def test_provenance_fits_a_result(tmp_path, make_result):
    block = collect_provenance("cpu")
    assert block["hardware"]["device"] == "cpu"
    assert block["hardware"]["memory_gib"] > 0
    assert block["hardware"]["instructions"] == torch.backends.cpu.get_cpu_capability()
    assert block["versions"]["torch"]
    write_result(tmp_path / "result.json", make_result(provenance=block))


def test_provenance_of_a_missing_gpu_does_not_raise():
    assert collect_provenance("cuda:63")["hardware"]["device"] == "cuda"


def test_git_state_is_that_of_this_checkout_alone(tmp_path, monkeypatch):
    assert provenance._git_state(tmp_path) == (None, None)

    def git(*arguments):
        identity = ["-c", "user.name=n", "-c", "user.email=e", "-c", "core.hooksPath=none"]
        subprocess.run(["git", "-C", tmp_path, *identity, *arguments], check=True, capture_output=True)

    git("init")
    assert provenance._git_state(tmp_path) == (None, None), "no commit yet"
    git("commit", "--allow-empty", "-m", "first")
    revision, dirty = provenance._git_state(tmp_path)
    assert len(revision) == 40
    assert dirty is False
    (tmp_path / "new.py").touch()
    assert provenance._git_state(tmp_path) == (revision, True)
    (tmp_path / "inner").mkdir()
    assert provenance._git_state(tmp_path / "inner") == (None, None), "somebody else's checkout"
    monkeypatch.setenv("PATH", os.devnull)
    assert provenance._git_state(tmp_path) == (None, None), "git is missing"
