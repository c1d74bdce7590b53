"""Groups of rows to Markdown, CSV and LaTeX. What a table contains is decided in tables.py, not here."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.summary import Measured
    from experiments.tables import Group, Row

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
CSV_HEADER = (
    "protocol",
    "scale",
    "training_token_budget",
    "model",
    "causal",
    "seeds",
    "stopped_early",
    "parameters",
    "state_bytes",
    "training_tokens_per_second",
    "validation_perplexity",
    "validation_perplexity_std",
    "test_perplexity",
    "test_perplexity_std",
    "paper_test_perplexity",
    "hardware",
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


def render_markdown(groups: Sequence[Group]) -> str:
    """One pipe table per group, each under its caption."""
    return "\n".join(_markdown(group) for group in groups)


def render_csv(groups: Sequence[Group]) -> str:
    """One flat table, numbers unrounded; the first columns say which group a row belongs to."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(CSV_HEADER)
    for group in groups:
        protocol = ";".join(f"{key}={value}" for key, value in group.protocol)
        for row in group.rows:
            numbers: list[Any] = [row.parameters, row.state_bytes, row.tokens_per_second.mean]
            for measured in (row.validation_perplexity, row.test_perplexity):
                numbers += [measured.mean, measured.deviation]
            label = [row.model, str(row.causal).lower(), len(row.seeds), str(row.stopped_early).lower()]
            start = [protocol, group.scale, group.tokens]
            writer.writerow([*start, *label, *numbers, row.paper, "; ".join(group.hardware)])
        if group.floor:
            validation, test = (math.exp(group.floor[f"{split}_nats"]) for split in ("validation", "test"))
            cells = ["true", "", "", "", "", "", validation, "", test, "", "", ""]
            writer.writerow([protocol, group.scale, group.tokens, FLOOR, *cells])
    return stream.getvalue()


def render_latex(groups: Sequence[Group]) -> str:
    """One `table` environment per group; needs the booktabs package."""
    return "\n".join(_latex(group) for group in groups)


def _cells(row: Row) -> list[str]:
    return [
        row.model + (EARLY_MARK if row.stopped_early else ""),
        "yes" if row.causal else NOT_CAUSAL,
        str(len(row.seeds)),
        f"{row.parameters:,}",
        f"{row.state_bytes:,}",
        f"{row.tokens_per_second.mean:,.0f}",
        _perplexity(row.validation_perplexity),
        _perplexity(row.test_perplexity),
        "" if row.paper is None else f"{row.paper:.2f}",
    ]


def _perplexity(measured: Measured) -> str:
    spread = "" if measured.deviation is None else f" ± {measured.deviation:.2f}"
    return f"{measured.mean:.2f}{spread}"


def _parts(group: Group) -> tuple[list[list[str]], list[list[str]]]:
    """Cells of the floor and the causal rows, and of those that are not causal."""
    causal = [_cells(row) for row in group.rows if row.causal]
    if group.floor:
        perplexities = [f"{math.exp(group.floor[f'{split}_nats']):.2f}" for split in ("validation", "test")]
        causal.insert(0, [FLOOR, "yes", "", "", "", "", *perplexities, ""])
    return causal, [_cells(row) for row in group.rows if not row.causal]


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
    if group.floor:
        below = [row.model for row in group.rows if row.test_perplexity.mean < math.exp(group.floor["test_nats"])]
        notes.append(
            f"Below the floor on test: {', '.join(below) or 'none'}. The floor is what the true source of the "
            "language scores on the same targets; only a model that sees them can score lower, but for chance."
        )
    return notes


def _markdown(group: Group) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("*", "\\*") for cell in cells) + " |"

    causal, leaking = _parts(group)
    lines = [group.caption, "", line(HEADER), "| --- | --- |" + " ---: |" * (len(HEADER) - 2)]
    lines += [line(cells) for cells in causal]
    if leaking:
        lines.append(f"| _{SEPARATOR}_ |" + "  |" * (len(HEADER) - 1))
        lines += [line(cells) for cells in leaking]
    for note in _notes(group):
        lines += ["", note.replace("*", "\\*")]
    return "\n".join(lines) + "\n"


def _latex(group: Group) -> str:
    def line(cells: Sequence[str]) -> str:
        return " & ".join(map(_escape, cells)) + r" \\"

    causal, leaking = _parts(group)
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{_escape(group.caption)}}}"]
    lines += [rf"\begin{{tabular}}{{ll{'r' * (len(HEADER) - 2)}}}", r"\toprule", line(HEADER), r"\midrule"]
    lines += [line(cells) for cells in causal]
    if leaking:
        lines.append(r"\midrule")
        lines.append(rf"\multicolumn{{{len(HEADER)}}}{{l}}{{\emph{{{_escape(SEPARATOR)}}}}} \\")
        lines += [line(cells) for cells in leaking]
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\smallskip\footnotesize {_escape(note)}" for note in _notes(group)]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$"}
)


def _escape(text: str) -> str:
    return text.translate(_LATEX)
