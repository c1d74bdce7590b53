"""Tables and pictures as HTML. All text comes from files that anybody may have written: none reaches the page raw."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from experiments.render import Section, Table

_CAUSAL, _PAPER = "causal", "paper"


def table_html(table: Table, name: str) -> str:
    """One table under its caption, with its notes below: cell for cell what the other renderers write.

    Args:
        table: what to show.
        name: an id that no other element of the page has.
    """
    classes = [_column_class(table, place) for place in range(len(table.header))]
    head = "".join(
        f'<th scope="col"{_class(kind)}>{escape(cell)}</th>' for kind, cell in zip(classes, table.header, strict=True)
    )
    bodies = "".join(_section(section, classes, table.header) for section in table.sections)
    notes = "".join(f"<p>{escape(note)}</p>" for note in table.notes)
    return (
        f'<figure class="result-table"><figcaption id="{name}">{escape(table.caption)}</figcaption>'
        f"{scrolling(f'<table><thead><tr>{head}</tr></thead>{bodies}</table>', name)}"
        f'<div class="notes">{notes}</div></figure>\n'
    )


def scrolling(table: str, labelled_by: str) -> str:
    """A table in a box of its own that scrolls where the table is too wide, by keyboard too."""
    return f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{labelled_by}">{table}</div>'


def row_html(cells: Iterable[str], classes: Sequence[str] = ()) -> str:
    """A row of a plain table from cells that are HTML already; the first is its heading."""
    first, *others = cells
    kinds = classes or [""] * len(others)
    rest = "".join(f"<td{_class(kind)}>{cell}</td>" for kind, cell in zip(kinds, others, strict=True))
    return f'<th scope="row">{first}</th>{rest}'


def picture_html(path: Path, subject: str) -> str:
    """A PNG file as part of the page, named by its file.

    Args:
        path: the file.
        subject: what its results are of, for those who can't see it.
    """
    data = path.read_bytes()
    width, height = struct.unpack(">II", data[16:24])  # of the header, which PNG files start with
    alternative = f"{subject}: {path.stem.replace('_', ' ')}; drawn from the results of the tables above"
    return (
        f'<figure class="picture"><img alt="{escape(alternative)}" width="{width}" height="{height}" '
        f'src="data:image/png;base64,{base64.b64encode(data).decode()}">'
        f"<figcaption>{escape(path.stem)}</figcaption></figure>\n"
    )


def _section(section: Section, classes: Sequence[str], header: Sequence[str]) -> str:
    title = ""
    if section.title is not None:
        title = (
            f'<tr class="section"><th scope="rowgroup" colspan="{len(header)}">'
            f"<span>{escape(section.title)}</span></th></tr>"
        )
    return f"<tbody>{title}{''.join(_row(row, classes, header) for row in section.rows)}</tbody>"


def _row(row: Sequence[str], classes: Sequence[str], header: Sequence[str]) -> str:
    kinds = list(classes[1:])
    leaks = _CAUSAL in header and row[header.index(_CAUSAL)].startswith("no")
    if leaks:
        kinds[header.index(_CAUSAL) - 1] += " leak"
    return f"<tr{_class('leaks' if leaks else '')}>{row_html(map(escape, row), kinds)}</tr>"


def _column_class(table: Table, place: int) -> str:
    kinds = ["num"] if place >= table.num_text_columns else []
    return " ".join([*kinds, *(["paper"] if table.header[place] == _PAPER else [])])


def _class(kind: str) -> str:
    return f' class="{kind.strip()}"' if kind.strip() else ""
