"""The classification task: which action a clip shows. Letters: B clips, K views of a clip."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pytorch_lightning.utilities import move_data_to_device
from torch import Tensor, nn

from experiments.checkpoints import BestCheckpoint
from experiments.task import Task
from experiments.training import Training
from experiments.ucf101.batches import ClipBatch
from experiments.ucf101.data import UcfData
from experiments.ucf101.metrics import ClipScores, mean_over_views
from experiments.ucf101.occlusion import CONDITIONS, WHOLE, Condition, shown
from tensormem.memory import without_reads
from tensormem.models.video_model import VideoModel


class ClassificationTask(Task):
    """Trains and evaluates a model of videos.

    Args:
        model: the model.
        training: optimiser and schedule.
        label_smoothing: share of the probability that the training's answers spread over all classes.
        seed: see Task.
        built_from: see Task.
    """

    followed = ("validation/top1",)
    published_metric = "test_top1"

    def __init__(
        self,
        model: VideoModel,
        training: Training,
        label_smoothing: float,
        seed: int,
        built_from: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        super().__init__(model, training, seed, built_from)
        self.label_smoothing = label_smoothing
        self.validation_scores = ClipScores()
        self.subjects = ("memory", "zero") if model.stack.memory is not None else ("memory",)
        self.scores = nn.ModuleDict({_key(who, how): ClipScores() for who in self.subjects for how in CONDITIONS})
        self._tested: dict[str, nn.Module] = {}

    @classmethod
    def of_run(
        cls,
        model: nn.Module,
        training: Training,
        data: UcfData,
        seed: int,
        built_from: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> ClassificationTask:
        """The task of a run; see `Task.of_run`."""
        return cls(model, training, data.label_smoothing, seed, built_from)  # type: ignore[arg-type]

    @classmethod
    def preflight(cls, build: Callable[..., nn.Module], name: str, data: UcfData, allow_noncausal: bool) -> None:
        """Classify one grey video; the answer comes last, so there is no future to be read and no audit."""
        # How many classes there are is not known yet.
        model = build(num_classes=2, num_frames=data.num_frames, image_size=data.image_size, patch=data.patch)
        with torch.no_grad():
            model.eval()(torch.full((1, data.num_frames, 3, data.image_size, data.image_size), 0.5))

    def loss(self, batch: ClipBatch) -> Tensor:
        """Cross-entropy with smoothed labels, in nats."""
        return F.cross_entropy(
            _logits(self.model, batch.frames)[:, 0], batch.labels, label_smoothing=self.label_smoothing
        )

    def validation_step(self, batch: ClipBatch, batch_idx: int) -> None:
        """Score a batch."""
        self.validation_scores.update(mean_over_views(_logits(self.model, batch.frames)), batch.labels)

    def on_validation_epoch_end(self) -> None:
        """Log the loss, without smoothing, and the accuracies."""
        for name, value in self.validation_scores.compute().items():
            self.log(f"validation/{name}", value)
        self.validation_scores.reset()

    def on_test_epoch_start(self) -> None:
        """Make the copy whose memory reads nothing."""
        self._tested = {"memory": self.model}
        if "zero" in self.subjects:
            self._tested["zero"] = without_reads(self.model)

    def test_step(self, batch: ClipBatch, batch_idx: int) -> None:
        """Score a batch under each condition."""
        for condition in CONDITIONS:
            frames = shown(batch.frames, batch.ids.tolist(), condition)
            for who in self.subjects:
                scores: Any = self.scores[_key(who, condition)]
                scores.update(mean_over_views(_logits(self._tested[who], frames)), batch.labels)

    def on_test_epoch_end(self) -> None:
        """Log the scores of the model itself on whole clips."""
        self._tested = {}
        for name, value in self._score("memory", WHOLE).items():
            self.log(f"test/{name}", value)

    def sample(self) -> str:
        """The class of a few test clips, and the likeliest by the model."""
        data: UcfData = self.trainer.datamodule  # type: ignore[attr-defined]
        batch: ClipBatch = move_data_to_device(next(iter(data.test_dataloader())), self.device)
        shares = mean_over_views(_logits(self.model.eval(), batch.frames)).exp()
        lines = []
        for label, share in zip(batch.labels.tolist(), shares, strict=True):
            best = share.topk(min(3, len(data.classes)))
            said = (f"{data.classes[k]} {s:.0%}" for s, k in zip(*map(torch.Tensor.tolist, best), strict=True))
            lines.append(f"{data.classes[label]}: {', '.join(said)}")
        return "\n".join(lines)

    def evaluation_line(self, metrics: Mapping[str, Any]) -> str:
        """The loss of a validation and its top-1."""
        return f"{float(metrics['validation/nats']):.4f} nats, top-1 {100 * float(metrics['validation/top1']):.2f}%"

    @staticmethod
    def headline(metrics: Mapping[str, Any]) -> str:
        """The test accuracies."""
        return f"test top-1 {metrics['test_top1']:.2f}%, top-5 {metrics['test_top5']:.2f}%"

    def result(self, best: BestCheckpoint) -> dict[str, Any]:
        """The blocks of the result file that belong to classification, after the test; accuracies in percent."""
        tests = [
            {
                "subject": who,
                "condition": how.kind,
                "fraction": how.fraction,
                **_in_percent(self._score(who, how)),
                "clips": int(self.scores[_key(who, how)].clips),  # type: ignore[arg-type]
            }
            for who in self.subjects
            for how in CONDITIONS
        ]
        whole = tests[0]
        chosen = best.losses.index(min(best.losses))
        return {
            "metrics": {
                "test_top1": whole["top1"],
                "test_top5": whole["top5"],
                "test_nats": whole["nats"],
                "test_clips": whole["clips"],
                "chance": 100 / self.model.readout.out_features,
                "validation_nats": min(best.losses),
                "validation_top1": 100 * best.values["validation/top1"][chosen],
                "best_step": best.best_step,
            },
            "tests": tests,
            **self.model_blocks(self.model.num_frames * len(self.model.positions)),
        }

    def _score(self, who: str, condition: Condition) -> dict[str, float]:
        return self.scores[_key(who, condition)].compute()  # type: ignore[operator]


def _logits(model: nn.Module, frames: Float[Tensor, "B K T 3 S S"]) -> Float[Tensor, "B K classes"]:
    """Logits of each view, a video of its own."""
    logits, _ = model(frames.flatten(0, 1))
    return logits.unflatten(0, frames.shape[:2])


def _in_percent(scores: Mapping[str, float]) -> dict[str, float]:
    return {name: value if name == "nats" else 100 * value for name, value in scores.items()}


def _key(who: str, condition: Condition) -> str:
    """A name that a module may have: without a dot."""
    return f"{who}_{condition.kind}_{condition.fraction:.0%}"
