"""Accuracy of a classification: top-1, top-5 and nats. Letters: B clips, K views of a clip."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torchmetrics import Metric

from experiments.data import EVALUATED_BY_EACH

TOP = 5


def mean_over_views(logits: Float[Tensor, "B K classes"]) -> Float[Tensor, "B classes"]:
    """The logarithm of the mean of the views' probabilities."""
    return torch.logsumexp(logits.log_softmax(-1), dim=1) - math.log(logits.shape[1])


class ClipScores(Metric):
    """Clips, and of how many the true class is first, or among the first five (of fewer classes: among all).

    A class that shares its probability with others comes last among them, so that a model that can't tell scores
    nothing.
    """

    full_state_update = False
    nats: Tensor
    first: Tensor
    among_five: Tensor
    clips: Tensor

    def __init__(self) -> None:
        """Start with no clip."""
        super().__init__(**EVALUATED_BY_EACH)
        self.add_state("nats", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        for name in ("first", "among_five", "clips"):
            self.add_state(name, torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, log_probabilities: Float[Tensor, "B classes"], labels: Int64[Tensor, " B"]) -> None:
        """Take in a batch."""
        true = log_probabilities.gather(1, labels[:, None])
        rank = (log_probabilities >= true).sum(1) - 1
        self.nats -= true.double().sum()
        self.first += (rank == 0).sum()
        self.among_five += (rank < TOP).sum()
        self.clips += len(labels)

    def compute(self) -> dict[str, float]:
        """``top1`` and ``top5`` as shares of the clips, and the mean ``nats``."""
        clips = int(self.clips)
        return {
            "top1": int(self.first) / clips,
            "top5": int(self.among_five) / clips,
            "nats": float(self.nats) / clips,
        }
