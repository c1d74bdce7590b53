"""Masked autoencoders: what is seen, in which order, and what the decoder is given."""

from __future__ import annotations

import pytest
import timm
import torch

from tensormem.models.vision import BaseMAE, TensorMAE, load_timm
from tests.helpers import EXACT_FLOAT64, FLOAT32, assert_close, randomise

SIZES = {"image_size": 24, "patch": 6, "decoder_dim": 8, "decoder_layers": 1, "decoder_heads": 2}
ENCODER = {"dim": 12, "num_layers": 3, "num_heads": 2, "drop_path": 0.0}
NUM_PATCHES, OUTPUTS = 16, 3 * 36
KINDS = {
    "base": lambda **more: BaseMAE(**ENCODER, **SIZES, **more),
    "local": lambda **more: BaseMAE(**ENCODER, **SIZES, half_width=2, **more),
    "registers": lambda **more: BaseMAE(**ENCODER, **SIZES, num_registers=3, **more),
    "tensor": lambda **more: TensorMAE(
        **ENCODER, **SIZES, memory_channels=2, memory_grid=(2, 3), memory_chunk=4, **more
    ),
}


def make(kind, **more):
    model = KINDS[kind](**more).double().eval()
    randomise(model, torch.Generator().manual_seed(0))
    return model


def make_images(batch=3, seed=1):
    return torch.rand(batch, 3, 24, 24, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def make_noise(batch=3, seed=2):
    return torch.rand(batch, NUM_PATCHES, generator=torch.Generator().manual_seed(seed))


def hide(noise, count=10):
    """The patches of the largest noise."""
    return noise.argsort(1).argsort(1) >= NUM_PATCHES - count


def paint(images, hidden, seed=3):
    """Other pixels in the hidden patches."""
    other = make_images(len(images), seed)
    pixels = hidden.reshape(-1, 1, 4, 4).repeat_interleave(6, 2).repeat_interleave(6, 3)
    return torch.where(pixels, other, images)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("token_order", ["raster", "shuffled"])
def test_hidden_patches_have_no_influence_and_visible_ones_have(kind, token_order):
    model, images, noise = make(kind, token_order=token_order), make_images(), make_noise()
    hidden = hide(noise)
    prediction = model(images, hidden, noise)
    assert prediction.shape == (3, NUM_PATCHES, OUTPUTS)
    assert torch.equal(model(paint(images, hidden), hidden, noise), prediction)
    assert (model(paint(images, ~hidden), hidden, noise) - prediction).abs().max() > 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_reaches_every_parameter(kind):
    model, noise = make(kind).train(), make_noise()
    model(make_images(), hide(noise), noise).square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


@pytest.mark.parametrize(
    ("kind", "matters"), [("base", False), ("registers", False), ("local", True), ("tensor", True)]
)
def test_the_order_matters_to_those_that_have_one(kind, matters):
    """Attention to all sees a set; a window and a memory see a sequence, random patches in it where it is shuffled."""
    raster, shuffled = make(kind), make(kind, token_order="shuffled")
    images, noise = make_images(), make_noise()
    hidden = hide(noise)
    one, other = raster(images, hidden), shuffled(images, hidden, noise)
    if matters:
        assert (one - other).abs().max() > 1e-6
    else:
        assert_close(other, one, "prediction", EXACT_FLOAT64)


def test_raster_order_is_that_of_the_image():
    model, hidden = make("base"), hide(make_noise())
    places = model._places(hidden, 6, None)
    for row, seen in zip(places, ~hidden, strict=True):
        assert row.tolist() == seen.nonzero().flatten().tolist()


def test_shuffled_order_is_that_of_the_noise():
    model, noise = make("base", token_order="shuffled"), make_noise()
    hidden = hide(noise)
    places = model._places(hidden, 6, noise)
    for row, values, unseen in zip(places, noise, hidden, strict=True):
        assert not unseen[row].any()
        assert values[row].tolist() == sorted(values[row].tolist())


def test_registers_never_reach_the_decoder():
    model, noise = make("registers"), make_noise()
    hidden = hide(noise)
    encoded = model.encode(make_images(), model._places(hidden, 6, None))
    assert encoded.shape[1] == 1 + 6
    before = model.stack(torch.zeros(1, 10, 12, dtype=torch.float64))[0]
    assert before.shape[1] == 10
    assert len(model.registers) == 3


def test_the_decoder_puts_each_patch_in_its_place():
    """Without a mask token's share, a visible patch's vector stands at its own position: swap two and see."""
    model, noise = make("base"), make_noise(1)
    hidden = hide(noise)
    places = model._places(hidden, 6, None)
    encoded = model.encode(make_images(1), places)
    order = torch.tensor([0, 3, 2, 1, 4, 5, 6])
    swapped = places[:, order[1:] - 1]
    assert_close(
        model.decoder(encoded[:, order], hidden, swapped),
        model.decoder(encoded, hidden, places),
        "pixels",
        EXACT_FLOAT64,
    )
    assert (
        model.decoder(encoded[:, order], hidden, places) - model.decoder(encoded, hidden, places)
    ).abs().max() > 1e-6


def test_a_state_for_each_layer_counts_as_often():
    one, each = (make("tensor", threading=threading) for threading in ("depth", "layer"))
    assert each.state_bytes(7) == len(each.gates) * one.state_bytes(7) > one.state_bytes(7) > 0


def test_the_memory_stands_in_every_second_block_and_its_gates_are_named_by_layer():
    model = make("tensor")
    assert list(model.gates) == ["0", "2"]
    assert model.streaming == "none"
    assert model.state_bytes(7) == model.stack.memory.state_bytes()
    assert make("base").gates == {}
    assert make("base").state_bytes(7) == 0


@pytest.mark.parametrize(
    ("colours", "given"),
    [
        # ImageNet's, which the model itself normalises by, and those of many of timm's weights.
        (((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), False),
        (((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)), True),
        (((0.1, 0.5, 0.9), (0.2, 1.0, 0.4)), True),
    ],
)
def test_a_timm_vits_weights_give_its_features(colours, given):
    torch.manual_seed(0)
    theirs = timm.models.VisionTransformer(
        img_size=24, patch_size=6, embed_dim=12, depth=3, num_heads=2, num_classes=5
    ).eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    ours = KINDS["base"]().eval()
    load_timm(ours, theirs.state_dict(), *(colours if given else ()))
    images = make_images().float()
    everything = torch.arange(NUM_PATCHES).expand(3, -1)
    with torch.no_grad():
        mean, deviation = map(torch.tensor, colours)
        expected = theirs.forward_features((images - mean[:, None, None]) / deviation[:, None, None])
        assert_close(ours.encode(images, everything), expected, "features", FLOAT32)


def test_weights_of_another_model_are_refused_by_name():
    theirs = timm.models.VisionTransformer(img_size=24, patch_size=6, embed_dim=16, depth=3, num_heads=2).state_dict()
    with pytest.raises(ValueError, match=r"patch_embed.proj.weight has shape \(16, .*embedding.weight has \(12, "):
        load_timm(KINDS["base"](), theirs)
    with pytest.raises(ValueError, match=r"patch_embed\.proj\.weight is missing"):
        load_timm(KINDS["base"](), {})


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"patch": 5}, "patch=5 must divide image_size=24"),
        ({"token_order": "random"}, r"token_order='random' is unknown.*raster.*shuffled"),
        ({"target": "latents"}, r"target='latents' is unknown.*pixels.*normalised"),
        ({"init": "xavier"}, r"init='xavier' is unknown"),
        ({"num_registers": -1}, "num_registers=-1 must not be negative"),
    ],
)
def test_a_wrong_setting_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        BaseMAE(**(ENCODER | SIZES | changes))


@pytest.mark.usefixtures("unchecked")
def test_wrong_inputs_are_named():
    model, noise = make("base"), make_noise()
    with pytest.raises(ValueError, match=r"images of \(12, 12\) pixels; this model takes 24"):
        model(make_images()[:, :, :12, :12], hide(noise))
    uneven = hide(noise)
    uneven[0] = True
    with pytest.raises(ValueError, match="every image of a batch must hide as many patches"):
        model(make_images(), uneven)
    with pytest.raises(ValueError, match="token_order=shuffled needs the noise"):
        make("base", token_order="shuffled")(make_images(), hide(noise))
