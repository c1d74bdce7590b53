"""Checkpoints replace their predecessor whole or not at all."""

from types import SimpleNamespace

import pytest
import torch

from experiments.checkpoints import AtomicCheckpointIO, BestCheckpoint, PeriodicCheckpoint


def test_a_failed_save_leaves_the_old_checkpoint(tmp_path):
    path = tmp_path / "last.ckpt"
    AtomicCheckpointIO().save_checkpoint({"step": 1}, path)

    class Unsavable:
        def __reduce__(self):
            raise RuntimeError("the disk is full")

    with pytest.raises(OSError, match=r"can't save last\.ckpt \(the disk is full\).*resumes"):
        AtomicCheckpointIO().save_checkpoint({"step": 2, "bad": Unsavable()}, path)
    # Half a checkpoint would keep the disk full.
    assert [left.name for left in tmp_path.iterdir()] == ["last.ckpt"]
    assert torch.load(path, weights_only=True) == {"step": 1}


def test_a_saved_checkpoint_leaves_nothing_beside_it(tmp_path):
    AtomicCheckpointIO().save_checkpoint({"step": 1}, tmp_path / "last.ckpt")
    assert [path.name for path in tmp_path.iterdir()] == ["last.ckpt"]


def fake_trainer(loss, step, saved):
    return SimpleNamespace(
        state=SimpleNamespace(fn="fit"),
        sanity_checking=False,
        callback_metrics={"validation/nats": torch.tensor(loss)},
        global_step=step,
        save_checkpoint=lambda path, weights_only: saved.append(step),
    )


def test_only_a_lower_loss_is_saved(tmp_path):
    saved = []
    best = BestCheckpoint(tmp_path, "validation/nats")
    for step, loss in enumerate([5.0, 4.0, 4.0, 4.5, 3.0]):
        best.on_validation_end(fake_trainer(loss, step, saved), None)
    assert saved == [0, 1, 4]
    assert best.best_step == 4

    restored = BestCheckpoint(tmp_path, "validation/nats")
    restored.load_state_dict(best.state_dict())
    restored.on_validation_end(fake_trainer(3.5, 5, saved), None)
    assert saved == [0, 1, 4]
    assert restored.losses == [5.0, 4.0, 4.0, 4.5, 3.0, 3.5]


def test_a_diverged_run_stops_with_advice(tmp_path):
    best = BestCheckpoint(tmp_path, "validation/nats")
    with pytest.raises(FloatingPointError, match=r"diverged.*training\.learning_rate"):
        best.on_validation_end(fake_trainer(float("nan"), 1, []), None)


def test_an_impossible_interval_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"trainer\.checkpoint_every=0"):
        PeriodicCheckpoint(tmp_path, 0)
