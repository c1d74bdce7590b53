"""The fused scan against the reference: what is read, the final state, and the gradient of everything that goes in.

Letters: B batch, S chunks written, R chunks read, C channels.
"""

from __future__ import annotations

import itertools
import logging

import pytest
import torch
from torch import Tensor

from tensormem.memory import TensorMemory, fused, history, kernels, recurrence
from tensormem.memory.scan import ScanInputs, reference
from tensormem.memory.update import GridUpdate
from tests.helpers import BFLOAT16, FLOAT32, assert_all_close, gradients, randomise

EXACT = 1e-10
BATCH = 2
GRIDS = [(2,), (5,), (3, 4), (3, 2, 4), (2, 3, 2, 2)]
SAVINGS = ["full", "light", "checkpoint"]


class Case:
    """Random inputs, state and parameters; every tensor that has a gradient is named."""

    def __init__(
        self,
        grid: tuple[int, ...],
        num_steps: int = 5,
        num_reads: int | None = None,
        channels: int = 3,
        batch: int = BATCH,
        kind: str = "factorised",
        dtype: torch.dtype = torch.float64,
    ) -> None:
        generator = torch.Generator().manual_seed(0)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

        num_reads = num_steps if num_reads is None else num_reads
        self.update = GridUpdate(channels, len(grid), kind).to(dtype)
        randomise(self.update, generator)
        inputs = ScanInputs(
            read_coordinates=torch.tanh(normal(batch, num_reads, len(grid))),
            write_coordinates=torch.tanh(normal(batch, num_steps, len(grid))),
            content=normal(batch, num_steps, channels),
            sigma=normal(batch, num_steps, 1).abs() + 0.1,
        )
        # The ends of an axis, to the bit: a read there is clamped and its coordinate has no gradient.
        inputs.read_coordinates[:, ::3] = inputs.read_coordinates[:, ::3].sign()
        inputs.write_coordinates[:, 1::3] = inputs.write_coordinates[:, 1::3].sign()
        self.inputs = ScanInputs(*(tensor.requires_grad_() for tensor in inputs))
        self.h, self.c = (normal(batch, channels, *grid).requires_grad_() for _ in range(2))

    def leaves(self) -> list[tuple[str, Tensor]]:
        return [
            *self.inputs._asdict().items(),
            ("h", self.h),
            ("c", self.c),
            *self.update.named_parameters(),
        ]

    def run(self, scan, **options) -> dict[str, Tensor]:
        reads, h, c = scan(self.inputs, self.h, self.c, self.update, **options)
        outputs = {"reads": reads, "last h": h, "last c": c}
        return outputs | gradients(outputs, self.leaves(), torch.Generator().manual_seed(1))


def assert_parity(case: Case, tolerance: float, write: str = "gaussian", **options) -> None:
    assert_all_close(case.run(fused.fused, write=write, **options), case.run(reference, write=write), tolerance)


@pytest.mark.parametrize("saving", SAVINGS)
@pytest.mark.parametrize("kind", ["factorised", "pointwise"])
@pytest.mark.parametrize("write", ["gaussian", "hard"])
@pytest.mark.parametrize("grid", GRIDS)
def test_parity_in_every_dimension_and_with_every_switch(grid, write, kind, saving):
    assert_parity(Case(grid, kind=kind), EXACT, write, saving=saving, kernel_kind="eager")


@pytest.mark.parametrize("saving", SAVINGS)
@pytest.mark.parametrize(("num_steps", "num_reads"), [(0, 0), (0, 1), (1, 1), (1, 2), (4, 4), (9, 10), (11, 11)])
def test_parity_for_any_number_of_steps(num_steps, num_reads, saving):
    assert_parity(Case((3, 4), num_steps, num_reads), EXACT, saving=saving, kernel_kind="eager")


@pytest.mark.parametrize(("channels", "batch"), [(1, 1), (1, 3), (4, 1), (17, 2)])
def test_parity_for_any_width_and_batch(channels, batch):
    assert_parity(Case((3, 2, 4), channels=channels, batch=batch), EXACT, kernel_kind="eager")


@pytest.mark.parametrize("saving", SAVINGS)
def test_parity_in_float32(saving):
    assert_parity(Case((4, 3, 5), 12, 13, dtype=torch.float32), FLOAT32, saving=saving, kernel_kind="eager")


def test_the_gradients_are_those_of_finite_differences():
    case = Case((3, 2), num_steps=3, num_reads=4, channels=2, batch=1)
    # Clear of the corners, where a read has no derivative.
    inputs = [(0.8 * tensor).detach().requires_grad_() for tensor in case.inputs]

    def scan(read, write, content, sigma, h, c, *parameters):
        update = GridUpdate(2, 2).double()
        names = [name for name, _ in update.named_parameters()]
        for name, value in zip(names, parameters, strict=True):
            delattr(update, name)
            setattr(update, name, value)
        return fused.fused(ScanInputs(read, write, content, sigma), h, c, update, kernel_kind="eager")

    assert torch.autograd.gradcheck(scan, (*inputs, case.h, case.c, *case.update.parameters()), atol=1e-6)


def test_a_second_derivative_is_refused():
    case = Case((3, 2))
    reads, _, _ = fused.fused(case.inputs, case.h, case.c, case.update)
    (grad,) = torch.autograd.grad(reads.square().sum(), case.h, create_graph=True)
    with pytest.raises(RuntimeError, match=r"no second derivative: take TensorMemory\(scan='reference'\)"):
        torch.autograd.grad(grad.sum(), case.h)


def test_without_gradients_nothing_is_kept(monkeypatch):
    kept = []

    def spy(*args):
        *outputs, kept_volumes = recurrence.recurrence(*args)
        kept.append(sum(tensor.numel() for tensor in kept_volumes) / case.h.numel())
        return *outputs, kept_volumes

    case = Case((3, 2), num_steps=9)
    monkeypatch.setattr(fused, "recurrence", spy)
    for saving in SAVINGS:
        case.run(fused.fused, saving=saving)
    with torch.no_grad():
        fused.fused(case.inputs, case.h, case.c, case.update)
    case.update.requires_grad_(False)
    fused.fused(ScanInputs(*(tensor.detach() for tensor in case.inputs)), case.h.detach(), case.c.detach(), case.update)
    # In volumes: h, c, four gates and tanh c of 9 steps; h and c of 9 steps; h and c of every third; nothing.
    assert kept == [63, 18, 6, 0, 0]


def test_what_is_kept_is_cut_into_pieces_that_the_allocator_reuses(monkeypatch):
    monkeypatch.setattr(history, "HISTORY_BYTES", 1000)
    for saving in SAVINGS:
        assert_parity(Case((3, 2, 4), 9, 10), EXACT, saving=saving, kernel_kind="eager")


@pytest.mark.parametrize(("steps", "saving"), [(10, "full"), (300, "light"), (1000, "checkpoint")])
def test_the_longer_the_sequence_the_thriftier(steps, saving):
    h = torch.empty(4, 8, 8, 8, 64)
    assert fused._auto_saving(h, steps) == saving


def test_gradients_of_some_inputs_only():
    case = Case((3, 4))
    _, _, c = reference(case.inputs, case.h, case.c, case.update)
    (expected,) = torch.autograd.grad(c.sum(), case.h)
    frozen = ScanInputs(*(tensor.detach() for tensor in case.inputs))
    case.update.requires_grad_(False)
    _, _, c = fused.fused(frozen, case.h, case.c.detach(), case.update)
    (actual,) = torch.autograd.grad(c.sum(), case.h)
    assert_all_close({"h": actual}, {"h": expected}, EXACT)


def test_a_nan_stays_with_its_sequence():
    case = Case((3, 4), batch=3)
    inputs = ScanInputs(*(tensor.detach().clone() for tensor in case.inputs))
    inputs.read_coordinates[1, 2] = torch.nan
    inputs.write_coordinates[1, 3] = torch.nan
    with torch.no_grad():
        for actual, expected in zip(
            fused.fused(inputs, case.h, case.c, case.update),
            reference(inputs, case.h, case.c, case.update),
            strict=True,
        ):
            assert torch.equal(actual.isnan(), expected.isnan())
            assert not actual[[0, 2]].isnan().any()


def test_the_memory_takes_the_scan_by_name():
    x = torch.randn(2, 9, 5, dtype=torch.float64)
    results = []
    for scan in ("auto", "fused", "reference"):
        memory = TensorMemory(5, 3, (3, 2, 4), chunk=2, scan=scan).double()
        randomise(memory, torch.Generator().manual_seed(0))
        y, state = memory(x)
        results.append({"y": y, "h": state.h, "c": state.c})
        derivative = torch.autograd.grad(y.sum(), memory.summary.weight, create_graph=True)[0].sum()
        if scan == "reference":
            torch.autograd.grad(derivative, memory.content.weight)
        else:
            with pytest.raises(RuntimeError, match="no second derivative"):
                torch.autograd.grad(derivative, memory.content.weight)
    assert_all_close(results[0], results[2], EXACT)
    assert_all_close(results[1], results[2], EXACT)


@pytest.mark.parametrize(
    ("key", "value"), [("scan", "quick"), ("saving", "none"), ("kernels", "triton"), ("gemm", "int8")]
)
def test_an_unknown_choice_is_named(key, value, unchecked):
    with pytest.raises(ValueError, match=f"{key}='{value}' is unknown; choose one of"):
        TensorMemory(5, 3, (3, 2, 4), **{key: value})


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


@pytest.mark.parametrize("kernel_kind", ["eager", pytest.param("compiled", marks=needs_compiler)])
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
def test_a_compiled_model_takes_the_scan_whole(unchecked):
    memory = TensorMemory(5, 3, (3, 2, 4), chunk=2).double()
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
    case = Case((3, 2), dtype=torch.float32)
    with pytest.raises(RuntimeError, match="needs a C"):
        fused.fused(case.inputs, case.h, case.c, case.update, kernel_kind="compiled")
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
    assert kernels.choose("auto", torch.empty(shape, dtype=dtype)) == compiled


def test_rational_tanh_is_tanh():
    from tensormem.memory.kernels_traced import rational_tanh

    x = torch.linspace(-12, 12, 100_001)
    exact = torch.tanh(x.double())
    # Three units in the last place of float32.
    assert ((rational_tanh(x).double() - exact).abs() <= 3 * 2**-23 * exact.abs()).all()
