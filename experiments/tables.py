"""Result files to tables: `python -m experiments.tables wikitext [--results DIR ...] [--format latex]`.

Runs that can't be compared never share a table: there is one per protocol, scale and token budget. Within it
the causal models come first; those that read the future follow below a line that says so.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.positions import position_table
from experiments.render import render_csv, render_latex, render_markdown
from experiments.results import Result, ResultError, load_results
from experiments.runs import without_defaults

BENCHMARKS = ("wikitext", "quickstart")
SCALES = ("paper", "cpu", "smoke", "tiny")
# What the results say that were written before a part of the protocol could be chosen.
PROTOCOL_BEFORE = {"attn_dropout": "matched"}
# Part of it in results of before, but a matter of the model: its row tells it apart.
NOT_PROTOCOL = frozenset({"positions"})
RENDERERS = {"markdown": render_markdown, "csv": render_csv, "latex": render_latex}
# Two runs that differ in no more than these keys of their network, data and training are seeds of one row.
UNSCIENTIFIC_KEYS = frozenset({"seed", "root", "num_workers", "download"})


@dataclass(frozen=True)
class Measured:
    """Mean over seeds, and the sample standard deviation where there are at least two."""

    mean: float
    deviation: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Measured:
        """Summarise one value per seed (at least one)."""
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


@dataclass(frozen=True)
class Row:
    """One model of a table and what its seeds measured; `tokens_per_second` are training tokens."""

    model: str
    causal: bool
    seeds: tuple[int, ...]
    parameters: int
    state_bytes: int
    tokens_per_second: Measured
    validation_perplexity: Measured
    test_perplexity: Measured
    paper: float | None
    stopped_early: bool
    results: tuple[Result, ...]


@dataclass(frozen=True)
class Group:
    """Runs that may be compared: one protocol, scale, budget of training tokens, window and set of test targets."""

    protocol: tuple[tuple[str, str], ...]
    scale: str
    tokens: int
    window: int
    targets: int
    hardware: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def floor(self) -> dict[str, float] | None:
        """The true source's nats on validation and test, where the language was generated."""
        return self.results[0].get("floor")

    @property
    def results(self) -> tuple[Result, ...]:
        """The runs behind the rows."""
        return tuple(result for row in self.rows for result in row.results)

    @property
    def caption(self) -> str:
        """What every row has in common, in one line."""
        settings = ", ".join(f"{key} {value}" for key, value in self.protocol)
        line = (
            f"Scale {self.scale}, {self.tokens:,} training tokens in windows of {self.window}, {self.targets:,} test "
            f"targets; {settings}; on {'; '.join(self.hardware)}."
        )
        published = [key for key, value in self.protocol if value == "paper"]
        if published:
            line += f" Published protocol, not ours, in: {', '.join(published)}."
        return line


def token_budget(result: Result) -> int:
    """Tokens the run was to train on: a run that stopped early competes with those of the same budget."""
    return int(result["training"].get("budget_tokens", result["training"]["tokens"]))


def group_results(results: Iterable[Result]) -> list[Group]:
    """Sort finished results into comparable groups, honest protocols and large scales first.

    Results whose `status` is not `finished` are left out. The order depends on the results alone.
    """
    groups: dict[tuple[tuple[tuple[str, str], ...], str, int, int, int], list[Result]] = {}
    for result in results:
        if result["status"] == "finished":
            settings = PROTOCOL_BEFORE | result["protocol"]
            protocol = tuple(sorted((key, _plain(value)) for key, value in settings.items() if key not in NOT_PROTOCOL))
            window, targets = result["state_bytes"]["window"], result["metrics"]["test_targets"]
            groups.setdefault((protocol, result["scale"], token_budget(result), window, targets), []).append(result)
    made = []
    for (protocol, scale, tokens, window, targets), members in groups.items():
        hardware = tuple(sorted({_hardware(result) for result in members}))
        made.append(Group(protocol, scale, tokens, window, targets, hardware, _rows(members)))
    return sorted(made, key=_group_order)


def make_table(results: Iterable[Result], style: str = "markdown") -> str:
    """Render all groups as `markdown`, `csv` or `latex`.

    Raises:
        ResultError: no result is finished.
        ValueError: an unknown style.
    """
    if style not in RENDERERS:
        raise ValueError(f"format is {style!r}; use one of {', '.join(RENDERERS)}")
    groups = group_results(results)
    if not groups:
        raise ResultError("no finished result; resume the runs with `make reproduce-wikitext`")
    return RENDERERS[style](groups)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _hardware(result: Result) -> str:
    hardware = result["provenance"]["hardware"]
    return f"{hardware['name']} ({hardware['threads']} threads)"


def _group_order(group: Group) -> tuple[Any, ...]:
    scale = SCALES.index(group.scale) if group.scale in SCALES else len(SCALES)
    return (
        sum(value == "paper" for _, value in group.protocol),
        scale,
        group.scale,
        -group.tokens,
        group.window,
        -group.targets,
        group.protocol,
    )


def _rows(results: Sequence[Result]) -> tuple[Row, ...]:
    """One row per model and configuration, its seeds pooled; causal first, then `base`, then by name."""
    variants: dict[tuple[str, bool, str], list[Result]] = {}
    for result in results:
        fingerprint = json.dumps(_settings(_parts(result["config"])), sort_keys=True)
        variants.setdefault((result["model"], result["causal"], fingerprint), []).append(result)
    labels = _labels(variants)
    rows = [_row(labels[key], key[1], members) for key, members in variants.items()]
    return tuple(sorted(rows, key=lambda row: (not row.causal, row.model.split(" ")[0] != "base", row.model)))


def _row(label: str, causal: bool, members: Sequence[Result]) -> Row:
    def measured(block: str, key: str) -> Measured:
        return Measured.of([result[block][key] for result in members])

    members = sorted(members, key=lambda result: (result["seed"], result["config_hash"]))
    first = members[0]
    return Row(
        model=label,
        causal=causal,
        seeds=tuple(result["seed"] for result in members),
        parameters=first["parameters"]["total"],
        state_bytes=first["state_bytes"]["per_sequence"],
        tokens_per_second=measured("training", "tokens_per_second"),
        validation_perplexity=measured("metrics", "validation_perplexity"),
        test_perplexity=measured("metrics", "test_perplexity"),
        paper=first["published"].get("test_perplexity"),
        stopped_early=any(result["training"]["stopped_early"] for result in members),
        results=tuple(members),
    )


def _parts(config: Mapping[str, Any]) -> dict[str, Any]:
    """What makes a row, without what is at its default: a key that came later must not part old runs from new ones."""
    parts = {"network": config["model"]["network"], "data": config["data"], "training": config["training"]}
    return {name: _canonical(part) for name, part in parts.items()}


def _canonical(part: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return without_defaults(part)
    except (ImportError, AttributeError):
        # A class of somebody else, or one that is no more: the table is still that of the files.
        return dict(part)


def _settings(config: Any, prefix: str = "") -> dict[str, Any]:
    """The scientific leaves of a config, by dotted key."""
    if not isinstance(config, Mapping):
        return {prefix: config}
    leaves: dict[str, Any] = {}
    for key, value in config.items():
        if key not in UNSCIENTIFIC_KEYS:
            leaves |= _settings(value, f"{prefix}.{key}" if prefix else str(key))
    return leaves


def _labels(variants: Mapping[tuple[str, bool, str], Any]) -> dict[tuple[str, bool, str], str]:
    """Row names: the model; where it occurs with several configs, with the settings that tell them apart."""
    labels = {}
    for key in variants:
        twins = [json.loads(other[2]) for other in variants if other[0] == key[0]]
        mine = json.loads(key[2])
        names = sorted({name for twin in twins for name in twin})
        differing = [name for name in names if any(twin.get(name) != mine.get(name) for twin in twins)]
        detail = ", ".join(f"{name}={_plain(mine.get(name))}" for name in differing)
        labels[key] = f"{key[0]} ({detail})" if detail else key[0]
    return labels


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m experiments.tables", description="Result files to tables.")
    parser.add_argument("benchmark", choices=BENCHMARKS)
    parser.add_argument(
        "--results",
        nargs="+",
        metavar="DIR",
        help="run roots, results folders or files (default: the results of record)",
    )
    parser.add_argument("--format", choices=tuple(RENDERERS), default="markdown")
    parser.add_argument("--by-position", action="store_true", help="the loss by position inside a window (Markdown)")
    parser.add_argument("--output", metavar="FILE", type=Path, help="write here instead of printing")
    options = parser.parse_args(arguments)
    try:
        results = load_results(options.benchmark, options.results)
        table = position_table(group_results(results)) if options.by_position else make_table(results, options.format)
    except (ResultError, FileNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if unfinished := [r for r in results if r["status"] != "finished"]:
        names = ", ".join(f"{r['model']} seed {r['seed']} ({r['status']})" for r in unfinished)
        print(f"left out, not finished: {names}", file=sys.stderr)
    if options.output is None:
        print(table, end="")
    else:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(table, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
