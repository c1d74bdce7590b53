"""A stack of blocks and the route that the memory's state takes through it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tensormem.layers.block import Block, GatedFusion
from tensormem.memory import MemoryState, TensorMemory

Threading = Literal["layer", "depth"]
Place = Literal["after", "between"]


class StackState(NamedTuple):
    """What a stack carries between calls.

    Attributes:
        mixers: one state per block.
        memories: one memory state per block that has the memory; empty without one.
    """

    mixers: tuple[Any, ...]
    memories: tuple[MemoryState, ...]


class Stack(nn.Module):
    """Blocks in a row and, after each one's MLP or before it, what the shared memory adds.

    Threading is the route of the memory's state:

    - ``layer``: every layer has a state of its own, empty at the start of a sequence. Causal; L times the bytes.
    - ``depth`` (the paper's): a layer goes on from the final state of the layer below, which has seen the whole
      call. The memory's last chunk is padded and written at the end of each layer. NOT causal on tokens: from
      the second layer on the first token reads the last. It carries no state between calls, only from frame to
      frame of a video, which `step` takes as a whole.

    Args:
        blocks: the blocks, first one first.
        dim: width of the tokens.
        memory: one memory, whose weights serve all layers; None for a plain Transformer.
        threading: as above.
        gamma: initial logit of each layer's gate.
        dropout: on the memory's contribution.
        drop_path: probability with which it is left out, in training, sequence by sequence; one value a block, or one
            for all.
        place: ``after`` the block, or ``between`` its mixer and its MLP.
        every: the memory is in every so many blocks, the first one among them.
    """

    def __init__(
        self,
        blocks: Sequence[Block],
        dim: int,
        memory: TensorMemory | None = None,
        threading: Threading = "layer",
        gamma: float = 0.0,
        dropout: float = 0.0,
        drop_path: float | Sequence[float] = 0.0,
        place: Place = "after",
        every: int = 1,
    ) -> None:
        super().__init__()
        for name, choice, kind in (("threading", threading, Threading), ("place", place, Place)):
            if choice not in get_args(kind):
                raise ValueError(f"{name}={choice!r} is unknown; choose one of {get_args(kind)}")
        if every < 1:
            raise ValueError(f"every={every} must be at least 1")
        self.threading = threading
        self.place = place
        self.blocks: Sequence[Block] = nn.ModuleList(blocks)  # type: ignore[assignment]
        self.memory = memory
        self.memory_layers = range(0, 0 if memory is None else len(blocks), every)
        rates = [drop_path] * len(blocks) if isinstance(drop_path, float | int) else list(drop_path)
        fusions = nn.ModuleList(GatedFusion(dim, gamma, dropout, rates[layer]) for layer in self.memory_layers)
        self.fusions: Sequence[GatedFusion] = fusions  # type: ignore[assignment]

    @property
    def carries_state(self) -> bool:
        """Whether a sequence may be cut into calls."""
        return self.memory is None or self.threading == "layer"

    def init_state(
        self, batch: int, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> StackState:
        """The state of B sequences of which nothing has been seen."""
        self._require_carrying()
        memories: tuple[MemoryState, ...] = ()
        if self.memory is not None:
            memories = tuple(self.memory.init_state(batch, device, dtype) for _ in self.fusions)
        return StackState(tuple(block.mixer.init_state(batch, device, dtype) for block in self.blocks), memories)

    def flush(self, state: StackState) -> StackState:
        """Write each memory's pending chunk, padded with zeros; the mixers have nothing pending.

        Raises:
            ValueError: the threading carries no state.
        """
        self._require_carrying()
        memory = self.memory
        if memory is None:
            return state
        return state._replace(memories=tuple(memory.flush(below) for below in state.memories))

    def state_bytes(self, seq_len: int) -> int:
        """Bytes that one sequence of seq_len tokens holds in float32: caches and memories."""
        mixers = sum(block.mixer.state_bytes(seq_len) for block in self.blocks)
        if self.memory is None:
            return mixers
        num_memories = len(self.fusions) if self.threading == "layer" else 1
        return mixers + num_memories * self.memory.state_bytes(seq_len)

    def forward(
        self, x: Float[Tensor, "B N dim"], state: StackState | None = None
    ) -> tuple[Float[Tensor, "B N dim"], StackState | None]:
        """The tokens after the last block, and the next state (None where the threading carries none)."""
        if state is not None:
            self._require_carrying()
        x, mixers, memories = self._run(x, state)
        if not self.carries_state:
            return x, None
        return x, StackState(tuple(mixers), tuple(memories))

    def init_memories(
        self, batch: int, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> tuple[MemoryState, ...]:
        """What `step` carries before the first frame of B videos: the memories of which nothing was written."""
        if self.memory is None:
            return ()
        num_memories = len(self.fusions) if self.threading == "layer" else 1
        return tuple(self.memory.init_state(batch, device, dtype) for _ in range(num_memories))

    def step(
        self, x: Float[Tensor, "B N dim"], memories: tuple[MemoryState, ...]
    ) -> tuple[Float[Tensor, "B N dim"], tuple[MemoryState, ...]]:
        """One frame of a video: what mixes tokens sees that frame alone, the memory runs on through the frames.

        Every layer pads and writes its last chunk at the frame's end, as published. With ``layer`` each goes on from
        where it was after the frame before; with ``depth`` the first one goes on from the last layer of the frame
        before.

        Args:
            x: the frame's tokens.
            memories: what the frame before left, or `init_memories`.

        Returns:
            The tokens after the last block, and the memories, in which nothing is pending.
        """
        state = StackState((None,) * len(self.blocks), memories)
        x, _, reached = self._run(x, state)
        if self.memory is None:
            return x, ()
        kept = reached if self.threading == "layer" else reached[-1:]
        return x, tuple(self.memory.flush(each) for each in kept)

    def _run(self, x: Tensor, state: StackState | None) -> tuple[Tensor, list[Any], list[MemoryState]]:
        """The tokens after the last block, and the states that mixers and memories reach."""
        mixers: list[Any] = []
        memories: list[MemoryState] = []
        for layer, block in enumerate(self.blocks):
            x, mixer_state = block.mix(x, None if state is None else state.mixers[layer])
            mixers.append(mixer_state)
            if self.place == "between":
                x = self._fuse(layer, x, state, memories)
            x = block.transform(x)
            if self.place == "after":
                x = self._fuse(layer, x, state, memories)
        return x, mixers, memories

    def _fuse(self, layer: int, x: Tensor, state: StackState | None, reached: list[MemoryState]) -> Tensor:
        """The tokens with what the memory adds in a layer; what it reaches is appended to what the layers below did."""
        if self.memory is None or layer not in self.memory_layers:
            return x
        place = len(reached)
        if self.threading == "depth" and reached:
            below: MemoryState | None = self.memory.flush(reached[-1])
        else:
            below = None if state is None else state.memories[place]
        x, after = self.fusions[place](x, self.memory, below)
        reached.append(after)
        return x

    def _require_carrying(self) -> None:
        if not self.carries_state:
            raise ValueError(
                "threading=depth carries no state between calls (each layer starts from the whole call's final state "
                "of the layer below): use threading=layer, or threading=time where it is offered"
            )
