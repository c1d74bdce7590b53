"""The tables of the language models: perplexity of every model, and what it costs.

Runs that can't be compared never share a table: there is one per protocol, scale and token budget. Within it
the causal models come first; those that read the future follow below a line that says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.render import Section, Table
from experiments.results import Result
from experiments.summary import Measured, machines, plain, pool_seeds, scale_order
from experiments.wikitext.perplexity import perplexity

# What the results say that were written before a part of the protocol could be chosen.
PROTOCOL_BEFORE = {"attn_dropout": "matched"}
# Part of it in results of before, but a matter of the model: its row tells it apart.
NOT_PROTOCOL = frozenset({"positions"})
HEADER = (
    "model",
    "causal",
    "seeds",
    "parameters",
    "state bytes",
    "training tokens/s",
    "validation perplexity",
    "test perplexity",
    "paper",
)
NOT_CAUSAL = "no: reads the future"
FLOOR = "the source itself (the floor)"
SEPARATOR = "not causal: can't be ranked with the rows above"
PAPER_NOTE = (
    "paper: test perplexity as published, from the paper's own protocol, data pipeline and scale; rows here "
    "need not share them. The published tensor model reads the future: its number is in the row that does so."
)
SPREAD_NOTE = "Mean over the seeds; ± is the sample standard deviation."
STATE_NOTE = "state bytes: what the model holds for one sequence of the window's length."
HARDWARE_NOTE = "training tokens/s were measured on different hardware: they do not compare."
EARLY_MARK = "*"
EARLY_NOTE = "* stopped before the budget, for want of gain on the validation split."


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
    def floor_perplexity(self) -> dict[str, float] | None:
        """The floor as perplexity."""
        return self.floor and {split: perplexity(self.floor[f"{split}_nats"]) for split in ("validation", "test")}

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
            settings = PROTOCOL_BEFORE | result["protocol"] | _generated(result)
            protocol = tuple(sorted((key, plain(value)) for key, value in settings.items() if key not in NOT_PROTOCOL))
            window, targets = result["state_bytes"]["window"], result["metrics"]["test_targets"]
            groups.setdefault((protocol, result["scale"], token_budget(result), window, targets), []).append(result)
    made = []
    for (protocol, scale, tokens, window, targets), members in groups.items():
        hardware = machines(members)
        rows = tuple(_row(label, seeds) for label, seeds in pool_seeds(members))
        made.append(Group(protocol, scale, tokens, window, targets, hardware, rows))
    return sorted(made, key=_group_order)


def _generated(result: Result) -> dict[str, str]:
    """What makes the language where it is a generated one: each has a floor of its own."""
    markov = result["config"]["data"].get("markov")
    return {"markov": " ".join(f"{key}={plain(value)}" for key, value in markov.items())} if markov else {}


def language_tables(results: Iterable[Result]) -> list[Table]:
    """One table per group of comparable results; none, where no result is finished."""
    return [_table(group) for group in group_results(results)]


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


def _table(group: Group) -> Table:
    causal = [_cells(row) for row in group.rows if row.causal]
    leaking = [_cells(row) for row in group.rows if not row.causal]
    records = [_record(group, row) for row in group.rows]
    if floor := group.floor_perplexity:
        causal.insert(0, (FLOOR, "yes", "", "", "", "", f"{floor['validation']:.2f}", f"{floor['test']:.2f}", ""))
        perplexities = {f"{split}_perplexity": value for split, value in floor.items()}
        records.append(_record_start(group) | {"model": FLOOR, "causal": True} | perplexities)
    sections = [Section(None, tuple(causal))]
    if leaking:
        sections.append(Section(SEPARATOR, tuple(leaking)))
    return Table(
        caption=group.caption,
        header=HEADER,
        num_text_columns=2,
        sections=tuple(sections),
        notes=tuple(_notes(group)),
        records=tuple(records),
    )


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.model + (EARLY_MARK if row.stopped_early else ""),
        "yes" if row.causal else NOT_CAUSAL,
        str(len(row.seeds)),
        f"{row.parameters:,}",
        f"{row.state_bytes:,}",
        f"{row.tokens_per_second.mean:,.0f}",
        _perplexity(row.validation_perplexity),
        _perplexity(row.test_perplexity),
        "" if row.paper is None else f"{row.paper:.2f}",
    )


def _perplexity(measured: Measured) -> str:
    spread = "" if measured.deviation is None else f" ± {measured.deviation:.2f}"
    return f"{measured.mean:.2f}{spread}"


def _record_start(group: Group) -> dict[str, Any]:
    """The columns that say which group a record belongs to."""
    protocol = ";".join(f"{key}={value}" for key, value in group.protocol)
    return {"protocol": protocol, "scale": group.scale, "training_token_budget": group.tokens}


def _record(group: Group, row: Row) -> dict[str, Any]:
    return _record_start(group) | {
        "model": row.model,
        "causal": row.causal,
        "seeds": len(row.seeds),
        "stopped_early": row.stopped_early,
        "parameters": row.parameters,
        "state_bytes": row.state_bytes,
        "training_tokens_per_second": row.tokens_per_second.mean,
        "validation_perplexity": row.validation_perplexity.mean,
        "validation_perplexity_std": row.validation_perplexity.deviation,
        "test_perplexity": row.test_perplexity.mean,
        "test_perplexity_std": row.test_perplexity.deviation,
        "paper_test_perplexity": row.paper,
        "hardware": "; ".join(group.hardware),
    }


def _notes(group: Group) -> list[str]:
    notes = [STATE_NOTE]
    if any(row.paper is not None for row in group.rows):
        notes.insert(0, PAPER_NOTE)
    if any(len(row.seeds) > 1 for row in group.rows):
        notes.append(SPREAD_NOTE)
    if len(group.hardware) > 1:
        notes.append(HARDWARE_NOTE)
    if any(row.stopped_early for row in group.rows):
        notes.append(EARLY_NOTE)
    if floor := group.floor_perplexity:
        below = [row.model for row in group.rows if row.test_perplexity.mean < floor["test"]]
        notes.append(
            f"Below the floor on test: {', '.join(below) or 'none'}. The floor is what the true source of the "
            "language scores on the same targets; only a model that sees them can score lower, but for chance."
        )
    return notes
