"""Tables to Markdown, CSV and LaTeX: alignment, separators, escaping, records."""

from __future__ import annotations

import csv
import io

import pytest

from experiments.render import Section, Table, render_csv, render_latex, render_markdown


def table(**changes):
    content = {
        "caption": "What & where.",
        "header": ("model", "score"),
        "num_text_columns": 1,
        "sections": (Section(None, (("a", "1"),)), Section("apart", (("b", "2"), ("c", "3")))),
        "notes": ("first note", "second note"),
        "records": ({"model": "a", "score": 0.1 + 0.2, "done": True}, {"model": "b", "score": None, "done": False}),
    }
    return Table(**(content | changes))


def test_markdown():
    assert render_markdown([table()]) == (
        "What & where.\n\n"
        "| model | score |\n| --- | ---: |\n| a | 1 |\n| _apart_ |  |\n| b | 2 |\n| c | 3 |\n\n"
        "first note\n\nsecond note\n"
    )


def test_latex():
    assert render_latex([table()]).splitlines() == [
        r"\begin{table}",
        r"\centering",
        r"\caption{What \& where.}",
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"model & score \\",
        r"\midrule",
        r"a & 1 \\",
        r"\midrule",
        r"\multicolumn{2}{l}{\emph{apart}} \\",
        r"b & 2 \\",
        r"c & 3 \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\par\smallskip\footnotesize first note",
        r"\par\smallskip\footnotesize second note",
        r"\end{table}",
    ]


@pytest.mark.parametrize("render", [render_markdown, render_latex])
def test_tables_follow_one_another_with_a_line_between(render):
    one, other = table(), table(caption="Another.", notes=(), records=())
    assert render([one, other]) == render([one]) + "\n" + render([other])
    assert render([]) == ""


def test_columns_of_words_are_on_the_left():
    wide = table(header=("a", "b", "c", "d"), num_text_columns=3, sections=())
    assert "| --- | --- | --- | ---: |" in render_markdown([wide])
    assert r"\begin{tabular}{lllr}" in render_latex([wide])


def test_cells_titles_and_notes_are_escaped():
    odd = table(
        header=("a|b", "50%"), sections=(Section("x|y_z", (("m*", "1 ± 2"), ("~^\\", "{$#}"))),), notes=("* why",)
    )
    markdown, latex = render_markdown([odd]), render_latex([odd])
    assert "| a\\|b | 50% |" in markdown
    assert "| _x\\|y_z_ |  |" in markdown
    assert "| m\\* | 1 ± 2 |" in markdown
    assert "\n\\* why\n" in markdown
    assert r"a|b & 50\% \\" in latex
    assert r"\emph{x|y\_z}" in latex
    assert r"m* & 1 $\pm$ 2 \\" in latex
    assert r"\textasciitilde{}\textasciicircum{}\textbackslash{} & \{\$\#\} \\" in latex


def test_csv_has_the_records_unrounded():
    text = render_csv([table(), table(records=({"model": 'say "c", d', "more": 3},))])
    assert text.splitlines()[0] == "model,score,done,more"
    assert list(csv.DictReader(io.StringIO(text))) == [
        {"model": "a", "score": repr(0.1 + 0.2), "done": "true", "more": ""},
        {"model": "b", "score": "", "done": "false", "more": ""},
        {"model": 'say "c", d', "score": "", "done": "", "more": "3"},
    ]


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValueError, match=r"row \('a', '1', '2'\) has 3 cells; the header has 2"):
        table(sections=(Section(None, (("a", "1", "2"),)),))
