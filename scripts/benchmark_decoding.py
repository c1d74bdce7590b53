"""Decoding speed and state size by position, for every language model that streams; decoding.json and decoding.png.

python scripts/benchmark_decoding.py --output outputs/decoding
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from torch.utils._pytree import tree_leaves

from experiments.drawing import panels
from experiments.provenance import collect_provenance, machine
from experiments.render import Section, Table, render_markdown
from experiments.resolvers import CONF
from experiments.timing import interleaved
from tensormem.models.language_model import LanguageModel

VOCABULARY = 30_000
# What is measured, and how a panel says it.
KEYS = {
    "tokens_per_second": "tokens/s, one at a time",
    "whole_tokens_per_second": "tokens/s, the sequence in one call",
    "state_bytes": "bytes of state",
}
TIMED_TOKENS = 8


def models(scale: str) -> dict[str, LanguageModel]:
    """Every streaming model with random weights, without learned positions, which would end."""
    found = {}
    for path in sorted((CONF / "model" / "language").glob("*.yaml")):
        with initialize_config_dir(str(CONF), version_base="1.3"):
            config = compose("config", overrides=[f"model=language/{path.stem}", f"scale={scale}"]).model.network
        torch.manual_seed(0)
        positions = "rope" if config.positions == "learned" else config.positions
        model = instantiate(config, vocab_size=VOCABULARY, positions=positions).eval()
        if model.streaming == "token":
            found[path.stem] = model
    return found


@torch.no_grad()
def measure(zoo: dict[str, LanguageModel], positions: Sequence[int], rounds: int) -> dict[str, dict[str, list[float]]]:
    """For each model: what `KEYS` name, at each position; speeds are medians."""
    rows: dict[str, dict[str, list[float]]] = {name: {key: [] for key in KEYS} for name in zoo}
    for position in positions:
        states = {}
        for name, model in zoo.items():
            _, states[name] = model.hidden(torch.randint(VOCABULARY, (1, position)))
            held = [tensor for tensor in tree_leaves(states[name]) if tensor.dim()]
            rows[name]["state_bytes"].append(sum(tensor.numel() * tensor.element_size() for tensor in held))

        def decode(name: str, states: dict[str, Any] = states) -> float:
            state = states[name]
            words = torch.randint(VOCABULARY, (TIMED_TOKENS, 1, 1))
            start = time.perf_counter()
            for word in words:
                _, state = zoo[name](word, state)
            return TIMED_TOKENS / (time.perf_counter() - start)

        def whole(name: str, position: int = position) -> float:
            words = torch.randint(VOCABULARY, (1, position))
            start = time.perf_counter()
            zoo[name].hidden(words)
            return position / (time.perf_counter() - start)

        for key, task in (("tokens_per_second", decode), ("whole_tokens_per_second", whole)):
            tasks = {name: (lambda name=name, task=task: task(name)) for name in zoo}
            for name, speeds in interleaved(tasks, rounds, warmup=1).items():
                rows[name][key].append(statistics.median(speeds))
        print(f"position {position}", file=sys.stderr, flush=True)
    return rows


def draw(results: dict[str, Any], path: Path) -> None:
    """A panel for each of `KEYS`, by position."""
    panels(
        path, "position in the sequence", results["positions"], results["models"], KEYS, columns=3,
        linear=("tokens_per_second",),
    )  # fmt: skip


def table(results: dict[str, Any]) -> str:
    """Markdown: the first and the last position."""
    first, last = results["positions"][0], results["positions"][-1]
    caption = f"{machine(results['provenance'])}; scale {results['scale']}, batch 1, random weights."
    header = ["model", f"tokens/s one at a time, at {first:,}", f"at {last:,}", f"in one call of {first:,}"]
    header += [f"of {last:,}", f"bytes of state at {first:,}", f"at {last:,}"]
    rows = [
        (name, *(f"{row[key][place]:,.0f}" for key in KEYS for place in (0, -1)))
        for name, row in results["models"].items()
    ]
    return render_markdown([Table(caption, tuple(header), 1, (Section(None, tuple(rows)),))])


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Decoding speed and state size by position.")
    parser.add_argument("--output", type=Path, default=Path("outputs/decoding"), help="folder for the files")
    parser.add_argument("--scale", default="cpu", help="the models' scale")
    parser.add_argument("--rounds", type=int, default=5, help="measurements at each position")
    parser.add_argument("--positions", type=int, nargs="+", default=[16, 64, 256, 1024, 4096])
    options = parser.parse_args(arguments)
    if options.rounds < 1 or min(options.positions) < 1:
        print(f"error: --rounds {options.rounds} and --positions must be at least 1", file=sys.stderr)
        return 2
    results = {
        "provenance": collect_provenance(),
        "scale": options.scale,
        "positions": sorted(options.positions),
        "models": measure(models(options.scale), sorted(options.positions), options.rounds),
    }
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "decoding.json").write_text(json.dumps(results, indent=2) + "\n")
    draw(results, options.output / "decoding.png")
    print(table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
