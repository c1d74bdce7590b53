"""Tables of masked reconstruction: rows and gains by hand, what stands in one table and what does not."""

from __future__ import annotations

import csv
import io

import pytest

from experiments.cub200.tables import named_groups, reconstruction_tables
from experiments.tables import make_table

HEADER = ("model", "seeds", "parameters", "PSNR 25%", "PSNR 50%", "PSNR 75%", "SSIM 25%", "SSIM 50%", "SSIM 75%")


def rows_of(section):
    """The cells of a section, by the first of each row."""
    assert len({row[0] for row in section.rows}) == len(section.rows)
    return {row[0]: list(row[1:]) for row in section.rows}


@pytest.fixture
def models(make_reconstruction):
    """A memory in two seeds, and baselines."""
    return [
        make_reconstruction("tensor", (21.0, 19.0, 16.0), zero=(20.5, 18.5, 15.0)),
        make_reconstruction("tensor", (22.0, 19.0, 16.5), zero=(20.5, 19.5, 15.0), seed=1),
        make_reconstruction("base"),
        make_reconstruction("base_wide", (21.5, 19.5, 16.001)),
        make_reconstruction("mine", (10.0, 9.0, 8.0)),
    ]


def test_a_table_by_hand(models):
    (table,) = reconstruction_tables(models)
    assert table.header == HEADER
    scores, gains = table.sections
    one = ["1", "4,700,000"]
    trained = "21.50 ± 0.71|19.00 ± 0.00|16.25 ± 0.35|0.430 ± 0.014|0.380 ± 0.000|0.325 ± 0.007"
    silent = "20.50 ± 0.00|19.00 ± 0.71|15.00 ± 0.00|0.410 ± 0.000|0.380 ± 0.014|0.300 ± 0.000"
    assert rows_of(scores) == {
        "base": [*one, "20.00", "18.00", "16.00", "0.400", "0.360", "0.320"],
        "base_wide": [*one, "21.50", "19.50", "16.00", "0.430", "0.390", "0.320"],
        "mine": [*one, "10.00", "9.00", "8.00", "0.200", "0.180", "0.160"],
        "tensor": ["2", one[1], *trained.split("|")],
        "tensor, reads set to zero": ["", "", *silent.split("|")],
        "mean colour of the visible patches": ["", "", "15.00", "14.00", "13.00", "0.300", "0.280", "0.260"],
    }
    assert [row[0] for row in scores.rows][-1] == "mean colour of the visible patches"
    # The paper's claim stands over what was measured of it; of another's model it says nothing.
    assert gains.title == "gain of tensor; the paper claims one over base, local and registers in every column"
    assert rows_of(gains) == {
        "over base": ["1", "", "+1.00", "+1.00", "+0.00", "+0.020", "+0.020", "+0.000"],
        "over base_wide": ["1", "", "-0.50", "-0.50", "+0.00", "-0.010", "-0.010", "+0.000"],
    }
    assert table.caption.startswith("PSNR (dB) of the hidden pixels")
    assert "Scale cpu: 64 pixels, patches of 8, 3,000 steps of 64 images; 1,442 test images" in table.caption
    assert any("The paper claims gains in PSNR and SSIM" in note for note in table.notes)


def test_each_configuration_of_the_memory_has_its_gains(make_reconstruction, models):
    larger = make_reconstruction("tensor", (24.0, 22.0, 20.0), zero=(20.0, 18.0, 15.0))
    larger["config"]["model"]["network"]["memory_channels"] = 64
    (table,) = reconstruction_tables([*models, larger])
    assert [row[0].partition(" (network.memory_channels=64) ")[2] for row in table.sections[1].rows][1::2] == [
        "over base",
        "over base_wide",
    ]
    assert [row[3] for row in table.sections[1].rows] == ["+1.00", "+4.00", "-0.50", "+2.50"]


def test_without_a_memory_there_is_no_gain(make_reconstruction):
    (table,) = reconstruction_tables([make_reconstruction()])
    assert [section.title for section in table.sections] == [None]


def test_the_published_protocol_stands_apart_after_ours_and_says_so(make_reconstruction):
    ours, published = reconstruction_tables([make_reconstruction(target="normalised"), make_reconstruction()])
    assert "target pixels" in ours.caption
    assert not any("Published protocol" in note for note in ours.notes)
    assert published.caption.startswith("PSNR (dB) and SSIM of whole images, hidden patches brought to the mean")
    assert published.notes[0].startswith("Published protocol, not ours: its scores use the hidden answer.")
    assert published.sections[0].rows[-1][0] == "0 everywhere, paper protocol"


@pytest.mark.parametrize(
    "changes",
    [
        {"token_order": "shuffled"},
        {"target": "normalised"},
        {"scale": "paper"},
        {"data": {"image_size": 32}},
        {"data": {"mask_ratio": 0.5}},
        {"training": {"steps": 100}},
    ],
    ids=str,
)
def test_what_may_not_be_compared_is_another_table(make_reconstruction, changes):
    assert len(reconstruction_tables([make_reconstruction(), make_reconstruction(**changes)])) == 2


def test_other_masks_or_images_are_another_table(make_reconstruction):
    fewer = make_reconstruction()
    fewer["metrics"]["test_images"] = 40
    assert len(reconstruction_tables([make_reconstruction(), fewer])) == 2


def test_seeds_and_where_images_are_kept_make_no_other_table(make_reconstruction):
    others = [make_reconstruction(seed=1), make_reconstruction(seed=2, data={"cache": "disk", "num_workers": 2})]
    (table,) = reconstruction_tables([make_reconstruction(), *others])
    assert table.sections[0].rows[0][:2] == ("base", "3")


def test_unfinished_runs_are_in_no_table(make_reconstruction):
    assert reconstruction_tables([make_reconstruction() | {"status": "failed"}]) == []


def test_groups_have_names_of_their_own(make_reconstruction):
    runs = [make_reconstruction(training={"steps": steps}) for steps in (10, 20)]
    runs += [make_reconstruction(target="normalised"), make_reconstruction(scale="smoke")]
    assert [name for name, _ in named_groups(runs)] == ["pixels-cpu", "pixels-cpu-2", "pixels-smoke", "normalised-cpu"]


def test_markdown_and_csv_hold_every_score(models):
    text = make_table(models)
    assert "| tensor, reads set to zero |" in text
    records = list(csv.DictReader(io.StringIO(make_table(models, "csv"))))
    assert len(records) == 2 * 9 + 3 * 6
    found = [
        r for r in records if (r["model"], r["seed"], r["subject"], r["mask_ratio"]) == ("tensor", "1", "zero", "0.5")
    ]
    assert [float(record["psnr"]) for record in found] == [19.5]
