"""The plan of a benchmark's runs: a sweep, or a suite of sweeps with what a scale changes in them."""

from collections import Counter

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from experiments.plan import benchmarks, parts_of, plan
from experiments.resolvers import CONF, models_of
from tests.experiments.composing import choices
from tests.experiments.test_train import TINY

SCALES = choices("suite/diagnostics")


def planned(runs_root, *overrides):
    return plan("wikitext", [*TINY, f"runs.root={runs_root}", *overrides])


def suite_of(scale):
    """The entries of the diagnostics' suite at a scale."""
    return OmegaConf.to_container(OmegaConf.load(CONF / "suite" / "diagnostics" / f"{scale}.yaml"))


def test_the_table_has_the_models_of_the_sweep(tmp_path):
    runs = planned(tmp_path)
    assert [run.name for run in runs] == [f"{model}-seed0" for model in choices("model/language")]
    assert [run.name for run in runs if run.config.allow_noncausal] == ["tensor_depth-seed0"]
    assert not any(run.finished or run.steps_done or run.setting for run in runs)
    assert len({run.folder for run in runs}) == len(runs)


def test_a_sweep_on_the_command_line_takes_the_place_of_the_tables(tmp_path):
    runs = planned(tmp_path, "model=language/base", "seed=3,4")
    assert [run.name for run in runs] == ["base-seed3", "base-seed4"]


def test_a_planned_run_is_the_one_that_training_does(tmp_path):
    (run,) = planned(tmp_path, "model=language/tensor")
    (again,) = planned(tmp_path, "model=language/tensor", "logger.mode=offline")
    assert run.folder == again.folder
    assert "model=language/tensor" in run.overrides


def test_a_model_outside_the_checkout_is_planned_where_it_is_named(tmp_path):
    folder = tmp_path / "mine" / "model" / "language"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("defaults: [/model/language/base@_here_, _self_]\nname: mine\n")
    search = f"hydra.searchpath=[file://{tmp_path / 'mine'}]"
    (run,) = planned(tmp_path, search, "model=language/mine")
    assert run.name == "mine-seed0"
    assert search in run.overrides


def test_every_image_model_is_trained_for_either_target(tmp_path):
    runs = plan("cub200", ["scale=smoke", f"runs.root={tmp_path}"])
    found = [(run.config.model.name, run.config.protocol.target) for run in runs]
    assert found == [(model, target) for model in choices("model/vision") for target in ("pixels", "normalised")]
    assert len({run.folder for run in runs}) == len(runs)


def test_every_video_model_is_trained(tmp_path):
    runs = plan("ucf101", ["scale=smoke", f"runs.root={tmp_path}"])
    assert [run.config.model.name for run in runs] == choices("model/video")
    splits = plan("ucf101", ["scale=smoke", "data.split=1,2,3", f"runs.root={tmp_path}"])
    assert len({run.folder for run in splits}) == 3 * len(runs)


def test_an_unknown_benchmark_is_named():
    assert benchmarks() == ["cub200", "diagnostics", "quickstart", "ucf101", "wikitext"] == choices("experiment")
    known = "cub200, diagnostics, quickstart, ucf101, wikitext"
    with pytest.raises(ValueError, match=rf"'wikitxt' is unknown; choose one of {known}$"):
        plan("wikitxt")


def test_every_sweep_is_part_of_the_papers_suite_and_every_part_is_a_sweep():
    sweeps = {f"diagnostics/{sweep}" for sweep in choices("sweep/diagnostics")}
    paper = [entry["sweep"] for entry in suite_of("paper")]
    assert set(paper) == sweeps
    assert choices("scale/diagnostics") == SCALES
    for scale in SCALES:
        parts = [entry["sweep"] for entry in suite_of(scale)]
        assert len(set(parts)) == len(parts)
        assert set(parts) <= sweeps
        assert parts_of("diagnostics", scale) == [part.rpartition("/")[2] for part in parts]
    assert parts_of("wikitext", "cpu") == []


@pytest.mark.parametrize("scale", SCALES)
def test_a_scale_changes_only_what_a_sweep_is_over(scale):
    """What it names is a key of the sweep, or one that all runs have: no change may turn into a new key."""
    for entry in suite_of(scale):
        sweep = OmegaConf.load(CONF / "sweep" / f"{entry.pop('sweep')}.yaml").hydra.sweeper.params
        known = set(sweep) | ({"data.diagnostic.noise"} if sweep.diagnostic == "binding" else set())
        assert set(entry) <= known


def check_runs(runs, scale):
    """All different, each with a label of its own, each with data and a network that fit together."""
    assert len({run.folder for run in runs}) == len(runs)
    assert max(Counter((run.name, run.setting) for run in runs).values()) == 1
    for run in runs:
        assert run.config.size.name == scale
        assert run.setting.split(" ")[0] in parts_of("diagnostics", scale)
        instantiate(run.config.training)
        with torch.device("meta"):
            instantiate(run.config.model.network, **instantiate(run.config.data).network_arguments)


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """The plan of the smallest suite."""
    return plan("diagnostics", ["scale=smoke", f"runs.root={tmp_path_factory.mktemp('runs')}"])


def test_the_smallest_suite_plans(smoke):
    check_runs(smoke, "smoke")
    assert list(dict.fromkeys(run.setting for run in smoke)) == [
        "no_harm",
        "binding num_writes=5 noise=0.05",
        "map_building num_views=16",
        "occlusion num_hidden=2",
        "occlusion_control occlude=tail num_hidden=2",
        "recall num_pairs=4",
        "ablations",
        "converge num_writes=5",
    ]
    assert [run.name for run in smoke if run.setting.startswith("binding")] == [
        f"{model}-seed0" for model in choices("model/diagnostics")
    ]
    # What the ablations are compared with is a run of the table already.
    assert [run.name for run in smoke if run.setting == "ablations"] == ["tensor_2d-seed0"]


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["cpu", "paper"])
def test_every_suite_plans(scale, tmp_path):
    runs = plan("diagnostics", [f"scale={scale}", f"runs.root={tmp_path}"])
    check_runs(runs, scale)
    assert {run.setting.split(" ")[0] for run in runs} == set(parts_of("diagnostics", scale))
    models = {run.config.model.name for run in runs}
    assert models == {*choices("model/diagnostics"), *choices("model/diagnostics/ablations")}


def test_parts_restrict_in_the_order_of_the_suite(smoke):
    root = smoke[0].config.runs.root
    runs = plan("diagnostics", ["scale=smoke", f"runs.root={root}"], ["recall", "no_harm"])
    assert [(run.setting, run.name) for run in runs] == [
        ("no_harm", "tensor-seed0"),
        ("recall num_pairs=4", "tensor-seed0"),
    ]
    assert {run.folder for run in runs} <= {run.folder for run in smoke}


def test_the_command_line_takes_the_place_of_what_the_suite_says(tmp_path):
    overrides = ["scale=cpu", f"runs.root={tmp_path}", "model=diagnostics/base", "data.diagnostic.num_writes=5"]
    runs = plan("diagnostics", overrides, ["binding"])
    assert [run.name for run in runs] == ["base-seed0"]
    runs = plan("diagnostics", [*overrides, "seed=2", "model.network.dropout=0.0,0.2"], ["binding"])
    assert [(run.name, run.setting) for run in runs] == [
        ("base-seed2", "binding num_writes=5 noise=0.05 dropout=0.0"),
        ("base-seed2", "binding num_writes=5 noise=0.05 dropout=0.2"),
    ]


def test_the_ablations_are_compared_with_a_run_of_the_table(tmp_path):
    overrides = ["scale=paper", f"runs.root={tmp_path}", "model=diagnostics/tensor"]
    grid = ["data.diagnostic.num_writes=20", "data.diagnostic.noise=0.05"]
    (binding,) = plan("diagnostics", overrides + grid, ["binding"])
    (compared,) = plan("diagnostics", overrides, ["ablations"])
    assert binding.folder == compared.folder
    (both,) = plan("diagnostics", overrides + grid, ["ablations", "binding"])
    assert both.setting == "binding num_writes=20 noise=0.05"


def test_all_ablations_are_swept():
    sweep = OmegaConf.load(CONF / "sweep" / "diagnostics" / "ablations.yaml").hydra.sweeper.params
    assert sweep.model == f"diagnostics/tensor,{models_of('diagnostics/ablations')}"
    alone = OmegaConf.load(CONF / "sweep" / "diagnostics" / "ablations_local.yaml").hydra.sweeper.params
    assert alone.model == f"diagnostics/tensor_local,{models_of('diagnostics/ablations')}"


def test_the_ablations_of_the_memory_alone_are_compared_with_a_run_of_the_table(tmp_path):
    overrides = ["scale=cpu", f"runs.root={tmp_path}", "model=diagnostics/tensor_local"]
    (binding,) = plan("diagnostics", [*overrides, "data.diagnostic.num_writes=5"], ["binding"])
    (compared,) = plan("diagnostics", overrides, ["ablations_local"])
    assert binding.folder == compared.folder


def test_an_unknown_part_or_scale_is_named():
    with pytest.raises(ValueError, match=r"part 'bindng' is unknown; did you mean binding\?"):
        plan("diagnostics", ["scale=smoke"], ["no_harm", "bindng"])
    with pytest.raises(ValueError, match=r"part 'zoo' is unknown; known are ablations, binding, "):
        plan("diagnostics", ["scale=smoke"], ["zoo"])
    with pytest.raises(ValueError, match=r"part 'binding' is unknown; wikitext is one sweep"):
        plan("wikitext", parts=["binding"])
    with pytest.raises(ValueError, match=r"scale=huge: no such choice; known are cpu, paper, smoke"):
        plan("diagnostics", ["scale=huge"])


@pytest.mark.parametrize(("cuda", "scale"), [(True, "paper"), (False, "cpu")])
def test_auto_is_the_papers_suite_on_a_gpu(monkeypatch, cuda, scale):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    assert parts_of("diagnostics", "auto") == parts_of("diagnostics", scale)
