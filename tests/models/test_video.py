"""Models of videos: what is carried from frame to frame, what is kept for the backward pass, frozen backbones."""

from __future__ import annotations

import math

import pytest
import timm
import torch
from torch import nn

from tensormem.models.frames import BackboneError, FrozenFrames
from tensormem.models.video import BaseVideo, BaseWideVideo, RegistersVideo, TensorVideo
from tests.helpers import EXACT_FLOAT64, FLOAT32, assert_all_close, assert_close, gradients, randomise

SIZES = {"dim": 12, "num_layers": 3, "num_heads": 2, "num_classes": 5, "num_frames": 6, "image_size": 24, "patch": 6}
MEMORY = {"memory_channels": 2, "memory_grid": (2, 3), "memory_chunk": 4}
KINDS = {
    "base": lambda **more: BaseVideo(**(SIZES | more)),
    "registers": lambda **more: RegistersVideo(**(SIZES | {"num_registers": 3} | more)),
    "tensor": lambda **more: TensorVideo(**(SIZES | MEMORY | more)),
    "tensor_layer": lambda **more: TensorVideo(**(SIZES | MEMORY | {"threading": "layer"} | more)),
}
STREAMING = [kind for kind in KINDS if kind != "base"]


def make(kind, **more):
    model = KINDS[kind](**more).double().eval()
    randomise(model, torch.Generator().manual_seed(0))
    return model


def make_frames(num_frames=4, batch=2, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(batch, num_frames, 3, 24, 24, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("kind", KINDS)
def test_embeddings_and_blocks_start_the_same_for_every_model(kind):
    torch.manual_seed(3)
    base = BaseVideo(**SIZES).state_dict()
    torch.manual_seed(3)
    other = KINDS[kind]().state_dict()
    shared = {name for name in base if name.startswith(("class_token", "positions", "times"))}
    assert len(shared) == 3
    assert {name: value.shape for name, value in base.items()}.items() <= {n: v.shape for n, v in other.items()}.items()
    for name in ("class_token", "positions", "times", "stack.blocks.0.mixer.qkv.weight", "readout.weight"):
        # A deviation within a fifth: the smallest has a dozen numbers.
        wanted = 0.02
        assert float(other[name].std()) == pytest.approx(wanted, rel=0.5 if other[name].numel() < 100 else 0.2), name
    end = other["stack.blocks.1.mlp.output.weight"]
    assert float(end.std()) == pytest.approx(0.02 / math.sqrt(6), rel=0.2)


def test_the_memory_keeps_its_own_initialisation():
    memory = KINDS["tensor"]().stack.memory
    assert torch.equal(memory.spread.bias, torch.ones(1))
    assert float(memory.summary.weight.detach().std()) == pytest.approx(1 / math.sqrt(3 * 48), rel=0.2)


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_frames_is_known_by_their_times_or_by_what_is_carried(kind):
    frames, order = make_frames(), [2, 0, 3, 1]
    for times in ("learned", "none"):
        model = make(kind, times=times)
        difference = (model(frames[:, order])[0] - model(frames)[0]).abs().max()
        # Joint attention is blind to the order but for the times.
        assert (difference > 1e-6) == (kind != "base" or times == "learned"), times


@pytest.mark.parametrize("kind", KINDS)
def test_times_end_where_they_were_learned_and_without_them_there_is_no_end(kind):
    with pytest.raises(ValueError, match=r"frame 6 is beyond the num_frames=6 .* times=none"):
        make(kind)(make_frames(7))
    assert make(kind, times="none")(make_frames(7))[0].isfinite().all()


@pytest.mark.parametrize("kind", STREAMING)
def test_a_frame_that_goes_on_beyond_the_learned_times_is_refused_in_streaming_too(kind):
    model = make(kind)
    _, state = model(make_frames(6))
    with pytest.raises(ValueError, match="times=none"):
        model(make_frames(1), state)


@pytest.mark.parametrize("kind", STREAMING)
def test_the_state_has_one_size_however_long_the_video(kind):
    model = make(kind, times="none")

    def sizes(state):
        if isinstance(state, torch.Tensor):
            return [state.shape]
        return [size for part in state for size in sizes(part)]

    assert sizes(model(make_frames(1))[1]) == sizes(model(make_frames(9))[1])
    assert model.state_bytes(1) == model.state_bytes(1000)


def test_what_joint_attention_must_keep_grows_with_the_video():
    model = make("base")
    assert model.state_bytes(34) == 2 * model.state_bytes(17) == 4 * 34 * 12


@pytest.mark.parametrize("kind", ["tensor", "tensor_layer"])
def test_every_layer_writes_whole_chunks_and_a_padded_one_at_each_frames_end(kind, monkeypatch):
    """17 vectors of a frame are 5 chunks of 4, as the published 197 are 25 of 8."""
    model, written = make(kind), []
    memory = model.stack.memory
    scan = memory._scan
    monkeypatch.setattr(
        memory,
        "_scan",
        lambda inputs, h, c: (written.append(inputs.content.shape[1]), scan(inputs, h, c))[1],
    )
    _, state = model(make_frames(2))
    assert sum(written) == 2 * 3 * 5
    assert all(int(each.pending) == 0 for each in state.carried)
    assert len(state.carried) == (1 if kind == "tensor" else 3)


def test_registers_keep_their_size():
    model = RegistersVideo(**SIZES, times="none").double().eval()
    _, few = model(make_frames(2))
    _, many = model(make_frames(30))
    norms = [state.carried[0].norm(dim=-1) for state in (few, many)]
    assert_close(norms[1], norms[0], "norm of the registers", 0.02)


@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize("kind", KINDS)
def test_recomputed_activations_change_neither_logits_nor_gradients(kind, training):
    frames, results = make_frames(), []
    for recompute in (False, True):
        model = make(kind, recompute=recompute, dropout=0.3, drop_path=0.3).train(training)
        torch.manual_seed(5)
        logits, _ = model(frames)
        results.append(gradients({"logits": logits}, model.named_parameters(), torch.Generator().manual_seed(2)))
        results[-1]["logits"] = logits.detach()
    assert_all_close(results[1], results[0], EXACT_FLOAT64)


def kept_bytes(model, frames):
    """What autograd keeps for the backward pass, without the parameters and the frames themselves."""
    kept: dict[int, int] = {}
    known = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    known.add(frames.untyped_storage().data_ptr())

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logits, state = model(frames)
    assert logits.requires_grad
    del state
    return sum(kept.values())


@pytest.mark.parametrize("kind", STREAMING)
def test_what_is_kept_for_the_backward_pass_grows_by_little_more_than_a_state_a_frame(kind):
    frames = make_frames(20, batch=1)

    def growth(recompute):
        model = make(kind, times="none", recompute=recompute).train()
        return (kept_bytes(model, frames) - kept_bytes(model, frames[:, :4])) / 16

    # In float64, a state has twice the bytes that state_bytes tells.
    state = 2 * KINDS[kind]().state_bytes(1)
    assert growth(recompute=True) < 1.5 * state
    assert growth(recompute=False) > 10 * state


def test_the_gates_are_named_by_layer():
    model = make("tensor", memory_every=2)
    assert list(model.gates) == ["0", "2"]
    assert make("base").gates == {}


def test_base_wide_takes_the_size_of_tensor():
    sizes = SIZES | {"dim": 48, "num_heads": 4}
    wide, tensor = BaseWideVideo(**sizes, **MEMORY), TensorVideo(**sizes, **MEMORY)
    counts = [sum(parameter.numel() for parameter in model.parameters()) for model in (wide, tensor)]
    assert counts[0] == pytest.approx(counts[1], rel=0.01)


def make_frozen(kind="tensor", **more):
    # timm's smallest vision Transformer, for tests; 32 pixels are two patches a side.
    return KINDS[kind](image_size=32, backbone="test_vit", **more)


@pytest.mark.parametrize("kind", KINDS)
def test_a_frozen_backbone_gives_each_frame_one_vector_beside_the_class_token(kind):
    torch.manual_seed(0)
    model = make_frozen(kind)
    frames = torch.rand(2, 4, 3, 32, 32)
    assert model.embed(frames, 0).shape == (2, 4, 2, 12)
    logits, _ = model.train()(frames)
    logits.square().sum().backward()
    frozen = {name: p for name, p in model.named_parameters() if name.startswith("embedding.backbone.")}
    assert frozen
    assert not any(p.requires_grad or p.grad is not None for p in frozen.values())
    assert model.embedding.projection.weight.grad.any()
    assert not model.embedding.backbone.training


def test_the_feature_is_timms_pooled_one_of_normalised_colours():
    torch.manual_seed(0)
    embedding = FrozenFrames(12, 32, "test_vit", pretrained=False)
    nn.init.eye_(embedding.projection.weight)
    nn.init.zeros_(embedding.projection.bias)
    backbone, frames = embedding.backbone, torch.rand(3, 3, 32, 32)
    # That model's colours run from -1 to 1.
    assert (embedding.mean, embedding.deviation) == ((0.5,) * 3, (0.5,) * 3)
    expected = backbone.forward_head(backbone.forward_features(2 * frames - 1), pre_logits=True)
    assert_close(embedding(frames)[:, 0], expected[:, :12], "features", FLOAT32)


def test_weights_that_can_not_be_had_are_an_error_that_says_so(monkeypatch):
    def unreachable(*arguments, **options):
        assert options["pretrained"]
        raise OSError("no route to host")

    monkeypatch.setattr(timm, "create_model", unreachable)
    with pytest.raises(BackboneError, match=r"pretrained=true: .* test_vit can't be had \(OSError: no route.*HF_HOME"):
        make_frozen(pretrained=True)


def test_wrong_backbones_are_named():
    with pytest.raises(BackboneError, match=r"backbone='vit_tiny_patch1': timm .* has no such model"):
        KINDS["base"](backbone="vit_tiny_patch1")
    with pytest.raises(BackboneError, match="backbone='test_resnet' takes no image_size=24"):
        KINDS["base"](backbone="test_resnet")
    with pytest.raises(ValueError, match="pretrained=true needs a backbone"):
        KINDS["base"](pretrained=True)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"patch": 5}, "patch=5 must divide image_size=24"),
        ({"num_classes": 0}, "num_classes=0 must be at least 1"),
        ({"num_frames": 0}, "num_frames=0 must be at least 1"),
        ({"times": "sine"}, r"times='sine' is unknown.*learned.*none"),
        ({"init": "xavier"}, r"init='xavier' is unknown.*tuned.*paper"),
        ({"num_layers": 0}, "num_layers=0 must be at least 1"),
    ],
)
def test_a_wrong_setting_is_named(kind, changes, message):
    with pytest.raises(ValueError, match=message):
        KINDS[kind](**changes)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("kind", KINDS)
def test_wrong_frames_are_named(kind):
    model = make(kind)
    with pytest.raises(ValueError, match=r"frames of \(12, 12\) pixels; this model takes 24 a side"):
        model(make_frames()[..., :12, :12])
    with pytest.raises(ValueError, match="no logits before the first frame"):
        model(make_frames(0))


@pytest.mark.usefixtures("unchecked")
def test_wrong_states_and_registers_are_named():
    _, state = make("tensor")(make_frames(1))
    with pytest.raises(ValueError, match="joint attention carries no state"):
        make("base")(make_frames(1), state)
    with pytest.raises(ValueError, match=r"the state is of 2 videos, but there are frames of 3: .*init_state\(3\)"):
        make("tensor")(make_frames(1, batch=3), state)
    with pytest.raises(ValueError, match="num_registers=0 must be at least 1"):
        KINDS["registers"](num_registers=0)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_keep_their_precision_under_autocast(kind):
    """bfloat16 has some hundred values from 1 to 2: the likeliest of many classes would often be a tie."""
    model = KINDS[kind](num_classes=300).eval()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(make_frames().float())[0]
    assert logits.dtype == torch.float32
    assert not torch.equal(logits, logits.bfloat16().float())
    assert model.bfloat16()(make_frames().bfloat16())[0].dtype == torch.bfloat16
