"""Tables to Markdown, CSV and LaTeX. What a table contains is decided by its benchmark, not here."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Section:
    """Rows of cells, below a line with the section's title where it has one."""

    title: str | None
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Table:
    """What one table shows, as plain text: the renderers escape it.

    Attributes:
        caption: what all rows have in common.
        header: names of the columns.
        num_text_columns: how many of the first columns are words, aligned left; the others are numbers, aligned right.
        sections: the rows, in order; the first section has no title as a rule.
        notes: what a reader must know, one paragraph each.
        records: the same for a program, in CSV: one flat mapping a row, numbers unrounded, None where there is none.

    Raises:
        ValueError: a row has more or fewer cells than the header.
    """

    caption: str
    header: tuple[str, ...]
    num_text_columns: int
    sections: tuple[Section, ...]
    notes: tuple[str, ...] = ()
    records: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        for row in (row for section in self.sections for row in section.rows):
            if len(row) != len(self.header):
                raise ValueError(f"row {row} has {len(row)} cells; the header has {len(self.header)}: {self.header}")


def render_markdown(tables: Sequence[Table]) -> str:
    """One pipe table each, under its caption."""
    return "\n".join(_markdown(table) for table in tables)


def render_csv(tables: Sequence[Table]) -> str:
    """The records of all tables as one; a column that a record lacks is empty there."""
    records = [record for table in tables for record in table.records]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, dict.fromkeys(key for record in records for key in record), lineterminator="\n")
    writer.writeheader()
    for record in records:
        writer.writerow({key: _csv_value(value) for key, value in record.items()})
    return stream.getvalue()


def render_latex(tables: Sequence[Table]) -> str:
    """One `table` environment each; needs the booktabs package."""
    return "\n".join(_latex(table) for table in tables)


def _markdown(table: Table) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(_escape_markdown(cell).replace("|", "\\|") for cell in cells) + " |"

    num_numbers = len(table.header) - table.num_text_columns
    rule = "|" + " --- |" * table.num_text_columns + " ---: |" * num_numbers
    lines = [_escape_markdown(table.caption), "", line(table.header), rule]
    for section in table.sections:
        if section.title is not None:
            lines.append(line([f"_{section.title}_"]) + "  |" * (len(table.header) - 1))
        lines += [line(row) for row in section.rows]
    for note in table.notes:
        lines += ["", _escape_markdown(note)]
    return "\n".join(lines) + "\n"


def _latex(table: Table) -> str:
    def line(cells: Sequence[str]) -> str:
        return " & ".join(map(_escape_latex, cells)) + r" \\"

    columns = "l" * table.num_text_columns + "r" * (len(table.header) - table.num_text_columns)
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{_escape_latex(table.caption)}}}"]
    lines += [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", line(table.header), r"\midrule"]
    for section in table.sections:
        if section.title is not None:
            lines.append(r"\midrule")
            lines.append(rf"\multicolumn{{{len(table.header)}}}{{l}}{{\emph{{{_escape_latex(section.title)}}}}} \\")
        lines += [line(row) for row in section.rows]
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\smallskip\footnotesize {_escape_latex(note)}" for note in table.notes]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def _csv_value(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _escape_markdown(text: str) -> str:
    return text.replace("*", "\\*")


_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$"}
)


def _escape_latex(text: str) -> str:
    return text.translate(_LATEX)
