"""Result files to tables: `python -m experiments.tables wikitext [--results DIR ...] [--format latex]`.

Runs that can't be compared never share a table: there is one per protocol, scale and token budget. Within it
the causal models come first; those that read the future follow below a line that says so.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.positions import position_table
from experiments.render import render_csv, render_latex, render_markdown
from experiments.results import Result, ResultError, load_results
from experiments.summary import Measured, hardware_of, plain, pool_seeds, scale_order

BENCHMARKS = ("wikitext", "quickstart")
# What the results say that were written before a part of the protocol could be chosen.
PROTOCOL_BEFORE = {"attn_dropout": "matched"}
# Part of it in results of before, but a matter of the model: its row tells it apart.
NOT_PROTOCOL = frozenset({"positions"})
RENDERERS = {"markdown": render_markdown, "csv": render_csv, "latex": render_latex}


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
            protocol = tuple(sorted((key, plain(value)) for key, value in settings.items() if key not in NOT_PROTOCOL))
            window, targets = result["state_bytes"]["window"], result["metrics"]["test_targets"]
            groups.setdefault((protocol, result["scale"], token_budget(result), window, targets), []).append(result)
    made = []
    for (protocol, scale, tokens, window, targets), members in groups.items():
        hardware = tuple(sorted({hardware_of(result) for result in members}))
        rows = tuple(_row(label, seeds) for label, seeds in pool_seeds(members))
        made.append(Group(protocol, scale, tokens, window, targets, hardware, rows))
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


def _group_order(group: Group) -> tuple[Any, ...]:
    return (
        sum(value == "paper" for _, value in group.protocol),
        *scale_order(group.scale),
        -group.tokens,
        group.window,
        -group.targets,
        group.protocol,
    )


def _row(label: str, members: Sequence[Result]) -> Row:
    def measured(block: str, key: str) -> Measured:
        return Measured.of([result[block][key] for result in members])

    first = members[0]
    return Row(
        model=label,
        causal=first["causal"],
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
