"""Tables and figures of action recognition: rows by hand, what stands in one table and what does not."""

from __future__ import annotations

import csv
import io

import pytest

from experiments.render import render_csv
from experiments.results import ResultError
from experiments.ucf101.figures import accuracy_by_hidden, draw_all
from experiments.ucf101.tables import classification_tables, named_groups


@pytest.fixture
def models(make_classification):
    """A memory on two splits, and baselines."""
    return [
        make_classification("tensor", 80.0, zero=50.0),
        make_classification("tensor", 90.0, zero=52.0, split=2),
        make_classification("registers", 70.0),
        make_classification("base"),
    ]


def rows_of(section):
    assert len({row[0] for row in section.rows}) == len(section.rows)
    return {row[0]: list(row[1:]) for row in section.rows}


def test_a_table_by_hand(models):
    (table,) = classification_tables(models)
    assert table.header[:7] == ("model", "splits", "runs", "parameters", "minutes", "top-1", "top-5")
    assert table.header[7:] == (
        *("frames 25%", "frames 50%", "frames 75%", "patch 25%", "patch 50%", "patch 75%"),
        *("shuffled", "one frame"),
    )
    (section,) = table.sections
    rows = rows_of(section)
    assert list(rows) == ["base", "registers", "tensor", "tensor, reads set to zero", "chance"]
    hidden = ["50.00", "40.00", "30.00"]
    assert rows["base"] == ["1", "1", "4,700,000", "1.7", "60.00", "95.00", *hidden, *hidden, "55.00", "55.00"]
    assert rows["tensor"][:5] == ["1, 2", "2", "4,700,000", "1.7", "85.00 ± 7.07"]
    assert rows["tensor, reads set to zero"][4] == "51.00 ± 1.41"
    assert rows["chance"][4] == "25.00"
    assert "(24 clips) of Weizmann4. Scale cpu: 8 frames of 64 pixels, patches of 8, 600 steps of 16" in table.caption


def test_what_may_not_be_compared_stands_apart(models, make_classification):
    others = [
        make_classification("base", backbone="vit_small_patch16_224"),
        make_classification("base", scale="paper"),
        make_classification("base", data={"num_frames": 16}),
        make_classification("base", data={"folder": None}),
        make_classification("base", found="60 of 72 clips of 4 classes: a part", seed=1),
        make_classification("base") | {"status": "failed"},
    ]
    tables = classification_tables(models + others)
    assert sorted(len(table.sections[0].rows) for table in tables) == [2, 2, 2, 2, 2, 5]
    assert sum("of Weizmann4, of which there were 60 of 72" in table.caption for table in tables) == 1
    names = [name for name, _ in named_groups(models + others)]
    assert len(set(names)) == 6
    assert names[0] == "paper"


def test_the_papers_numbers_stand_beside_the_whole_data_set_alone(make_classification):
    def sections(*models, **changes):
        whole = {"found": "all 13,320 clips of 101 classes", "data": {"folder": None}, "scale": "paper"}
        runs = [make_classification(model, **whole | changes) for model in models]
        (table,) = classification_tables(runs)
        return table.sections[1:]

    (published,) = sections("base", "registers", "tensor")
    assert "published" in published.title
    assert {name: row[4] for name, row in rows_of(published).items()} == {"base": "82.12", "tensor": "89.21"}
    (published,) = sections("tensor")
    assert list(rows_of(published)) == ["tensor"]
    assert sections("registers") == ()
    assert sections("base", scale="cpu") == ()
    assert sections("base", found="27 of 13,320 clips of 3 classes: a part") == ()
    assert sections("base", found="all 72 clips of 4 classes") == ()
    assert sections("base", data={"folder": None, "max_clips": 12}) == ()


def test_a_program_reads_every_test_of_every_run(models):
    records = list(csv.DictReader(io.StringIO(render_csv(classification_tables(models)))))
    assert len(records) == 9 * (2 + 1 + 1 + 2)
    (one,) = [
        record
        for record in records
        if (record["model"], record["split"], record["subject"], record["condition"], record["fraction"])
        == ("tensor", "2", "zero", "patch", "0.5")
    ]
    assert float(one["top1"]) == 32


def test_figures_have_a_line_a_model_and_chance(models, tmp_path, axes_of):
    files = draw_all(models, tmp_path)
    assert [file.name for file in files] == ["hidden_frames-cpu.png", "hidden_patch-cpu.png"]
    assert all(file.stat().st_size > 5_000 for file in files)
    for kind in ("frames", "patch"):
        axes = axes_of(accuracy_by_hidden, models, kind)
        assert {*axes.get_legend_handles_labels()[1]} == {"chance", "base", "registers", "tensor"}
        lines = [list(line.get_ydata()) for line in axes.get_lines()]
        assert [60.0, 50.0, 40.0, 30.0] in lines
        assert [85.0, 75.0, 65.0, 55.0] in lines
    with pytest.raises(ResultError, match="make reproduce-ucf101"):
        draw_all([], tmp_path)
