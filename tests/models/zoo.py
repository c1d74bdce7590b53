"""The models of conf/model/<domain>/, composed at the scale `smoke`, and tiny inputs of each domain's kind.

A new YAML of a known domain is found with no edit here. A new domain needs an entry in DOMAINS: the contract fails
until it has one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from experiments.resolvers import CONF
from tensormem.models.diagnostics import Tokens
from tests.helpers import randomise

BATCH, LENGTH = 2, 14
POSITIONS = ["learned", "rope", "none"]
FOLDERS = sorted(path.name for path in (CONF / "model").iterdir() if path.is_dir())


@cache
def _composed_model(experiment, model):
    """Composing takes a while, so once per model."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("config", overrides=[f"experiment={experiment}", f"model={model}", "scale=smoke"]).model


@dataclass(frozen=True)
class Domain:
    """How the tests make the models of one domain, and what they give them.

    Attributes:
        name: of the folder under conf/model/.
        experiment: the models are composed with it.
        arguments: what the constructors are given besides the YAML, in a run by the data.
        draw: batch, length, dtype and generator to inputs.
        take: inputs, and a slice or list of positions, to the inputs at these positions.
        streaming: stems that must be found and must take a sequence in any split.
        one_call: stems that must be found and must take a sequence whole.
        variants: models that must be found in nested folders.
        whole: stems that must be found and take no sequence but an image or video as a whole, and so have no state to
            be given.
        frames: stems that must be found and must take a video in any split between its frames.
        returns_state: whether models take one input and return their state too.
        choices: further models of sequences, each a stem and a setting that no YAML has.
    """

    name: str
    experiment: str
    arguments: Mapping[str, Any]
    draw: Callable
    take: Callable
    streaming: frozenset[str]
    one_call: frozenset[str]
    variants: frozenset[str] = frozenset()
    whole: frozenset[str] = frozenset()
    frames: frozenset[str] = frozenset()
    returns_state: bool = True
    choices: tuple[str, ...] = ()

    def __repr__(self):
        return self.name

    @cached_property
    def found(self):
        """The stems of the domain's YAMLs."""
        return sorted(path.stem for path in (CONF / "model" / self.name).glob("*.yaml"))

    @cached_property
    def found_whole(self):
        return [stem for stem in self.found if not hasattr(self.make(stem), "init_state")]

    @cached_property
    def found_frames(self):
        return [stem for stem in self.found if self.make(stem).streaming == "frame"]

    @cached_property
    def found_pictures(self):
        """The models of images and videos."""
        return [stem for stem in self.found if stem in {*self.found_whole, *self.found_frames}]

    @cached_property
    def found_sequences(self):
        return [stem for stem in self.found if stem not in self.found_pictures] + list(self.choices)

    @cached_property
    def found_streaming(self):
        return [stem for stem in self.found_sequences if self.make(stem).streaming == "token"]

    @cached_property
    def found_one_call(self):
        return [stem for stem in self.found_sequences if self.make(stem).streaming == "none"]

    @cached_property
    def found_variants(self):
        """The YAMLs of nested folders, such as `ablations/tensor_2d`."""
        folder = CONF / "model" / self.name
        return sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.glob("*/**/*.yaml"))

    def config(self, stem):
        """What the YAML becomes in a composed config."""
        return _composed_model(self.experiment, f"{self.name}/{stem}")

    def make(self, stem, **changes):
        """The model of a YAML with some settings changed, in evaluation mode."""
        stem, *settings = stem.split()
        chosen = dict(setting.split("=") for setting in settings)
        torch.manual_seed(0)
        changes = {"_convert_": "all", **self.arguments, **chosen, **changes}
        return instantiate(self.config(stem).network, **changes).eval()

    def make_random(self, stem, **changes):
        """As `make`, in float64 with random weights: the initial ones (zeros, identities) would hide a mistake."""
        model = self.make(stem, **changes).double()
        randomise(model, torch.Generator().manual_seed(1))
        return model

    def run(self, model, inputs):
        """What a model makes of inputs, without a state."""
        return model(inputs)[0] if self.returns_state else model(*inputs)

    def make_inputs(self, model, length=LENGTH, batch=BATCH, seed=2):
        """Sequences for a model, in its own dtype."""
        dtype = next(model.parameters()).dtype
        return self.draw(batch, length, dtype, torch.Generator().manual_seed(seed))


VOCABULARY = 11


def draw_words(batch, length, dtype, generator):
    return torch.randint(VOCABULARY, (batch, length), generator=generator)


LANGUAGE = Domain(
    name="language",
    experiment="wikitext",
    arguments={"vocab_size": VOCABULARY},
    draw=draw_words,
    take=lambda words, where: words[:, where],
    streaming=frozenset(
        {"base", "base_sln", "base_wide", "linear", "local", "local_rope"}
        | {"tensor", "tensor_local", "tensor_sln", "transformer_xl"}
    ),
    one_call=frozenset({"tensor_depth"}),
    choices=("transformer_xl relative=relative",),
)

NUM_NUMBERS, VOCABULARIES, NUM_CLASSES = 3, (5, 2), 4


def draw_tokens(batch, length, dtype, generator):
    numbers = torch.randn(batch, length, NUM_NUMBERS, generator=generator, dtype=dtype)
    symbols = [torch.randint(size, (batch, length), generator=generator) for size in VOCABULARIES]
    return Tokens(numbers, torch.stack(symbols, dim=-1))


DIAGNOSTICS = Domain(
    name="diagnostics",
    experiment="diagnostics",
    arguments={
        "num_numbers": NUM_NUMBERS,
        "vocabularies": VOCABULARIES,
        "num_classes": NUM_CLASSES,
        "max_length": 3 * LENGTH,
    },
    draw=draw_tokens,
    take=lambda tokens, where: Tokens(*(part[:, where] for part in tokens)),
    streaming=frozenset({"base", "base_wide", "tensor_layer"}),
    one_call=frozenset({"slots", "tensor", "tensor_local"}),
    variants=frozenset(
        f"ablations/tensor_{name}"
        for name in ("2d", "4d", "chunk2", "chunk4", "grid4", "grid8", "hard", "pointwise", "separate", "spread")
    ),
)

IMAGE_SIZE, PATCH = 32, 8


def draw_images(batch, length, dtype, generator):
    """Images, which of their patches are hidden, and the noise that orders the others."""
    del length
    images = torch.rand(batch, 3, IMAGE_SIZE, IMAGE_SIZE, generator=generator, dtype=dtype)
    noise = torch.rand(batch, (IMAGE_SIZE // PATCH) ** 2, generator=generator)
    return images, noise.argsort(1).argsort(1) >= 5, noise


VISION = Domain(
    name="vision",
    experiment="cub200",
    arguments={"image_size": IMAGE_SIZE, "patch": PATCH},
    draw=draw_images,
    take=lambda images, where: pytest.fail("an image is no sequence"),
    streaming=frozenset(),
    one_call=frozenset(),
    whole=frozenset({"base", "base_wide", "local", "registers", "tensor"}),
    returns_state=False,
)


def draw_frames(batch, length, dtype, generator):
    """Videos of so many frames."""
    return torch.rand(batch, length, 3, IMAGE_SIZE, IMAGE_SIZE, generator=generator, dtype=dtype)


VIDEO = Domain(
    name="video",
    experiment="ucf101",
    arguments={
        "num_classes": 4,
        "image_size": IMAGE_SIZE,
        "patch": 2 * PATCH,
        "num_frames": LENGTH,
    },
    draw=draw_frames,
    take=lambda frames, where: frames[:, where],
    streaming=frozenset(),
    one_call=frozenset(),
    whole=frozenset({"base", "base_wide"}),
    frames=frozenset({"registers", "tensor", "tensor_layer"}),
)

DOMAINS = {domain.name: domain for domain in (LANGUAGE, DIAGNOSTICS, VISION, VIDEO)}


def make_words(length=LENGTH, seed=2):
    """Words for a language model."""
    return draw_words(BATCH, length, None, torch.Generator().manual_seed(seed))


def each(kind):
    """Run a test for every model of every domain; kind: `found`, `found_streaming`, `found_one_call`, ..."""
    return pytest.mark.parametrize(
        ("domain", "stem"),
        [
            pytest.param(domain, stem, id=f"{domain.name}-{stem}")
            for domain in DOMAINS.values()
            for stem in getattr(domain, kind)
        ],
    )
