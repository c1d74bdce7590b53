"""Curves: of a result's history and of a run's log, whatever state that is in."""

from __future__ import annotations

import json

from experiments.report.curves import MAX_POINTS, Curve, history_curves, log_curves


def write(path, *lines):
    path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
    return path


def test_the_history_is_a_curve_for_each_metric(make_run):
    names = {curve.name: curve for curve in history_curves(make_run(accuracy=0.8))}
    assert names["validation_accuracy"] == Curve("validation_accuracy", "result", 1, (500, 1000), (0.4, 0.8))
    assert names.keys() == {"validation_accuracy", "validation_nats"}
    assert history_curves({}) == []


def test_a_log_has_any_keys_in_any_line(tmp_path):
    log = write(
        tmp_path / "metrics.jsonl",
        {"step": 100, "train/nats": 5.5, "epoch": 0},
        {"step": 200, "train/nats": 5.0, "lr": 0.1},
        {"step": 200, "validation/nats": 5.2},
        {"step": 300, "train/nats": None},
    )
    curves, problem = log_curves(log)
    assert problem is None
    assert curves == [
        Curve("lr", "log", 1, (200,), (0.1,)),
        Curve("train/nats", "log", 1, (100, 200), (5.5, 5.0)),
        Curve("validation/nats", "log", 1, (200,), (5.2,)),
    ]


def test_after_a_resume_the_later_value_of_a_step_counts(tmp_path):
    lines = [{"step": step, "loss": loss} for step, loss in ((1, 9.0), (2, 8.0), (3, 7.0), (2, 6.0), (3, 5.0))]
    (curve,), _ = log_curves(write(tmp_path / "metrics.jsonl", *lines))
    assert (curve.x, curve.y) == ((1, 2, 3), (9.0, 6.0, 5.0))


def test_lines_that_say_nothing_are_counted(tmp_path):
    bad = ('{"step": 2, "loss": NaN}\n', '{"loss": 4.0}\n', "[]\n", '{"step": 3, "lo')
    (curve,), problem = log_curves(write(tmp_path / "metrics.jsonl", {"step": 1, "loss": 5.0}, *bad))
    assert (curve.x, curve.y) == ((1,), (5.0,))
    assert problem == "3 of its lines can't be read, the first is line 3; the others are shown"


def test_no_log_is_no_problem(tmp_path):
    assert log_curves(tmp_path / "metrics.jsonl") == ([], None)


def test_a_long_log_is_thinned_and_keeps_its_ends(tmp_path):
    steps = range(1, 3 * MAX_POINTS)
    (curve,), _ = log_curves(write(tmp_path / "m", *({"step": step, "loss": 1 / step} for step in steps)))
    assert curve.every == 4
    assert len(curve.x) <= MAX_POINTS + 1
    assert (curve.x[0], curve.x[-1]) == (1, steps[-1])
    assert all(y == 1 / x for x, y in zip(curve.x, curve.y, strict=True))
