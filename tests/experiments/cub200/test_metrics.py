"""The metrics of both protocols: their values, their averages, and what they take from the answer."""

from __future__ import annotations

import math

import pytest
import torch
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from experiments.cub200.masks import composite, masked_patches, masked_pixels, paper_composite
from experiments.cub200.metrics import (
    ImageMean,
    MaskedPsnr,
    MaskedSsim,
    PaperPsnr,
    PaperSsim,
    masked_psnr,
    masked_ssim,
    paper_psnr,
    paper_ssim,
)
from experiments.cub200.patches import normalised, patchify, unpatchify
from experiments.cub200.references import mean_colour, zeros
from experiments.cub200.ssim import ssim_paper
from tests.helpers import EXACT_FLOAT64, assert_close

METRICS: dict[type[ImageMean], object] = {
    MaskedPsnr: masked_psnr,
    MaskedSsim: masked_ssim,
    PaperPsnr: paper_psnr,
    PaperSsim: paper_ssim,
}
PATCH = 8

Case = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@pytest.fixture
def case() -> Case:
    """Predictions, images (5, 3, 32, 40) and masks of half of the 20 patches."""
    generator = torch.Generator().manual_seed(0)
    images = 0.2 + 0.6 * torch.rand(5, 3, 32, 40, generator=generator, dtype=torch.float64)
    hidden = masked_patches(torch.rand(5, 20, generator=generator), 0.5)
    target = patchify(images, PATCH)
    # Each image with an error of its own size, some of it outside [0, 1].
    sizes = torch.tensor([0.02, 0.05, 0.1, 0.2, 0.4])[:, None, None]
    predicted = target + sizes * torch.randn(target.shape, generator=generator, dtype=torch.float64)
    return predicted, images, hidden


def change_hidden(images: torch.Tensor, hidden: torch.Tensor, scale: float, shift: float) -> torch.Tensor:
    """The images with another mean and deviation of each hidden patch, and the same visible ones."""
    patches = patchify(images, PATCH)
    mean = patches.mean(dim=2, keepdim=True)
    changed = (patches - mean) * scale + mean + shift
    return unpatchify(torch.where(hidden[..., None], changed, patches), *images.shape[2:])


def test_psnr_is_that_of_the_hidden_pixels(case: Case) -> None:
    predicted, images, hidden = case
    for image in range(5):
        chosen = hidden[image]
        answer, guess = patchify(images, PATCH)[image][chosen], predicted[image][chosen]
        expected = peak_signal_noise_ratio(answer.numpy(), guess.numpy(), data_range=1)
        assert math.isclose(masked_psnr(*case)[image].item(), expected, rel_tol=1e-12)
    spoilt = torch.where(hidden[..., None], predicted, 1e6)
    assert torch.equal(masked_psnr(spoilt, images, hidden), masked_psnr(*case))
    assert masked_psnr(patchify(images, PATCH) + 0.1, images, hidden).sub(20).abs().max() < 1e-9


def test_ssim_is_scikit_images_on_the_hidden_pixels_inside(case: Case) -> None:
    predicted, images, hidden = case
    found = masked_ssim(*case)
    for image in range(5):
        pasted = composite(predicted, images, hidden)[image]
        _, similarity = structural_similarity(
            images[image].numpy(),
            pasted.numpy(),
            full=True,
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
            data_range=1,
            channel_axis=0,
        )
        inside = masked_pixels(hidden, 32, 40)[image, 0].numpy().copy()
        inside[:5] = inside[-5:] = inside[:, :5] = inside[:, -5:] = False
        expected = similarity.mean(axis=0)[inside].mean()
        assert math.isclose(found[image].item(), expected, rel_tol=1e-9)
        # In single precision, as a run has it.
        single = masked_ssim(predicted.float(), images.float(), hidden)[image].item()
        assert abs(single - expected) < 1e-4


def test_the_papers_scores_are_of_the_whole_image_in_the_answers_statistics(case: Case) -> None:
    predicted, images, hidden = case
    pasted = paper_composite(predicted, images, hidden)
    for image in range(5):
        expected = peak_signal_noise_ratio(images[image].numpy(), pasted[image].numpy(), data_range=1)
        assert math.isclose(paper_psnr(*case)[image].item(), expected, rel_tol=1e-12)
    assert_close(paper_ssim(*case), ssim_paper(pasted, images).mean(dim=(1, 2)), "SSIM", EXACT_FLOAT64)


def test_a_perfect_model_is_perfect_under_both_protocols(case: Case) -> None:
    _, images, hidden = case
    target = patchify(images, PATCH)
    ones = torch.ones(5, dtype=torch.float64)
    assert_close(masked_ssim(target, images, hidden), ones, "SSIM", EXACT_FLOAT64)
    assert_close(paper_ssim(normalised(target), images, hidden), ones, "paper SSIM", EXACT_FLOAT64)
    # No error at all counts as one of 1e-12: a result holds no infinite number.
    assert_close(masked_psnr(target, images, hidden), 120 * ones, "PSNR", EXACT_FLOAT64)
    assert_close(paper_psnr(normalised(target), images, hidden), 120 * ones, "paper PSNR", EXACT_FLOAT64)


def test_psnr_does_not_know_the_answers_statistics(case: Case) -> None:
    predicted, images, hidden = case
    changed = change_hidden(images, hidden, scale=0.3, shift=0.15)
    error = predicted - patchify(images, PATCH)
    same_error = patchify(changed, PATCH) + error
    assert not torch.allclose(changed, images)
    assert_close(masked_psnr(same_error, changed, hidden), masked_psnr(*case), "the same error", EXACT_FLOAT64)
    # The paper's score of one and the same output is another one for another answer, though it is as wrong: a flatter
    # answer makes the error smaller, and a mean that is far off costs nothing.
    flatter, moved = (change_hidden(images, hidden, *change) for change in ((0.5, 0.0), (1.0, 0.15)))
    silent = zeros(images, hidden)
    gain = paper_psnr(silent, flatter, hidden) - paper_psnr(silent, images, hidden)
    assert_close(gain, torch.full_like(gain, 20 * math.log10(2)), "6 dB for half the deviation", 1e-3)
    assert_close(paper_psnr(silent, moved, hidden), paper_psnr(silent, images, hidden), "moved mean", EXACT_FLOAT64)


@pytest.mark.parametrize("predictor", [mean_colour, zeros])
def test_what_is_scored_depends_on_visible_pixels_alone_but_for_the_papers(case: Case, predictor) -> None:
    _, images, hidden = case
    changed = change_hidden(images, hidden, scale=0.3, shift=0.15)
    before, after = (composite(predictor(each, hidden), each, hidden) for each in (images, changed))
    assert torch.equal(before, after)
    # The very same predictions, pasted in by the paper's rule, have moved towards the answer.
    before, after = (paper_composite(predictor(each, hidden), each, hidden) for each in (images, changed))
    moved = (patchify(after, PATCH) - patchify(before, PATCH)).mean(dim=2)
    assert (moved[hidden] > 0.03).all()
    assert not moved[~hidden].any()


def test_zeros_beat_a_fair_guess_only_under_the_papers_protocol(case: Case) -> None:
    _, images, hidden = case
    dark = change_hidden(images, hidden, scale=0.2, shift=-0.3)
    guess = mean_colour(dark, hidden)
    assert (masked_psnr(guess, dark, hidden) < 12).all()  # 0.3 off throughout
    assert (masked_psnr(zeros(dark, hidden), dark, hidden) < 16).all()
    assert (paper_psnr(zeros(dark, hidden), dark, hidden) > 25).all()  # it was told the answer's mean


@pytest.mark.parametrize("metric", METRICS)
def test_images_are_averaged_whatever_the_batches(case: Case, metric: type[ImageMean]) -> None:
    values = METRICS[metric](*case)
    assert values.shape == (5,)
    assert values.std() > 0.001
    meter = metric()
    for part in (slice(0, 2), slice(2, 4), slice(4, 5)):  # the last is smaller
        meter.update(*(each[part] for each in case))
    assert meter.compute().dtype == torch.float64
    assert math.isclose(meter.compute().item(), values.mean().item(), rel_tol=1e-12)
    meter.reset()
    meter.update(*(each[:1] for each in case))
    assert math.isclose(meter.compute().item(), values[0].item(), rel_tol=1e-12)


@pytest.mark.parametrize("metric", METRICS)
def test_processes_that_saw_different_numbers_of_images_are_merged(case: Case, metric: type[ImageMean]) -> None:
    whole, one, two = metric(), metric(), metric()
    whole.update(*case)
    one.update(*(each[:1] for each in case))
    two.update(*(each[1:] for each in case))
    # What torchmetrics does with the states of all processes.
    for name, reduce in one._reductions.items():
        setattr(one, name, reduce(torch.stack([getattr(one, name), getattr(two, name)])))
    assert math.isclose(one.compute().item(), whole.compute().item(), rel_tol=1e-12)


@pytest.mark.parametrize("metric", METRICS)
def test_mixed_precision_does_not_reach_the_metrics(case: Case, metric: type[ImageMean]) -> None:
    inputs = case[0].float(), case[1].float(), case[2]
    plain, mixed = metric(), metric()
    plain.update(*inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed.update(*inputs)
    assert torch.equal(mixed.compute(), plain.compute())
    rounded = metric()
    rounded.update(case[0].bfloat16(), case[1].float(), case[2])
    assert math.isclose(rounded.compute().item(), plain.compute().item(), rel_tol=0.01)


def test_nothing_hidden_has_no_score(case: Case) -> None:
    predicted, images, hidden = case
    hidden = hidden.clone()
    hidden[2] = False
    with pytest.raises(ValueError, match="without a hidden patch"):
        masked_psnr(predicted, images, hidden)
    with pytest.raises(ValueError, match="without a hidden pixel 5 inside"):
        masked_ssim(predicted, images, hidden)
