"""The language models of conf/model/language/, composed at the scale `smoke` with a tiny vocabulary."""

from __future__ import annotations

from pathlib import Path

import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from experiments import resolvers
from tests.helpers import randomise

CONF = Path(__file__).resolve().parents[2] / "conf"
STEMS = sorted(path.stem for path in (CONF / "model" / "language").glob("*.yaml"))
VOCABULARY, BATCH, LENGTH = 11, 2, 14
POSITIONS = ["learned", "rope", "none"]
_NETWORKS = {}


def network(stem):
    """The model's composed block of the config; composing takes a while, so once per model."""
    if stem not in _NETWORKS:
        resolvers.register()
        with initialize_config_dir(str(CONF), version_base="1.3"):
            _NETWORKS[stem] = compose("config", overrides=[f"model=language/{stem}", "scale=smoke"]).model.network
    return _NETWORKS[stem]


def make(stem, vocab_size=VOCABULARY, **changes):
    """The model of a YAML with some settings changed, in evaluation mode."""
    torch.manual_seed(0)
    return instantiate(network(stem), vocab_size=vocab_size, _convert_="all", **changes).eval()


def make_random(stem, **changes):
    model = make(stem, **changes).double()
    randomise(model, torch.Generator().manual_seed(1))
    return model


def make_tokens(length=LENGTH, vocab_size=VOCABULARY, seed=2):
    return torch.randint(vocab_size, (BATCH, length), generator=torch.Generator().manual_seed(seed))


STREAMING = [stem for stem in STEMS if make(stem).streaming == "token"]
ONE_CALL = [stem for stem in STEMS if make(stem).streaming == "none"]
