"""The reconstruction task: its loss, what the test scores and with which masks, and what is refused before any work."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch

from experiments.cub200.batches import ImageBatch
from experiments.cub200.data import CubData
from experiments.cub200.masks import masked_patches
from experiments.cub200.metrics import masked_psnr, masked_ssim, paper_psnr, paper_ssim
from experiments.cub200.patches import normalised, patchify
from experiments.cub200.references import mean_colour, zeros
from experiments.cub200.task import RATIOS, HiddenError, ReconstructionTask
from experiments.training import Training
from tensormem.memory import without_reads
from tensormem.models.vision import BaseMAE, TensorMAE
from tests.helpers import EXACT_FLOAT64, assert_close, randomise

SIZE, PATCH, NUM_PATCHES = 32, 8, 16
TRAINING = Training(steps=4, learning_rate=1e-3, warmup_steps=0, evaluate_every=2)
SMALL = {"dim": 8, "num_layers": 2, "num_heads": 2, "decoder_dim": 8, "decoder_layers": 1, "decoder_heads": 2}
MEMORY = {"memory_channels": 4, "memory_grid": (3, 3), "memory_chunk": 2, "memory_options": {"scan": "reference"}}


def make_task(kind=TensorMAE, mask_ratio=0.75, **arguments):
    memory = MEMORY if kind is TensorMAE else {}
    model = kind(image_size=SIZE, patch=PATCH, drop_path=0.0, **SMALL, **memory, **arguments)
    randomise(model, torch.Generator().manual_seed(1))
    return ReconstructionTask.of_run(model, TRAINING, SimpleNamespace(mask_ratio=mask_ratio), seed=0)


def make_batches(*sizes):
    """Batches of random images with their noise."""
    generator = torch.Generator().manual_seed(2)
    return [
        ImageBatch(
            torch.rand(size, 3, SIZE, SIZE, generator=generator),
            torch.rand(size, NUM_PATCHES, generator=generator),
            torch.arange(size),
        )
        for size in sizes
    ]


def run_test(task, batches):
    """What is logged in a test, as Lightning runs it."""
    logged = {}
    task.log = lambda name, value: logged.update({name: float(value)})
    task.eval()
    task.on_test_epoch_start()
    with torch.no_grad():
        for number, batch in enumerate(batches):
            task.test_step(batch, number)
    task.on_test_epoch_end()
    return logged


@torch.no_grad()
def by_hand(predict, score, batches, ratio):
    """The mean of a score over the images of all batches."""
    scores = []
    for batch in batches:
        hidden = masked_patches(batch.noise, ratio)
        scores.append(score(predict(batch.images, hidden, batch.noise), batch.images, hidden))
    return float(torch.cat(scores).mean())


def test_an_error_is_that_of_the_hidden_patches_of_all_batches():
    metric = HiddenError()
    metric.update(torch.tensor([[1.0, 5.0], [3.0, 5.0]]), torch.tensor([[True, False], [True, False]]))
    metric.update(torch.tensor([[5.0, 8.0]]), torch.tensor([[False, True]]))
    assert float(metric.compute()) == 4


@pytest.mark.parametrize("ratio", [0.25, 0.75])
@pytest.mark.parametrize("target", ["pixels", "normalised"])
def test_the_loss_is_of_the_hidden_patches_alone(target, ratio):
    task = make_task(mask_ratio=ratio, target=target).double()
    (batch,) = make_batches(3)
    batch = batch._replace(images=batch.images.double())
    hidden = masked_patches(batch.noise, ratio)
    wanted = patchify(batch.images, PATCH)
    wanted = normalised(wanted) if target == "normalised" else wanted
    errors = (task.model(batch.images, hidden, batch.noise) - wanted)[hidden]
    assert len(errors) == 3 * ratio * NUM_PATCHES
    assert_close(task.loss(batch), errors.square().mean(), "loss", EXACT_FLOAT64)


@pytest.mark.parametrize("token_order", ["raster", "shuffled"])
@pytest.mark.parametrize(
    ("target", "scores", "control"),
    [("pixels", (masked_psnr, masked_ssim), mean_colour), ("normalised", (paper_psnr, paper_ssim), zeros)],
    ids=["pixels", "normalised"],
)
def test_the_test_scores_the_model_its_copy_without_reads_and_what_learns_nothing(target, scores, control, token_order):
    task, batches = make_task(target=target, token_order=token_order), make_batches(3, 2)
    before = copy.deepcopy(task.model.state_dict())
    logged = run_test(task, batches)
    subjects = {
        "memory": task.model,
        "zero": without_reads(task.model),
        "control": lambda images, hidden, noise: control(images, hidden),
    }
    best = SimpleNamespace(losses=[0.5, 0.4, 0.6], values={"validation/psnr": [10.0, 11.0, 9.0]}, best_step=4)
    result = task.result(best)
    assert [(test["subject"], test["mask_ratio"]) for test in result["tests"]] == [
        (subject, ratio) for subject in subjects for ratio in RATIOS
    ]
    for test in result["tests"]:
        assert test["images"] == 5
        for name, score in zip(("psnr", "ssim"), scores, strict=True):
            expected = by_hand(subjects[test["subject"]], score, batches, test["mask_ratio"])
            assert test[name] == pytest.approx(expected, rel=1e-5), (test["subject"], test["mask_ratio"], name)
    assert len({test["psnr"] for test in result["tests"]}) == 9, "subjects and ratios all make a difference"
    own = {ratio: test["psnr"] for ratio, test in zip(RATIOS, result["tests"], strict=False)}
    assert logged == {f"test/psnr_{ratio:.0%}": pytest.approx(value) for ratio, value in own.items()}
    for name, value in task.model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_the_result_is_of_the_best_evaluation_and_the_hardest_test():
    task = make_task()
    run_test(task, make_batches(4))
    best = SimpleNamespace(losses=[0.5, 0.4, 0.6], values={"validation/psnr": [10.0, 11.0, 9.0]}, best_step=4)
    result = task.result(best)
    hardest = next(t for t in result["tests"] if t["subject"] == "memory" and t["mask_ratio"] == 0.75)
    assert result["metrics"] == {
        "test_psnr": hardest["psnr"],
        "test_ssim": hardest["ssim"],
        "test_images": 4,
        "validation_mse": 0.4,
        "validation_psnr": 11.0,
        "best_step": 4,
    }
    assert result["control"] == "mean colour of the visible patches"
    assert result["state_bytes"]["window"] == NUM_PATCHES
    # The memory is in the first of two blocks.
    assert len(result["gates"]) == 1
    assert task.headline(result["metrics"]).startswith(f"test PSNR {hardest['psnr']:.2f} dB")


def test_a_model_without_a_memory_has_no_reads_to_set_to_zero():
    task = make_task(BaseMAE, target="normalised")
    run_test(task, make_batches(2))
    result = task.result(SimpleNamespace(losses=[0.5], values={"validation/psnr": [10.0]}, best_step=2))
    assert [test["subject"] for test in result["tests"]] == ["memory"] * 3 + ["control"] * 3
    assert result["control"] == "0 everywhere, paper protocol"
    assert result["gates"] is None


def test_a_validation_starts_anew_and_hides_as_much_as_the_training():
    task, batches = make_task(mask_ratio=0.5).eval(), make_batches(3, 2)
    logged = []
    task.log = lambda name, value: logged.append((name, float(value)))
    expected = []
    for seed in range(2):
        # As if it had been trained in between.
        randomise(task.model, torch.Generator().manual_seed(seed))
        with torch.no_grad():
            losses = torch.stack([task.loss(batch) for batch in batches])
            for number, batch in enumerate(batches):
                task.validation_step(batch, number)
        task.on_validation_epoch_end()
        weights = torch.tensor([3.0, 2.0])
        expected.append(("validation/mse", pytest.approx(float((losses * weights).sum() / 5), rel=1e-5)))
        psnr = by_hand(task.model, masked_psnr, batches, 0.5)
        expected.append(("validation/psnr", pytest.approx(psnr, rel=1e-5)))
    assert logged == expected


def test_dropout_is_off_in_the_test():
    task, batches = make_task(dropout=0.5), make_batches(2)
    assert run_test(task, batches) == run_test(task, batches)


def test_the_model_is_tried_before_any_work():
    data = CubData(root=None, image_size=SIZE, patch=PATCH)
    asked = []

    def build(**arguments):
        asked.append(arguments)
        return BaseMAE(**SMALL, **arguments)

    assert ReconstructionTask.preflight(build, "base", data, False) is None
    assert asked == [{"image_size": SIZE, "patch": PATCH}]
    with pytest.raises(ValueError, match="this model takes 16 a side"):
        ReconstructionTask.preflight(lambda **given: BaseMAE(**SMALL, image_size=16, patch=PATCH), "base", data, False)


def test_steps_lower_the_loss():
    task = make_task().train()
    (batch,) = make_batches(3)
    optimizer = TRAINING.optimizer(task)
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        loss = task.loss(batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True)
