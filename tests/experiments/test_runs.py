"""The hash and the folder of a run."""

import copy
import errno
import json
import subprocess
import sys

import pytest

from experiments import runs
from experiments.runs import (
    ConfigChangedError,
    RunInUseError,
    check_unchanged,
    config_hash,
    effective_config,
    exclusive,
    run_folder,
    scientific_config,
)

CONFIG = {
    "name": "wikitext",
    "seed": 0,
    "allow_noncausal": False,
    "model": {
        "name": "tensor",
        "network": {
            "_target_": "tensormem.models.language.TensorLM",
            "dim": 32,
            "num_layers": 2,
            "memory_grid": [3, 3, 3],
            "threading": "layer",
        },
        "published": {},
    },
    "data": {"_target_": "experiments.wikitext.data.LanguageData", "root": "data", "window": 64, "num_workers": 0},
    "training": {"_target_": "experiments.training.Training", "steps": 60, "evaluate_every": 20},
    "trainer": {"accelerator": "auto", "log_every": 20},
    "logger": {"mode": "auto"},
    "runs": {"root": "outputs"},
}


# A run whose data is called with something that is called with arguments of its own.
DIAGNOSTIC = CONFIG | {
    "name": "diagnostics",
    "data": {
        "_target_": "experiments.diagnostics.data.DiagnosticsData",
        "diagnostic": {"_target_": "experiments.diagnostics.binding.Binding", "num_writes": 10, "noise": 0.1},
        "batch_size": 32,
        "tests": [{"noise": 0.0}],
    },
}


def changed(path: str, value: object, config: dict = CONFIG) -> dict:
    config = copy.deepcopy(config)
    *parents, key = path.split(".")
    node = config
    for parent in parents:
        node = node[parent]
    node[key] = value
    return config


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("seed", 1),
        ("model.network.dim", 64),
        ("model.network.threading", "depth"),
        ("model.network.memory_grid", [3, 3, 4]),
        ("model.network.init", "paper"),
        ("model.network.max_length", 64),
        ("data.window", 32),
        ("data.vocabulary", "paper"),
        ("training.steps", 80),
        ("training.precision", "bf16-mixed"),
    ],
)
def test_a_change_of_the_science_changes_the_hash(path, value):
    assert config_hash(changed(path, value)) != config_hash(CONFIG)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("data.root", "elsewhere"),
        ("data.num_workers", 4),
        ("data.download", False),
        ("trainer.accelerator", "cpu"),
        ("logger.mode", "online"),
        ("runs.root", "elsewhere"),
        ("allow_noncausal", True),
        # Keys at their defaults, some of them passed on to a base class: as if a new key had come.
        ("model.network.mlp_ratio", 4.0),
        ("model.network.mlp_ratio", 4),
        ("model.network.init", "tuned"),
        ("data.evaluation", "full"),
        ("training.patience", 10),
    ],
)
def test_where_and_how_a_run_goes_does_not_change_the_hash(path, value):
    assert config_hash(changed(path, value)) == config_hash(CONFIG)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("data.diagnostic.num_writes", 20),
        ("data.diagnostic.noise", 0.0),
        ("data.diagnostic.num_queries", 8),
        ("data.diagnostic._target_", "experiments.diagnostics.recall.Recall"),
        ("data.tests", []),
        ("data.tests", [{"noise": 0.2}]),
        ("data.num_test_batches", 5),
        ("training.schedule", "constant"),
    ],
)
def test_a_setting_of_a_diagnostic_changes_the_hash(path, value):
    assert config_hash(changed(path, value, DIAGNOSTIC)) != config_hash(DIAGNOSTIC)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("data.diagnostic.num_queries", 4),
        ("data.diagnostic.key_dim", 3),
        ("data.diagnostic.num_writes", 10.0),
        ("data.num_test_batches", 20),
        ("data.seed", 0),
        ("training.schedule", "cosine"),
    ],
)
def test_a_default_of_a_diagnostic_written_out_is_the_same_run(path, value):
    assert config_hash(changed(path, value, DIAGNOSTIC)) == config_hash(DIAGNOSTIC)


def test_a_diagnostics_setting_at_its_default_is_one_left_out():
    written, left_out = changed("data.diagnostic.num_writes", 20, DIAGNOSTIC), copy.deepcopy(DIAGNOSTIC)
    del left_out["data"]["diagnostic"]["num_writes"]
    assert config_hash(written) == config_hash(left_out) != config_hash(DIAGNOSTIC)


def test_what_a_run_really_does_has_the_defaults_of_a_diagnostic():
    data = effective_config(DIAGNOSTIC)["data"]
    settings = {key: value for key, value in data.items() if key.startswith("diagnostic.")}
    assert settings == {
        "diagnostic._target_": "experiments.diagnostics.binding.Binding",
        "diagnostic.num_writes": 10,
        "diagnostic.noise": 0.1,
        "diagnostic.num_queries": 4,
        "diagnostic.num_values": 32,
        "diagnostic.key_dim": 3,
    }
    assert "diagnostic" not in data
    assert (data["batch_size"], data["num_test_batches"]) == (32, 20)


def test_a_default_of_a_diagnostic_that_changed_since_is_refused(tmp_path):
    check_unchanged(tmp_path, DIAGNOSTIC)
    check_unchanged(tmp_path, changed("data.diagnostic.num_queries", 4, DIAGNOSTIC))
    path = tmp_path / "effective.json"
    effective = json.loads(path.read_text())
    # As if the run had been made when key_dim, which no key of the config names, had another default.
    effective["data"]["diagnostic.key_dim"] = 2
    path.write_text(json.dumps(effective))
    with pytest.raises(ConfigChangedError, match=r"data\.diagnostic\.key_dim=2, which is 3 now"):
        check_unchanged(tmp_path, DIAGNOSTIC)


@pytest.mark.parametrize("written", [{}, {"write": "gaussian"}, {"sigma_scale": 1}])
@pytest.mark.parametrize("left", ["as it was given", "as the mapping that it was"])
def test_a_run_goes_on_however_its_memory_options_are_written(written, left, tmp_path):
    """What has one hash has one folder, and none of its spellings may bar it: also not that of an older file."""
    defaults = changed("model.network.memory_options", {})
    assert config_hash(changed("model.network.memory_options", written)) == config_hash(defaults)
    check_unchanged(tmp_path, changed("model.network.memory_options", written))
    if left == "as the mapping that it was":
        path = tmp_path / "effective.json"
        effective = json.loads(path.read_text())
        network = {k: v for k, v in effective["network"].items() if not k.startswith("memory_options")}
        path.write_text(json.dumps(effective | {"network": network | {"memory_options": written}}))
    for again in ({}, written):
        check_unchanged(tmp_path, changed("model.network.memory_options", again))
    with pytest.raises(ConfigChangedError, match=r"network\.memory_options\.update='factorised', which is 'pointwise'"):
        check_unchanged(tmp_path, changed("model.network.memory_options", {"update": "pointwise"}))


def test_an_option_of_the_memory_whose_default_changed_since_is_refused(tmp_path):
    config = changed("model.network.memory_options", {})
    check_unchanged(tmp_path, config)
    path = tmp_path / "effective.json"
    effective = json.loads(path.read_text())
    effective["network"]["memory_options.update"] = "pointwise"
    path.write_text(json.dumps(effective))
    with pytest.raises(ConfigChangedError, match=r"memory_options\.update='pointwise', which is 'factorised' now"):
        check_unchanged(tmp_path, config)


def test_the_order_of_keys_does_not_change_the_hash():
    reordered = changed("model.network", dict(reversed(CONFIG["model"]["network"].items())))
    assert config_hash(reordered) == config_hash(CONFIG)


def test_a_default_that_differs_in_kind_is_no_default():
    # 1 == True in Python, but a flag is not a number.
    assert "gamma" in scientific_config(changed("model.network.gamma", False))["network"]


def test_the_hash_is_pinned():
    """Folders are found again by this hash: a change here orphans every run made before it."""
    assert config_hash(CONFIG) == "330a4331d1"
    assert config_hash(DIAGNOSTIC) == "aa9d21c431"


def test_the_folder_names_experiment_model_seed_and_hash():
    assert run_folder(CONFIG).as_posix() == f"outputs/wikitext/tensor-seed0-{config_hash(CONFIG)}"


def test_two_processes_cannot_hold_one_folder(tmp_path):
    hold = (
        "import sys, pathlib\nfrom experiments.runs import exclusive\n"
        "with exclusive(pathlib.Path(sys.argv[1])):\n    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunInUseError, match="in use by another process"), exclusive(tmp_path):
            pass
    finally:
        holder.kill()
        holder.wait()
    # The lock went with its process.
    with exclusive(tmp_path):
        pass


@pytest.mark.parametrize("left", ["", '{"data": '])
def test_an_effective_config_that_is_not_whole_is_named(left, tmp_path):
    check_unchanged(tmp_path, DIAGNOSTIC)
    assert [path.name for path in tmp_path.iterdir()] == ["effective.json"]
    (tmp_path / "effective.json").write_text(left)
    with pytest.raises(ConfigChangedError, match=r"effective\.json can't be read.*move the folder away"):
        check_unchanged(tmp_path, DIAGNOSTIC)


def test_a_file_system_without_locks_is_not_another_process(tmp_path, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(runs.fcntl, "flock", flock)
    with pytest.raises(OSError, match=r"can't be locked.*runs\.root"), exclusive(tmp_path / "run"):
        pass


def test_the_memorys_options_are_arguments_too():
    """At a default they change no hash, nor does how a number is written; all defaults are noted."""

    def with_options(**options):
        network = {"_target_": "tensormem.models.language.TensorLM", "dim": 8, "memory_options": options}
        return changed("model.network", network)

    assert config_hash(with_options()) == config_hash(with_options(sigma_scale=1.0, write="gaussian"))
    assert config_hash(with_options(sigma_scale=2)) == config_hash(with_options(sigma_scale=2.0))
    assert config_hash(with_options(sigma_scale=2)) != config_hash(with_options())
    assert effective_config(with_options())["network"]["memory_options.sigma_scale"] == 1.0
