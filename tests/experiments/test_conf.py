"""Every shipped config composes and says what the design says."""

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from experiments import train
from experiments.benchmarks import BENCHMARKS
from experiments.resolvers import CONF
from tests.experiments.composing import choices, composed

SCALES = ["smoke", "cpu", "paper"]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("model", choices("model/language"))
def test_every_model_composes_at_every_scale(model, scale):
    config = composed(f"model=language/{model}", f"scale={scale}")
    resolved = train.resolve(config)
    assert resolved["model"]["name"] == model
    assert resolved["size"]["name"] == scale
    instantiate(config.training)
    with torch.device("meta"):
        instantiate(config.model.network, vocab_size=30)


def test_no_scale_or_group_is_left_out():
    assert choices("scale") == sorted([*SCALES, "auto"])
    assert choices("scale/wikitext") == choices("scale/diagnostics") == sorted(SCALES)
    assert len(choices("model/language")) >= 3


@pytest.mark.parametrize(("cuda", "scale"), [(True, "paper"), (False, "cpu")])
def test_auto_is_the_papers_scale_on_a_gpu(monkeypatch, cuda, scale):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    config = composed()
    assert config.scale.name == "auto"
    assert config.size.name == scale


def test_the_papers_scale_has_the_published_settings():
    config = composed("model=language/tensor_depth", "scale=paper")
    network = config.model.network
    assert (network.dim, network.num_heads, network.num_layers, network.dropout) == (384, 8, 8, 0.2)
    assert (network.memory_channels, list(network.memory_grid), network.memory_chunk) == (32, [8, 8, 8], 16)
    assert (config.data.window, config.data.batch_size) == (512, 32)
    training = config.training
    assert (training.steps, training.warmup_steps, training.learning_rate) == (10_000, 1_000, 3e-4)
    assert (training.weight_decay, training.clip_norm, training.patience) == (0.1, 1.0, 10)


def test_the_published_values_are_those_of_the_published_models():
    assert composed().published == {"base": 130.30, "tensor_depth": 100.07}
    assert set(composed().published) <= set(choices("model/language"))


@pytest.mark.parametrize("corpus", ["shakespeare", "synthetic"])
def test_another_corpus_has_no_published_value(corpus):
    config = train.resolve(composed(f"corpus={corpus}"))
    assert config["published"] == {}
    assert config["protocol"]["corpus"] == corpus
    instantiate(composed(f"corpus={corpus}").data)


def test_every_corpus_is_tested():
    assert choices("corpus") == ["shakespeare", "synthetic", "wikitext-2"]


@pytest.mark.parametrize("model", choices("model/language"))
def test_a_sweep_allows_only_what_is_declared_to_read_the_future(model):
    config = train.resolve(composed("+sweep=wikitext", f"model=language/{model}"))
    assert config["allow_noncausal"] == (model == "tensor_depth")


@pytest.mark.parametrize("model", choices("model/language"))
def test_the_quickstart_composes(model):
    config = train.resolve(composed("experiment=quickstart", f"model=language/{model}"))
    assert (config["name"], config["size"]["name"], config["data"]["corpus"]) == ("quickstart", "tiny", "synthetic")


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("diagnostic", choices("diagnostic"))
def test_every_diagnostic_composes_at_every_scale(diagnostic, scale):
    overrides = [f"diagnostic={diagnostic}", f"scale={scale}", "steps=converge", "model=diagnostics/tensor"]
    config = composed("experiment=diagnostics", *overrides)
    assert config.protocol == {"diagnostic": diagnostic, "steps": "converge"}
    assert config.size.name == scale
    data = instantiate(config.data)
    assert data.diagnostic.name == diagnostic
    with torch.device("meta"):
        instantiate(config.model.network, **data.network_arguments)
    assert set(config.published) <= set(choices("model/diagnostics"))
    # With fixed steps nothing stops early; to convergence there are more steps, and fewer evaluations to wait for.
    fixed = config.sizes.training
    assert OmegaConf.load(CONF / "steps" / "fixed.yaml").training.patience > fixed.steps / fixed.evaluate_every
    assert fixed.steps % fixed.evaluate_every == 0
    converge = instantiate(config.training)
    assert converge.steps > fixed.steps
    assert converge.patience < converge.steps / converge.evaluate_every


def test_every_experiment_has_its_models_checked_here():
    assert {BENCHMARKS[experiment].domain for experiment in choices("experiment")} == {"language", "diagnostics"}
    assert choices("diagnostic") == ["binding", "map_building", "no_harm", "occlusion", "recall"]
    assert choices("steps") == ["converge", "fixed"]
