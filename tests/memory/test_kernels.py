"""The kernels of the fused scan: compiled ones against the reference, products in bfloat16, and which of them run."""

from __future__ import annotations

import itertools
import logging

import pytest
import torch
from torch import Tensor

from tensormem.memory import TensorMemory, fused, kernels, native
from tests.helpers import BFLOAT16, FLOAT32, assert_all_close, gradients, randomise
from tests.memory.scans import EXACT, KERNELS, SAVINGS, Case, assert_parity, needs_native

# Compiled kernels. Each shape is compiled once a process, which takes seconds.

COMPILED = [((3, 2, 4), "factorised", torch.float32), ((5, 3), "pointwise", torch.float64)]
needs_compiler = pytest.mark.skipif(not kernels.compiler_found("cpu"), reason="needs a C++ compiler")


@needs_compiler
@pytest.mark.parametrize(("grid", "kind", "dtype"), COMPILED)
def test_parity_compiled(grid, kind, dtype):
    for saving in SAVINGS:
        case = Case(grid, 6, 7, channels=16, kind=kind, dtype=dtype)
        assert_parity(case, FLOAT32 if dtype == torch.float32 else EXACT, saving=saving, kernel_kind="compiled")


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(
    ("grid", "channels", "kind"),
    list(itertools.product([(5,), (4, 3), (3, 4, 2), (2, 3, 2, 2)], [1, 17], ["factorised", "pointwise"])),
)
def test_parity_compiled_everywhere(grid, channels, kind):
    for write, saving, batch in (("gaussian", "full", 1), ("hard", "light", 2), ("gaussian", "checkpoint", 5)):
        case = Case(grid, 5, 6, channels=channels, batch=batch, kind=kind, dtype=torch.float32)
        assert_parity(case, FLOAT32, write, saving=saving, kernel_kind="compiled")


@needs_compiler
def test_a_shape_is_compiled_once_for_any_number_of_steps(monkeypatch):
    from torch._dynamo.utils import counters

    def run(num_steps: int, batch: int) -> int:
        case = Case((2, 5), num_steps, channels=16, batch=batch, dtype=torch.float32)
        before = counters["stats"]["unique_graphs"]
        case.run(fused.fused, kernel_kind="compiled", saving="full")
        return counters["stats"]["unique_graphs"] - before

    # A graph for each of the two kernels, and none for another number of steps or sequences.
    assert run(3, 2) == 2
    assert [run(7, 2), run(4, 3), run(6, 9)] == [0, 0, 0]
    # One sequence alone is a shape of its own.
    assert run(3, 1) == 2
    assert run(5, 1) == 0


@needs_compiler
@pytest.mark.slow
def test_compiled_kernels_under_autocast_are_near_float32():
    memory = TensorMemory(8, 16, (3, 4), chunk=2, kernels="compiled")
    randomise(memory, torch.Generator().manual_seed(0))
    x = torch.randn(2, 9, 8, generator=torch.Generator().manual_seed(1))
    results = []
    for enabled in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            y, state = memory(x)
        assert state.h.dtype == torch.float32
        outputs = {"y": y, "h": state.h, "c": state.c}
        results.append(outputs | gradients(outputs, memory.named_parameters(), torch.Generator().manual_seed(2)))
    assert_all_close(results[1], results[0], BFLOAT16)


@pytest.mark.parametrize("kernel_kind", ["eager", pytest.param("compiled", marks=[needs_compiler, pytest.mark.slow])])
def test_bfloat16_products_are_near_exact_ones(kernel_kind):
    case = Case((3, 4), channels=8, dtype=torch.float32)
    exact = case.run(fused.fused, kernel_kind=kernel_kind)
    rounded = case.run(fused.fused, kernel_kind=kernel_kind, gemm="bfloat16")
    assert_all_close(rounded, exact, BFLOAT16)
    assert not torch.equal(rounded["last h"], exact["last h"])


def test_the_reference_has_no_bfloat16_products():
    with pytest.raises(ValueError, match="a choice of the fused scan"):
        TensorMemory(8, 4, (3, 3), scan="reference", gemm="bfloat16")


@pytest.mark.parametrize("kernel_kind", [*KERNELS, pytest.param("compiled", marks=needs_compiler)])
def test_twice_the_same_is_the_same_to_the_bit(kernel_kind):
    torch.use_deterministic_algorithms(True)
    try:
        case = Case((3, 2, 4), 6, 7, channels=16, dtype=torch.float32)
        first, second = (case.run(fused.fused, kernel_kind=kernel_kind) for _ in range(2))
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(first[name], second[name]) for name in first)


@needs_compiler
def test_compiled_kernels_take_parameters_in_any_layout():
    case = Case((3, 2, 4), 6, 7, channels=16, dtype=torch.float32)
    assert_parity(case, FLOAT32, kernel_kind="compiled")
    # Nothing is checked at a call, so tensors laid out otherwise must not reach the kernels.
    for name in ("gates_weight", "taps"):
        value = getattr(case.update, name).detach()
        setattr(case.update, name, torch.nn.Parameter(value.mT.contiguous().mT))
        assert not getattr(case.update, name).is_contiguous()
    assert_parity(case, FLOAT32, kernel_kind="compiled")


@needs_compiler
@pytest.mark.parametrize("kernel_kind", KERNELS)
def test_a_compiled_model_takes_the_scan_whole(unchecked, kernel_kind):
    memory = TensorMemory(5, 3, (3, 2, 4), chunk=2, kernels=kernel_kind).double()
    randomise(memory, torch.Generator().manual_seed(0))
    x = torch.randn(2, 8, 5, dtype=torch.float64, requires_grad=True)

    def run(function) -> dict[str, Tensor]:
        outputs = {"y": function(x)}
        wanted = [("x", x), *memory.named_parameters()]
        return outputs | gradients(outputs, wanted, torch.Generator().manual_seed(1))

    def whole(x: Tensor) -> Tensor:
        return memory(x)[0]

    assert_all_close(run(torch.compile(whole, fullgraph=True)), run(whole), EXACT)


def test_compiled_kernels_without_a_compiler_are_refused(monkeypatch):
    monkeypatch.setattr(kernels, "compiler_found", lambda device_type: False)
    monkeypatch.setattr(native, "vector_bytes", lambda: 0)
    case = Case((3, 2), dtype=torch.float32)
    for kernel_kind in ("compiled", "native"):
        with pytest.raises(RuntimeError, match=f"kernels='{kernel_kind}' needs .*C.. compiler"):
            fused.fused(case.inputs, case.h, case.c, case.update, kernel_kind=kernel_kind)
    # auto goes on without.
    assert_parity(case, FLOAT32)


def test_the_log_says_once_which_kernels_run(caplog):
    kernels.compiler_found.cache_clear()
    with caplog.at_level(logging.INFO, logger="tensormem.memory.kernels"):
        for _ in range(3):
            kernels.compiler_found("cpu")
    assert len(caplog.records) == 1
    assert "kernels" in caplog.text


@pytest.mark.parametrize(
    ("shape", "dtype", "compiled"),
    [
        ((4, 6, 6, 6, 16), torch.float32, True),
        ((2, 3, 2, 4, 3), torch.float32, False),
        ((4, 6, 6, 6, 16), torch.float64, False),
    ],
)
def test_auto_compiles_by_size(monkeypatch, shape, dtype, compiled):
    monkeypatch.setattr(kernels, "compiler_found", lambda device_type: True)
    monkeypatch.setattr(native, "vector_bytes", lambda: 0)
    assert kernels.choose("auto", "exact", torch.empty(shape, dtype=dtype)) == ("compiled" if compiled else "eager")


@needs_native
@pytest.mark.parametrize(
    ("dtype", "gemm", "expected"),
    [
        (torch.float32, "exact", "native"),
        (torch.float64, "exact", "native"),
        (torch.float32, "bfloat16", "eager"),
        (torch.bfloat16, "exact", "eager"),
    ],
)
def test_auto_takes_the_native_scan_where_it_can(dtype, gemm, expected):
    assert kernels.choose("auto", gemm, torch.empty(2, 3, 2, 4, 3, dtype=dtype)) == expected


@needs_native
def test_the_native_scan_has_exact_products_alone():
    case = Case((3, 2), dtype=torch.float32)
    with pytest.raises(RuntimeError, match="'native' has exact products alone, and gemm='bfloat16'"):
        fused.fused(case.inputs, case.h, case.c, case.update, kernel_kind="native", gemm="bfloat16")


def test_rational_tanh_is_tanh():
    from tensormem.memory.kernels_traced import rational_tanh

    x = torch.linspace(-12, 12, 100_001)
    exact = torch.tanh(x.double())
    # Three units in the last place of float32.
    assert ((rational_tanh(x).double() - exact).abs() <= 3 * 2**-23 * exact.abs()).all()
