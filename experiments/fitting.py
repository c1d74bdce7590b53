"""Training, the audit of the best checkpoint and the test of one run, through Lightning."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import EarlyStopping
from pytorch_lightning.utilities import rank_zero_only

from experiments.checkpoints import (
    BEST,
    LAST,
    AtomicCheckpointIO,
    BestCheckpoint,
    PeriodicCheckpoint,
    load_weights,
    resume_point,
)
from experiments.data import Data
from experiments.memory_watch import MemoryWatch
from experiments.metrics_file import MetricsFile, RewindMetrics
from experiments.progress import Progress
from experiments.task import Task
from experiments.tracking import end_logging
from experiments.training import Training
from tensormem.audit import require_causal


def fit_and_test(
    task: Task,
    data: Data,
    training: Training,
    trainer_settings: Mapping[str, Any],
    folder: Path,
    name: str,
    logger: Any,
    allow_noncausal: bool,
) -> dict[str, Any]:
    """Train (from the last checkpoint, if there is one), audit the best weights, and test them once.

    Args:
        task: the model and how it is trained.
        data: set up already.
        training: the settings of the training.
        trainer_settings: the config's `trainer`.
        folder: the run's folder.
        name: starts each line on the console.
        logger: W&B's logger, or False; ended where an error is raised, and left to the caller otherwise.
        allow_noncausal: let a model that reads the future through to its test.

    Returns:
        The blocks of the result that come of training and test.

    Raises:
        KeyboardInterrupt: the run was interrupted; its last checkpoint resumes it.
        CausalityError: the best weights read the future.
    """
    tokens_per_step = data.tokens_per_step
    best = BestCheckpoint(folder, task.monitor, task.followed)
    metrics_file = MetricsFile(folder)
    progress = Progress(name, training.steps, tokens_per_step, trainer_settings["log_every"])
    trainer = pl.Trainer(
        accelerator=trainer_settings["accelerator"],
        devices=trainer_settings["devices"],
        num_nodes=trainer_settings["num_nodes"],
        strategy=trainer_settings["strategy"],
        deterministic=trainer_settings["deterministic"],
        precision=training.precision,  # type: ignore[arg-type]
        max_steps=training.steps,
        # One endless epoch: the data has no end, and evaluations come by steps.
        max_epochs=-1,
        val_check_interval=training.evaluate_every,
        num_sanity_val_steps=0,
        gradient_clip_val=training.clip_norm,
        log_every_n_steps=trainer_settings["log_every"],
        # The order matters: an evaluation's best weights are saved before it can stop the run, and a checkpoint
        # is written before the clock of the step starts.
        callbacks=[
            best,
            EarlyStopping(task.monitor, patience=training.patience, mode="min"),
            PeriodicCheckpoint(folder, trainer_settings["checkpoint_every"]),
            progress,
            MemoryWatch(),
            RewindMetrics(metrics_file),
        ],
        logger=[metrics_file, logger] if logger else [metrics_file],
        plugins=[AtomicCheckpointIO()],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=str(folder),
    )
    last, problem = resume_point(folder)
    if problem and rank_zero_only.rank == 0:
        # Out of the way: it must not take the place of the whole one when the next is saved.
        os.replace(folder / LAST, folder / "damaged.ckpt")
        print(f"{name}: {problem}; kept as damaged.ckpt, going on from the one before it", flush=True)
    if last is not None and rank_zero_only.rank == 0:
        print(f"{name}: resuming from {last}", flush=True)
    try:
        with _interruptible(trainer):
            ckpt_path = None if last is None else str(last)
            trainer.fit(task, datamodule=data, ckpt_path=ckpt_path, weights_only=True)
        steps = trainer.global_step
        load_weights(task, folder / BEST)
        report = task.audit()
        if report is not None:
            require_causal(report, name, allow_noncausal)
        with _interruptible(trainer):
            trainer.test(task, datamodule=data, verbose=False)
        blocks = task.result(best)
    except BaseException:
        end_logging(logger, failed=True)
        raise
    return {
        "causal": blocks["streaming"] != "none" if report is None else report.passed,
        "audit": {} if report is None else {"best": report.as_dict()},
        "history": {
            "step": best.steps,
            "tokens": [step * tokens_per_step for step in best.steps],
            task.monitor.replace("/", "_"): best.losses,
            **{name.replace("/", "_"): values for name, values in best.values.items()},
        },
        "training": {
            "steps": steps,
            "tokens": steps * tokens_per_step,
            "budget_tokens": training.steps * tokens_per_step,
            "wall_seconds": progress.wall_seconds,
            "tokens_per_second": progress.tokens_per_second,
            "stopped_early": steps < training.steps,
            "processes": trainer.world_size,
        },
        **blocks,
    }


@contextmanager
def _interruptible(trainer: pl.Trainer) -> Iterator[None]:
    """What is interrupted in here, in training or test, ends with a KeyboardInterrupt."""
    try:
        yield
    except SystemExit as error:
        # Lightning turns Ctrl-C and SIGTERM into a silent exit, in the test that of a success.
        if trainer.interrupted or trainer.received_sigterm:
            raise KeyboardInterrupt(f"at step {trainer.global_step}") from error
        raise
    if trainer.interrupted:
        raise KeyboardInterrupt(f"at step {trainer.global_step}")
