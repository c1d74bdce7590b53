"""The scan in C++: parity in every shape, whatever the machine's vectors, and the library's build."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tensormem.memory import TensorMemory, fused, native, native_library
from tests.helpers import FLOAT32, assert_all_close, gradients, randomise
from tests.memory.scans import EXACT, GRIDS, SAVINGS, Case, assert_parity, needs_native

pytestmark = needs_native
# Beside the grids of all scans: rows that fill no tile, and more than are taken together.
SHAPES = [*GRIDS, (7, 7, 7), (13,)]


@pytest.mark.parametrize("channels", [16, 17, 32, 64])
def test_parity_in_float32_for_whole_and_odd_vectors(channels):
    for saving in SAVINGS:
        case = Case((5, 4, 6), 5, 6, channels=channels, dtype=torch.float32)
        assert_parity(case, FLOAT32, saving=saving, kernel_kind="native")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("grid", "channels", "kind", "dtype"),
    list(
        itertools.product(
            SHAPES, [1, 17, 32, 48], ["factorised", "pointwise"], [(torch.float32, FLOAT32), (torch.float64, EXACT)]
        )
    ),
)
def test_parity_everywhere(grid, channels, kind, dtype):
    for write, saving, batch in (("gaussian", "full", 1), ("hard", "light", 2), ("gaussian", "checkpoint", 5)):
        case = Case(grid, 7, 8, channels=channels, batch=batch, kind=kind, dtype=dtype[0])
        assert_parity(case, dtype[1], write, saving=saving, kernel_kind="native")


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_parity_whatever_the_number_of_threads(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert_parity(Case((3, 2, 4), 4, 5, batch=4), EXACT, kernel_kind="native")
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("layout", ["channels first", "channels last", "one of each"])
def test_states_are_taken_in_any_layout(layout):
    case = Case((3, 2, 4), channels=16, dtype=torch.float32)
    expected = case.run(fused.fused, kernel_kind="eager")
    for name in {"channels first": (), "channels last": ("h", "c"), "one of each": ("c",)}[layout]:
        last = getattr(case, name).detach().movedim(1, -1).contiguous().movedim(-1, 1)
        assert not last.is_contiguous()
        setattr(case, name, last.requires_grad_())
    assert_all_close(case.run(fused.fused, kernel_kind="native"), expected, FLOAT32)


def test_a_memory_carried_from_call_to_call_is_that_of_one_call():
    memory = TensorMemory(5, 3, (3, 2, 4), chunk=2, kernels="native").double()
    randomise(memory, torch.Generator().manual_seed(0))
    x = torch.randn(2, 11, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    results = []
    for cuts in ([11], [3, 1, 4, 3]):
        state, outputs = None, []
        for piece in x.split(cuts, dim=1):
            y, state = memory(piece, state)
            outputs.append(y)
        found = {"y": torch.cat(outputs, dim=1), "h": state.h, "c": state.c}
        results.append(found | gradients(found, memory.named_parameters(), torch.Generator().manual_seed(2)))
    assert_all_close(results[1], results[0], EXACT)


def test_what_is_no_number_stays_none():
    # The rational tanh clamps what it is given; a NaN in the state must not become a number there.
    case = Case((3, 4), batch=3, channels=16, dtype=torch.float32)
    h = case.h.detach().clone()
    h[1, 0, 0, 0] = torch.nan
    with torch.no_grad():
        _, last_h, _ = fused.fused(case.inputs, h, case.c, case.update, kernel_kind="native")
    assert last_h[1].isnan().any()
    assert not last_h[[0, 2]].isnan().any()


def test_axes_beyond_what_it_takes_go_to_other_kernels():
    grid = (2,) * (native.MAX_AXES + 1)
    assert not native.supports(torch.empty(1, 2, *grid))
    assert_parity(Case(grid, 2, 2, channels=2, batch=1), EXACT)


@pytest.mark.parametrize("kind", ["factorised", "pointwise"])
def test_pytorch_finds_no_fault_with_the_operator(monkeypatch, unchecked, kind):
    calls = []
    operator = native.native_scan
    monkeypatch.setattr(native, "native_scan", lambda *args: calls.append(args) or operator(*args))
    Case((3, 2, 4), channels=8, kind=kind).run(fused.fused, kernel_kind="native", saving="full")
    args = tuple(x.detach().clone().requires_grad_() if isinstance(x, torch.Tensor) else x for x in calls[0])
    # Its schema, its shapes without data, its place in autograd and in a compiled graph.
    torch.library.opcheck(torch.ops.tensormem.native_scan, args)


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["-march=x86-64", "-march=x86-64-v3"])
def test_parity_with_narrower_vectors(flag, tmp_path):
    if native_library.platform.machine() != "x86_64":
        pytest.skip("these are vectors of x86-64")
    change = f"""
native_library.FLAGS = tuple("{flag}" if each == "-march=native" else each for each in native_library.FLAGS)
"""
    expected = {"-march=x86-64": 16, "-march=x86-64-v3": 32}[flag]
    assert _built_otherwise(change, tmp_path)[0] == expected


@pytest.mark.slow
def test_parity_with_threads_of_its_own(tmp_path):
    # As where no OpenMP is loaded: its entry goes by a name that nothing has.
    change = "native_library.FLAGS += ('-DGOMP_parallel=no_such_function',)"
    assert not _built_otherwise(change, tmp_path)[1]


@pytest.mark.slow
def test_parity_with_the_compiler_that_pip_installs(tmp_path):
    pytest.importorskip("ziglang", reason="needs the package ziglang")
    change = """
import shutil
shutil.which = lambda name: None
assert "ziglang" in native_library.compiler()
"""
    usual = native_library.library()
    assert _built_otherwise(change, tmp_path) == [usual.vector_bytes(), usual.shares_threads()]


def _built_otherwise(change: str, folder) -> list[int]:
    """Builds after a change, compares with the reference, and tells bytes a vector and whether it shares threads."""
    script = f"""
import torch
from tensormem.memory import native_library
{change}
from tests.helpers import FLOAT32
from tests.memory.scans import EXACT, SAVINGS, Case, assert_parity
for threads in (1, 3):
    torch.set_num_threads(threads)
    for saving in SAVINGS:
        for channels in (3, 16, 32):
            for dtype, tolerance in ((torch.float32, FLOAT32), (torch.float64, EXACT)):
                case = Case((5, 4, 6), 5, 6, channels=channels, dtype=dtype)
                assert_parity(case, tolerance, saving=saving, kernel_kind="native")
print(native_library.library().vector_bytes(), native_library.library().shares_threads())
"""
    environment = os.environ | {"TENSORMEM_CACHE": str(folder), "PYTHONPATH": "."}
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert found.returncode == 0, found.stderr
    return [int(word) for word in found.stdout.split()]


@pytest.mark.parametrize(
    ("there", "named", "expected"),
    [
        (["g++", "clang++"], None, "g++"),
        (["clang++"], None, "clang++"),
        ([], None, "ziglang"),
        (["g++", "mine"], "mine", "mine"),
        (["g++", "python"], "python -m ziglang c++", "ziglang"),
        (["g++"], "mine", None),
    ],
)
def test_which_compiler_builds(there, named, expected, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    if named:
        monkeypatch.setenv("CXX", named)
    monkeypatch.setattr(native_library.shutil, "which", lambda name: name if name in there else None)
    monkeypatch.setattr(native_library.importlib.util, "find_spec", lambda name: object())
    found = native_library.compiler()
    assert found is None if expected is None else expected in found


@pytest.mark.parametrize(("named", "reason"), [("", "no compiler for native.cpp"), ("g--", "CXX='g--' is not found")])
def test_without_any_compiler_the_log_says_what_would_bring_one(named, reason, monkeypatch, caplog):
    monkeypatch.setenv("CXX", named)
    monkeypatch.setattr(native_library.shutil, "which", lambda name: None)
    monkeypatch.setattr(native_library.importlib.util, "find_spec", lambda name: None)
    with caplog.at_level("INFO", logger="tensormem.memory.native_library"):
        assert native_library.library.__wrapped__() is None
    assert reason in caplog.text
    assert "pip install ziglang" in caplog.text


def test_a_library_is_built_once(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORMEM_CACHE", str(tmp_path))
    compiler = native_library.compiler()
    first = native_library._built(compiler)
    built = first.stat().st_mtime_ns
    assert native_library._built(compiler) == first
    assert first.stat().st_mtime_ns == built
    assert list(tmp_path.iterdir()) == [first]


@pytest.mark.parametrize("kept", [0, 20_000])
def test_a_library_that_is_not_whole_is_built_again(kept, tmp_path, monkeypatch):
    """Loaded, it would end the process."""
    monkeypatch.setenv("TENSORMEM_CACHE", str(tmp_path))
    compiler = native_library.compiler()

    def build(command, timeout):
        if command[-1].endswith(".so"):
            Path(command[-1]).write_bytes(b"whole" * 10_000)
        return ""

    monkeypatch.setattr(native_library, "_run", build)
    first = native_library._built(compiler)
    first.write_bytes(first.read_bytes()[:kept])
    again = native_library._built(compiler)
    assert again.read_bytes() == b"whole" * 10_000
    assert list(tmp_path.iterdir()) == [again]


def test_a_command_that_is_none_and_a_user_without_a_home(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("CXX", "g++ '")
    assert native_library.library.__wrapped__() is None
    assert "is no command" in caplog.text

    def no_home():
        raise RuntimeError("Could not determine home directory.")

    for name in ("TENSORMEM_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(native_library.Path, "home", no_home)
    assert native_library.cache_folder().name == f"tensormem-{os.getuid()}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("part", ["reads", "h", "content"])
def test_parts_of_other_tensors_may_begin_anywhere(part, dtype):
    """The library reads whole vectors, which must not begin in between."""

    def shifted(tensor):
        return torch.cat([tensor.new_zeros(1), tensor.flatten()])[1:].view(tensor.shape)

    case = Case((5, 4, 6), 5, 6, channels=16, dtype=dtype)
    results = []
    for change in (lambda tensor: tensor, shifted):
        h = (change if part == "h" else torch.clone)(case.h.detach()).requires_grad_()
        content = (change if part == "content" else torch.clone)(case.inputs.content.detach())
        reads, last, _ = fused.fused(
            case.inputs._replace(content=content), h, case.c, case.update, kernel_kind="native"
        )
        loss = torch.cat([last.sum()[None], reads.flatten()]).square().sum()
        results.append((reads.detach(), torch.autograd.grad(loss, h)[0]))
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def test_a_build_that_fails_is_told_and_the_scan_goes_on_without(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("TENSORMEM_CACHE", str(tmp_path))
    monkeypatch.setattr(native_library, "FLAGS", ("-std=c++20", "-no-such-flag"))
    assert native_library.library.__wrapped__() is None
    assert "no-such-flag" in caplog.text
    assert list(tmp_path.iterdir()) == []
