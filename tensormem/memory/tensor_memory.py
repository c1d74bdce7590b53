"""TensorMemory: tokens and a state of fixed size in, tokens and the next state out.

Legend: B batch, N tokens, K chunk size, S chunks written, R chunks read, C channels, n grid axes,
V grid points in all.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeVar, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from tensormem.memory.fused import SavingKind, fused
from tensormem.memory.kernels import GemmKind, KernelKind
from tensormem.memory.scan import ScanInputs, WriteKind, reference
from tensormem.memory.update import GridUpdate, UpdateKind

CoordinatesKind = Literal["shared", "separate"]
ScanKind = Literal["auto", "fused", "reference"]
SpreadKind = Literal["learned", "fixed"]
Model = TypeVar("Model", bound=nn.Module)


class MemoryState(NamedTuple):
    """What the memory carries from one call to the next; its size does not depend on the tokens seen.

    Attributes:
        h: (B, C, *grid), the hidden volume, which is read.
        c: (B, C, *grid), the cell volume.
        buffer: (B, K - 1, dim), the tokens of the chunk that is not complete yet, zeros behind them.
        read: (B, C), what that chunk has read; zeros where no chunk is pending.
        pending: 0-d int64 tensor, always on the CPU (it steers control flow): tokens in the buffer.
    """

    h: Tensor
    c: Tensor
    buffer: Tensor
    read: Tensor
    pending: Tensor


class TensorMemory(nn.Module):
    """A recurrent memory of fixed size, written and read at continuous coordinates (arXiv 2605.27686).

    Tokens are taken in chunks of K. A chunk reads once, at the coordinate of its first token, from the state that
    its predecessors left; then it writes once, a Gaussian around the coordinate of its summary, and the whole grid
    does one ConvLSTM step. So the output at a token depends on earlier chunks and on the first token of its own
    chunk: the memory is causal.

    A sequence may be cut into calls anywhere, inside a chunk too: outputs, final state and gradients are those of
    one call. A chunk that is not complete waits in the state; ``flush`` pads it with zeros and writes it.

    Args:
        dim: width of the tokens.
        channels: C.
        grid: points along each axis, at least 2 each; any number of axes.
        chunk: K, tokens to a chunk.
        sigma_scale: factor on the spread of the writes; with spread=fixed the spread itself.
        write: ``gaussian``, or ``hard`` (the nearest grid point alone; an ablation).
        coordinates: ``shared``, one head for reads and writes, or ``separate`` (an ablation).
        update: ``factorised``, or ``pointwise`` (no convolution; an ablation).
        spread: ``learned`` from the summary, or ``fixed``, the same for every write (an ablation).
        scan: ``reference``, the textbook loop, or ``fused``, the same function several times faster, whose gradients
            have no derivatives; ``auto`` is ``fused``.
        saving: what the fused scan keeps for its backward pass: ``full``, ``light``, ``checkpoint``, in the order
            of memory and speed, or ``auto`` by size.
        kernels: what runs the fused scan: ``native`` (C++, built once on the machine; CPUs), ``compiled`` (a kernel a
            step, by torch.compile), ``eager`` (no compiler needed), or ``auto``: the first of these that can.
        gemm: the fused scan's matrix products: ``exact``, or ``bfloat16``, faster where the hardware has
            them, with an error of about 1e-2; the state keeps its dtype.
        check_finite: raise where a coordinate is not finite (reads the device at each call; for debugging).

    Raises:
        ValueError: a grid axis below 2, no axis, or dim, channels or chunk below 1; an unknown switch.
    """

    def __init__(
        self,
        dim: int,
        channels: int = 32,
        grid: Sequence[int] = (8, 8, 8),
        chunk: int = 16,
        *,
        sigma_scale: float = 1.0,
        write: WriteKind = "gaussian",
        coordinates: CoordinatesKind = "shared",
        update: UpdateKind = "factorised",
        spread: SpreadKind = "learned",
        scan: ScanKind = "auto",
        saving: SavingKind = "auto",
        kernels: KernelKind = "auto",
        gemm: GemmKind = "exact",
        check_finite: bool = False,
    ) -> None:
        super().__init__()
        for name, value in (("dim", dim), ("channels", channels), ("chunk", chunk)):
            if value < 1:
                raise ValueError(f"{name}={value} must be at least 1")
        if len(grid) < 1 or min(grid) < 2:
            raise ValueError(f"grid={tuple(grid)} needs at least one axis and at least 2 points along each")
        if not (math.isfinite(sigma_scale) and sigma_scale > 0):
            raise ValueError(f"sigma_scale={sigma_scale} must be positive and finite")
        for name, choice, kind in (
            ("write", write, WriteKind),
            ("coordinates", coordinates, CoordinatesKind),
            ("spread", spread, SpreadKind),
            ("scan", scan, ScanKind),
            ("saving", saving, SavingKind),
            ("kernels", kernels, KernelKind),
            ("gemm", gemm, GemmKind),
        ):
            if choice not in get_args(kind):
                raise ValueError(f"{name}={choice!r} is unknown; choose one of {get_args(kind)}")
        if scan == "reference" and gemm != "exact":
            raise ValueError(f"gemm={gemm!r} is a choice of the fused scan; scan='reference' takes 'exact'")
        self.dim = dim
        self.channels = channels
        self.grid = tuple(int(num_points) for num_points in grid)
        self.chunk = chunk
        self.sigma_scale = sigma_scale
        self.write = write
        self.scan = scan
        self.saving = saving
        self.kernels = kernels
        self.gemm = gemm
        self.check_finite = check_finite
        # Called with each call's inputs and the volume after it; see tensormem.memory.observe.
        self.observers: list[Callable[[ScanInputs, Tensor], None]] = []

        num_axes = len(self.grid)
        self.summary = nn.Linear(chunk * dim, dim)
        self.coordinate = nn.Linear(dim, num_axes)
        self.write_coordinate = nn.Linear(dim, num_axes) if coordinates == "separate" else None
        self.content = nn.Linear(dim, channels)
        self.spread = nn.Linear(dim, 1) if spread == "learned" else None
        if self.spread is not None:
            nn.init.ones_(self.spread.bias)
        self.update = GridUpdate(channels, num_axes, kind=update)
        self.output = nn.Linear(channels, dim)

    def init_state(
        self, batch: int, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> MemoryState:
        """The empty memory: zeros, nothing pending.

        Args:
            batch: B.
            device: default: that of the parameters.
            dtype: default: that of the parameters. The state is never kept below float32.
        """
        parameter = self.output.weight
        device = parameter.device if device is None else torch.device(device)
        dtype = torch.promote_types(parameter.dtype if dtype is None else dtype, torch.float32)
        volume = torch.zeros(batch, self.channels, *self.grid, device=device, dtype=dtype)
        return MemoryState(
            h=volume,
            c=volume.clone(),
            buffer=volume.new_zeros(batch, self.chunk - 1, self.dim),
            read=volume.new_zeros(batch, self.channels),
            pending=torch.zeros((), dtype=torch.int64, device="cpu"),
        )

    def forward(
        self, x: Float[Tensor, "B N dim"], state: MemoryState | None = None
    ) -> tuple[Float[Tensor, "B N dim"], MemoryState]:
        """Read for and write the tokens of one call.

        Args:
            x: tokens. The state, the coordinates and all that happens on the grid stay in float32 (or float64),
                under autocast too.
            state: what the previous call returned; None starts empty.

        Returns:
            What each token read, in the dtype of x, and the next state.

        Raises:
            ValueError: x of another width, or a state of another batch size, shape, device or dtype.
            FloatingPointError: a coordinate that is not finite, with ``check_finite``.
        """
        if x.dim() != 3 or x.shape[-1] != self.dim:
            raise ValueError(f"x has shape {tuple(x.shape)}; this memory takes (batch, tokens, {self.dim})")
        if state is None:
            state = self.init_state(x.shape[0], device=x.device)
            pending = 0
        else:
            self._check_state(state, x)
            pending = int(state.pending)
        tokens = torch.cat([state.buffer[:, :pending], x.to(state.buffer.dtype)], dim=1)
        num_writes, rest = divmod(tokens.shape[1], self.chunk)

        h, c = state.h, state.c
        if pending and not num_writes:
            values = state.read.unsqueeze(1)
        else:
            inputs = self._inputs(tokens, num_writes, h.dtype)
            values, h, c = self._scan(inputs, h, c)
            for observe in self.observers:
                observe(inputs, h)
            if pending:
                # The first chunk has read already, in the call that began it.
                values = torch.cat([state.read.unsqueeze(1), values[:, 1:]], dim=1)

        y = self.output(values.to(self.output.weight.dtype))
        y = y.repeat_interleave(self.chunk, dim=1)[:, pending : pending + x.shape[1]]
        return y.to(x.dtype), MemoryState(
            h=h,
            c=c,
            buffer=F.pad(tokens[:, num_writes * self.chunk :], (0, 0, 0, self.chunk - 1 - rest)),
            # A copy: a slice would hold what the whole call read.
            read=values[:, -1].clone() if rest else torch.zeros_like(state.read),
            pending=torch.tensor(rest, device="cpu"),
        )

    def flush(self, state: MemoryState) -> MemoryState:
        """Pad the pending chunk with zeros and write it, as the paper does at the end of a sequence.

        Returns:
            A state with nothing pending; the same state where nothing was.
        """
        if int(state.pending) == 0:
            return state
        tokens = F.pad(state.buffer, (0, 0, 0, 1))
        _, h, c = self._scan(self._inputs(tokens, 1, state.h.dtype), state.h, state.c)
        return MemoryState(
            h=h,
            c=c,
            buffer=torch.zeros_like(state.buffer),
            read=torch.zeros_like(state.read),
            pending=torch.zeros_like(state.pending),
        )

    def state_bytes(self, seq_len: int | None = None) -> int:
        """Bytes of the state of one sequence in float32; the length of the sequence makes no difference."""
        del seq_len
        floats = 2 * self.channels * math.prod(self.grid) + (self.chunk - 1) * self.dim + self.channels
        return 4 * floats

    def _inputs(self, tokens: Tensor, num_writes: int, dtype: torch.dtype) -> ScanInputs:
        """Where every chunk begun in tokens (B, T, dim) reads, and what those that are complete write."""
        query = tokens[:, :: self.chunk]
        written = tokens[:, : num_writes * self.chunk]
        written = written.reshape(tokens.shape[0], num_writes, self.chunk * self.dim)
        summary = self.summary(written.to(self.summary.weight.dtype))
        # Low precision would move the coordinates by a good part of a grid cell, so autocast ends here.
        with torch.autocast(tokens.device.type, enabled=False):
            query, summary = query.to(dtype), summary.to(dtype)
            write_head = self.coordinate if self.write_coordinate is None else self.write_coordinate
            inputs = ScanInputs(
                read_coordinates=torch.tanh(_linear(self.coordinate, query)),
                write_coordinates=torch.tanh(_linear(write_head, summary)),
                content=_linear(self.content, summary),
                sigma=self._sigma(summary),
            )
        if self.check_finite:
            _require_finite(inputs)
        return inputs

    def _scan(self, inputs: ScanInputs, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What every chunk reads, and the volumes after the last write."""
        with torch.autocast(h.device.type, enabled=False):
            if self.scan == "reference":
                return reference(inputs, h, c, self.update, self.write)
            return fused(inputs, h, c, self.update, self.write, self.saving, self.kernels, self.gemm)

    def _sigma(self, summary: Tensor) -> Tensor:
        if self.spread is None:
            return summary.new_full((*summary.shape[:-1], 1), self.sigma_scale)
        return (F.softplus(_linear(self.spread, summary)) + 1e-4) * self.sigma_scale

    def _check_state(self, state: MemoryState, x: Tensor) -> None:
        volume = (x.shape[0], self.channels, *self.grid)
        expected = {
            "h": volume,
            "c": volume,
            "buffer": (x.shape[0], self.chunk - 1, self.dim),
            "read": (x.shape[0], self.channels),
        }
        for name, shape in expected.items():
            value: Tensor = getattr(state, name)
            if tuple(value.shape) != shape:
                raise ValueError(
                    f"state.{name} has shape {tuple(value.shape)}, but x and this memory need {shape}: "
                    f"start from init_state({x.shape[0]})"
                )
            if value.device != x.device:
                raise ValueError(f"state.{name} is on {value.device}, but x is on {x.device}: move one of them")
            if value.dtype not in (torch.float32, torch.float64):
                raise ValueError(f"state.{name} is {value.dtype}; the state is kept in float32 or float64")


def without_reads(model: Model) -> Model:
    """A copy of a model in which every memory in it reads zeros, whatever was written: what the reads are worth."""
    model = copy.deepcopy(model)
    for module in model.modules():
        if isinstance(module, TensorMemory):
            nn.init.zeros_(module.output.weight)
            # Whoever observes the model has not asked for the copy.
            module.observers.clear()
    return model


def _linear(layer: nn.Linear, x: Tensor) -> Tensor:
    """The layer in the precision of x, whatever the precision of its parameters."""
    return F.linear(x, layer.weight.to(x.dtype), layer.bias.to(x.dtype))


def _require_finite(inputs: ScanInputs) -> None:
    for name in ("read_coordinates", "write_coordinates"):
        finite = torch.isfinite(getattr(inputs, name))
        if not bool(finite.all()):
            first = [int(place) for place in (~finite).nonzero()[0]]
            raise FloatingPointError(
                f"{name} is not finite first at (batch, chunk, axis) = {tuple(first)}: "
                "look for NaN or infinity in the tokens or in the memory's weights"
            )
