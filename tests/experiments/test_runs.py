"""The hash and the folder of a run."""

import copy
import subprocess
import sys

import pytest

from experiments.runs import RunInUseError, config_hash, exclusive, run_folder, scientific_config

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


def changed(path: str, value: object) -> dict:
    config = copy.deepcopy(CONFIG)
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


def test_the_order_of_keys_does_not_change_the_hash():
    reordered = changed("model.network", dict(reversed(CONFIG["model"]["network"].items())))
    assert config_hash(reordered) == config_hash(CONFIG)


def test_a_default_that_differs_in_kind_is_no_default():
    # 1 == True in Python, but a flag is not a number.
    assert "gamma" in scientific_config(changed("model.network.gamma", False))["network"]


def test_the_hash_is_pinned():
    """Folders are found again by this hash: a change here orphans every run made before it."""
    assert config_hash(CONFIG) == "330a4331d1"


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
