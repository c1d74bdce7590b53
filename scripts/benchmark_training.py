"""What a training step of WikiText-2 at `cpu` scale is made of on this machine; a table and training.json.

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
from torch import Tensor

from experiments.provenance import collect_provenance
from experiments.timing import interleaved
from experiments.training import Training
from tensormem.losses import chunked_cross_entropy
from tensormem.models.language import BaseLM, TensorLM
from tensormem.models.language_model import LanguageModel
from tensormem.runtime import keep_freed_memory

# conf/scale/wikitext/cpu.yaml.
VOCABULARY, BATCH, WINDOW = 30_000, 4, 256
SIZES = {"dim": 128, "num_layers": 4, "num_heads": 4, "dropout": 0.1, "max_length": WINDOW}
MEMORY = {"memory_channels": 16, "memory_grid": (6, 6, 6), "memory_chunk": 16}


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


def step_of(model: LanguageModel, loss: Callable[..., Tensor]) -> Callable[[], float]:
    """Milliseconds of a whole step: forward, backward, clipping, optimiser."""
    optimizer = Training().optimizer(model)
    tokens, targets = (torch.randint(VOCABULARY, (BATCH, WINDOW)) for _ in range(2))

    def step() -> float:
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss(model, tokens, targets).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return 1e3 * (time.perf_counter() - start)

    return step


def optimiser_of(model: LanguageModel) -> Callable[[], float]:
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


def measure(rounds: int) -> dict[str, float]:
    """Median milliseconds by name."""
    torch.manual_seed(0)

    def base() -> LanguageModel:
        return BaseLM(VOCABULARY, **SIZES)

    def tensor(scan: str) -> LanguageModel:
        return TensorLM(VOCABULARY, **SIZES, **MEMORY, memory_options={"scan": scan})

    tasks = {
        "base, all logits at once": step_of(base(), all_logits),
        "base": step_of(base(), chunked),
        "base, without the loss": step_of(base(), body_alone),
        "base, clipping and optimiser alone": optimiser_of(base()),
        "tensor, reference scan": step_of(tensor("reference"), chunked),
        "tensor, fused scan": step_of(tensor("fused"), chunked),
    }
    return {name: statistics.median(values) for name, values in interleaved(tasks, rounds).items()}


def table(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    hardware, milliseconds = results["provenance"]["hardware"], results["milliseconds"]
    lines = [
        f"{hardware['name']}, {hardware['threads']} threads, float32; {BATCH} windows of {WINDOW} tokens.",
        "",
        "| training step | ms | tokens/s | of base |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, value in milliseconds.items():
        rate = f"{1e3 * BATCH * WINDOW / value:,.0f}" if "loss" not in name and "alone" not in name else ""
        lines.append(f"| {name} | {value:,.0f} | {rate} | {value / milliseconds['base']:.2f} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="What a training step of WikiText-2 at cpu scale is made of.")
    parser.add_argument("--output", type=Path, default=Path("outputs/scan"), help="folder for training.json")
    parser.add_argument("--rounds", type=int, default=9, help="measurements of each step")
    options = parser.parse_args(arguments)
    keep_freed_memory()
    results = {"provenance": collect_provenance(), "milliseconds": measure(options.rounds)}
    options.output.mkdir(parents=True, exist_ok=True)
    target = options.output / "training.json"
    target.write_text(json.dumps(results, indent=2) + "\n")
    print(table(results))
    print(f"written to {target}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
