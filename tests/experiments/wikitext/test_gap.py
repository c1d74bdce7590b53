"""What the gap is made of: pairs of the same seed, and no others."""

import math
import statistics

import pytest

from experiments.wikitext.gap import gap_table

# Test perplexity of each model, by seed.
SEEDS = {"base": (160.0, 158.0, 161.0), "base_wide": (157.0, 156.0), "tensor": (156.5,), "tensor_depth": (156.0, 150.0)}


@pytest.fixture
def results(make_result):
    return [
        make_result(
            model=model,
            seed=seed,
            causal=model != "tensor_depth",
            metrics__test_perplexity=perplexity,
            metrics__test_nats=math.log(perplexity),
        )
        for model, perplexities in SEEDS.items()
        for seed, perplexity in enumerate(perplexities)
    ]


def rows(text):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")][2:]


def test_each_part_is_measured_on_the_seeds_that_both_models_have(results):
    width = [math.log(160 / 157), math.log(158 / 156)]
    everything = [math.log(160 / 156), math.log(158 / 150)]

    def gain(values):
        return f"{statistics.fmean(values):.4f} ± {statistics.stdev(values):.4f}"

    leaking = "tensor_depth (reads the future)"
    assert rows(gap_table(results)) == [
        ["width", "base", "base_wide", "0, 1", "159.00 to 156.50", gain(width)],
        ["a causal memory", "base_wide", "tensor", "0", "157.00 to 156.50", f"{math.log(157 / 156.5):.4f}"],
        ["width and a causal memory", "base", "tensor", "0", "160.00 to 156.50", f"{math.log(160 / 156.5):.4f}"],
        ["the leak", "tensor", leaking, "0", "156.50 to 156.00", f"{math.log(156.5 / 156):.4f}"],
        ["all", "base", leaking, "0, 1", "159.00 to 153.00", gain(everything)],
    ]


def test_a_part_that_was_not_measured_has_no_row_and_a_group_without_any_no_table(results, make_result):
    wide = [result for result in results if result["model"] == "base_wide"]
    assert gap_table(wide) == ""
    # Another scale is another group: what has no partner in it is compared with nothing.
    alone = make_result(model="tensor", scale="smoke")
    base = [result for result in results if result["model"] == "base"]
    assert gap_table([*base, alone]) == ""
    assert [row[:3] for row in rows(gap_table([*base, *wide, alone]))] == [["width", "base", "base_wide"]]
