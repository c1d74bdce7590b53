"""The kernels of a step of the fused scan, eager or compiled.

Legend: B batch, C channels, n grid axes, N_a points along axis a. Volumes are channels-last, (B, *grid, C); what
meets in the pointwise map is (B, *grid, 2C), the write half before the hidden half.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import os
import shutil
import sysconfig
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from tensormem.memory import kernels_eager, kernels_traced

KernelKind = Literal["auto", "eager", "compiled"]

# Below so many values of the hidden volume a step costs less than what it takes to call it.
MIN_COMPILED_VALUES = 4096

_log = logging.getLogger(__name__)


class Kernels(NamedTuple):
    """The two kernels of the loop. They write into what they are given, none of which is an input as well.

    Both take: ``factors``, for each axis (B, N_a, C), whose outer product is the mixed write volume; ``bias_volume``
    (*grid, 2C), the response of the depthwise stack to nothing; ``taps`` (n, 3, C) of the hidden half, None where
    nothing is mixed; ``weight`` (4C, 2C) and ``bias`` (4C,) of the pointwise map; ``corners``, the rows (B * Q) and
    the weights (B, Q) of what is read.

    Attributes:
        step: ``(state, factors, bias_volume, taps, weight, bias, corners, out)``. From h and c (B, *grid, C), into
            out: the next h and c, the gates i, f, o, g (B, *grid, 4C) after their activation, tanh of the next c,
            and what was read from the h given, (B, C).
        step_backward: ``(grads, record, factors, bias_volume, taps, weight, corners, out, totals)``. grads are those
            of the next h and c, which become those of the h and c before the step, and that of what was read; record
            is h, c, gates and tanh of the next c. Written out: the gradients of the factors and of the corners'
            weights. Added to totals: those of the weight, of the map's output summed over the batch (*grid, 4C),
            and of the taps.
    """

    step: Callable[..., None]
    step_backward: Callable[..., None]


def choose(kind: KernelKind, h: Tensor) -> bool:
    """Whether the kernels are to be compiled for volumes like h (B, *grid, C).

    ``auto`` compiles float32 volumes of a size that pays for it, where there is a compiler. The choice depends on
    shapes alone, so that a run that is resumed goes on with the same arithmetic.

    Raises:
        RuntimeError: ``compiled`` without a compiler.
    """
    if kind == "eager":
        return False
    if kind == "compiled":
        if not compiler_found(h.device.type):
            raise RuntimeError("kernels='compiled' needs a C++ compiler (on CUDA: Triton); take 'auto' or 'eager'")
        return True
    return h.dtype == torch.float32 and h.numel() >= MIN_COMPILED_VALUES and compiler_found(h.device.type)


@functools.cache
def compiler_found(device_type: str) -> bool:
    """Whether torch.compile has what it needs on this machine; the log says once what follows from that."""
    if device_type == "cuda":
        found = importlib.util.find_spec("triton") is not None
    else:
        compiler = os.environ.get("CXX")
        names = [compiler] if compiler else ["g++", "clang++", "c++", "cl"]
        header = Path(sysconfig.get_paths()["include"]) / "Python.h"
        found = any(shutil.which(name) for name in names) and header.is_file()
    _log.info("fused scan on %s: %s", device_type, "compiled kernels" if found else "no compiler, so eager kernels")
    return found


def kernels(compiled: bool, h: Tensor) -> Kernels:
    """The kernels for volumes like h (B, *grid, C)."""
    if compiled:
        return _compiled(h.shape[1:], h.dtype, h.device.type)
    return Kernels(kernels_eager.step, kernels_eager.step_backward)


@functools.cache
def _compiled(shape: torch.Size, dtype: torch.dtype, device_type: str) -> Kernels:
    """Compiled for each shape of a volume, whatever the number of steps; a second batch size makes it symbolic."""
    # The compiler's own tanh is good on a GPU, and the rational one is for float32 alone.
    fast = dtype == torch.float32 and device_type == "cpu"
    tanh = kernels_traced.rational_tanh if fast else torch.tanh
    label = "_".join([*map(str, shape), str(dtype).removeprefix("torch."), device_type])
    return Kernels(_compile(kernels_traced.step, label, (tanh,)), _compile(kernels_traced.step_backward, label))


def _compile(function: Callable[..., None], label: str, defaults: tuple[Any, ...] = ()) -> Callable[..., None]:
    # torch.compile counts recompilations per code object and past a limit gives up: every shape gets its own.
    code = function.__code__.replace(co_name=f"{function.__name__}_{label}")
    own = types.FunctionType(code, function.__globals__, function.__name__, defaults)
    return torch.compile(own, fullgraph=True)
