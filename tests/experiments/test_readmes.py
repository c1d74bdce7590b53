"""Tables of record inside READMEs: found by caption and columns, filled in, and what is wrong is said."""

import pytest

from experiments.readmes import filled_in, tables_by_key
from experiments.render import Section, Table, render_markdown


def table(caption, columns=("model", "loss"), value="1.0", notes=("A note.",)):
    return Table(caption, columns, 1, (Section(None, (("base", value),)),), notes)


def place(text):
    return f"before\n\n<!-- record -->\n\n{text}\n\n<!-- /record -->\n\nafter\n"


def test_a_file_of_record_is_its_tables():
    made = [
        table("Scale cpu; on a CPU, 1 thread.", notes=("One.", "Two.")),
        table("Scale cpu; on a CPU, 1 thread.", columns=("model", "accuracy")),
        table("Scale paper; on a GPU.", notes=()),
    ]
    by_key = tables_by_key([render_markdown(made[:2]), render_markdown(made[2:])])
    assert [key.caption for key in by_key] == ["Scale cpu", "Scale cpu", "Scale paper"]
    assert list(by_key.values()) == [render_markdown([one]).strip() for one in made]


def test_a_place_gets_the_table_of_its_caption_and_columns():
    now = [table("Scale cpu; on a CPU; a GPU.", value="2.0", notes=("New.",)), table("Scale paper; on a GPU.")]
    by_key = tables_by_key([render_markdown(now)])
    before = render_markdown([table("Scale cpu; on a CPU.", notes=("Old.", "Older."))]).strip()
    text, problems = filled_in(place(before) + place("Scale paper; on nothing.\n\n| model | loss |"), by_key)
    assert problems == []
    assert text == place(render_markdown(now[:1]).strip()) + place(render_markdown(now[1:]).strip())
    assert filled_in(text, by_key) == (text, [])


@pytest.mark.parametrize(
    "other",
    [
        table("Scale smoke; on a CPU."),
        table("Scale cpu; on a CPU.", columns=("model", "accuracy")),
    ],
)
def test_a_place_of_no_table_is_left_and_named(other):
    by_key = tables_by_key([render_markdown([table("Scale cpu; on a CPU.")])])
    text = place(render_markdown([other]).strip())
    same, (problem,) = filled_in(text, by_key)
    assert same == text
    assert other.caption in problem


@pytest.mark.parametrize(
    "broken",
    [
        "<!-- record -->\n\nScale cpu.\n\n| model | loss |\n",
        "Scale cpu.\n\n| model | loss |\n\n<!-- /record -->\n",
        "<!-- record -->\nScale cpu.\n\n| model | loss |\n<!-- /record -->\n",
        "<!-- record -->\n\n<!-- record -->\n\nScale cpu.\n\n| model | loss |\n\n<!-- /record -->\n",
    ],
)
def test_a_mark_without_its_other_is_named(broken):
    text, problems = filled_in(broken, tables_by_key([render_markdown([table("Scale cpu.")])]))
    assert text == broken
    assert any("mark" in problem for problem in problems)


def test_a_readme_without_marks_is_as_it_was():
    text = "Scale cpu.\n\n| model | loss |\n| --- | ---: |\n| base | 1.0 |\n"
    assert filled_in(text, {}) == (text, [])
