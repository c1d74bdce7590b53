"""What every model of videos has in common: vectors of frames, a class token in each, and logits of all seen so far.

Legend: B batch, T frames, N vectors of a frame, R registers.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal, NamedTuple, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tensormem.layers.stack import Stack
from tensormem.models.backbone import Init, initialise
from tensormem.models.frames import FrozenFrames, PatchFrames
from tensormem.models.zoo_model import ZooModel

Times = Literal["learned", "none"]


class VideoState(NamedTuple):
    """What a model that streams carries from frame to frame; its size does not depend on the frames seen.

    Attributes:
        carried: what the frames hand on: registers, or the states of the memory.
        features: (B, dim), the sum of the frames' class vectors.
        num_frames: 0-d int64 tensor on the CPU: frames seen.
    """

    carried: tuple[Any, ...]
    features: Tensor
    num_frames: Tensor


class VideoModel(ZooModel):
    """Vectors and a class token of each frame; the logits are a linear map of the class vectors' mean over the frames.

    A subclass says how frames become class vectors. The embeddings and their initialisation are the same for all.

    Args:
        stack: the blocks.
        dim: width of the vectors.
        num_classes: classes.
        num_frames: frames that ``times=learned`` knows.
        image_size: pixels of a side of the square frames.
        patch: pixels of a side of a patch, a divisor of image_size; of no matter to a backbone.
        times: ``learned``, a vector for each frame's number, or ``none``, which knows no end.
        backbone: None for patches, or the name of a frozen model of timm, whose pooled feature is a frame's one vector.
        pretrained: whether the backbone has the weights that timm publishes.
        dropout: on the embedded vectors.
        recompute: in training, keep no activations but what frames (or, without streaming, blocks) hand on, and
            compute the others again in the backward pass: a third more time, and memory that grows by a frame's pixels,
            a state and autograd's notes (some 0.5 MiB) where it would grow by a frame's activations.
        init: ``tuned``: weights 0.02 normal, those that end a residual branch scaled by 1 / sqrt(2 L); ``paper``:
            without the scaling. The embedding of the patches and the memory keep their own initialisation.

    Raises:
        ValueError: a number below 1, an unknown choice, or pretrained without a backbone.
        BackboneError: see FrozenFrames.
    """

    embedding: PatchFrames | FrozenFrames
    stack: Stack

    def __init__(
        self,
        stack: Stack,
        dim: int,
        *,
        num_classes: int,
        num_frames: int = 8,
        image_size: int = 224,
        patch: int = 16,
        times: Times = "learned",
        backbone: str | None = None,
        pretrained: bool = False,
        dropout: float = 0.0,
        recompute: bool = False,
        init: Init = "tuned",
    ) -> None:
        super().__init__()
        for name, value in (("num_classes", num_classes), ("num_frames", num_frames)):
            if value < 1:
                raise ValueError(f"{name}={value} must be at least 1")
        if times not in get_args(Times):
            raise ValueError(f"times={times!r} is unknown; choose one of {get_args(Times)}")
        if pretrained and backbone is None:
            raise ValueError("pretrained=true needs a backbone, such as backbone=vit_small_patch16_224")
        self.image_size = image_size
        self.num_frames = num_frames
        self.recompute = recompute
        if backbone is None:
            self.embedding = PatchFrames(dim, image_size, patch)
        else:
            self.embedding = FrozenFrames(dim, image_size, backbone, pretrained)
        self.class_token = nn.Parameter(torch.zeros(dim))
        self.positions = nn.Parameter(torch.zeros(1 + self.embedding.num_vectors, dim))
        self.times = nn.Parameter(torch.zeros(num_frames, dim)) if times == "learned" else None
        self.dropout = nn.Dropout(dropout)
        self.stack = stack
        self.norm = nn.LayerNorm(dim)
        self.readout = nn.Linear(dim, num_classes)
        times_too = [] if self.times is None else [self.times]
        initialise(self, [stack], [self.class_token, self.positions, *times_too], init)

    def embed(self, frames: Float[Tensor, "B T 3 side side"], start: int) -> Float[Tensor, "B T vectors dim"]:
        """A class token and N vectors of each frame; the first of them is the video's frame ``start``.

        Raises:
            ValueError: a frame beyond those that ``times=learned`` knows.
        """
        num_frames = frames.shape[1]
        vectors = self.embedding(frames.flatten(0, 1)).unflatten(0, frames.shape[:2])
        x = torch.cat([self.class_token.expand(*vectors.shape[:2], 1, -1).to(vectors.dtype), vectors], dim=2)
        x = x + self.positions
        if self.times is not None:
            if start + num_frames > self.num_frames:
                raise ValueError(
                    f"frame {self.num_frames} is beyond the num_frames={self.num_frames} that times=learned knows: "
                    "set num_frames higher, or times=none"
                )
            x = x + self.times[start : start + num_frames, None]
        return self.dropout(x)

    def classify(self, features: Float[Tensor, "B dim"]) -> Float[Tensor, "B classes"]:
        """Logits, in the precision of the weights under autocast too: half of it would make many classes equal."""
        with torch.autocast(features.device.type, enabled=False):
            return self.readout(features.to(self.readout.weight.dtype))

    def _check(self, frames: Tensor) -> None:
        if frames.shape[-2:] != (self.image_size, self.image_size):
            raise ValueError(f"frames of {tuple(frames.shape[-2:])} pixels; this model takes {self.image_size} a side")

    def _again(self, function: Any, *arguments: Any) -> Any:
        """What the function returns; with ``recompute``, in training, without keeping what it computes on the way."""
        if self.recompute and torch.is_grad_enabled():
            return checkpoint(function, *arguments, use_reentrant=False)
        return function(*arguments)


class StreamingVideo(VideoModel):
    """A model that sees one frame at a time: any split of a video between frames gives the logits of one call.

    A subclass says what is carried at the start (`init_carried`) and from frame to frame (`step`).
    """

    @property
    def streaming(self) -> Literal["token", "frame", "none"]:
        """``frame``."""
        return "frame"

    @abstractmethod
    def init_carried(self, batch: int, device: torch.device, dtype: torch.dtype) -> tuple[Any, ...]:
        """What is carried before the first frame of B videos."""

    @abstractmethod
    def step(self, x: Float[Tensor, "B vectors dim"], carried: tuple[Any, ...]) -> tuple[Tensor, tuple[Any, ...]]:
        """The vectors of one frame after the last block, class token first, and what is carried on."""

    def init_state(
        self, batch: int, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> VideoState:
        """The state of B videos of which nothing has been seen; kept in float32, or float64 where that is asked for."""
        parameter = self.readout.weight
        device = parameter.device if device is None else torch.device(device)
        dtype = torch.promote_types(parameter.dtype if dtype is None else dtype, torch.float32)
        return VideoState(
            carried=self.init_carried(batch, device, dtype),
            features=torch.zeros(batch, parameter.shape[1], device=device, dtype=dtype),
            num_frames=torch.zeros((), dtype=torch.int64, device="cpu"),
        )

    def forward(
        self, frames: Float[Tensor, "B T 3 side side"], state: VideoState | None = None
    ) -> tuple[Float[Tensor, "B classes"], VideoState]:
        """Logits of all frames seen so far, those of earlier calls too, and the next state.

        Args:
            frames: in [0, 1], of this model's size, in the video's order.
            state: what the call before returned; None: these frames are the first.

        Raises:
            ValueError: frames of another size, no frame at all, a state of another batch size, or a frame beyond
                those that ``times=learned`` knows.
        """
        self._check(frames)
        if state is None:
            state = self.init_state(len(frames), frames.device)
        if len(state.features) != len(frames):
            raise ValueError(
                f"the state is of {len(state.features)} videos, but there are frames of {len(frames)}: start from "
                f"init_state({len(frames)})"
            )
        carried, features, start = state.carried, state.features, int(state.num_frames)
        if not start + frames.shape[1]:
            raise ValueError("there are no logits before the first frame")
        for number in range(frames.shape[1]):
            vector, carried = self._again(self._frame, frames[:, number : number + 1], carried, start + number)
            features = features + vector
        count = start + frames.shape[1]
        logits = self.classify(features / count)
        return logits, VideoState(carried, features, torch.tensor(count, device="cpu"))

    def _frame(self, frame: Tensor, carried: tuple[Any, ...], number: int) -> tuple[Tensor, tuple[Any, ...]]:
        """The class vector of one frame, and what is carried on."""
        x, carried = self.step(self.embed(frame, number)[:, 0], carried)
        return self.norm(x[:, 0]), carried
