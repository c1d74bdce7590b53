"""Colours of a clip, changed alike in all frames."""

from __future__ import annotations

import pytest
import torch
from torchvision.transforms.v2 import functional

from experiments.ucf101.jitter import jitter
from tests.helpers import FLOAT32, assert_close

FRAMES = 0.1 + 0.7 * torch.rand(4, 3, 10, 10, generator=torch.Generator().manual_seed(0))
NEUTRAL = 0.5


def test_the_middle_of_the_range_changes_nothing():
    assert_close(jitter(FRAMES, 0.4, [NEUTRAL] * 3), FRAMES, "frames", FLOAT32)
    assert_close(jitter(FRAMES, 0.0, [0.0, 0.9, 0.3]), FRAMES, "frames", FLOAT32)


@pytest.mark.parametrize("number", [0.0, 0.25, 0.99])
def test_each_property_is_changed_by_its_factor(number):
    factor = 1 + 0.4 * (2 * number - 1)
    bright = jitter(FRAMES, 0.4, [number, NEUTRAL, NEUTRAL])
    assert_close(bright, functional.adjust_brightness(FRAMES, factor), "bright", FLOAT32)
    coloured = jitter(FRAMES, 0.4, [NEUTRAL, NEUTRAL, number])
    assert_close(coloured, functional.adjust_saturation(FRAMES, factor), "coloured", 1e-3)
    # torchvision takes the mean of each image, which a single frame has in common with its clip.
    contrasted = jitter(FRAMES[:1], 0.4, [NEUTRAL, number, NEUTRAL])
    assert_close(contrasted, functional.adjust_contrast(FRAMES[:1], factor), "contrasted", 1e-3)


def test_equal_pixels_of_two_frames_stay_equal():
    frames = FRAMES.clone()
    frames[:, :, 0, 0] = 0.4
    frames[2] = (0.5 * frames[2]).clamp(0, 1)
    frames[2, :, 0, 0] = 0.4
    changed = jitter(frames, 0.8, [0.8, 0.1, 0.9])
    assert (changed[:, :, 0, 0] == changed[0, :, 0, 0]).all()
    assert not torch.allclose(changed, frames, atol=0.05)


def test_colours_stay_in_range():
    bright = jitter(FRAMES, 1.0, [0.999, 0.999, 0.999])
    assert bright.min() >= 0
    assert bright.max() == 1
