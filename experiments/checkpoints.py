"""Checkpoints that survive an interruption at any moment.

`last.ckpt` is written every few steps and resumes the run; the one before it stays as `previous.ckpt`, should the disk
damage the last. `best.ckpt` holds the weights of the best evaluation. They come into place by atomic moves and load
with `weights_only=True`.
"""

from __future__ import annotations

import errno
import math
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.io import TorchCheckpointIO

LAST = "last.ckpt"
PREVIOUS = "previous.ckpt"
BEST = "best.ckpt"
# The key of what builds the model: a checkpoint must be usable without the folder that it was made in.
BUILT_FROM = "built_from"
# Of an entry's attributes in a zip file: MS-DOS's bit of a folder.
_FOLDER = 0x10


class DamagedCheckpointError(OSError):
    """No checkpoint of a run that has some can be read."""


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes beside the target and moves into place: a checkpoint is the old one or the new one, whole.

    A `last.ckpt` that is replaced stays as `previous.ckpt`.

    Lightning's own writer stages in the system's temporary folder, from where a move to another disk is a copy.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Save to path, atomically and through to the disk."""
        if storage_options is not None:
            raise TypeError("storage_options are not supported: checkpoints are local files")
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}.partial")
        try:
            with open(partial, "wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
            if target.name == LAST and target.exists():
                # Between the two moves there is a previous one alone, which resumes the run as well.
                os.replace(target, target.with_name(PREVIOUS))
            os.replace(partial, target)
        except (OSError, RuntimeError) as error:
            # Half a checkpoint would keep a full disk full. The one before it is untouched.
            partial.unlink(missing_ok=True)
            raise OSError(
                f"can't save {target.name} ({str(error).splitlines()[0]}): is the disk full? The same command "
                "resumes from the checkpoint before it"
            ) from error


class PeriodicCheckpoint(pl.Callback):
    """Save `last.ckpt` before every `every`-th step.

    Saved before a step, not after one: then all that belongs to the earlier steps (an evaluation that was due, its
    best checkpoint, the schedule) is done, and Lightning's loop resumes at the step without special cases.

    Args:
        folder: where to save.
        every: steps between checkpoints.
    """

    def __init__(self, folder: Path, every: int) -> None:
        if every < 1:
            raise ValueError(f"trainer.checkpoint_every={every} must be at least 1")
        self.path = Path(folder) / LAST
        self.every = every
        self._first_step: int | None = None

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Save where a checkpoint is due."""
        step = trainer.global_step
        if self._first_step is None:
            self._first_step = step
            # Lightning expects checkpoints after a step: after a resume it counts the loggers' step one too far, and
            # the batch that the checkpoint was before twice.
            loop = trainer.fit_loop.epoch_loop
            loop._batches_that_stepped = step
            loop.batch_progress.total.ready = loop.batch_progress.total.completed + 1
        if step % self.every == 0 and step > self._first_step:
            trainer.save_checkpoint(self.path)


class BestCheckpoint(pl.Callback):
    """Save the weights whenever the validation loss is the lowest so far, and keep the losses of all evaluations.

    Args:
        folder: where to save.
        monitor: name of the logged validation loss.
        followed: names of further values to keep of each evaluation.
    """

    def __init__(self, folder: Path, monitor: str, followed: Sequence[str] = ()) -> None:
        self.path = Path(folder) / BEST
        self.monitor = monitor
        self.values: dict[str, list[float]] = {name: [] for name in followed}
        self.steps: list[int] = []
        self.losses: list[float] = []

    @property
    def best_step(self) -> int:
        """Steps done at the best evaluation."""
        return self.steps[self.losses.index(min(self.losses))]

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Note the loss; save if it is the lowest."""
        if trainer.state.fn != "fit" or trainer.sanity_checking:
            return
        loss = float(trainer.callback_metrics[self.monitor])
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"{self.monitor} is {loss} after step {trainer.global_step}: the run diverged; lower "
                "training.learning_rate or lengthen training.warmup_steps"
            )
        best = not self.losses or loss < min(self.losses)
        self.steps.append(trainer.global_step)
        self.losses.append(loss)
        for name, values in self.values.items():
            values.append(float(trainer.callback_metrics[name]))
        if best:
            trainer.save_checkpoint(self.path, weights_only=True)

    def state_dict(self) -> dict[str, Any]:
        """Saved in the checkpoint."""
        values = {name: list(kept) for name, kept in self.values.items()}
        return {"steps": list(self.steps), "losses": list(self.losses), "values": values}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restored from the checkpoint."""
        self.steps, self.losses = list(state_dict["steps"]), list(state_dict["losses"])
        # A checkpoint from before there were any has none to follow.
        self.values = {name: list(kept) for name, kept in state_dict.get("values", {}).items()}


def resume_point(folder: Path) -> tuple[Path | None, str]:
    """The checkpoint that a run goes on from, and what is wrong with a later one; None where the run has none.

    A damaged one is found by the checksums of its contents, and by loading it.

    Raises:
        DamagedCheckpointError: there are some, and none is whole.
    """
    problems = []
    for path in (folder / LAST, folder / PREVIOUS):
        if path.exists():
            problem = damage_of(path)
            if not problem:
                return path, "; ".join(problems)
            problems.append(f"{path.name} is damaged ({problem})")
    if problems:
        raise DamagedCheckpointError(
            f"{folder}: {'; '.join(problems)}: move the folder away, and the same command begins the run again"
        )
    return None, ""


def damage_of(path: Path) -> str:
    """What is wrong with a checkpoint's file; nothing, as a rule.

    PyTorch's reader alone takes changed weights as they are.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
            # PyTorch reads nothing of an entry that is marked as a folder, and fills its tensor with what memory held.
            folders = [entry.filename for entry in archive.infolist() if entry.external_attr & _FOLDER]
        if folders:
            return f"{folders[0]} is marked as a folder"
        if broken is None:
            # The checksums are of the contents, and not of what says where they lie.
            torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        # A bad sector, or a place that the file does not have. That it may not be read, say, is no damage.
        if error.errno not in (errno.EIO, errno.EINVAL):
            raise
        return str(error)
    except Exception as error:  # what a reader says of a broken file depends on which of its bytes broke
        return str(error) or type(error).__name__
    return f"{broken} fails its checksum" if broken else ""


def load_weights(module: torch.nn.Module, path: Path) -> None:
    """Put a checkpoint's weights into the module it was saved from.

    Raises:
        DamagedCheckpointError: the file is not whole.
    """
    if problem := damage_of(path):
        raise DamagedCheckpointError(
            f"{path} is damaged ({problem}): move the folder away, and the same command begins the run again"
        )
    module.load_state_dict(torch.load(path, map_location="cpu", weights_only=True)["state_dict"])
