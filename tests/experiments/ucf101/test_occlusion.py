"""What is hidden of a test clip."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from experiments.ucf101.occlusion import CONDITIONS, GREY, WHOLE, Condition, shown

IDS = [3, 11, 40]
# No pixel is grey.
FRAMES = 0.6 + 0.4 * torch.rand(3, 2, 8, 3, 20, 20, generator=torch.Generator().manual_seed(0))


def hidden(condition, ids=IDS):
    """(B, K, T, S, S) True where a pixel is not shown."""
    frames = shown(FRAMES, ids, condition)
    changed = (frames != FRAMES).all(3)
    assert torch.equal(changed, (frames != FRAMES).any(3))
    assert (frames[(frames != FRAMES)] == GREY).all()
    return changed


def test_a_whole_clip_is_shown_as_it_is():
    assert torch.equal(shown(FRAMES, IDS, WHOLE), FRAMES)
    assert CONDITIONS[0] == WHOLE


@pytest.mark.parametrize(("fraction", "count"), [(0.25, 2), (0.5, 4), (0.75, 6), (1.0, 8)])
def test_so_many_whole_frames_are_blanked_in_every_view(fraction, count):
    blank = hidden(Condition("frames", fraction)).flatten(3)
    assert torch.equal(blank.all(3), blank.any(3))
    assert (blank.all(3).sum(2) == count).all()
    assert torch.equal(blank[:, 0], blank[:, 1])


@pytest.mark.parametrize("kind", ["frames", "patch"])
def test_what_is_hidden_depends_on_the_clips_number_alone(kind):
    condition = Condition(kind, 0.5)
    here = hidden(condition)
    assert not torch.equal(here[0], here[1])
    assert torch.equal(hidden(condition, [11, 40, 3])[0], here[1])
    torch.manual_seed(1)
    np.random.seed(1)
    assert torch.equal(hidden(condition), here)


def test_a_larger_fraction_hides_what_a_smaller_one_does_and_more():
    small, large = hidden(Condition("frames", 0.25)), hidden(Condition("frames", 0.75))
    assert (small <= large).all()


@pytest.mark.parametrize("fraction", [0.25, 0.5, 0.75])
def test_a_square_of_the_area_moves_at_a_constant_velocity(fraction):
    masks = hidden(Condition("patch", fraction))
    side = round(20 * fraction**0.5)
    corners = []
    for mask in masks[:, 0].flatten(0, 1):
        rows, columns = mask.nonzero().T
        assert mask.sum() == side**2 == (np.ptp(rows.numpy()) + 1) * (np.ptp(columns.numpy()) + 1)
        corners.append((int(rows.min()), int(columns.min())))
    paths = np.array(corners).reshape(3, 8, 2)
    steps = np.diff(paths, axis=1)
    # Whole pixels: a step is one or the other of two neighbours.
    assert (steps.max(1) - steps.min(1) <= 1).all()
    assert np.abs(paths[:, -1] - paths[:, 0]).max() > 0


def test_shuffled_frames_are_the_same_in_another_order():
    frames = shown(FRAMES, IDS, Condition("shuffled"))
    for clip, whole in zip(frames, FRAMES, strict=True):
        order = [next(i for i in range(8) if torch.equal(whole[0, i], frame)) for frame in clip[0]]
        assert sorted(order) == list(range(8))
        assert order != list(range(8))
        assert torch.equal(clip, whole[:, order])


def test_a_single_frame_is_the_middle_one():
    frames = shown(FRAMES, IDS, Condition("single"))
    assert torch.equal(frames, FRAMES[:, :, 4:5].expand_as(FRAMES))


@pytest.mark.parametrize("condition", [Condition("blink"), Condition("frames", 1.5), Condition("patch", -0.1)])
def test_a_wrong_condition_is_named(condition):
    with pytest.raises(ValueError, match=r"kind='blink' is unknown|fraction=.*: must be from 0 to 1"):
        shown(FRAMES, IDS, condition)
