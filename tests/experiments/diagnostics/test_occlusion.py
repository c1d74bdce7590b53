"""Occlusion."""

import itertools
import math
from collections import Counter, defaultdict

import pytest
import torch

from experiments.diagnostics.occlusion import VELOCITIES, Occlusion

SMALL = [
    Occlusion(num_frames, num_hidden, occlude, frame_size, patch=2, frames=frames)
    for num_frames, frame_size in [(1, 4), (2, 4), (4, 6), (5, 4)]
    for num_hidden in range(num_frames)
    for occlude in ("tail", "middle")
    for frames in ("all", "last_visible")
]
EIGHT = [
    Occlusion(8, num_hidden, occlude, frames=frames)
    for num_hidden in (0, 2, 4, 6)
    for occlude in ("tail", "middle")
    for frames in ("all", "last_visible")
]


def every_latent(task):
    """All starts with all velocities, each as likely as the next."""
    latents = [
        (start, velocity)
        for start in itertools.product(range(task.frame_size), repeat=2)
        for velocity in itertools.product((-1, 0, 1), repeat=2)
        if velocity != (0, 0)
    ]
    return latents, [torch.tensor(part) for part in zip(*latents, strict=True)]


def walk(task, start, velocity):
    """The ball's places, frame by frame."""
    place = start
    for _ in range(task.num_frames):
        yield place
        place = tuple((at + step) % task.frame_size for at, step in zip(place, velocity, strict=True))


def frames_of(task, numbers):
    """(B, T, G, G) pixels, put back pixel by pixel where the one-hot features say that a patch belongs."""
    side = task.frame_size // task.patch
    frames = torch.full((len(numbers), task.num_frames, task.frame_size, task.frame_size), float("nan"))
    for token in range(task.length):
        features = numbers[0, token].tolist()
        place = features[task.patch**2 :][: task.patches].index(1)
        frame = features[task.patch**2 + task.patches :].index(1)
        assert (place, frame) == (token % task.patches, token // task.patches)
        for pixel in range(task.patch**2):
            row = place // side * task.patch + pixel // task.patch
            column = place % side * task.patch + pixel % task.patch
            frames[:, frame, row, column] = numbers[:, token, pixel]
    return frames


def hidden_frames(task):
    """Numbers of the frames that show nothing, listed by hand for what is swept and by the rule else."""
    by_hand = {
        ("tail", 0): [],
        ("tail", 2): [6, 7],
        ("tail", 4): [4, 5, 6, 7],
        ("tail", 6): [2, 3, 4, 5, 6, 7],
        ("middle", 0): [],
        ("middle", 2): [3, 4],
        ("middle", 4): [2, 3, 4, 5],
        ("middle", 6): [1, 2, 3, 4, 5, 6],
    }
    if task.num_frames == 8 and (task.occlude, task.num_hidden) in by_hand:
        hidden = by_hand[task.occlude, task.num_hidden]
    else:
        start = task.num_frames - task.num_hidden
        start = start if task.occlude == "tail" else start // 2
        hidden = [frame for frame in range(task.num_frames) if start <= frame < start + task.num_hidden]
    if task.frames == "last_visible":
        last = max(set(range(task.num_frames)) - set(hidden))
        hidden = [frame for frame in range(task.num_frames) if frame != last]
    return hidden


@pytest.mark.parametrize("task", SMALL + EIGHT, ids=repr)
def test_frames_and_targets_are_those_of_a_slow_ball(task):
    if task.num_frames < 8:
        latents, tensors = every_latent(task)
    else:
        tensors = task.draw(8, torch.Generator().manual_seed(0))
        latents = [(tuple(start.tolist()), tuple(velocity.tolist())) for start, velocity in zip(*tensors, strict=True)]
    batch = task.encode(*tensors)
    frames = frames_of(task, batch.numbers)
    hidden, size = hidden_frames(task), task.frame_size
    expected = torch.zeros(len(latents), task.num_frames, size, size)
    for row, latent in enumerate(latents):
        for frame, (top, left) in enumerate(walk(task, *latent)):
            if frame not in hidden:
                for i, j in itertools.product(range(2), repeat=2):
                    expected[row, frame, (top + i) % size, (left + j) % size] = 1
        assert batch.targets[row].tolist() == [(left >= size // 2) + 2 * (top >= size // 2)]
    assert torch.equal(frames, expected)


@pytest.mark.parametrize("task", SMALL, ids=repr)
def test_best_is_that_of_all_hypotheses_that_fit_what_is_shown(task):
    latents, tensors = every_latent(task)
    batch = task.encode(*tensors)
    shown = [frame.numpy().tobytes() for frame in frames_of(task, batch.numbers)]
    endings = defaultdict(Counter)
    for view, latent in zip(shown, latents, strict=True):
        *_, (top, left) = walk(task, *latent)
        endings[view][top >= task.frame_size // 2, left >= task.frame_size // 2] += 1
    expected = [max(endings[view].values()) / endings[view].total() for view in shown]
    assert batch.best[:, 0].tolist() == pytest.approx(expected, abs=1e-6)


def test_a_single_frame_is_worth_little_when_the_tail_is_hidden():
    tail = Occlusion(num_hidden=4, frames="last_visible").sample(500, torch.Generator().manual_seed(1))
    # Of three rows and three columns, two of each or more lie in one half: four places of nine in one quadrant, and
    # one of the four may be the ball at rest, which does not occur.
    assert (tail.best < 1).all()
    assert (tail.best >= 3 / 8).all()
    for task in (Occlusion(num_hidden=4), Occlusion(num_hidden=4, occlude="middle", frames="last_visible")):
        assert (task.sample(500, torch.Generator().manual_seed(1)).best == 1).all()


@pytest.mark.parametrize("task", EIGHT, ids=repr)
def test_the_answer_is_the_mean_over_the_final_frame(task):
    batch = task.sample(1, torch.Generator().manual_seed(2))
    assert batch.answers.tolist() == [list(range(7 * 16, 8 * 16))]
    if task.occlude == "tail" and task.num_hidden:
        assert not batch.numbers[:, batch.answers[0], :16].any()


def test_starts_and_velocities_are_uniform_and_independent():
    task = Occlusion(frame_size=4, patch=2)
    position, velocity = task.draw(20_000, torch.Generator().manual_seed(3))
    step = (velocity[:, None] == VELOCITIES).all(-1).long()
    assert (step.sum(1) == 1).all()
    counts = torch.bincount((position[:, 0] * 4 + position[:, 1]) * 8 + step.argmax(1), minlength=128)
    assert len(counts) == 128
    assert (counts - 20_000 / 128).abs().max() < 5 * math.sqrt(20_000 / 128 * 127 / 128)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_frames": 0}, "num_frames=0 must be a whole number, at least 1"),
        ({"num_hidden": 8}, r"num_hidden=8 must be a whole number, from 0 to 7 \(num_frames - 1\)"),
        ({"num_hidden": -1}, r"num_hidden=-1 must be a whole number, from 0 to 7"),
        ({"occlude": "start"}, "occlude='start' is unknown: use one of tail, middle"),
        ({"frames": "last"}, "frames='last' is unknown: use one of all, last_visible"),
        ({"frame_size": 2, "patch": 1}, "frame_size=2 must be a whole number, at least 4"),
        ({"frame_size": 9, "patch": 3}, "frame_size=9 must be even"),
        ({"patch": 0}, "patch=0 must be a whole number, at least 1"),
        ({"patch": 3}, "patch=3 must divide frame_size=16"),
    ],
)
def test_an_impossible_task_is_named(settings, message):
    with pytest.raises(ValueError, match=message):
        Occlusion(**settings)
