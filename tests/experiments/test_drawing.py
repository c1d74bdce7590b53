"""What figures share: colours are stable, variants of a row differ, a figure needs no display."""

from __future__ import annotations

import itertools
import math

import pytest
from matplotlib.colors import to_rgb

from experiments.benchmarks import BENCHMARKS
from experiments.drawing import COLOURS, OTHERS, PALETTE, colour, draw_means, line_style, new_figure, source
from tests.experiments.composing import choices


def test_a_models_colour_depends_on_its_name_alone():
    assert colour("base") != colour("tensor") != colour("tensor_depth")
    # All but the shades of variants come from the palette that is made for colour deficiencies.
    shades = {model for model in COLOURS if "_" in model and model.split("_")[0] in COLOURS}
    assert {COLOURS[m] for m in COLOURS.keys() - shades} <= set(PALETTE)
    assert {"tensor", "base", "local", "linear", "transformer_xl"} <= COLOURS.keys() - shades
    assert colour("something_new") == colour("something_new")


@pytest.mark.parametrize("domain", sorted({benchmark.domain for benchmark in BENCHMARKS.values()}))
def test_no_two_models_of_a_table_look_alike(domain):
    # A baseline of one's own needs no entry: it has a colour that none of these has.
    shown = [colour(model) for model in choices(f"model/{domain}") if model in COLOURS]
    assert shown
    for one, other in itertools.combinations([*shown, *OTHERS], 2):
        # Of the 441 from black to white.
        assert 255 * math.dist(to_rgb(one), to_rgb(other)) > 60, (one, other)


def test_a_model_without_a_colour_has_that_of_no_other():
    names = [f"model{number}" for number in range(60)]
    assert {colour(name) for name in names} == set(OTHERS)


def test_a_row_has_its_models_colour_and_says_where_it_reads_the_future():
    row, variant = line_style("tensor", True), line_style("tensor (network.dim=64)", False)
    assert row["color"] == variant["color"] == colour("tensor")
    assert (row["linestyle"], row["label"]) == ("-", "tensor")
    assert (variant["linestyle"], variant["label"]) == ("--", "tensor (network.dim=64) (reads the future)")


def test_a_figure_is_saved_with_its_legend_where_there_was_no_folder(tmp_path):
    axes, save = new_figure("step", "nats")
    axes.plot([1, 2], [3.0, 2.0], **line_style("base", True))
    save(tmp_path / "new" / "figure.png")
    assert (tmp_path / "new" / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("step", "nats")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["base"]


def test_means_have_error_bars_where_there_is_a_deviation():
    axes, _ = new_figure("x", "y")
    draw_means(axes, [1, 2], [3.0, 4.0], [None, None], line_style("base", True))
    draw_means(axes, [1, 2], [3.0, 4.0], [None, 0.5], line_style("tensor", True), number=1)
    assert len(axes.containers) == 1
    assert source(axes).splitlines()[1:] == [
        "tensor,1.0,3.0,,",
        "tensor,2.0,4.0,3.5,4.5",
        "base,1.0,3.0,,",
        "base,2.0,4.0,,",
    ]
