"""The fused scan in C++, for CPUs: each thread takes sequences through all their steps.

``native.cpp`` says why that is faster than a kernel a step. It is an operator of PyTorch, so that a compiled model
takes it whole.

Legend: B batch, S chunks written, R chunks read, C channels (in whole vectors inside), n grid axes, N_a points along
axis a, V points in all. Inside, volumes are channels-last: (B, *grid, C).
"""

# No `from __future__ import annotations` here: custom_op derives its schema from the annotations, as types.

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tensormem.memory import grid as geometry
from tensormem.memory.history import Volumes, block_length, by_step, history_shapes, no_second_derivative
from tensormem.memory.native_library import library, vector_bytes
from tensormem.memory.scan import ScanInputs, WriteKind
from tensormem.memory.update import GridUpdate

MAX_AXES = 6
SAVINGS = ("none", "full", "light", "checkpoint")
_INDEX, _POINTER = ctypes.c_int64, ctypes.c_void_p
# What the operators take beside the state, in their order.
_GIVEN = ("read_coordinates", "write_coordinates", "content", "sigma", "taps", "taps_bias", "weight", "bias")
_NAMES = {torch.float32: "float", torch.float64: "double"}


class _Sizes(ctypes.Structure):
    """``Sizes`` of native.cpp."""

    _names = (
        "batch",
        "steps",
        "reads",
        "channels",
        "axes",
        "threads",
        "saving",
        "block_length",
        "hard",
        "channels_first",
    )
    _fields_ = [*((name, _INDEX) for name in _names), ("grid", _INDEX * MAX_AXES)]


class _Arrays(ctypes.Structure):
    """``Arrays`` of native.cpp."""

    _fields_ = [(name, _POINTER) for name in (
        "read_coordinates", "write_coordinates", "content", "sigma", "positions", "taps", "taps_bias", "weight", "bias",
        "first_h", "first_c", "last_h", "last_c", "reads", "kept_h", "kept_c", "kept_gates", "kept_squashed_c",
        "grad_reads", "grad_last_h", "grad_last_c", "grad_h", "grad_c", "grad_read_coordinates",
        "grad_write_coordinates", "grad_content", "grad_sigma", "grad_taps", "grad_taps_bias", "grad_weight",
        "grad_bias", "scratch",
    )]  # fmt: skip


def supports(h: Tensor) -> bool:
    """Whether volumes like h, of n + 2 dimensions, can be taken: on a CPU, float32 or float64, and built."""
    return h.device.type == "cpu" and h.dtype in _NAMES and h.dim() - 2 <= MAX_AXES and vector_bytes() > 0


def scan(
    inputs: ScanInputs, h: Tensor, c: Tensor, update: GridUpdate, write: WriteKind, saving: str
) -> tuple[Tensor, Tensor, Tensor]:
    """``fused.fused``, which see, with the way of saving chosen."""
    channels, dtype = h.shape[1], h.dtype
    spare = -channels % (vector_bytes() // dtype.itemsize)
    taps = taps_bias = None
    if update.kind == "factorised":
        by_tap = update.taps.to(dtype).transpose(1, 2)
        taps = _whole(by_tap.unflatten(-1, (2, channels)), spare)
        taps_bias = _whole(update.taps_bias.to(dtype).unflatten(-1, (2, channels)), spare)
    weight = update.gates_weight.to(dtype).view(4, channels, 2, channels)
    weight = F.pad(weight, (0, spare, 0, 0, 0, spare)) if spare else weight
    bias = _whole(update.gates_bias.to(dtype).view(4, channels), spare)
    tokens = [tensor.to(dtype) for tensor in inputs._replace(content=_whole(inputs.content, spare))]
    volumes = (F.pad(x, (0, 0) * (x.dim() - 2) + (0, spare)) if spare else x for x in (h, c))
    reads, h, c, _ = native_scan(*volumes, *tokens, taps, taps_bias, weight, bias, write == "hard", saving)
    if spare:
        # Copies of the volumes: slices would keep what is spare for as long as the state.
        reads, h, c = reads[..., :channels], h[..., :channels].contiguous(), c[..., :channels].contiguous()
    return reads, h.movedim(-1, 1), c.movedim(-1, 1)


@torch.library.custom_op("tensormem::native_scan", mutates_args=())
def native_scan(
    h: Tensor,
    c: Tensor,
    read_coordinates: Tensor,
    write_coordinates: Tensor,
    content: Tensor,
    sigma: Tensor,
    taps: Tensor | None,
    taps_bias: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    hard: bool,
    saving: str,
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """All steps, of tensors of one dtype whose channels fill whole vectors.

    Args:
        h, c: (B, C, *grid), the volumes before the first step, in any layout.
        read_coordinates, write_coordinates, content, sigma: as in ``ScanInputs``.
        taps, taps_bias: (n, 3, 2, C) and (n, 2, C), write half and hidden half; None where nothing is mixed.
        weight, bias: (4, C, 2, C) and (4, C), the pointwise map.
        hard: whether the write goes to the nearest point alone.
        saving: none, full, light or checkpoint.

    Returns:
        (B, R, C) what was read, the last h and c, (B, *grid, C), and what the backward pass needs.
    """
    num_steps = content.shape[1]
    reads, last_h, last_c, history = _results(h, read_coordinates.shape[1], num_steps, saving)
    # As a step leaves them they are taken as they are; the first are laid out there, by the thread that takes them.
    channels_first = not (_channels_last(h).is_contiguous() and _channels_last(c).is_contiguous())
    first_h, first_c = (x if channels_first else _channels_last(x) for x in (h, c))
    given = [read_coordinates, write_coordinates, content, sigma, taps, taps_bias, weight, bias]
    _run(
        last_h.shape, num_steps, hard, saving, by_step(history, saving, num_steps), given, channels_first,
        backward=False, first_h=first_h, first_c=first_c, last_h=last_h, last_c=last_c, reads=reads,
    )  # fmt: skip
    return reads, last_h, last_c, history


@native_scan.register_fake
def _(h, c, read_coordinates, write_coordinates, content, sigma, taps, taps_bias, weight, bias, hard, saving):  # type: ignore[no-untyped-def]
    return _results(h, read_coordinates.shape[1], content.shape[1], saving)


def _results(h: Tensor, num_reads: int, num_steps: int, saving: str) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    last_h, last_c = (h.new_empty(h.shape[0], *h.shape[2:], h.shape[1]) for _ in range(2))
    history = [h.new_empty(shape) for shape in history_shapes(saving, num_steps, last_h)]
    return h.new_empty(h.shape[0], num_reads, h.shape[1]), last_h, last_c, history


def _whole(tensor: Tensor, spare: int) -> Tensor:
    """With so many channels more, which come last."""
    return F.pad(tensor, (0, spare)) if spare else tensor


def _channels_last(volume: Tensor) -> Tensor:
    return volume.movedim(1, -1)


@torch.library.custom_op("tensormem::native_scan_backward", mutates_args=())
def native_scan_backward(
    grad_reads: Tensor,
    grad_h: Tensor,
    grad_c: Tensor,
    last_h: Tensor,
    history: list[Tensor],
    read_coordinates: Tensor,
    write_coordinates: Tensor,
    content: Tensor,
    sigma: Tensor,
    taps: Tensor | None,
    taps_bias: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    hard: bool,
    saving: str,
) -> list[Tensor]:
    """Gradients of h and c and of all but h and c that ``native_scan`` takes, in its order; empty for None."""
    num_steps = content.shape[1]
    first_h, first_c = torch.empty_like(last_h), torch.empty_like(last_h)
    given = [read_coordinates, write_coordinates, content, sigma, taps, taps_bias, weight, bias]
    grads = [None if x is None else torch.empty_like(x, memory_format=torch.contiguous_format) for x in given]
    _run(
        last_h.shape, num_steps, hard, saving, by_step(history, saving, num_steps), given, False, backward=True,
        last_h=last_h, grad_reads=grad_reads, grad_last_h=grad_h, grad_last_c=grad_c, grad_h=first_h, grad_c=first_c,
        **{f"grad_{name}": grad for name, grad in zip(_GIVEN, grads, strict=True)},
    )  # fmt: skip
    volumes = (first.movedim(-1, 1) for first in (first_h, first_c))
    return [*volumes, *(weight.new_empty(0) if grad is None else grad for grad in grads)]


@native_scan_backward.register_fake
def _(grad_reads, grad_h, grad_c, last_h, history, *given):  # type: ignore[no-untyped-def]
    weight = given[6]
    like = (weight.new_empty(0) if x is None else x for x in given[:8])
    grads = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in like]
    return [torch.empty_like(last_h).movedim(-1, 1), torch.empty_like(last_h).movedim(-1, 1), *grads]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    _, _, *given, hard, saving = inputs
    _, last_h, _, history = output
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*history)
    ctx.hard, ctx.saving = hard, saving
    ctx.save_for_backward(last_h, *given, *history)


def _backward(ctx: Any, grad_reads: Any, grad_h: Any, grad_c: Any, grad_history: Any) -> tuple[Any, ...]:
    del grad_history
    last_h, *rest = ctx.saved_tensors
    given, history = rest[:8], rest[8:]
    if grad_reads is None:
        grad_reads = last_h.new_zeros(*given[0].shape[:2], last_h.shape[-1])
    grad_h, grad_c = (torch.zeros_like(last_h) if grad is None else grad for grad in (grad_h, grad_c))
    grads: list[Any] = native_scan_backward(grad_reads, grad_h, grad_c, last_h, history, *given, ctx.hard, ctx.saving)
    if given[4] is None:
        grads[6] = grads[7] = None
    if ctx.hard:
        # Where a write goes to the nearest point, nothing flows into where and how wide.
        grads[3] = grads[5] = None
    return *grads, None, None


native_scan.register_autograd(_backward, setup_context=_setup)


native_scan_backward.register_autograd(no_second_derivative)


def _run(
    shape: torch.Size,
    num_steps: int,
    hard: bool,
    saving: str,
    kept: Volumes,
    given: Sequence[Tensor | None],
    channels_first: bool,
    backward: bool,
    **more: Tensor | None,
) -> None:
    """Calls the library; what it writes to is contiguous already."""
    batch, *grid, channels = shape
    tensors = dict(zip(_GIVEN, given, strict=True)) | more
    contiguous = {name: _aligned(tensor.detach()) for name, tensor in tensors.items() if tensor is not None}
    like = contiguous["weight"]
    contiguous["positions"] = torch.cat([geometry.axis_positions(num_points, like) for num_points in grid])
    sizes = _Sizes(
        batch=batch, steps=num_steps, reads=contiguous["read_coordinates"].shape[1], channels=channels, axes=len(grid),
        threads=max(1, min(torch.get_num_threads(), batch)), saving=SAVINGS.index(saving),
        block_length=block_length(saving, num_steps), hard=hard,
        channels_first=channels_first, grid=tuple(grid),
    )  # fmt: skip
    loaded, name = _loaded(), _NAMES[like.dtype]
    scratch_size = getattr(loaded, f"scratch_size_{name}")(ctypes.byref(sizes), int(backward))
    contiguous["scratch"] = torch.empty(scratch_size, dtype=like.dtype)
    lists = {f"kept_{key}": _addresses(volumes) for key, volumes in kept._asdict().items()}
    arrays = _Arrays(**{key: tensor.data_ptr() for key, tensor in contiguous.items()})
    for key, addresses in lists.items():
        setattr(arrays, key, ctypes.cast(addresses, _POINTER))
    getattr(loaded, f"run_{name}")(ctypes.byref(sizes), ctypes.byref(arrays), int(backward))


def _aligned(tensor: Tensor) -> Tensor:
    """Contiguous, and begun where a vector may begin: part of another tensor may begin anywhere."""
    tensor = tensor.contiguous()
    return tensor.clone() if tensor.data_ptr() % vector_bytes() else tensor


def _loaded() -> ctypes.CDLL:
    loaded = library()
    if loaded is None:
        raise RuntimeError("the native scan could not be built on this machine: take kernels='auto' or 'eager'")
    return loaded


def _addresses(volumes: Sequence[Tensor]) -> Any:
    return (_POINTER * max(1, len(volumes)))(*(volume.data_ptr() for volume in volumes))
