"""Which way of the fused scan runs, and the kernels of the compiled one.

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
from torch.utils._pytree import tree_leaves

from tensormem.memory import kernels_traced, native

KernelKind = Literal["auto", "eager", "compiled", "native"]
GemmKind = Literal["exact", "bfloat16"]

# Below so many values of the hidden volume a step costs less than what it takes to call it.
MIN_COMPILED_VALUES = 4096

_log = logging.getLogger(__name__)


class Kernels(NamedTuple):
    """The two kernels of the loop. They write into what they are given, none of which is an input as well.

    Both take: ``factors``, for each axis (B, N_a, C), whose outer product is the mixed write volume; ``bias_volume``
    (*grid, 2C), the response of the depthwise stack to nothing; ``taps`` (n, 3, C) of the hidden half, None where
    nothing is mixed; ``weight`` (4C, 2C) and ``bias`` (4C,) of the pointwise map; ``corners``, the rows and the weights
    (B, Q) of what is read.

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


def choose(kind: KernelKind, gemm: str, h: Tensor) -> str:
    """Which kernels volumes like h (its n + 2 dimensions in any order) get: ``eager``, ``compiled`` or ``native``.

    ``auto`` takes native ones on a CPU where there is a compiler and the products are exact; else it compiles float32
    volumes of a size that pays for it. The choice depends on shapes and the machine alone, so that a run that is
    resumed goes on with the same arithmetic.

    Raises:
        RuntimeError: ``compiled`` or ``native`` without a compiler, or for what they can't do.
    """
    if kind == "native":
        if gemm != "exact":
            raise RuntimeError(f"kernels='native' has exact products alone, and gemm={gemm!r}; take 'compiled'")
        if not native.supports(h):
            raise RuntimeError(
                f"kernels='native' needs a CPU, a C++ compiler and float32 or float64, and the state is {h.dtype} on "
                f"{h.device}; take 'auto' or 'eager'"
            )
        return kind
    if kind == "compiled" and not compiler_found(h.device.type):
        raise RuntimeError("kernels='compiled' needs a C++ compiler (on CUDA: Triton); take 'auto' or 'eager'")
    if kind != "auto":
        return kind
    if gemm == "exact" and native.supports(h):
        return "native"
    pays = h.dtype == torch.float32 and h.numel() >= MIN_COMPILED_VALUES
    return "compiled" if pays and compiler_found(h.device.type) else "eager"


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


def kernels(gemm: str, h: Tensor) -> Kernels:
    """Compiled for volumes like h (B, *grid, C), with matrix products in h's dtype (``exact``) or in bfloat16."""
    return _compiled(h.shape[1:], h.dtype, h.device, h.shape[0] > 1, torch.get_num_threads(), gemm)


@functools.cache
def _compiled(
    shape: torch.Size, dtype: torch.dtype, device: torch.device, many: bool, threads: int, gemm: str
) -> Kernels:
    """Compiled once for each of these, whatever the number of steps and, from two on, of sequences."""
    # The compiler's own tanh is good on a GPU, and the rational one is for float32 alone.
    fast = dtype == torch.float32 and device.type == "cpu"
    tanh = kernels_traced.rational_tanh if fast else torch.tanh
    product = torch.matmul if gemm == "exact" else kernels_traced.bfloat16_product
    words = [*shape, str(dtype).removeprefix("torch."), device.type, device.index, many, threads, gemm]
    label = "_".join(map(str, words))
    return Kernels(
        step=_Compiled(kernels_traced.step, label, many, taps=3, batched=(0, 1, 6, 7), defaults=(product, tanh)),
        step_backward=_Compiled(
            kernels_traced.step_backward, label, many, taps=4, batched=(0, 1, 2, 6, 7), defaults=(product,)
        ),
    )


class _Compiled:
    """A kernel that is compiled at its first call, once with taps and once without.

    ``torch.compile`` would check at every call what its code takes for granted, compile it anew for tensors that lie
    elsewhere in their storage, and give up after some such times. What it checks is the key of ``_compiled``; the
    rest, that tensors are contiguous, of one dtype and without gradients, ``compiled_scan`` sees to.

    Args:
        function: of ``kernels_traced``.
        label: names what it is compiled for.
        many: whether there are sequences to count; their number is then symbolic.
        taps: which argument they are.
        batched: the arguments whose tensors have the batch first.
        defaults: of the function's last parameters.
    """

    def __init__(
        self,
        function: Callable[..., None],
        label: str,
        many: bool,
        taps: int,
        batched: tuple[int, ...],
        defaults: tuple[Any, ...] = (),
    ) -> None:
        self.function, self.label, self.many = function, label, many
        self.taps, self.batched, self.defaults = taps, batched, defaults
        self.by_taps: dict[bool, Callable[..., None]] = {}

    def __call__(self, *args: Any) -> None:
        mixes = args[self.taps] is not None
        if mixes not in self.by_taps:
            self.by_taps[mixes] = self._compile(f"{self.label}_{mixes}")
            if self.many:
                for tensor in tree_leaves([args[place] for place in self.batched]):
                    torch._dynamo.mark_dynamic(tensor, 0)
        self.by_taps[mixes](*args)

    def _compile(self, label: str) -> Callable[..., None]:
        # Dynamo keeps what it compiled with the code object: each label has its own.
        code = self.function.__code__.replace(co_name=f"{self.function.__name__}_{label}")
        own = types.FunctionType(code, self.function.__globals__, self.function.__name__, self.defaults)
        options: dict[str, Any] = {"guard_filter_fn": lambda guards: [False for _ in guards]}
        return torch.compile(own, fullgraph=True, options=options)
