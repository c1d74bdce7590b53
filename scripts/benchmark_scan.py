"""How fast the scan is on this machine, against the textbook loop in the same process; a table and benchmark.json.

python scripts/benchmark_scan.py --output outputs/scan
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from experiments.provenance import collect_provenance, machine
from experiments.render import Section, Table, render_markdown
from experiments.timing import gemm_rate, interleaved, peak_bytes
from tensormem.layers.attention import CausalAttention
from tensormem.layers.block import Block, GatedFusion
from tensormem.memory import TensorMemory
from tensormem.memory.fused import fused
from tensormem.memory.grid import gaussian_weights
from tensormem.memory.kernels import compiler_found
from tensormem.memory.native_library import compiler, compiler_version, library
from tensormem.memory.scan import ScanInputs, reference
from tensormem.memory.update import GridUpdate
from tensormem.runtime import keep_freed_memory


class Shape(NamedTuple):
    """A scan's sizes: B sequences, S steps, C channels, points along each axis."""

    batch: int
    steps: int
    channels: int
    grid: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.batch}, {self.steps}, {self.channels}, {'x'.join(map(str, self.grid))}"

    @property
    def gemm_flops(self) -> float:
        """Of the pointwise map: the product itself and the two of its backward pass."""
        rows = self.batch * torch.Size(self.grid).numel()
        return 3 * 2.0 * self.steps * rows * (2 * self.channels) * (4 * self.channels)


SHAPES = {
    "language 8": Shape(8, 32, 32, (8, 8, 8)),
    "language 32": Shape(32, 32, 32, (8, 8, 8)),
    "image small": Shape(32, 4, 16, (4, 4, 4)),
    "image base": Shape(32, 4, 32, (6, 6, 6)),
    "video": Shape(4, 200, 64, (8, 8, 8)),
    "diagnostics": Shape(128, 54, 16, (6, 6, 6)),
    "WikiText-2 cpu": Shape(4, 16, 16, (6, 6, 6)),
}
# What the summary shows, by header: of which path which ratio.
_SUMMARY = {
    "eager": ("eager, full", "total_ratio"),
    "eager, to textbook": ("eager, full", "textbook_ratio"),
    "native": ("native, full", "total_ratio"),
    "native, to textbook": ("native, full", "textbook_ratio"),
    "its forward pass": ("native, full", "forward_ratio"),
    "with checkpoints": ("native, checkpoint", "total_ratio"),
}
# The block that the memory joins: the paper's language model.
DIM, HEADS, TOKENS, CHUNK, BLOCK_BATCH = 384, 8, 512, 16, 8
MIB = 2**20


Scan = Callable[["Inputs"], tuple[Tensor, ...]]


class Inputs(NamedTuple):
    """Random inputs of a scan, all of which have gradients."""

    scan: ScanInputs
    h: Tensor
    c: Tensor
    update: GridUpdate


def inputs_of(shape: Shape) -> Inputs:
    """The same for every path; nothing saturates."""
    torch.manual_seed(0)
    batch, steps, channels, grid = shape
    scan = ScanInputs(
        read_coordinates=torch.tanh(torch.randn(batch, steps, len(grid))),
        write_coordinates=torch.tanh(torch.randn(batch, steps, len(grid))),
        content=torch.randn(batch, steps, channels),
        sigma=torch.rand(batch, steps, 1) + 0.3,
    )
    update = GridUpdate(channels, len(grid))
    with torch.no_grad():
        update.taps.add_(0.1 * torch.randn_like(update.taps))
    h, c = (0.3 * torch.randn(batch, channels, *grid) for _ in range(2))
    for tensor in (*scan, h, c):
        tensor.requires_grad_()
    return Inputs(scan, h, c, update)


def textbook(x: Inputs) -> tuple[Tensor, Tensor, Tensor]:
    """The reference in the layers of PyTorch, as one writes it down: convolutions and ``grid_sample``; 2 or 3 axes."""
    h, c, update, values = x.h, x.c, x.update, []
    axes = range(h.dim() - 2)
    conv = F.conv2d if len(axes) == 2 else F.conv3d
    steps = (tensor.unbind(1) for tensor in x.scan)
    for read_at, write_at, content, sigma in zip(*steps, strict=True):
        place = read_at.flip(-1).reshape(-1, *[1] * len(axes), len(axes))
        values.append(F.grid_sample(h, place, align_corners=True, padding_mode="border").flatten(1))
        weights = gaussian_weights(write_at, sigma, h.shape[2:]).unsqueeze(1)
        mixed = torch.cat([content.reshape(*content.shape, *[1] * len(axes)) * weights, h], dim=1)
        for axis, (taps, bias) in enumerate(zip(update.taps, update.taps_bias, strict=True)):
            size = [3 if other == axis else 1 for other in axes]
            padding = [length // 2 for length in size]
            mixed = conv(mixed, taps.reshape(-1, 1, *size), bias, padding=padding, groups=mixed.shape[1])
        weight = update.gates_weight.reshape(*update.gates_weight.shape, *[1] * len(axes))
        i, f, o, g = conv(mixed, weight, update.gates_bias).chunk(4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
    return torch.stack(values, dim=1), h, c


def _fused(saving: str, kernel_kind: str, gemm: str = "exact") -> Scan:
    def run(x: Inputs) -> tuple[Tensor, ...]:
        return fused(x.scan, x.h, x.c, x.update, saving=saving, kernel_kind=kernel_kind, gemm=gemm)  # type: ignore[arg-type]

    return run


def paths() -> dict[str, Scan]:
    """What is compared, by name; compiled and native paths only where there is a compiler."""
    found: dict[str, Scan] = {
        "reference": lambda x: reference(x.scan, x.h, x.c, x.update),
        "textbook": textbook,
        "eager, full": _fused("full", "eager"),
    }
    if compiler_found("cpu"):
        found["compiled, full"] = _fused("full", "compiled")
        # Without instructions of its own for them, a processor takes several times as long for such products.
        if torch.cpu.get_capabilities().get("avx512_bf16"):
            found["compiled, full, bfloat16"] = _fused("full", "compiled", "bfloat16")
    if library() is not None:
        for saving in ("full", "light", "checkpoint"):
            found[f"native, {saving}"] = _fused(saving, "native")
    return found


def seconds_of(run: Scan, x: Inputs) -> tuple[float, float]:
    """Seconds of the forward pass, and of forward and backward."""
    start = time.perf_counter()
    loss = torch.stack([output.square().sum() for output in run(x)]).sum()
    middle = time.perf_counter()
    torch.autograd.grad(loss, [*x.scan, x.h, x.c, *x.update.parameters()])
    return middle - start, time.perf_counter() - start


def measure_shape(shape: Shape, rounds: int, gemm_rate: float) -> dict[str, dict[str, float]]:
    """For each path: milliseconds, ratios to the reference, share of the machine's GEMM rate, peak memory."""
    x = inputs_of(shape)
    tasks = {name: (lambda run=run: seconds_of(run, x)) for name, run in paths().items()}
    rows = {}
    for name, values in interleaved(tasks, rounds).items():
        forward, total = (statistics.median(value[part] for value in values) for part in (0, 1))
        rows[name] = {"forward_ms": 1e3 * forward, "total_ms": 1e3 * total}
        rows[name]["gemm_share"] = shape.gemm_flops / total / gemm_rate
    for row in rows.values():
        for part in ("forward", "total"):
            row[f"{part}_ratio"] = rows["reference"][f"{part}_ms"] / row[f"{part}_ms"]
        row["textbook_ratio"] = rows["textbook"]["total_ms"] / row["total_ms"]
    return rows


def measure_block(rounds: int) -> dict[str, float]:
    """Milliseconds of a standard block, and of the memory that joins it, forward and backward."""
    torch.manual_seed(0)
    x = torch.randn(BLOCK_BATCH, TOKENS, DIM, requires_grad=True)
    block = Block(DIM, CausalAttention(DIM, HEADS))
    fusion = GatedFusion(DIM)
    memories = {name: TensorMemory(DIM, chunk=CHUNK, scan=name) for name in ("reference", "fused")}

    def timed(forward: Callable[[], Tensor]) -> float:
        start = time.perf_counter()
        forward().square().sum().backward()
        return time.perf_counter() - start

    tasks: dict[str, Callable[[], float]] = {"block": lambda: timed(lambda: block(x)[0])}
    for name, memory in memories.items():
        tasks[f"memory, {name}"] = lambda memory=memory: timed(lambda: fusion(x, memory, None)[0])
    return {name: 1e3 * statistics.median(values) for name, values in interleaved(tasks, rounds).items()}


def peak_mib(shape_name: str, path: str) -> float:
    """Peak memory of forward and backward over what the process holds before, in a process of its own, in MiB."""
    command = [sys.executable, __file__, "--peak-of", shape_name, path]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def print_peak(shape_name: str, path: str) -> None:
    """What ``peak_mib`` runs."""
    shape = SHAPES[shape_name]
    run = paths()[path]
    # Compilers and thread pools first: they aren't the scan's.
    seconds_of(run, inputs_of(shape._replace(steps=2)))
    x = inputs_of(shape)
    print(peak_bytes(lambda: seconds_of(run, x)) / MIB)


def table(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    built = f"; native.cpp by {results['native_compiler']}" if "native_compiler" in results else ""
    rows = [
        {
            "shape (B, S, C, grid)": f"{name}: {entry['shape']}",
            "path": path,
            "forward ms": f"{row['forward_ms']:,.1f}",
            "forward ratio": _times(row, "forward_ratio"),
            "forward + backward ms": f"{row['total_ms']:,.1f}",
            "ratio": _times(row, "total_ratio"),
            "to textbook": _times(row, "textbook_ratio"),
            "share of GEMM rate": f"{row['gemm_share']:.0%}",
            "peak MiB": f"{row['peak_mib']:,.0f}" if "peak_mib" in row else "",
        }
        for name, entry in results["shapes"].items()
        for path, row in entry["paths"].items()
    ]
    block = results["block"]
    caption = (
        f"{machine(results['provenance'])}, float32; a large GEMM runs at {results['gemm_gflops']:.0f} GFLOP/s{built}."
    )
    beside = (
        f"Beside a standard block (d {DIM}, {TOKENS} tokens, batch {BLOCK_BATCH}; {block['block']:,.0f} ms forward and "
        "backward) the memory (C 32, 8x8x8, K 16) costs "
        f"{block['memory, reference'] / block['block']:.2f} of it with the reference scan and "
        f"{block['memory, fused'] / block['block']:.2f} with the fused one."
    )
    return _markdown(caption, rows, 2, (beside,))


def summary(results: dict[str, Any]) -> str:
    """Of each shape what counts, as Markdown: how many times as fast, in how much less memory than the reference."""
    rows = []
    for name, entry in results["shapes"].items():
        paths = entry["paths"]
        row = {"shape": name}
        row |= {header: _times(paths.get(path, {}), key) for header, (path, key) in _SUMMARY.items()}
        peaks = [paths.get(path, {}).get("peak_mib") for path in ("reference", "native, checkpoint")]
        row["memory with checkpoints"] = f"1/{peaks[0] / peaks[1]:.0f}" if all(peaks) else ""
        rows.append(row)
    return _markdown("Times as fast as the reference, forward and backward, but where it says otherwise:", rows, 1)


def _times(row: dict[str, float], key: str) -> str:
    return f"{row[key]:.1f}x" if key in row else ""


def _markdown(caption: str, rows: Sequence[dict[str, str]], num_text_columns: int, notes: tuple[str, ...] = ()) -> str:
    """A table of rows with the same columns; those that no row fills are left out."""
    columns = tuple(column for column in rows[0] if any(row[column] for row in rows))
    section = Section(None, tuple(tuple(row[column] for column in columns) for row in rows))
    return render_markdown([Table(caption, columns, num_text_columns, (section,), notes)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Benchmark of the scan against the textbook loop.")
    parser.add_argument("--output", type=Path, default=Path("outputs/scan"), help="folder for benchmark.json")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each path")
    parser.add_argument("--shapes", default=",".join(SHAPES), help="some of: " + ", ".join(SHAPES))
    parser.add_argument("--peak-of", nargs=2, metavar=("SHAPE", "PATH"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.peak_of:
        print_peak(*options.peak_of)
        return 0
    keep_freed_memory()
    chosen = options.shapes.split(",")
    unknown = [name for name in chosen if name not in SHAPES]
    if unknown or options.rounds < 1:
        print(f"error: --shapes {unknown} unknown, or --rounds {options.rounds} below 1", file=sys.stderr)
        return 2
    options.output.mkdir(parents=True, exist_ok=True)
    target = options.output / "benchmark.json"
    rate = gemm_rate()
    results: dict[str, Any] = {"provenance": collect_provenance(), "gemm_gflops": rate / 1e9}
    if library() is not None and (command := compiler()) is not None:
        results["native_compiler"] = compiler_version(command).splitlines()[0]
    print("the memory beside its block ...", file=sys.stderr, flush=True)
    results |= {"block": measure_block(options.rounds), "shapes": {}}
    for name in chosen:
        print(f"{name} ({SHAPES[name]}) ...", file=sys.stderr, flush=True)
        rows = measure_shape(SHAPES[name], options.rounds, rate)
        results["shapes"][name] = {"shape": str(SHAPES[name]), "paths": rows}
        # After every shape: what is measured is not lost with the rest.
        target.write_text(json.dumps(results, indent=2) + "\n")
    if sys.platform == "linux":
        print("peak memory: a process for each shape and path ...", file=sys.stderr, flush=True)
        for name, entry in results["shapes"].items():
            for path, row in entry["paths"].items():
                row["peak_mib"] = peak_mib(name, path)
        target.write_text(json.dumps(results, indent=2) + "\n")
    print(table(results), summary(results), sep="\n\n")
    print(f"written to {target}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
