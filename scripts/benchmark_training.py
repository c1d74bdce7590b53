"""What a training step of each benchmark at `cpu` scale is made of on this machine; a table and training.json.

python scripts/benchmark_training.py --output outputs/scan
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.cub200.masks import masked_patches
from experiments.provenance import collect_provenance, machine
from experiments.render import Section, Table, render_markdown
from experiments.timing import interleaved
from experiments.training import Training
from tensormem.losses import chunked_cross_entropy
from tensormem.models.diagnostics import BaseDiagnostic, TensorDiagnostic, Tokens
from tensormem.models.language import BaseLM, TensorLM
from tensormem.models.language_model import LanguageModel
from tensormem.models.vision import BaseMAE, TensorMAE
from tensormem.runtime import keep_freed_memory

# conf/scale/wikitext/cpu.yaml.
VOCABULARY, BATCH, WINDOW = 30_000, 4, 256
SIZES = {"dim": 128, "num_layers": 4, "num_heads": 4, "dropout": 0.1, "max_length": WINDOW}
MEMORY = {"memory_channels": 16, "memory_grid": (6, 6, 6), "memory_chunk": 16}
# conf/scale/diagnostics/cpu.yaml: binding of 20 points, and the 4 questions.
SEQUENCES, LENGTH, VALUES = 32, 24, 32
SMALL = {"dim": 64, "num_layers": 2, "num_heads": 4, "dropout": 0.1, "max_length": LENGTH}
SMALL_MEMORY = {"memory_channels": 16, "memory_grid": (6, 6, 6), "memory_chunk": 1}
# conf/scale/cub200/cpu.yaml and the small preset.
IMAGES, SIDE, PATCH, HIDDEN, CHUNK = 64, 64, 8, 0.75, 5

Step = Callable[[], float]


def chunked(model: LanguageModel, tokens: Tensor, targets: Tensor) -> Tensor:
    """The loss as training computes it."""
    hidden, _ = model.hidden(tokens)
    return chunked_cross_entropy(hidden.flatten(0, 1), model.output_weight, targets.flatten())


def all_logits(model: LanguageModel, tokens: Tensor, targets: Tensor) -> Tensor:
    """The same loss by way of all logits at once."""
    logits, _ = model(tokens)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def body_alone(model: LanguageModel, tokens: Tensor, targets: Tensor) -> Tensor:
    """No loss over the vocabulary at all: what is left is the blocks and the memory."""
    hidden, _ = model.hidden(tokens)
    return hidden.square().mean()


def step_of(model: nn.Module, loss: Callable[[], Tensor]) -> Step:
    """Milliseconds of a whole step: forward, backward, clipping, optimiser."""
    optimizer = Training().optimizer(model)

    def step() -> float:
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return 1e3 * (time.perf_counter() - start)

    return step


def optimiser_of(model: nn.Module) -> Step:
    """Milliseconds of clipping and optimiser alone."""
    optimizer = Training().optimizer(model)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)

    def step() -> float:
        start = time.perf_counter()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return 1e3 * (time.perf_counter() - start)

    return step


def wikitext() -> dict[str, Step]:
    """Steps of language models."""
    tokens, targets = (torch.randint(VOCABULARY, (BATCH, WINDOW)) for _ in range(2))

    def base() -> LanguageModel:
        return BaseLM(VOCABULARY, **SIZES)

    def tensor(scan: str) -> LanguageModel:
        return TensorLM(VOCABULARY, **SIZES, **MEMORY, memory_options={"scan": scan})

    def step(model: LanguageModel, loss: Callable[..., Tensor]) -> Step:
        return step_of(model, lambda: loss(model, tokens, targets))

    return {
        "base, all logits at once": step(base(), all_logits),
        "base": step(base(), chunked),
        "base, without the loss": step(base(), body_alone),
        "base, clipping and optimiser alone": optimiser_of(base()),
        "tensor, reference scan": step(tensor("reference"), chunked),
        "tensor, fused scan": step(tensor("fused"), chunked),
    }


def diagnostics() -> dict[str, Step]:
    """Steps of models that answer questions about points."""
    tokens = Tokens(torch.randn(SEQUENCES, LENGTH, 3), torch.randint(VALUES, (SEQUENCES, LENGTH, 1)))
    targets = torch.randint(VALUES, (SEQUENCES, LENGTH))

    def step(model: nn.Module) -> Step:
        return step_of(model, lambda: F.cross_entropy(model(tokens)[0].flatten(0, 1), targets.flatten()))

    def base() -> nn.Module:
        return BaseDiagnostic(3, [VALUES], VALUES, **SMALL)

    def tensor(scan: str) -> nn.Module:
        options = {"scan": scan}
        return TensorDiagnostic(3, [VALUES], VALUES, **SMALL, **SMALL_MEMORY, threading="depth", memory_options=options)

    return {
        "base": step(base()),
        "base, clipping and optimiser alone": optimiser_of(base()),
        "tensor, reference scan": step(tensor("reference")),
        "tensor, fused scan": step(tensor("fused")),
    }


def cub200() -> dict[str, Step]:
    """Steps of masked autoencoders."""
    images = torch.rand(IMAGES, 3, SIDE, SIDE)
    hidden = masked_patches(torch.rand(IMAGES, (SIDE // PATCH) ** 2), HIDDEN)
    sizes = {"image_size": SIDE, "patch": PATCH, "decoder_dim": 96, "decoder_layers": 2, "decoder_heads": 3}

    def step(model: nn.Module) -> Step:
        return step_of(model, lambda: model(images, hidden).square().mean())

    def tensor(scan: str) -> nn.Module:
        return TensorMAE(memory_chunk=CHUNK, memory_options={"scan": scan}, **sizes)

    return {
        "base": step(BaseMAE(**sizes)),
        "base, clipping and optimiser alone": optimiser_of(BaseMAE(**sizes)),
        "tensor, reference scan": step(tensor("reference")),
        "tensor, fused scan": step(tensor("fused")),
    }


# By name: the steps, and how many of what a step takes.
WORKLOADS: dict[str, tuple[Callable[[], dict[str, Step]], int, str]] = {
    "WikiText-2": (wikitext, BATCH * WINDOW, "tokens"),
    "binding": (diagnostics, SEQUENCES * LENGTH, "tokens"),
    "CUB-200": (cub200, IMAGES, "images"),
}


def measure(name: str, rounds: int) -> dict[str, float]:
    """Median milliseconds of the steps of a workload."""
    torch.manual_seed(0)
    steps, _, _ = WORKLOADS[name]
    return {step: statistics.median(values) for step, values in interleaved(steps(), rounds).items()}


def table(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    rows = []
    for workload, milliseconds in results["milliseconds"].items():
        _, count, unit = WORKLOADS[workload]
        for name, value in milliseconds.items():
            part = "loss" in name or "alone" in name
            rate = "" if part else f"{1e3 * count / value:,.0f} {unit}"
            rows.append((workload, name, f"{value:,.0f}", rate, f"{value / milliseconds['base']:.2f}"))
    caption = f"{machine(results['provenance'])}, float32."
    header = ("benchmark", "training step", "ms", "a second", "of base")
    return render_markdown([Table(caption, header, 2, (Section(None, tuple(rows)),))])


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="What a training step of each benchmark at cpu scale is made of.")
    parser.add_argument("--output", type=Path, default=Path("outputs/scan"), help="folder for training.json")
    parser.add_argument("--rounds", type=int, default=9, help="measurements of each step")
    options = parser.parse_args(arguments)
    keep_freed_memory()
    measured = {name: measure(name, options.rounds) for name in WORKLOADS}
    results = {"provenance": collect_provenance(), "milliseconds": measured}
    options.output.mkdir(parents=True, exist_ok=True)
    target = options.output / "training.json"
    target.write_text(json.dumps(results, indent=2) + "\n")
    print(table(results))
    print(f"written to {target}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
