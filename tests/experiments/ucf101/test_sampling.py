"""Which frames of a clip a model is given."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.ucf101.sampling import frame_indices


def test_one_view_has_the_middles_of_equal_parts():
    assert frame_indices(80, 8).tolist() == [[5, 15, 25, 35, 45, 55, 65, 75]]
    assert frame_indices(5, 5).tolist() == [[0, 1, 2, 3, 4]]
    assert frame_indices(3, 1).tolist() == [[1]]


def test_views_lie_between_one_another():
    assert frame_indices(24, 2, 3).tolist() == [[2, 14], [6, 18], [10, 22]]


@pytest.mark.parametrize("num_views", [1, 3, 10])
def test_frames_are_in_order_there_and_never_twice_in_a_view(num_views):
    for num_frames in range(8, 120):
        indices = frame_indices(num_frames, 8, num_views)
        assert indices.shape == (num_views, 8)
        assert indices.min() >= 0
        assert indices.max() < num_frames
        assert (np.diff(indices, axis=1) >= 1).all()
        assert (np.diff(indices, axis=0) >= 0).all()


def test_a_short_clip_repeats_its_last_frame():
    assert frame_indices(3, 8, 2).tolist() == [[0, 1, 2, 2, 2, 2, 2, 2]] * 2
    assert frame_indices(1, 2).tolist() == [[0, 0]]


@pytest.mark.parametrize("arguments", [(0, 8), (9, 0), (9, 8, 0)])
def test_a_number_below_one_is_an_error(arguments):
    with pytest.raises(ValueError, match="=0: must be at least 1"):
        frame_indices(*arguments)
