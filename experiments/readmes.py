"""Tables of record inside a README: what stands between `<!-- record -->` and `<!-- /record -->`.

Such a place holds one table with its caption and its notes. Which table it is, its caption and its columns say, but for
the machines in the caption, which change with the results. Whoever wants a table of record in a README writes the marks
around its caption and its line of columns, and `python -m experiments.tables all --write` fills in the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

_PLACE = re.compile(r"(?<=<!-- record -->\n\n).*?(?=\n\n<!-- /record -->)", re.DOTALL)
_MARK = re.compile(r"<!-- /?record -->")


class Key(NamedTuple):
    """What tells a table of record from all others: its caption but for the machines, and its line of columns."""

    caption: str
    columns: str


def tables_by_key(texts: Iterable[str]) -> dict[Key, str]:
    """Every table in files of record (Markdown), with its caption and notes, by its key."""
    return {_key(table): table for text in texts for table in _split(text)}


def filled_in(readme: str, tables: Mapping[Key, str]) -> tuple[str, list[str]]:
    """A README with its tables of record brought up to date.

    Returns:
        The text, and what is wrong with it: a place whose caption and columns are those of no table is left as it is.
    """
    problems = []

    def fill(place: re.Match[str]) -> str:
        key = _key(place[0])
        if key not in tables:
            problems.append(f"no table of record has the caption and columns of {place[0].partition(chr(10))[0]!r}")
        return tables.get(key, place[0])

    text, places = _PLACE.subn(fill, readme)
    if len(_MARK.findall(readme)) != 2 * places:
        problems.append("a mark of a table of record has no other, or no empty line between itself and the table")
    return text, problems


def _split(text: str) -> Iterator[str]:
    """A file of record to its tables: each begins with the paragraph before the columns."""
    paragraphs = text.strip("\n").split("\n\n")
    starts = [index - 1 for index, paragraph in enumerate(paragraphs) if paragraph.startswith("|")]
    for start, end in zip(starts, [*starts[1:], len(paragraphs)], strict=True):
        yield "\n\n".join(paragraphs[start:end])


def _key(table: str) -> Key:
    caption, *rest = table.split("\n\n")
    columns = next((paragraph for paragraph in rest if paragraph.startswith("|")), "").partition("\n")[0]
    return Key(caption.partition("; on ")[0], columns)
