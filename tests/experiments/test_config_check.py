"""Mistaken configs are refused with the key's full path and the nearest valid name."""

import pytest
from pytorch_lightning.accelerators import CUDAAccelerator, MPSAccelerator

from experiments.config_check import ConfigError, check_config, check_overrides, parameters_of
from experiments.train import resolve
from tests.experiments.composing import composed


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("trainig.steps=3", r"trainig\.steps is unknown; did you mean training\.steps\?"),
        ("training.step=3", r"training\.step is unknown; did you mean training\.steps\?"),
        ("model.network.num_layer=3", r"did you mean model\.network\.num_layers\?"),
        ("vocabulary=paper", r"vocabulary is unknown; did you mean data\.vocabulary\?"),
        ("model=language/tensr", r"model=language/tensr: no such choice; did you mean language/tensor\?"),
        (
            "model=tensor",
            r"no such choice; did you mean diagnostics/tensor or language/tensor or video/tensor or vision/tensor\?",
        ),
        ("model=slots", r"model=slots: no such choice; did you mean diagnostics/slots\?"),
        ("scale=huge", r"scale=huge: no such choice"),
        ("model=language/nope", r"no such choice; known are base, base_sln, .*transformer_xl$"),
        (
            "model=vision/base",
            r"model=vision/base: experiment=wikitext trains models of model/language/: base, .*tensor,",
        ),
        ("model=language/base,video/base", r"model=video/base: experiment=wikitext trains"),
        ("steps=converge", r"steps=converge: this experiment has no group steps.*experiment="),
        ("size.memory.grid=[8,8,8", r"size\.memory\.grid=\[8,8,8: "),
        ("model", r"'model' is no override: write KEY=VALUE"),
        ("modle=language/tensor", r"modle is unknown; did you mean model\?"),
    ],
)
def test_an_override_of_what_does_not_exist(override, message):
    with pytest.raises(ConfigError, match=message):
        check_overrides([override])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "data.diagnostic.num_writs=3",
            r"data\.diagnostic\.num_writs is unknown; did you mean data\.diagnostic\.num_writes\?",
        ),
        ("diagnostic=bindng", r"diagnostic=bindng: no such choice; did you mean binding\?"),
        ("steps=convrge", r"steps=convrge: no such choice; did you mean converge\?"),
        ("model=diagnostics/ablations/tensor_2", r"did you mean diagnostics/ablations/tensor_2d\?"),
    ],
)
def test_an_override_of_a_diagnostic_that_does_not_exist(override, message):
    with pytest.raises(ConfigError, match=message):
        check_overrides(["experiment=diagnostics", override])


@pytest.mark.parametrize(
    "overrides",
    [
        ["model=language/tensor", "scale=cpu", "seed=0,1,2", "training.steps=5"],
        ["+sweep=wikitext", "model=language/base,language/tensor"],
        ["+model.network.memory_options.update=pointwise", "model=language/tensor"],
        ["model.network.memory_grid=[4,4]", "model=language/tensor"],
        ["hydra.sweep.dir=somewhere", "corpus=synthetic", "data.markov.order=2"],
        ["experiment=diagnostics", "diagnostic=recall", "data.diagnostic.num_pairs=4,8", "steps=converge"],
        ["experiment=cub200", "model=vision/base,vision/tensor", "~logger"],
        ["experiment=diagnostics", "+sweep=diagnostics/binding", "model=diagnostics/ablations/tensor_2d"],
    ],
)
def test_what_exists_passes(overrides):
    check_overrides(overrides)


@pytest.fixture
def mine(tmp_path):
    """A folder outside the checkout with a model in it, laid out as conf/ is."""
    (tmp_path / "model" / "language").mkdir(parents=True)
    text = "defaults: [/model/language/base@_here_, _self_]\nname: mine\nnetwork: {depth: 3}\n"
    (tmp_path / "model" / "language" / "mine.yaml").write_text(text)
    return tmp_path


def test_a_folder_outside_the_checkout_adds_choices_and_keys(mine):
    overrides = ["model=language/mine", "model.network.depth=4"]
    check_overrides(overrides, config_dir=str(mine))
    check_overrides([*overrides, f"hydra.searchpath=[file://{mine}]"])
    with pytest.raises(ConfigError, match=r"model=language/mine: no such choice"):
        check_overrides(overrides)
    with pytest.raises(ConfigError, match=r"model\.network\.dept is unknown; did you mean model\.network\.depth\?"):
        check_overrides(["model=language/mine", "model.network.dept=4"], config_dir=str(mine))
    with pytest.raises(ConfigError, match=r"did you mean language/mine\?"):
        check_overrides(["model=language/mime"], config_dir=str(mine))
    # What is in the checkout is still there.
    check_overrides(["model=language/tensor"], config_dir=str(mine))


def test_a_config_dir_that_is_no_folder_is_named():
    with pytest.raises(ConfigError, match=r"--config-dir=nowhere: no such folder"):
        check_overrides(["seed=1"], config_dir="nowhere")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "+model.network.memory_options.updat=pointwise",
            r"memory_options\.updat is unknown; did you mean .*\.update\?",
        ),
        ("+model.network.memory_options.update=point", r"memory_options\.update='point'.*'factorised'"),
    ],
)
def test_an_option_of_the_memory(override, message):
    with pytest.raises(ConfigError, match=message):
        check_config(resolve(composed("model=language/tensor", override)))


@pytest.mark.parametrize("name", ["gpu", "cuda"])
def test_an_accelerator_that_is_not_there(name, monkeypatch):
    for kind in (CUDAAccelerator, MPSAccelerator):
        monkeypatch.setattr(kind, "is_available", staticmethod(lambda: False))
    with pytest.raises(ConfigError, match=rf"trainer\.accelerator={name}: none is found here; use cpu, or auto"):
        check_config(resolve(composed(f"trainer.accelerator={name}")))
    check_config(resolve(composed("trainer.accelerator=auto")))


def test_slurm_where_there_is_none(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(ConfigError, match=r"hydra/launcher=submitit_slurm: there is no srun here"):
        check_overrides(["hydra/launcher=submitit_slurm"])
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    check_overrides(["hydra/launcher=submitit_slurm"])


@pytest.mark.parametrize("target", ["nowhere.MyLM", "tensormem.models.language.MyLM"])
def test_a_class_that_is_not_there(target):
    message = rf"model\.network\._target_={target}: .*Give the class as module\.Class.*PYTHONPATH"
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        check_config(resolve(composed(f"model.network._target_={target}")))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed=abc", r"seed='abc'.*integer"),
        ("seed=1.0", r"seed=1\.0.*integer"),
        ("seed=-1", r"seed=-1: must not be negative"),
        ("seed=5000000000", r"seed=5000000000: must be less than 4294967296"),
        ("training.steps=abc", r"training\.steps='abc'.*integer"),
        ("training.steps=2.0", r"training\.steps=2\.0"),
        ("training.learning_rate=fast", r"training\.learning_rate='fast'.*number"),
        ("model.network.dim=wide", r"model\.network\.dim='wide'"),
        ("model.network.positions=absolute", r"model\.network\.positions='absolute'.*'learned', 'rope' or 'none'"),
        ("+model.network.num_head=4", r"model\.network\.num_head is unknown; did you mean model\.network\.num_heads\?"),
        ("+data.windows=4", r"data\.windows is unknown; did you mean data\.window\?"),
        ("logger.mode=sometimes", r"logger\.mode='sometimes'"),
        ("trainer.log_every=0", r"trainer\.log_every=0: must be at least 1"),
        ("trainer.devices=0", r"trainer\.devices=0: must be at least 1"),
        ("training.precision=float16", r"training\.precision='float16'.*'32-true'"),
        ("+model.network.mlp_ration=4", r"did you mean model\.network\.mlp_ratio\?"),
    ],
)
def test_a_value_of_the_wrong_kind(override, message):
    with pytest.raises(ConfigError, match=message):
        check_config(resolve(composed(override)))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.diagnostic.num_writes=many", r"data\.diagnostic\.num_writes='many'.*integer"),
        ("data.diagnostic.noise=loud", r"data\.diagnostic\.noise='loud'.*number"),
        (
            "+data.diagnostic.num_writs=3",
            r"data\.diagnostic\.num_writs is unknown; did you mean data\.diagnostic\.num_writes\?",
        ),
        ("data.diagnostic._target_=experiments.Bindng", r"data\.diagnostic\._target_=experiments\.Bindng: "),
        ("data.num_test_batches=few", r"data\.num_test_batches='few'.*integer"),
    ],
)
def test_a_diagnostics_value_of_the_wrong_kind(override, message):
    with pytest.raises(ConfigError, match=message):
        check_config(resolve(composed("experiment=diagnostics", override)))


def test_what_a_class_passes_on_is_known():
    known = parameters_of("tensormem.models.language.BaseWideLM")
    assert {"vocab_size", "memory_grid", "dropout", "attn_dropout", "init", "max_length"} <= set(known)
