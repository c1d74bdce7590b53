"""Figures of masked reconstruction: which files come out, and that what they show is what was measured."""

from __future__ import annotations

import pytest

from experiments.cub200 import figures
from experiments.drawing import COLOURS
from experiments.results import ResultError

PNG = b"\x89PNG\r\n\x1a\n"


def test_the_files_of_two_targets(tmp_path, make_reconstruction):
    runs = [make_reconstruction(target=target) for target in ("normalised", "pixels")]
    written = figures.draw_all(runs, tmp_path)
    stems = ["psnr-pixels-cpu", "ssim-pixels-cpu", "psnr-normalised-cpu", "ssim-normalised-cpu"]
    assert [path.name for path in written] == [f"{stem}.png" for stem in stems]
    for path in written:
        assert path.read_bytes().startswith(PNG)
        assert path.stat().st_size > 5000


@pytest.mark.parametrize(("metric", "factor", "label"), [("psnr", 1, "PSNR (dB)"), ("ssim", 1 / 50, "SSIM")])
def test_lines_are_what_was_measured(axes_of, make_reconstruction, metric, factor, label):
    runs = [
        make_reconstruction("tensor", (21.0, 19.0, 16.0), zero=(1.0, 1.0, 1.0)),
        make_reconstruction("tensor", (23.0, 19.0, 17.0), zero=(1.0, 1.0, 1.0), seed=1),
        make_reconstruction("base"),
    ]
    axes = axes_of(figures.scores_by_ratio, runs, metric)
    lines = {line.get_label(): line for line in axes.get_lines() if line.get_label() in COLOURS}
    # Two seeds have error bars, one has none.
    lines |= {container.get_label(): container[0] for container in axes.containers}
    assert [container.get_label() for container in axes.containers] == ["tensor"]
    expected = {"base": (20, 18, 16), "tensor": (22, 19, 16.5)}
    assert lines.keys() == expected.keys()
    for model, values in expected.items():
        assert list(lines[model].get_xdata()) == [25, 50, 75]
        assert list(lines[model].get_ydata()) == pytest.approx([factor * value for value in values])
        assert lines[model].get_color() == COLOURS[model]
    (control,) = [line for line in axes.get_lines() if line.get_linestyle() == ":"]
    assert control.get_label() == "mean colour of the visible patches"
    assert list(control.get_ydata()) == pytest.approx([factor * value for value in (15, 14, 13)])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("patches hidden (%)", label)


def test_nothing_finished_is_nothing_drawn(tmp_path, make_reconstruction):
    with pytest.raises(ResultError, match="no finished result to draw; resume the runs with `make reproduce-cub200`"):
        figures.draw_all([make_reconstruction() | {"status": "failed"}], tmp_path)
    assert list(tmp_path.iterdir()) == []
