"""The benchmark of the scan runs, compares like with like, and its README shows its file."""

import json
import runpy
import sys
from pathlib import Path

import pytest
import torch

from tensormem.memory.native_library import library
from tensormem.memory.scan import reference
from tests.helpers import EXACT_FLOAT64, assert_close

ROOT = Path(__file__).resolve().parents[2]
SCAN = ROOT / "experiments" / "scan"


@pytest.fixture
def benchmark():
    """The script's names; it is no module of a package."""
    return runpy.run_path(str(ROOT / "scripts" / "benchmark_scan.py"))


def test_it_prints_a_table_and_writes_its_file(benchmark, tmp_path, capsys):
    shape = benchmark["Shape"](2, 3, 2, (3, 2))
    rows = benchmark["measure_shape"](shape, rounds=1, gemm_rate=1e9)
    assert {"reference", "textbook", "eager, full"} <= set(rows)
    assert rows["reference"]["total_ratio"] == 1
    results = {
        "provenance": {"hardware": {"name": "a machine", "threads": 1}},
        "gemm_gflops": 1.0,
        "shapes": {"tiny": {"shape": str(shape), "paths": rows}},
        "block": {"block": 2.0, "memory, reference": 4.0, "memory, fused": 1.0},
    }
    assert "| tiny: 2, 3, 2, 3x2 | reference |" in benchmark["table"](results)
    assert benchmark["main"](["--shapes", "sideways"]) == 2
    assert "sideways" in capsys.readouterr().err


@pytest.mark.parametrize("grid", [(3, 4), (3, 2, 4)])
def test_the_textbook_loop_is_the_same_function(benchmark, grid):
    x = benchmark["inputs_of"](benchmark["Shape"](2, 3, 2, grid))
    scan = type(x.scan)(*(tensor.double() for tensor in x.scan))
    x = x._replace(scan=scan, h=x.h.double(), c=x.c.double(), update=x.update.double())
    leaves = [*scan, x.h, x.c, *x.update.parameters()]
    actual, expected = benchmark["textbook"](x), reference(x.scan, x.h, x.c, x.update)
    grads = [torch.autograd.grad(sum(out.square().sum() for out in outs), leaves) for outs in (actual, expected)]
    for got, wanted in zip((*actual, *grads[0]), (*expected, *grads[1]), strict=True):
        assert_close(got, wanted, "textbook", EXACT_FLOAT64)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_checkpoints_take_an_eighth_of_the_references_memory(benchmark):
    if library() is None:
        pytest.skip("there is no C++ compiler")
    checkpoint, textbook = (benchmark["peak_mib"]("language 8", path) for path in ("native, checkpoint", "reference"))
    assert 8 * checkpoint < textbook


def test_the_summary_counts_against_the_reference_and_the_textbook(benchmark):
    rows = {
        "reference": {"total_ratio": 1.0, "forward_ratio": 1.0, "textbook_ratio": 2.0, "peak_mib": 50.0},
        "eager, full": {"total_ratio": 3.0, "forward_ratio": 2.0, "textbook_ratio": 6.0},
    }
    native = {
        "native, full": {"total_ratio": 5.04, "forward_ratio": 4.0, "textbook_ratio": 10.0},
        "native, checkpoint": {"total_ratio": 4.5, "peak_mib": 5.0},
    }
    results = {"shapes": {"with": {"paths": rows | native}, "without": {"paths": rows}}}
    *_, first, second = benchmark["summary"](results).splitlines()
    assert first == "| with | 3.0x | 6.0x | 5.0x | 10.0x | 4.0x | 4.5x | 1/10 |"
    assert second == "| without | 3.0x | 6.0x |  |  |  |  |  |"


@pytest.mark.parametrize(
    ("file", "part"), [("benchmark.json", "table"), ("pip_compiler.json", "summary"), ("avx512.json", "summary")]
)
def test_the_readme_shows_what_is_on_record(benchmark, file, part):
    results = json.loads((SCAN / "benchmark" / file).read_text())
    readme = (SCAN / "README.md").read_text()
    missing = [line for line in benchmark[part](results).splitlines() if line not in readme]
    assert missing == []
