"""The zoo of the video benchmark: what frames become class vectors by.

Legend: B batch, T frames, L layers, C channels and K chunk size of the memory, R registers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tensormem.layers.stack import Stack, Threading
from tensormem.memory import TensorMemory
from tensormem.models.backbone import bidirectional_blocks, drop_rates, matched_mlp_ratio
from tensormem.models.video_model import StreamingVideo, VideoModel

_STD = 0.02


class BaseVideo(VideoModel):
    """Joint space-time attention: every vector attends to those of all frames: `base`.

    Args:
        dim: width of the vectors.
        num_layers: L.
        num_heads: attention heads.
        mlp_ratio: width of the MLP over dim.
        dropout: on the embedded vectors, on both branches of each block and on the attention weights.
        drop_path: probability with which the last block's branches are left out; it rises linearly from 0.
        **kwargs: see VideoModel (num_classes, num_frames, image_size, patch, times, backbone, pretrained, recompute,
            init).
    """

    def __init__(
        self,
        dim: int = 384,
        num_layers: int = 12,
        num_heads: int = 6,
        *,
        mlp_ratio: float = 4.0,
        dropout: float = 0.1,
        drop_path: float = 0.2,
        **kwargs: Any,
    ) -> None:
        blocks = bidirectional_blocks(num_layers, dim, num_heads, mlp_ratio, dropout, drop_path)
        super().__init__(Stack(blocks, dim), dim, dropout=dropout, **kwargs)

    @property
    def streaming(self) -> Literal["token", "frame", "none"]:
        """``none``: all frames are seen at once."""
        return "none"

    def state_bytes(self, seq_len: int) -> int:
        """Bytes in float32 of the vectors of all frames: with a further frame each of them is needed again."""
        return 4 * seq_len * self.class_token.shape[0]

    def forward(
        self, frames: Float[Tensor, "B T 3 side side"], state: None = None
    ) -> tuple[Float[Tensor, "B classes"], None]:
        """Logits of a video, and None, as nothing is carried.

        Raises:
            ValueError: frames of another size, none at all, a state, or a frame beyond those that ``times=learned``
                knows.
        """
        self._check(frames)
        if state is not None:
            raise ValueError("joint attention carries no state: give it all frames at once, or use another model")
        if not frames.shape[1]:
            raise ValueError("there are no logits before the first frame")
        x = self.embed(frames, 0)
        num_vectors = x.shape[2]
        x = x.flatten(1, 2)
        for block in self.stack.blocks:
            x, _ = self._again(block, x)
        features = self.norm(x[:, ::num_vectors]).mean(1)
        return self.classify(features), None


class BaseWideVideo(BaseVideo):
    """`base` with an MLP so wide that it has as many parameters as `tensor`, within 1%: `base_wide`.

    Args:
        dim: width of the vectors.
        num_layers: L.
        num_heads: attention heads.
        mlp_ratio: of the `tensor` that is to be matched.
        memory_channels: C of its memory.
        memory_grid: points along each axis of its memory.
        memory_chunk: K of its memory.
        memory_every: its memory is in every so many blocks.
        memory_options: further keyword arguments of its memory.
        **kwargs: see BaseVideo.
    """

    def __init__(
        self,
        dim: int = 384,
        num_layers: int = 12,
        num_heads: int = 6,
        *,
        mlp_ratio: float = 4.0,
        memory_channels: int = 64,
        memory_grid: Sequence[int] = (8, 8, 8),
        memory_chunk: int = 8,
        memory_every: int = 1,
        memory_options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        memory_layers = -(-num_layers // memory_every)
        ratio = matched_mlp_ratio(
            dim, num_layers, mlp_ratio, memory_channels, memory_grid, memory_chunk, memory_options, memory_layers
        )
        super().__init__(dim, num_layers, num_heads, mlp_ratio=ratio, **kwargs)


class RegistersVideo(StreamingVideo):
    """Attention within a frame and to registers, further tokens that go on to the next frame: `registers`.

    A frame's registers are those of the frame before, after its last block and a LayerNorm, which keeps their size the
    same however long the video is.

    Args:
        dim: width of the vectors.
        num_layers: L.
        num_heads: attention heads.
        num_registers: R.
        mlp_ratio: width of the MLP over dim.
        dropout: as of BaseVideo.
        drop_path: as of BaseVideo.
        **kwargs: see VideoModel.
    """

    def __init__(
        self,
        dim: int = 384,
        num_layers: int = 12,
        num_heads: int = 6,
        *,
        num_registers: int = 8,
        mlp_ratio: float = 4.0,
        dropout: float = 0.1,
        drop_path: float = 0.2,
        **kwargs: Any,
    ) -> None:
        if num_registers < 1:
            raise ValueError(f"num_registers={num_registers} must be at least 1")
        blocks = bidirectional_blocks(num_layers, dim, num_heads, mlp_ratio, dropout, drop_path)
        super().__init__(Stack(blocks, dim), dim, dropout=dropout, **kwargs)
        self.registers = nn.Parameter(torch.empty(num_registers, dim))
        nn.init.normal_(self.registers, std=_STD)
        self.registers_norm = nn.LayerNorm(dim)

    def init_carried(self, batch: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor]:
        """The learned registers, (B, R, dim)."""
        return (self.registers.to(device=device, dtype=dtype).expand(batch, -1, -1),)

    def step(self, x: Float[Tensor, "B vectors dim"], carried: tuple[Any, ...]) -> tuple[Tensor, tuple[Any, ...]]:
        """See StreamingVideo."""
        (registers,) = carried
        num_vectors = x.shape[1]
        x, _ = self.stack(torch.cat([x, registers.to(x.dtype)], dim=1))
        return x[:, :num_vectors], (self.registers_norm(x[:, num_vectors:]).to(registers.dtype),)

    def state_bytes(self, seq_len: int) -> int:
        """Bytes of the registers and of the class vectors' sum in float32; the length makes no difference."""
        del seq_len
        return 4 * (self.registers.numel() + self.registers.shape[1])


class TensorVideo(StreamingVideo):
    """Attention within a frame and a Tensor Memory that runs through the video: `tensor`.

    The memory stands between attention and MLP. Each layer pads and writes its last chunk at each frame's end.

    Args:
        dim: width of the vectors.
        num_layers: L.
        num_heads: attention heads.
        memory_channels: C of the memory.
        memory_grid: points along each axis of the memory.
        memory_chunk: K, tokens to a step of the memory.
        memory_every: the memory is in every so many blocks, the first one among them.
        memory_options: further keyword arguments of TensorMemory (the ablation switches, sigma_scale).
        threading: ``depth`` (as published): a layer goes on from the layer below, the first from the last of the frame
            before; or ``layer``: each from itself; see Stack.step.
        gamma: initial logit of each gate.
        mlp_ratio: width of the MLP over dim.
        dropout: as of BaseVideo, and on the memory's contribution.
        drop_path: as of BaseVideo; the memory's contribution is left out alike.
        **kwargs: see VideoModel.
    """

    def __init__(
        self,
        dim: int = 384,
        num_layers: int = 12,
        num_heads: int = 6,
        *,
        memory_channels: int = 64,
        memory_grid: Sequence[int] = (8, 8, 8),
        memory_chunk: int = 8,
        memory_every: int = 1,
        memory_options: Mapping[str, Any] | None = None,
        threading: Threading = "depth",
        gamma: float = -2.0,
        mlp_ratio: float = 4.0,
        dropout: float = 0.1,
        drop_path: float = 0.2,
        **kwargs: Any,
    ) -> None:
        blocks = bidirectional_blocks(num_layers, dim, num_heads, mlp_ratio, dropout, drop_path)
        memory = TensorMemory(dim, memory_channels, memory_grid, memory_chunk, **(memory_options or {}))
        rates = drop_rates(drop_path, num_layers)
        stack = Stack(blocks, dim, memory, threading, gamma, dropout, rates, place="between", every=memory_every)
        super().__init__(stack, dim, dropout=dropout, **kwargs)

    def init_carried(self, batch: int, device: torch.device, dtype: torch.dtype) -> tuple[Any, ...]:
        """The empty memory of each layer, or, with ``threading=depth``, of all."""
        return self.stack.init_memories(batch, device, dtype)

    def step(self, x: Float[Tensor, "B vectors dim"], carried: tuple[Any, ...]) -> tuple[Tensor, tuple[Any, ...]]:
        """See StreamingVideo."""
        return self.stack.step(x, carried)

    def state_bytes(self, seq_len: int) -> int:
        """Bytes of the memories and of the class vectors' sum in float32; the length makes no difference."""
        memory = self.stack.memory
        assert memory is not None
        num_memories = len(self.stack.fusions) if self.stack.threading == "layer" else 1
        return num_memories * memory.state_bytes(seq_len) + 4 * self.class_token.shape[0]
