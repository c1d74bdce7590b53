"""The chunked cross-entropy against PyTorch's own, outputs and every gradient."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tensormem.losses import chunked_cross_entropy, token_nats
from tests.helpers import BFLOAT16, EXACT_FLOAT64, FLOAT32, assert_close

NUM_TOKENS, DIM, NUM_WORDS = 12, 5, 17
# Slices that divide the 12 rows, that leave a rest, single rows, exactly all, and more than all.
SLICES = [1, 4, 5, 11, 12, 100]


def make_inputs(dtype=torch.float64, scale=1.0):
    generator = torch.Generator().manual_seed(0)
    hidden = scale * torch.randn(NUM_TOKENS, DIM, generator=generator, dtype=torch.float64)
    weight = torch.randn(NUM_WORDS, DIM, generator=generator, dtype=torch.float64)
    targets = torch.randint(NUM_WORDS, (NUM_TOKENS,), generator=generator)
    targets[:3] = targets[0]  # several tokens of one word add up in one row of the weight's gradient
    return hidden.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_(), targets


def plain(hidden, weight, targets):
    return F.cross_entropy(hidden @ weight.T, targets)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("rows", "given"), [(12, 11), (11, 12), (0, 0)])
def test_a_target_too_few_is_refused(rows, given):
    hidden, weight, targets = make_inputs()
    with pytest.raises(ValueError, match=rf"targets has shape \({given},\) and hidden \({rows}, 5\)"):
        chunked_cross_entropy(hidden[:rows], weight, targets[:given])


def test_gradients_are_exact_under_autocast():
    hidden, weight, targets = make_inputs(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = chunked_cross_entropy(hidden, weight, targets)
    got = torch.autograd.grad(loss, (hidden, weight))
    wanted = torch.autograd.grad(plain(hidden, weight, targets), (hidden, weight))
    assert_close(got[0], wanted[0], "gradient of hidden", FLOAT32)
    assert_close(got[1], wanted[1], "gradient of weight", FLOAT32)


# PyTorch resizes a buffer that does not fit, with a warning, and the reuse would be gone without a wrong number.
@pytest.mark.filterwarnings("error:An output with one or more elements was resized")
@pytest.mark.parametrize("slice_size", SLICES)
def test_loss_and_gradients_are_those_of_pytorch(slice_size):
    hidden, weight, targets = make_inputs()
    actual = chunked_cross_entropy(hidden, weight, targets, slice_size)
    expected = plain(hidden, weight, targets)
    assert actual.shape == ()
    assert_close(actual, expected, "loss", EXACT_FLOAT64)
    got, wanted = (torch.autograd.grad(loss, (hidden, weight)) for loss in (actual, expected))
    assert_close(got[0], wanted[0], "gradient of hidden", EXACT_FLOAT64)
    assert_close(got[1], wanted[1], "gradient of weight", EXACT_FLOAT64)


def test_the_default_slice_size_is_not_part_of_the_result():
    hidden, weight, targets = make_inputs()
    assert_close(chunked_cross_entropy(hidden, weight, targets), plain(hidden, weight, targets), "loss", EXACT_FLOAT64)


def test_the_gradients_survive_finite_differences():
    hidden, weight, targets = make_inputs()
    assert torch.autograd.gradcheck(lambda h, w: chunked_cross_entropy(h, w, targets, 5), (hidden, weight))


@pytest.mark.parametrize("trained", ["hidden", "weight", "neither"])
def test_only_what_is_trained_gets_a_gradient(trained):
    hidden, weight, targets = make_inputs()
    hidden.requires_grad_(trained == "hidden")
    weight.requires_grad_(trained == "weight")
    loss = chunked_cross_entropy(hidden, weight, targets, 5)
    expected = plain(hidden, weight, targets)
    assert_close(loss, expected, "loss", EXACT_FLOAT64)
    assert loss.requires_grad == (trained != "neither")
    if trained == "neither":
        return
    wanted = hidden if trained == "hidden" else weight
    (gradient,) = torch.autograd.grad(expected, wanted)
    loss.backward()
    assert_close(wanted.grad, gradient, f"gradient of {trained}", EXACT_FLOAT64)
    assert (weight if trained == "hidden" else hidden).grad is None


@pytest.mark.parametrize("factor", [2.0, -0.3])
def test_a_scaled_loss_has_scaled_gradients(factor):
    hidden, weight, targets = make_inputs()
    got = torch.autograd.grad(factor * chunked_cross_entropy(hidden, weight, targets, 5), (hidden, weight))
    wanted = torch.autograd.grad(factor * plain(hidden, weight, targets), (hidden, weight))
    assert_close(got[0], wanted[0], "gradient of hidden", EXACT_FLOAT64)
    assert_close(got[1], wanted[1], "gradient of weight", EXACT_FLOAT64)


def test_backward_twice_gives_the_same_gradients_twice():
    """The gradients are made in the forward pass: scaling them must not spoil them for the next backward."""
    hidden, weight, targets = make_inputs()
    loss = 3 * chunked_cross_entropy(hidden, weight, targets, 5)
    first = torch.autograd.grad(loss, (hidden, weight), retain_graph=True)
    second = torch.autograd.grad(loss, (hidden, weight))
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])


def test_tied_weights_collect_the_gradients_of_both_uses():
    """As in the language models: the weight embeds the tokens and makes the logits."""
    _, weight, targets = make_inputs()
    tokens = targets.roll(1)
    got = torch.autograd.grad(chunked_cross_entropy(weight[tokens].tanh(), weight, targets, 5), weight)
    wanted = torch.autograd.grad(plain(weight[tokens].tanh(), weight, targets), weight)
    assert_close(got[0], wanted[0], "gradient of the tied weight", EXACT_FLOAT64)


def test_two_losses_of_one_weight_add_up():
    hidden, weight, targets = make_inputs()
    losses = [
        loss(hidden, weight, targets) + loss(2 * hidden, weight, targets.flip(0))
        for loss in (chunked_cross_entropy, plain)
    ]
    got, wanted = (torch.autograd.grad(loss, (hidden, weight)) for loss in losses)
    assert_close(got[0], wanted[0], "gradient of hidden", EXACT_FLOAT64)
    assert_close(got[1], wanted[1], "gradient of weight", EXACT_FLOAT64)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, FLOAT32), (torch.float64, EXACT_FLOAT64)])
def test_extreme_logits_stay_finite(dtype, tolerance):
    hidden, weight, targets = make_inputs(dtype, scale=1e4)
    assert (hidden @ weight.T).abs().max() > 1e4
    actual, expected = chunked_cross_entropy(hidden, weight, targets, 5), plain(hidden, weight, targets)
    assert_close(actual, expected, "loss", tolerance)
    got, wanted = (torch.autograd.grad(loss, (hidden, weight)) for loss in (actual, expected))
    for name, one, other in zip(("hidden", "weight"), got, wanted, strict=True):
        assert_close(one, other, f"gradient of {name}", tolerance)
    assert torch.isfinite(token_nats(hidden, weight, targets, 5)).all()


def test_float32_is_close():
    hidden, weight, targets = make_inputs(torch.float32)
    actual = chunked_cross_entropy(hidden, weight, targets, 5)
    expected = plain(hidden, weight, targets)
    assert actual.dtype == torch.float32
    assert_close(actual, expected, "loss", FLOAT32)
    got, wanted = (torch.autograd.grad(loss, (hidden, weight)) for loss in (actual, expected))
    for name, one, other in zip(("hidden", "weight"), got, wanted, strict=True):
        assert_close(one, other, f"gradient of {name}", FLOAT32)


def test_bfloat16_hidden_vectors_with_a_float32_weight_are_near():
    """What a model under autocast hands over; bfloat16 has 8 bits, so about half a percent per product."""
    exact_hidden, exact_weight, targets = make_inputs()
    expected = plain(exact_hidden, exact_weight, targets)
    hidden = exact_hidden.detach().bfloat16().requires_grad_()
    weight = exact_weight.detach().float().requires_grad_()
    loss = chunked_cross_entropy(hidden, weight, targets, 5)
    assert loss.dtype == torch.float32
    loss.backward()
    assert (hidden.grad.dtype, weight.grad.dtype) == (torch.bfloat16, torch.float32)
    assert_close(loss, expected, "loss", BFLOAT16)
    wanted = torch.autograd.grad(expected, (exact_hidden, exact_weight))
    assert_close(hidden.grad, wanted[0], "gradient of hidden", BFLOAT16)
    assert_close(weight.grad, wanted[1], "gradient of weight", BFLOAT16)


def test_inside_autocast_the_loss_stays_in_float32_and_near():
    exact_hidden, exact_weight, targets = make_inputs()
    expected = plain(exact_hidden, exact_weight, targets)
    hidden, weight = (tensor.detach().float().requires_grad_() for tensor in (exact_hidden, exact_weight))
    with torch.autocast("cpu", torch.bfloat16):
        loss = chunked_cross_entropy(hidden, weight, targets, 5)
        nats = token_nats(hidden, weight, targets, 5)
    loss.backward()
    assert loss.dtype == nats.dtype == torch.float32
    assert_close(loss, expected, "loss", BFLOAT16)
    assert_close(nats.mean(), expected, "mean of the nats", BFLOAT16)
    wanted = torch.autograd.grad(expected, (exact_hidden, exact_weight))
    assert_close(hidden.grad, wanted[0], "gradient of hidden", BFLOAT16)
    assert_close(weight.grad, wanted[1], "gradient of weight", BFLOAT16)


@pytest.mark.parametrize("slice_size", SLICES)
def test_token_nats_is_the_unreduced_cross_entropy(slice_size):
    hidden, weight, targets = make_inputs()
    expected = F.cross_entropy(hidden @ weight.T, targets, reduction="none")
    assert_close(token_nats(hidden, weight, targets, slice_size), expected.detach(), "nats", EXACT_FLOAT64)


def test_token_nats_keeps_no_tape():
    hidden, weight, targets = make_inputs()
    nats = token_nats(hidden, weight, targets, 5)
    assert not nats.requires_grad
    assert nats.grad_fn is None


@pytest.mark.parametrize("trained_factor", [False, True])
def test_a_second_derivative_is_refused(trained_factor):
    """A gradient penalty must fail aloud: without the second derivative it would train on nothing and look fine."""
    hidden, weight, targets = make_inputs()
    factor = torch.tensor(2.0, dtype=torch.float64, requires_grad=trained_factor)

    def penalised():
        loss = factor * chunked_cross_entropy(hidden, weight, targets, 5)
        (gradient,) = torch.autograd.grad(loss, hidden, create_graph=True)
        (loss + gradient.square().sum()).backward()

    with pytest.raises(RuntimeError, match=r"once_differentiable|twice|second"):
        penalised()


def test_the_inputs_are_left_as_they_were():
    hidden, weight, targets = make_inputs()
    before = hidden.detach().clone(), weight.detach().clone(), targets.clone()
    chunked_cross_entropy(hidden, weight, targets, 5).backward()
    assert all(torch.equal(one, other) for one, other in zip((hidden, weight, targets), before, strict=True))


@pytest.mark.parametrize("target", [NUM_WORDS, -100])
def test_a_target_outside_the_vocabulary_is_an_error(target):
    """-100 is what PyTorch's loss skips; here it must not slip through as a word or as nothing."""
    hidden, weight, targets = make_inputs()
    targets[7] = target
    for loss in (chunked_cross_entropy, token_nats):
        with pytest.raises((RuntimeError, IndexError)):
            loss(hidden, weight, targets, 5)
