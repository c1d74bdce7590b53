"""Top-1, top-5 and nats."""

from __future__ import annotations

import math

import pytest
import torch

from experiments.ucf101.metrics import ClipScores, mean_over_views


def test_scores_are_those_of_all_batches_together():
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(50, 12, generator=generator).log_softmax(-1), torch.arange(50) % 12
    scores = ClipScores()
    for part in (slice(7), slice(7, 50)):
        scores.update(logits[part], labels[part])
    found = scores.compute()
    ranked = logits.argsort(1, descending=True)
    assert found["top1"] == pytest.approx((ranked[:, 0] == labels).double().mean().item())
    assert found["top5"] == pytest.approx((ranked[:, :5] == labels[:, None]).any(1).double().mean().item())
    assert found["nats"] == pytest.approx(torch.nn.functional.cross_entropy(logits, labels).item(), rel=1e-5)
    assert 0 < found["top1"] < found["top5"] < 1


def test_a_model_that_can_not_tell_scores_nothing():
    scores = ClipScores()
    scores.update(torch.full((4, 10), -math.log(10)), torch.tensor([0, 3, 5, 9]))
    assert scores.compute() == {"top1": 0, "top5": 0, "nats": pytest.approx(math.log(10))}


def test_of_fewer_than_five_classes_all_are_among_the_first_five():
    scores = ClipScores()
    scores.update(torch.tensor([[0.7, 0.2, 0.1]]).log(), torch.tensor([2]))
    assert (scores.compute()["top1"], scores.compute()["top5"]) == (0, 1)


def test_views_are_averaged_as_probabilities():
    probabilities = torch.tensor([[[0.9, 0.1], [0.2, 0.8], [0.1, 0.9]]])
    # Logits may be off by a constant of their own.
    logits = probabilities.log() + torch.tensor([3.0, 0.0, -5.0])[None, :, None]
    assert torch.allclose(mean_over_views(logits).exp(), torch.tensor([[0.4, 0.6]]))
