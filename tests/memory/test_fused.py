"""The fused scan against the reference: what is read, the final state, and the gradient of everything that goes in.

Letters: B batch, S chunks written, R chunks read, C channels.
"""

from __future__ import annotations

import pytest
import torch

from tensormem.memory import TensorMemory, eager, fused, history, native
from tensormem.memory.scan import ScanInputs, reference
from tensormem.memory.update import GridUpdate
from tests.helpers import FLOAT32, assert_all_close, randomise
from tests.memory.scans import EXACT, GRIDS, KERNELS, SAVINGS, Case, assert_parity, needs_native


@pytest.mark.parametrize("kernel_kind", KERNELS)
@pytest.mark.parametrize("saving", SAVINGS)
@pytest.mark.parametrize("kind", ["factorised", "pointwise"])
@pytest.mark.parametrize("write", ["gaussian", "hard"])
@pytest.mark.parametrize("grid", GRIDS)
def test_parity_in_every_dimension_and_with_every_switch(grid, write, kind, saving, kernel_kind):
    assert_parity(Case(grid, kind=kind), EXACT, write, saving=saving, kernel_kind=kernel_kind)


@pytest.mark.parametrize("kernel_kind", KERNELS)
@pytest.mark.parametrize("saving", SAVINGS)
@pytest.mark.parametrize(("num_steps", "num_reads"), [(0, 0), (0, 1), (1, 1), (1, 2), (4, 4), (9, 10), (11, 11)])
def test_parity_for_any_number_of_steps(num_steps, num_reads, saving, kernel_kind):
    assert_parity(Case((3, 4), num_steps, num_reads), EXACT, saving=saving, kernel_kind=kernel_kind)


@pytest.mark.parametrize("kernel_kind", KERNELS)
@pytest.mark.parametrize(("channels", "batch"), [(1, 1), (1, 3), (4, 1), (17, 2)])
def test_parity_for_any_width_and_batch(channels, batch, kernel_kind):
    assert_parity(Case((3, 2, 4), channels=channels, batch=batch), EXACT, kernel_kind=kernel_kind)


@pytest.mark.parametrize("kernel_kind", KERNELS)
@pytest.mark.parametrize("saving", SAVINGS)
def test_parity_in_float32(saving, kernel_kind):
    assert_parity(Case((4, 3, 5), 12, 13, dtype=torch.float32), FLOAT32, saving=saving, kernel_kind=kernel_kind)


@pytest.mark.parametrize("kernel_kind", KERNELS)
def test_the_gradients_are_those_of_finite_differences(kernel_kind):
    case = Case((3, 2), num_steps=3, num_reads=4, channels=2, batch=1)
    # Clear of the corners, where a read has no derivative.
    inputs = [(0.8 * tensor).detach().requires_grad_() for tensor in case.inputs]

    def scan(read, write, content, sigma, h, c, *parameters):
        update = GridUpdate(2, 2).double()
        names = [name for name, _ in update.named_parameters()]
        for name, value in zip(names, parameters, strict=True):
            delattr(update, name)
            setattr(update, name, value)
        return fused.fused(ScanInputs(read, write, content, sigma), h, c, update, kernel_kind=kernel_kind)

    assert torch.autograd.gradcheck(scan, (*inputs, case.h, case.c, *case.update.parameters()), atol=1e-6)


@pytest.mark.parametrize("kernel_kind", KERNELS)
def test_a_second_derivative_is_refused(kernel_kind):
    case = Case((3, 2))
    reads, _, _ = fused.fused(case.inputs, case.h, case.c, case.update, kernel_kind=kernel_kind)
    (grad,) = torch.autograd.grad(reads.square().sum(), case.h, create_graph=True)
    with pytest.raises(RuntimeError, match=r"no second derivative: take TensorMemory\(scan='reference'\)"):
        torch.autograd.grad(grad.sum(), case.h)


@pytest.mark.parametrize(
    ("kernel_kind", "module", "name"),
    [("eager", eager, "eager_scan"), pytest.param("native", native, "native_scan", marks=needs_native)],
)
def test_without_gradients_nothing_is_kept(monkeypatch, kernel_kind, module, name):
    kept = []
    operator = getattr(module, name)

    def spy(*args):
        *outputs, kept_volumes = operator(*args)
        kept.append(sum(tensor.numel() for tensor in kept_volumes) / outputs[-1].numel())
        return *outputs, kept_volumes

    case = Case((3, 2), num_steps=9)
    monkeypatch.setattr(module, name, spy)
    for saving in SAVINGS:
        case.run(fused.fused, saving=saving, kernel_kind=kernel_kind)
    with torch.no_grad():
        fused.fused(case.inputs, case.h, case.c, case.update, kernel_kind=kernel_kind)
    case.update.requires_grad_(False)
    frozen = ScanInputs(*(tensor.detach() for tensor in case.inputs))
    fused.fused(frozen, case.h.detach(), case.c.detach(), case.update, kernel_kind=kernel_kind)
    # In volumes: h, c, four gates and tanh c of 9 steps; h and c of 9 steps; h and c of every third; nothing.
    assert kept == [63, 18, 6, 0, 0]


@pytest.mark.parametrize("kernel_kind", KERNELS)
def test_what_is_kept_is_cut_into_pieces_that_the_allocator_reuses(monkeypatch, kernel_kind):
    monkeypatch.setattr(history, "HISTORY_BYTES", 1000)
    for saving in SAVINGS:
        assert_parity(Case((3, 2, 4), 9, 10), EXACT, saving=saving, kernel_kind=kernel_kind)


@pytest.mark.parametrize(("steps", "saving"), [(10, "full"), (300, "light"), (1000, "checkpoint")])
def test_the_longer_the_sequence_the_thriftier(steps, saving):
    h = torch.empty(4, 8, 8, 8, 64)
    assert fused._auto_saving(h, steps) == saving


@pytest.mark.parametrize("kernel_kind", KERNELS)
def test_gradients_of_some_inputs_only(kernel_kind):
    case = Case((3, 4))
    _, _, c = reference(case.inputs, case.h, case.c, case.update)
    (expected,) = torch.autograd.grad(c.sum(), case.h)
    frozen = ScanInputs(*(tensor.detach() for tensor in case.inputs))
    case.update.requires_grad_(False)
    _, _, c = fused.fused(frozen, case.h, case.c.detach(), case.update, kernel_kind=kernel_kind)
    (actual,) = torch.autograd.grad(c.sum(), case.h)
    assert_all_close({"h": actual}, {"h": expected}, EXACT)


@pytest.mark.parametrize("kernel_kind", KERNELS)
def test_a_nan_stays_with_its_sequence(kernel_kind):
    case = Case((3, 4), batch=3)
    inputs = ScanInputs(*(tensor.detach().clone() for tensor in case.inputs))
    inputs.read_coordinates[1, 2] = torch.nan
    inputs.write_coordinates[1, 3] = torch.nan
    with torch.no_grad():
        for actual, expected in zip(
            fused.fused(inputs, case.h, case.c, case.update, kernel_kind=kernel_kind),
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
