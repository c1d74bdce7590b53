"""Colours on a dark ground: seen, told apart, of the hue that the figures have."""

from __future__ import annotations

import colorsys
from itertools import combinations
from pathlib import Path

import pytest

import experiments.report
from experiments.drawing import COLOURS, PALETTE
from experiments.report.colours import DARK_GROUND, contrast, on_both, on_dark


def hue(colour):
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return colorsys.rgb_to_hls(red, green, blue)[0]


@pytest.mark.parametrize("colour", sorted({*COLOURS.values(), *PALETTE}))
def test_a_colour_stands_out_from_the_dark_and_keeps_its_hue(colour):
    assert contrast(on_dark(colour), DARK_GROUND) >= 4.5
    assert abs(hue(on_dark(colour)) - hue(colour)) < 0.01


def test_colours_that_differ_on_white_differ_on_the_dark():
    for one, other in combinations(sorted(set(COLOURS.values())), 2):
        channels = zip(*(bytes.fromhex(on_dark(colour)[1:]) for colour in (one, other)), strict=True)
        assert max(abs(a - b) for a, b in channels) >= 24, (one, other)


def test_contrast_is_that_of_wcag():
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.01)


def test_the_page_has_both_and_the_ground_that_they_are_made_for():
    assert on_both("base") == "light-dark(#000000, #F2F2F2)"
    style = Path(experiments.report.__file__).with_name("page.css").read_text()
    assert DARK_GROUND.lower() in style
