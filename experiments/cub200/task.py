"""The reconstruction task: predict hidden patches of an image from the visible ones.

Legend: B images, N patches of an image, D values of a patch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import wandb
from torch import Tensor, nn
from torchmetrics import Metric

from experiments.checkpoints import BestCheckpoint
from experiments.cub200.batches import ImageBatch
from experiments.cub200.data import CubData
from experiments.cub200.masks import masked_patches
from experiments.cub200.metrics import MaskedPsnr, MaskedSsim, PaperPsnr, PaperSsim
from experiments.cub200.patches import normalised, patchify
from experiments.cub200.pictures import NUM_IMAGES, sheet
from experiments.cub200.references import mean_colour, zeros
from experiments.data import EVALUATED_BY_EACH
from experiments.task import Task
from experiments.training import Training
from tensormem.memory import without_reads
from tensormem.models.masked_autoencoder import MaskedAutoencoder

# Shares of the patches that are hidden in the test.
RATIOS = (0.25, 0.5, 0.75)
# In a run's folder: a few test images as the model reconstructs them.
PICTURE = "reconstructions.png"
# The predictor that learns nothing and is scored beside a model, by what the model predicts.
_CONTROLS = {
    "pixels": ("mean colour of the visible patches", mean_colour),
    "normalised": ("0 everywhere, paper protocol", zeros),
}
_SCORES: dict[str, tuple[type[Metric], type[Metric]]] = {
    "pixels": (MaskedPsnr, MaskedSsim),
    "normalised": (PaperPsnr, PaperSsim),
}


class HiddenError(Metric):
    """Mean squared error over the values of hidden patches."""

    full_state_update = False

    def __init__(self) -> None:
        super().__init__(**EVALUATED_BY_EACH)
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("patches", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, errors: Tensor, hidden: Tensor) -> None:
        """Add the errors (B, N) of a batch, where True in hidden (B, N)."""
        self.total += (errors.double() * hidden).sum()
        self.patches += hidden.sum()

    def compute(self) -> Tensor:
        """0-d float64."""
        return self.total / self.patches


class ReconstructionTask(Task):
    """Trains and evaluates a masked autoencoder.

    Args:
        model: the model; its ``target`` says which protocol scores it: predicted pixels ours, normalised ones the
            paper's.
        training: optimiser and schedule.
        mask_ratio: share of the patches that are hidden in training and validation.
        seed: see Task.
        built_from: see Task.
    """

    loss_name = "mse"
    followed = ("validation/psnr",)
    published_metric = "test_psnr"

    def __init__(
        self,
        model: MaskedAutoencoder,
        training: Training,
        mask_ratio: float,
        seed: int,
        built_from: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        super().__init__(model, training, seed, built_from)
        self.mask_ratio = mask_ratio
        psnr, ssim = _SCORES[model.target]
        self.validation_error = HiddenError()
        self.validation_psnr = psnr()
        self.subjects = ("memory", "zero", "control") if model.stack.memory is not None else ("memory", "control")
        self.psnr = nn.ModuleDict({_key(who, ratio): psnr() for who in self.subjects for ratio in RATIOS})
        self.ssim = nn.ModuleDict({_key(who, ratio): ssim() for who in self.subjects for ratio in RATIOS})
        self._tested: dict[str, Callable[..., Tensor]] = {}

    @classmethod
    def of_run(
        cls,
        model: nn.Module,
        training: Training,
        data: CubData,
        seed: int,
        built_from: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> ReconstructionTask:
        """The task of a run; see `Task.of_run`."""
        return cls(model, training, data.mask_ratio, seed, built_from)  # type: ignore[arg-type]

    @classmethod
    def preflight(cls, build: Callable[..., nn.Module], name: str, data: CubData, allow_noncausal: bool) -> None:
        """Reconstruct and score one grey image at each ratio; there is no future to be read, so there is no audit.

        Raises:
            ValueError: a ratio hides no patch or all of them, or what it hides can't be scored.
        """
        model = build(**data.network_arguments).eval()
        images = torch.full((1, 3, data.image_size, data.image_size), 0.5)
        noise = torch.linspace(0, 1, data.num_patches)[None]
        for name, ratio in (("data.mask_ratio", data.mask_ratio), *(("the test's ratio", ratio) for ratio in RATIOS)):
            hidden = masked_patches(noise, ratio)
            if not 0 < int(hidden.sum()) < data.num_patches:
                raise ValueError(
                    f"{name}={ratio} hides {int(hidden.sum())} of {data.num_patches} patches: some must be hidden and "
                    f"some not; use more patches (data.image_size={data.image_size}, data.patch={data.patch})"
                )
            with torch.no_grad():
                predicted = model(images, hidden, noise)
            for score in _SCORES[model.target]:
                score().update(predicted, images, hidden)

    def loss(self, batch: ImageBatch) -> Tensor:
        """Mean squared error over the hidden patches of a batch."""
        errors, hidden, _ = self._errors(batch)
        return (errors * hidden).sum() / hidden.sum()

    def validation_step(self, batch: ImageBatch, batch_idx: int) -> None:
        """Add a batch's errors."""
        errors, hidden, predicted = self._errors(batch)
        self.validation_error.update(errors, hidden)
        self.validation_psnr.update(predicted, batch.images, hidden)

    def on_validation_epoch_end(self) -> None:
        """Log the loss and the PSNR."""
        self.log("validation/mse", self.validation_error.compute().float())
        self.log("validation/psnr", self.validation_psnr.compute().float())
        self.validation_error.reset()
        self.validation_psnr.reset()

    def on_test_epoch_start(self) -> None:
        """Make the copy whose memory reads nothing."""
        _, control = _CONTROLS[self.model.target]
        self._tested = {"memory": self.model, "control": lambda images, hidden, noise: control(images, hidden)}
        if "zero" in self.subjects:
            self._tested["zero"] = without_reads(self.model)

    def test_step(self, batch: ImageBatch, batch_idx: int) -> None:
        """Score a batch at each ratio."""
        for ratio in RATIOS:
            hidden = masked_patches(batch.noise, ratio)
            for who in self.subjects:
                predicted = self._tested[who](batch.images, hidden, batch.noise)
                for metrics in (self.psnr, self.ssim):
                    metrics[_key(who, ratio)].update(predicted, batch.images, hidden)

    def on_test_epoch_end(self) -> None:
        """Log the scores of the model itself."""
        self._tested = {}
        for ratio in RATIOS:
            self.log(f"test/psnr_{ratio:.0%}", self.psnr[_key("memory", ratio)].compute().float())

    def on_test_end(self) -> None:
        """Show what the model makes of a few test images: a PNG in the run's folder, and the same in W&B."""
        if not self.trainer.is_global_zero:
            return
        batch = self.trainer.datamodule.test_examples(NUM_IMAGES)  # type: ignore[attr-defined]
        path = Path(self.trainer.default_root_dir) / PICTURE
        sheet({"reconstruction": self.model}, batch).save(path)
        self.show("test/reconstructions", lambda: wandb.Image(str(path)))

    def evaluation_line(self, metrics: Mapping[str, Any]) -> str:
        """The loss of a validation and its PSNR."""
        return f"mse {float(metrics['validation/mse']):.4f}, PSNR {float(metrics['validation/psnr']):.2f} dB"

    @staticmethod
    def headline(metrics: Mapping[str, Any]) -> str:
        """The test scores at the ratio of the training."""
        return f"test PSNR {metrics['test_psnr']:.2f} dB, SSIM {metrics['test_ssim']:.3f} with 75% hidden"

    def result(self, best: BestCheckpoint) -> dict[str, Any]:
        """The blocks of the result file that belong to reconstruction, after the test."""
        tests = [
            {
                "subject": who,
                "mask_ratio": ratio,
                "psnr": float(self.psnr[_key(who, ratio)].compute()),
                "ssim": float(self.ssim[_key(who, ratio)].compute()),
                "images": int(self.psnr[_key(who, ratio)].images),
            }
            for who in self.subjects
            for ratio in RATIOS
        ]
        hardest = next(test for test in tests if test["subject"] == "memory" and test["mask_ratio"] == RATIOS[-1])
        return {
            "metrics": {
                "test_psnr": hardest["psnr"],
                "test_ssim": hardest["ssim"],
                "test_images": hardest["images"],
                "validation_mse": min(best.losses),
                "validation_psnr": best.values["validation/psnr"][best.losses.index(min(best.losses))],
                "best_step": best.best_step,
            },
            "tests": tests,
            "control": _CONTROLS[self.model.target][0],
            **self.model_blocks(self.model.num_patches),
        }

    def _errors(self, batch: ImageBatch) -> tuple[Tensor, Tensor, Tensor]:
        """The mean squared error of each patch (B, N), which are hidden, and what was predicted (B, N, D)."""
        hidden = masked_patches(batch.noise, self.mask_ratio)
        predicted = self.model(batch.images, hidden, batch.noise)
        target = patchify(batch.images, self.model.patch)
        if self.model.target == "normalised":
            target = normalised(target)
        return (predicted - target).square().mean(-1), hidden, predicted


def _key(who: str, ratio: float) -> str:
    """A name that a module may have: without a dot."""
    return f"{who}_{ratio:.0%}"
