"""Colours of models on a light and on a dark ground: those of the figures, lighter where the dark swallows them."""

from __future__ import annotations

import colorsys

from experiments.drawing import colour

DARK_GROUND = "#14171C"  # page.css has the same
# WCAG asks for 3 of what is drawn and 4.5 of small text.
_MIN_CONTRAST = 4.5
_GREY = 0.05  # of saturation


def on_both(model: str) -> str:
    """A CSS colour that is the model's on a light ground and its counterpart on a dark one."""
    return f"light-dark({colour(model)}, {on_dark(colour(model))})"


def on_dark(colour: str) -> str:
    """A colour (`#RRGGBB`) of the same hue that stands out from the dark ground.

    Greys trade places, so that what is black in the figures is the brightest here. Dark shades of a colour become
    its light ones; what is bright enough stays.
    """
    hue, lightness, saturation = colorsys.rgb_to_hls(*_channels(colour))
    if saturation < _GREY or lightness < 0.25:
        lightness = 0.95 - 0.75 * lightness
    while contrast(made := _hex(colorsys.hls_to_rgb(hue, lightness, saturation)), DARK_GROUND) < _MIN_CONTRAST:
        lightness += 0.01
    return made


def contrast(colour: str, ground: str) -> float:
    """Contrast of two colours as WCAG defines it, from 1 to 21."""
    darker, lighter = sorted((_luminance(colour), _luminance(ground)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in _channels(colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _channels(colour: str) -> tuple[float, float, float]:
    red, green, blue = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    return red, green, blue


def _hex(channels: tuple[float, float, float]) -> str:
    return "#" + "".join(f"{round(255 * channel):02X}" for channel in channels)
