"""What a model is given of an image."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torchvision.transforms.v2 import functional

from experiments.seeding import uniform
from experiments.views import NUM_UNIFORM, crop_box, evaluation_view, scaled_size, training_view


def draw(number: int) -> list[float]:
    return uniform(NUM_UNIFORM, 0, "crop", number).tolist()


def test_crops_are_spread_over_scale_shape_and_place():
    height, width = 256, 341
    boxes = np.array([crop_box(height, width, (0.2, 1.0), draw(number)) for number in range(2_000)])
    top, left, tall, wide = boxes.T
    assert top.min() == left.min() == 0
    assert (top + tall).max() == height
    assert (left + wide).max() == width
    assert ((top + tall <= height) & (left + wide <= width)).all()
    share, aspect = tall * wide / (height * width), wide / tall
    # Half a pixel of rounding on sides of 100 and more.
    assert 0.2 - 0.002 <= share.min() < 0.22
    assert 0.95 < share.max() <= 1.0
    assert 0.74 < aspect.min() < 0.76
    assert 1.31 < aspect.max() < 1.35
    assert abs(np.log(aspect[share < 0.5]).mean()) < 0.02  # small crops all fit: no shape is preferred


def test_a_share_of_one_and_a_square_is_the_whole_image():
    middle = [0.0, 0.5, 0.9, 0.9] * 10 + [0.9]
    assert crop_box(32, 32, (1.0, 1.0), middle) == (0, 0, 32, 32)


@pytest.mark.parametrize(("place", "top", "left"), [(0.0, 0, 0), (0.5, 8, 8), (1 - 2**-24, 16, 16)])
def test_a_crop_reaches_every_edge(place: float, top: int, left: int) -> None:
    assert crop_box(32, 32, (0.25, 0.25), [0.5, 0.5, place, place] * 10 + [0.0]) == (top, left, 16, 16)


def test_a_crop_that_never_fits_is_the_largest_in_the_centre():
    assert crop_box(30, 200, (1.0, 1.0), draw(0)) == (0, 80, 30, 40)
    assert crop_box(200, 30, (1.0, 1.0), draw(0)) == (80, 0, 40, 30)


def test_a_training_view_is_the_crop_resized_and_mirrored_every_other_time():
    pixels = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)).permute(2, 0, 1)
    mirrored = 0
    for number in range(40):
        numbers = draw(number)
        top, left, height, width = crop_box(30, 40, (0.2, 1.0), numbers)
        cut = pixels[:, top : top + height, left : left + width]
        expected = functional.resize(cut, [16, 16], functional.InterpolationMode.BICUBIC, antialias=True)
        plain = training_view(pixels, 16, (0.2, 1.0), flip=False, uniform=numbers)
        assert torch.equal(plain, expected)
        view = training_view(pixels, 16, (0.2, 1.0), flip=True, uniform=numbers)
        is_mirrored = torch.equal(view, plain.flip(-1))
        assert is_mirrored or torch.equal(view, plain)
        mirrored += is_mirrored
    assert 10 <= mirrored <= 30


@pytest.mark.parametrize(("height", "width"), [(20, 30), (31, 20), (20, 20)])
def test_an_evaluation_view_is_the_centre(height: int, width: int) -> None:
    pixels = torch.arange(3 * height * width, dtype=torch.int64).remainder(251).to(torch.uint8).view(3, height, width)
    top, left = round((height - 16) / 2), round((width - 16) / 2)
    assert torch.equal(evaluation_view(pixels, 16), pixels[:, top : top + 16, left : left + 16])


@pytest.mark.parametrize("flip", [False, True])
def test_the_frames_of_a_clip_are_all_seen_alike(flip):
    clip = torch.randint(256, (3, 3, 40, 56), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    # The last number of a draw mirrors where it is below a half.
    for drawn in (*(draw(number) for number in range(4)), [*draw(4)[:-1], 0.1]):
        views = training_view(clip, 16, (0.2, 1.0), flip, drawn)
        assert views.shape == (3, 3, 16, 16)
        for frame, view in zip(clip, views, strict=True):
            assert torch.equal(view, training_view(frame, 16, (0.2, 1.0), flip, drawn))
    assert torch.equal(evaluation_view(clip, 16), clip[:, :, 12:28, 20:36])


@pytest.mark.parametrize(
    ("height", "width", "expected"), [(240, 320, (256, 341)), (320, 240, (341, 256)), (64, 64, (256, 256))]
)
def test_sides_stay_in_proportion(height, width, expected):
    assert scaled_size(height, width, 256) == expected
