"""Seeds to rows: what is pooled, what is told apart, in which order."""

from __future__ import annotations

import itertools
import statistics

import pytest

from experiments.summary import Measured, machines, pairs_of, plain, pool_seeds, scale_order


def pooled(results):
    """Names of the rows with their seeds."""
    return [(label, [run["seed"] for run in runs]) for label, runs in pool_seeds(results)]


def test_a_mean_has_a_sample_deviation_from_two_seeds_on():
    assert Measured.of([3.0]) == Measured(3.0, None)
    values = [100.0, 104.0, 111.0]
    assert Measured.of(values) == Measured(pytest.approx(105.0), pytest.approx(statistics.stdev(values)))


def test_causal_rows_come_first_then_base_whatever_the_order_of_the_files(make_result):
    results = [
        make_result(model="alpha", causal=False),
        make_result(model="tensor"),
        make_result(model="alpha"),
        make_result(seed=1),
        make_result(seed=0),
    ]
    for order in itertools.permutations(results):
        assert pooled(order) == [("base", [0, 1]), ("alpha", [0]), ("tensor", [0]), ("alpha", [0])]


def test_two_configurations_of_a_model_are_not_taken_for_seeds(make_result):
    small = make_result(config_hash="a", config__model__network__dim=64)
    large = make_result(config_hash="b")
    again = make_result(config_hash="c", seed=1, config__seed=1)
    assert pooled([small, large, again]) == [("base (network.dim=128)", [0, 1]), ("base (network.dim=64)", [0])]


def test_a_row_at_a_default_shows_the_default(make_result):
    """Whether it is written out or not, also in a section within a section and where the class is not here."""
    rope, before, written = make_result(config_hash="a"), make_result(config_hash="b"), make_result(seed=1)
    rope["config"]["model"]["network"]["positions"] = "rope"
    written["config"]["model"]["network"]["positions"] = "learned"
    assert pooled([rope, before, written]) == [
        ("base (network.positions=learned)", [0, 1]),
        ("base (network.positions=rope)", [0]),
    ]
    for result in (rope, before, written):
        result["config"]["model"]["network"]["_target_"] = "nowhere.MyLM"
    assert [label for label, _ in pooled([rope, before])] == [
        "base (network.positions=null)",
        "base (network.positions=rope)",
    ]


def paired(results, first="base", second="tensor"):
    """Names of the paired rows with the seeds of their runs."""
    return [
        (pair.first, pair.second, [(one["seed"], other["seed"]) for one, other in pair.runs])
        for pair in pairs_of(results, first, second)
    ]


def test_runs_are_paired_by_their_seeds(make_result):
    base, tensor = ([make_result(model=model, seed=seed) for seed in range(3)] for model in ("base", "tensor"))
    assert paired([*base, *tensor]) == [("base", "tensor", [(0, 0), (1, 1), (2, 2)])]
    assert paired([base[1], base[2], tensor[0], tensor[2]]) == [("base", "tensor", [(2, 2)])]
    assert paired([base[0], tensor[1]]) == paired(base) == paired(tensor) == paired([]) == []


def test_of_several_rows_those_are_paired_that_differ_in_the_model_alone(make_result):
    def run(model, network, **settings):
        result = make_result(model=model)
        result["config"]["model"]["network"] |= {"_target_": f"tensormem.models.language.{network}", **settings}
        return result

    base, tensor = run("base", "BaseLM"), run("tensor", "TensorLM")
    rotary = [run("base", "BaseLM", positions="rope"), run("tensor", "TensorLM", positions="rope")]
    learned, rope = "(network.positions=learned)", "(network.positions=rope)"
    assert paired([base, tensor, *rotary]) == [
        (f"base {learned}", f"tensor {learned}", [(0, 0)]),
        (f"base {rope}", f"tensor {rope}", [(0, 0)]),
    ]
    # One of them has a single row, which says nothing of its positions: they are at their default.
    assert paired([base, tensor, rotary[0]]) == [(f"base {learned}", "tensor", [(0, 0)])]
    # A setting that only one of the models has tells them not apart from the other.
    smaller = run("tensor", "TensorLM", memory_channels=8)
    assert [pair[:2] for pair in paired([base, tensor, smaller])] == [
        ("base", "tensor (network.memory_channels=32)"),
        ("base", "tensor (network.memory_channels=8)"),
    ]


def test_a_seed_inside_a_section_makes_a_row(make_result):
    results = [make_result(seed=seed) for seed in range(3)]
    for result, seed in zip(results, (0, 0, 7), strict=True):
        result["config"]["data"] |= {"seed": result["seed"], "markov": {"num_symbols": 24, "seed": seed}}
    assert pooled(results) == [("base (data.markov.seed=0)", [0, 1]), ("base (data.markov.seed=7)", [2])]


def test_where_a_run_took_its_data_from_makes_no_row(make_result):
    here, there = make_result(), make_result(seed=1)
    there["config"]["data"] |= {"root": "elsewhere", "num_workers": 4, "download": False}
    assert pooled([here, there]) == [("base", [0, 1])]


def test_a_key_that_came_later_does_not_part_old_runs_from_new_ones(make_result):
    before = make_result(config_hash="a")
    after = make_result(config_hash="b", seed=1)
    after["config"]["model"]["network"]["attn_dropout"] = "matched"
    after["config"]["data"]["corpus"] = "wikitext-2"
    assert pooled([before, after]) == [("base", [0, 1])]


@pytest.mark.parametrize("target", ["nowhere.MyLM", "tensormem.models.language.GoneLM"])
def test_a_model_whose_class_is_not_here_has_its_row(make_result, target, capfd):
    results = [make_result(model="mine", seed=seed) for seed in (0, 1)]
    for result in results:
        result["config"]["model"]["network"] = {"_target_": target, "dim": 8}
    assert pooled([make_result(), *results]) == [("base", [0]), ("mine", [0, 1])]
    assert capfd.readouterr().err == ""


def test_words_for_settings():
    assert [plain(value) for value in ("tuned", None, {"b": 1, "a": True})] == ["tuned", "null", '{"a": true, "b": 1}']


def test_each_machine_is_named_once(make_result):
    results = [make_result() for _ in range(4)]
    results[1]["provenance"]["hardware"]["threads"] = 1
    results[2]["provenance"]["hardware"]["instructions"] = "AVX2"
    assert machines(results) == ("Some CPU, 1 thread", "Some CPU, 2 threads", "Some CPU, AVX2, 2 threads")


def test_large_scales_come_first_and_unknown_ones_last():
    assert sorted(["b", "tiny", "a", "cpu", "paper"], key=scale_order) == ["paper", "cpu", "tiny", "a", "b"]
