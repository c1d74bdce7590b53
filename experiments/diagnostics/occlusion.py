"""Occlusion: a ball moves on while it is hidden, and the question is where it ends up.

Letters: B sequences, T frames of G x G pixels, L of them hidden, F patches of a frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from jaxtyping import Int64
from torch import Generator, Tensor
from torch.nn.functional import one_hot

from experiments.diagnostics.diagnostic import Batch, Diagnostic, check_choice, check_whole

Occlude = Literal["tail", "middle"]
Frames = Literal["all", "last_visible"]

BALL = 2
# (rows, columns) a frame; a ball at rest would be no task.
VELOCITIES = torch.tensor([(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1) if (down, right) != (0, 0)])


@dataclass(frozen=True)
class Occlusion(Diagnostic):
    """A 2 x 2 ball moves over T frames, in L of them unseen; the answer is its quadrant in the final frame.

    It starts anywhere and moves by one of the eight steps to a neighbouring pixel, the same in every frame, and what
    leaves the frame enters at the other side. The quadrant is that of its top left pixel: 0 top left, 1 top right,
    2 bottom left, 3 bottom right.

    With ``occlude=tail`` the last L frames are hidden, the final one included. With ``middle``, as published, the
    final frame is visible, so that it alone answers. With ``frames=last_visible`` the ball is shown in one frame
    only, the last that is visible: a control for what a single frame is worth.

    A token is a patch of a frame: patches in raster order, frame after frame. Its numbers are its pixels (zeros where
    the ball is hidden), its place in the frame (one-hot) and its frame (one-hot). There are no symbols. The answer is
    the average over the tokens of the final frame.

    The ball fills the top left patch of the first frame and moves right, to quadrant 0 still. The second frame is
    hidden; of the eight steps it may have taken from where it was, three end in quadrant 0 and no more in any other:

    >>> task = Occlusion(num_frames=2, num_hidden=1, frame_size=4, patch=2)
    >>> batch = task.encode(position=torch.tensor([[0, 0]]), velocity=torch.tensor([[0, 1]]))
    >>> batch.numbers[0, :, :4].sum(-1).tolist()  # lit pixels of each patch
    [4.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    >>> batch.answers.tolist(), batch.targets.tolist(), batch.best.tolist()
    ([[4, 5, 6, 7]], [[0]], [[0.375]])

    Attributes:
        num_frames: T.
        num_hidden: L, below T.
        occlude: which frames are hidden: ``tail`` or ``middle``.
        frame_size: G, pixels along a side of a frame; even, so that the quadrants are of one size.
        patch: pixels along a side of a patch; divides G.
        frames: which of the visible frames are shown: ``all`` or ``last_visible``.
    """

    name: ClassVar[str] = "occlusion"
    difficulty: ClassVar[str | None] = "num_hidden"

    num_frames: int = 8
    num_hidden: int = 0
    occlude: Occlude = "tail"
    frame_size: int = 16
    patch: int = 4
    frames: Frames = "all"

    def __post_init__(self) -> None:
        check_whole("num_frames", self.num_frames, 1)
        check_whole("num_hidden", self.num_hidden, 0, self.num_frames - 1, "num_frames - 1")
        check_choice("occlude", self.occlude, get_args(Occlude))
        check_choice("frames", self.frames, get_args(Frames))
        # On a torus of two pixels a side the ball is everywhere.
        check_whole("frame_size", self.frame_size, 4)
        if self.frame_size % 2:
            raise ValueError(f"frame_size={self.frame_size} must be even: its halves are the quadrants' sides")
        check_whole("patch", self.patch, 1)
        if self.frame_size % self.patch:
            raise ValueError(f"patch={self.patch} must divide frame_size={self.frame_size}")

    @property
    def patches(self) -> int:
        """F, patches of a frame."""
        return (self.frame_size // self.patch) ** 2

    @property
    def shown(self) -> tuple[int, ...]:
        """Numbers of the frames that show the ball."""
        spared = self.num_frames - self.num_hidden
        start = spared if self.occlude == "tail" else spared // 2
        visible = (*range(start), *range(start + self.num_hidden, self.num_frames))
        return visible if self.frames == "all" else visible[-1:]

    @property
    def num_numbers(self) -> int:
        """A: pixels of a patch, F places and T frames."""
        return self.patch**2 + self.patches + self.num_frames

    @property
    def vocabularies(self) -> tuple[int, ...]:
        """No symbols."""
        return ()

    @property
    def num_classes(self) -> int:
        """The quadrants."""
        return 4

    @property
    def length(self) -> int:
        """T F."""
        return self.num_frames * self.patches

    def draw(self, batch_size: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """The top left pixel (B, 2) in the first frame and the velocity (B, 2), as (row, column)."""
        position = torch.randint(self.frame_size, (batch_size, 2), generator=generator)
        velocity = VELOCITIES[torch.randint(len(VELOCITIES), (batch_size,), generator=generator)]
        return position, velocity

    def encode(self, position: Int64[Tensor, "B 2"], velocity: Int64[Tensor, "B 2"]) -> Batch:
        """The patches of all frames, ``numbers (B, T F, A)``, and the final quadrant, ``targets (B, 1)``."""
        steps = torch.arange(self.num_frames)[:, None]
        path = (position[:, None] + steps * velocity[:, None]) % self.frame_size
        features = torch.cat(
            [
                self._patches(path),
                one_hot(torch.arange(self.patches)).repeat(self.num_frames, 1).expand(len(path), -1, -1),
                one_hot(torch.arange(self.num_frames)).repeat_interleave(self.patches, 0).expand(len(path), -1, -1),
            ],
            dim=-1,
        )
        return Batch(
            numbers=features.float(),
            symbols=torch.zeros(len(path), self.length, 0, dtype=torch.int64),
            answers=torch.arange(self.length - self.patches, self.length)[None],
            targets=self._quadrant(path[:, -1:]),
            best=self._best(path),
            groups={},
        )

    def _patches(self, path: Tensor) -> Tensor:
        """(B, T F, patch^2) pixels of the frames that a path (B, T, 2) gives, zeros in those that are not shown."""
        lit = (torch.arange(self.frame_size) - path[..., None]) % self.frame_size < BALL
        pixels = lit[:, :, 0, :, None] & lit[:, :, 1, None, :]
        shown = torch.zeros(self.num_frames, dtype=torch.bool)
        shown[list(self.shown)] = True
        pixels = pixels & shown[:, None, None]
        side = self.frame_size // self.patch
        cut = pixels.view(len(path), self.num_frames, side, self.patch, side, self.patch)
        return cut.transpose(3, 4).reshape(len(path), self.length, self.patch**2)

    def _quadrant(self, pixels: Tensor) -> Tensor:
        """(...) quadrants of pixels (..., 2)."""
        low, right = (pixels >= self.frame_size // 2).long().unbind(-1)
        return right + 2 * low

    def _best(self, path: Tensor) -> Tensor:
        """(B, 1) probability of the likeliest final quadrant, given the frames that show the ball."""
        # Two frames that show it are enough: either the final frame is among them (`middle`), or they are neighbours
        # (`tail`), and then steps of -1, 0 and 1 are told apart wherever a side has more than two pixels.
        if len(self.shown) > 1:
            return torch.ones(len(path), 1)
        # One frame tells the place and nothing of the velocity: all eight are as likely as before.
        last = self.shown[0]
        ends = path[:, last, None] + (self.num_frames - 1 - last) * VELOCITIES
        votes = one_hot(self._quadrant(ends % self.frame_size), self.num_classes).sum(1)
        return votes.amax(1, keepdim=True) / len(VELOCITIES)
