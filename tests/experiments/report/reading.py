"""A report as its reader has it: the tables, the data and the resources of a page."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

_DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


class Page(HTMLParser):
    """A page that was parsed.

    Attributes:
        tables: the rows of each table, as cells of text, by the id of what the table is labelled by.
        text: all text of the page outside of scripts and styles, by element.
        elements: name and attributes of each element, in order.
    """

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.tables: dict[str, list[list[str]]] = {}
        self.text: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._cells: list[list[str]] = []
        self._inside: list[str] = []
        self.feed(html)

    @property
    def data(self) -> Any:
        """What the page's script reads."""
        (block,) = _DATA.findall(self.html)
        return json.loads(block)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        self._inside.append(tag)
        if attributes.get("class") == "scroll":
            self._cells = self.tables.setdefault(str(attributes["aria-labelledby"]), [])
        elif tag == "tr":
            self._cells.append([])
        elif tag in ("td", "th"):
            self._cells[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        while self._inside and self._inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if {"script", "style"} & set(self._inside):
            return
        self.text.append(data)
        if {"td", "th"} & set(self._inside):
            self._cells[-1][-1] += data
