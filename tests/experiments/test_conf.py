"""Every shipped config composes and says what the design says."""

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from experiments.benchmarks import BENCHMARKS
from experiments.resolvers import CONF, resolve
from tests.experiments.composing import choices, composed

SCALES = ["smoke", "cpu", "paper"]
PRESETS = ["small", "base", "large"]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("model", choices("model/language"))
def test_every_model_composes_at_every_scale(model, scale):
    config = composed(f"model=language/{model}", f"scale={scale}")
    resolved = resolve(config)
    assert resolved["model"]["name"] == model
    assert resolved["size"]["name"] == scale
    instantiate(config.training)
    with torch.device("meta"):
        instantiate(config.model.network, vocab_size=30)


def test_no_scale_or_group_is_left_out():
    assert choices("scale") == sorted([*SCALES, "auto"])
    assert choices("scale/wikitext") == choices("scale/diagnostics") == choices("scale/cub200") == sorted(SCALES)
    assert choices("scale/ucf101") == sorted(SCALES)
    assert choices("preset") == sorted(PRESETS)
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
    config = resolve(composed(f"corpus={corpus}"))
    assert config["published"] == {}
    assert config["protocol"]["corpus"] == corpus
    instantiate(composed(f"corpus={corpus}").data)


def test_every_corpus_is_tested():
    assert choices("corpus") == ["shakespeare", "synthetic", "wikitext-2"]


@pytest.mark.parametrize("model", choices("model/language"))
def test_a_sweep_allows_only_what_is_declared_to_read_the_future(model):
    config = resolve(composed("+sweep=wikitext", f"model=language/{model}"))
    assert config["allow_noncausal"] == (model == "tensor_depth")


@pytest.mark.parametrize("model", choices("model/language"))
def test_the_quickstart_composes(model):
    config = resolve(composed("experiment=quickstart", f"model=language/{model}"))
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


def image_model(config):
    """The network of a composed config, without its weights."""
    with torch.device("meta"):
        return instantiate(config.model.network, image_size=config.data.image_size, patch=config.data.patch)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("model", choices("model/vision"))
def test_every_image_model_composes_at_every_scale(model, scale):
    config = composed("experiment=cub200", f"model=vision/{model}", f"scale={scale}")
    assert config.protocol == {"target": "pixels", "token_order": "raster", "init": "tuned", "preset": "small"}
    assert (config.model.name, config.size.name) == (model, scale)
    assert image_model(config).num_patches == (config.data.image_size // config.data.patch) ** 2
    training = instantiate(config.training)
    # Nothing stops early, and the last step is evaluated.
    assert training.patience > training.steps / training.evaluate_every
    assert training.steps % training.evaluate_every == 0


@pytest.mark.parametrize("scale", SCALES)
def test_a_window_and_a_chunk_are_less_than_what_the_encoder_sees(scale):
    """Else local would be base, and the memory would have written nothing by its only read."""
    config = composed("experiment=cub200", "model=vision/local", f"scale={scale}")
    patches = (config.data.image_size // config.data.patch) ** 2
    tokens = 1 + patches - round(config.data.mask_ratio * patches)
    assert 2 * config.model.network.half_width < tokens
    config = composed("experiment=cub200", "model=vision/tensor", f"scale={scale}")
    assert 2 * config.model.network.memory_chunk < tokens


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("scale", SCALES)
def test_the_wide_image_model_has_the_parameters_of_tensor_at_every_size(scale, preset):
    wide, tensor = (
        sum(
            parameter.numel()
            for parameter in image_model(
                composed("experiment=cub200", f"model=vision/{model}", f"scale={scale}", f"preset={preset}")
            ).parameters()
        )
        for model in ("base_wide", "tensor")
    )
    assert abs(wide - tensor) < 0.01 * tensor


def test_the_papers_scale_of_images_has_the_published_settings():
    config = composed("experiment=cub200", "model=vision/tensor", "scale=paper", "preset=base")
    network = config.model.network
    assert (network.dim, network.num_layers, network.num_heads, network.drop_path) == (384, 6, 6, 0.1)
    assert (network.decoder_dim, network.decoder_layers) == (256, 4)
    assert (network.memory_channels, list(network.memory_grid), network.memory_chunk) == (32, [6, 6, 6], 16)
    assert (network.memory_every, network.gamma, network.threading) == (2, -2.0, "depth")
    assert (config.data.image_size, config.data.patch, config.data.batch_size) == (224, 16, 256)
    assert (config.training.learning_rate, config.training.weight_decay, config.training.clip_norm) == (1.5e-4, 0.05, 1)
    assert (config.training.precision, config.data.mask_ratio) == ("bf16-mixed", 0.75)
    assert composed("experiment=cub200", "model=vision/local", "scale=paper").model.network.half_width == 16
    assert composed("experiment=cub200", "model=vision/registers", "scale=paper").model.network.num_registers == 8


def video_model(config):
    """The network of a composed config, without its weights."""
    data = config.data
    sizes = {"num_frames": data.num_frames, "image_size": data.image_size, "patch": data.patch}
    with torch.device("meta"):
        return instantiate(config.model.network, num_classes=101, **sizes)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("model", choices("model/video"))
def test_every_video_model_composes_at_every_scale(model, scale):
    config = composed("experiment=ucf101", f"model=video/{model}", f"scale={scale}")
    assert config.protocol == {"views": 1, "backbone": None, "pretrained": False, "init": "tuned"}
    assert (config.model.name, config.size.name) == (model, scale)
    assert video_model(config).streaming == ("none" if model.startswith("base") else "frame")
    instantiate(config.data)
    training = instantiate(config.training)
    # Nothing stops early, and the last step is evaluated.
    assert training.patience > training.steps / training.evaluate_every
    assert training.steps % training.evaluate_every == 0


@pytest.mark.parametrize("scale", SCALES)
def test_the_wide_video_model_has_the_parameters_of_tensor_at_every_size(scale):
    wide, tensor = (
        sum(
            parameter.numel()
            for parameter in video_model(
                composed("experiment=ucf101", f"model=video/{model}", f"scale={scale}")
            ).parameters()
        )
        for model in ("base_wide", "tensor")
    )
    assert abs(wide - tensor) < 0.01 * tensor


def test_the_papers_scale_of_videos_has_the_published_settings():
    config = composed("experiment=ucf101", "model=video/tensor", "scale=paper")
    network = config.model.network
    assert (network.dim, network.num_layers, network.num_heads) == (384, 12, 6)
    assert (network.dropout, network.drop_path) == (0.1, 0.2)
    assert (network.memory_channels, list(network.memory_grid), network.memory_chunk) == (64, [8, 8, 8], 8)
    assert (network.gamma, network.threading) == (-2.0, "depth")
    data, training = config.data, config.training
    assert (data.image_size, data.patch, data.num_frames, data.batch_size) == (224, 16, 8, 16)
    assert (training.learning_rate, training.weight_decay, training.clip_norm) == (1e-4, 0.05, 1)
    # 50 epochs of the 8,460 clips that train, 5 of them warmup.
    assert (training.steps, training.warmup_steps) == (50 * training.evaluate_every, 5 * training.evaluate_every)
    assert training.evaluate_every == -(-8_460 // data.batch_size)
    assert (training.precision, data.label_smoothing) == ("bf16-mixed", 0.1)
    assert config.published == {"base": 82.12, "tensor": 89.21}


def test_every_experiment_has_its_models_checked_here():
    domains = {BENCHMARKS[experiment].domain for experiment in choices("experiment")}
    assert domains == {"language", "diagnostics", "vision", "video"}
    assert choices("diagnostic") == ["binding", "map_building", "no_harm", "occlusion", "recall"]
    assert choices("steps") == ["converge", "fixed"]
