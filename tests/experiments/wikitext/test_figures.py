"""Figures of the language models: files come out, only comparable runs share one, the binning is right."""

from __future__ import annotations

import csv
import itertools
import math
import random

import pytest

from experiments.results import ResultError
from experiments.wikitext import figures
from experiments.wikitext.figures import binned_loss, bins, draw_all, loss_by_position, perplexity_by_tokens

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def runs(make_result):
    return [make_result(), make_result(seed=1), make_result(model="tensor_depth", causal=False)]


@pytest.mark.parametrize("draw", [loss_by_position, perplexity_by_tokens])
def test_a_picture_is_drawn(tmp_path, runs, draw):
    draw(runs, tmp_path / "new" / "figure.png")
    assert (tmp_path / "new" / "figure.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize("draw", [loss_by_position, perplexity_by_tokens])
def test_runs_that_cannot_be_compared_share_no_figure(tmp_path, runs, make_result, draw):
    with pytest.raises(ResultError, match=r"got 2: Scale cpu.*Scale smoke"):
        draw([*runs, make_result(scale="smoke")], tmp_path / "figure.png")
    with pytest.raises(ResultError, match="nothing finished"):
        draw([make_result(status="failed")], tmp_path / "figure.png")
    assert list(tmp_path.iterdir()) == []


def test_the_lines_are_the_measured_values(tmp_path, runs, monkeypatch):
    seen = []
    original = figures.new_figure

    def spy(*labels):
        axes, save = original(*labels)
        seen.append(axes)
        return axes, save

    monkeypatch.setattr(figures, "new_figure", spy)
    runs[1]["loss_by_position"] = {"nats": [1.0] * 8, "targets": [30] * 8}
    loss_by_position(runs, tmp_path / "a.png")
    perplexity_by_tokens(runs, tmp_path / "b.png")

    base, leaking = seen[0].get_lines()
    assert base.get_xdata()[0] == 1
    assert base.get_ydata()[0] == pytest.approx((7.0 * 10 + 1.0 * 30) / 40), "seeds are pooled by targets"
    assert leaking.get_linestyle() == "--"
    assert base.get_linestyle() == "-"
    assert seen[0].get_xscale() == "log"

    lines = seen[1].get_lines()
    assert len(lines) == 3
    assert list(lines[0].get_xdata()) == [500_000, 1_000_000]
    assert list(lines[0].get_ydata()) == pytest.approx([math.exp(6.0), math.exp(5.4)])
    labels = [text.get_text() for text in seen[1].get_legend().get_texts()]
    assert labels == ["base", "tensor_depth (reads the future)"]
    with open(tmp_path / "b.csv", newline="") as file:
        points = [(row["series"], float(row["validation perplexity"])) for row in csv.DictReader(file)]
    assert list(dict(points)) == ["base, seed 0", "base, seed 1", "tensor_depth (reads the future)"]
    assert [value for _, value in points] == [value for line in lines for value in line.get_ydata()]


def test_bins_cover_every_target_once():
    generator = random.Random(0)
    for length in (1, 2, 7, 256, 512):
        covered = [place for first, last in bins(length) for place in range(first, last + 1)]
        assert covered == list(range(1, length + 1))
        # Each is as wide as the one before it or wider, but for roundings: the last one too.
        widths = [last - first + 1 for first, last in bins(length)]
        assert all(later >= earlier - 1 for earlier, later in itertools.pairwise(widths)), widths
        nats = [generator.uniform(3, 8) for _ in range(length)]
        targets = [generator.randrange(1, 5) for _ in range(length)]
        edges, means = binned_loss(nats, targets)
        assert edges == sorted(edges)
        assert edges[0] == 1, "the first position has a bin of its own"
        assert means[0] == nats[0]
        assert edges[-1] <= length
        assert min(nats) - 1e-9 <= min(means) <= max(means) <= max(nats) + 1e-9


def test_bins_weigh_by_targets_and_leave_out_empty_ones():
    nats, targets = [9.0, 1.0, 1.0, 5.0], [0, 1, 0, 3]
    assert binned_loss(nats, targets, num_bins=2) == ([math.sqrt(2 * 4)], [4.0])


def test_constant_loss_stays_constant():
    assert set(binned_loss([3.0] * 256, [7] * 256)[1]) == {3.0}


def test_each_group_gets_its_own_files(tmp_path, runs, make_result):
    more = [*runs, make_result(scale="smoke"), make_result(seed=2, training__tokens=5)]
    names = [path.name for path in draw_all(more, tmp_path)]
    assert names == [
        "loss_by_position-cpu.png",
        "loss_by_position-cpu-2.png",
        "loss_by_position-smoke.png",
        "perplexity_by_tokens-cpu.png",
        "perplexity_by_tokens-cpu-2.png",
        "perplexity_by_tokens-smoke.png",
    ]
    assert sorted(names) == sorted(path.name for path in tmp_path.glob("*.png"))
