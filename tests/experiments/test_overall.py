"""The bar of all runs of a table."""

import pytest

from experiments.overall import OverallProgress, duration


def test_the_bar_weighs_runs_by_their_minutes_and_counts_what_was_done_before():
    overall = OverallProgress([30.0, 10.0], [0, 8])
    assert "[........................] 0%, run 1 of 2, about 40 min left" in overall.bar()
    assert overall.see("base-seed0: step 5/10  train 3.2100 nats")
    assert "38%, run 1 of 2" in overall.bar()
    overall.finish_run()
    assert "75%, run 2 of 2" in overall.bar()
    assert overall.see("tensor-seed0: step 9/10  train 3.2100 nats")
    assert "88%, run 2 of 2" in overall.bar()
    overall.finish_run()
    assert "[########################] 100%, run 2 of 2, about 0 min left" in overall.bar()


@pytest.mark.parametrize("line", ["base-seed0: step 5/10  validation 3.1 nats", "resuming from step 5/10", ""])
def test_other_lines_say_nothing(line):
    assert not OverallProgress([1.0], [0]).see(line)


def test_the_bar_stands_below_each_step(capsys):
    overall = OverallProgress([1.0, 1.0], [0, 0])
    for line in ("base-seed0: resuming", "base-seed0: step 5/10  train 3.2100 nats  1,000 tokens/s"):
        overall.relay(line + "\n")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines[:2]] == ["base-seed0: resuming", "base-seed0: step 5/10"]
    assert [("overall" in line) for line in lines] == [False, False, True]


@pytest.mark.parametrize(("minutes", "words"), [(0.4, "0 min"), (99.0, "99 min"), (150.0, "2.5 h")])
def test_a_duration_is_read_at_a_glance(minutes, words):
    assert duration(minutes) == words
