"""What the configs can ask for."""

import pytest

from experiments.resolvers import models_of, windows_of
from tests.experiments.composing import choices, composed


def test_all_models_of_a_domain_are_swept():
    assert models_of("language").split(",") == [f"language/{model}" for model in choices("model/language")]


@pytest.mark.parametrize(("window", "batch_size"), [(256, 64), (512, 32), (1024, 16)])
def test_every_length_has_as_many_tokens_a_step(window, batch_size):
    config = composed("+sweep=wikitext_length", "scale=paper", f"data.window={window}")
    assert config.data.batch_size == batch_size
    assert config.model.network.max_length == window


def test_a_length_that_does_not_divide_is_named():
    with pytest.raises(ValueError, match="window 300 does not divide 16384 tokens"):
        windows_of(16384, 300)
