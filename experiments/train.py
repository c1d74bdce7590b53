"""One run: `python -m experiments.train experiment=wikitext model=language/tensor seed=0 scale=cpu`.

A run that was cut off goes on from its last checkpoint when the same command is given again; one that is finished is
not run again. Hydra's `--multirun` gives every job a run folder, a W&B run and a result file of its own.
"""

from __future__ import annotations

import logging
import shlex
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hydra
import pytorch_lightning as pl
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.callbacks import EarlyStopping

from experiments.checkpoints import (
    BEST,
    LAST,
    AtomicCheckpointIO,
    BestCheckpoint,
    PeriodicCheckpoint,
    load_weights,
)
from experiments.progress import Progress
from experiments.results import (
    SCHEMA_VERSION,
    ResultError,
    collect_provenance,
    portable_command,
    read_result,
    write_result,
)
from experiments.runs import RunInUseError, config_hash, exclusive, run_folder
from experiments.tracking import make_logger
from experiments.training import Training
from experiments.wikitext.corpus import CorpusMismatchError, DatasetNotFoundError
from experiments.wikitext.task import LanguageTask
from tensormem.audit import AuditReport, CausalityError, require_causal

RESULT = "result.json"
# What a user can mend: shown as one message, without a traceback.
USER_ERRORS = (
    CausalityError,
    CorpusMismatchError,
    DatasetNotFoundError,
    FloatingPointError,
    HydraException,
    ResultError,
    RunInUseError,
    ValueError,
)


def register_resolvers() -> None:
    """Make `${sizes_of:...}` known, with which config.yaml picks the sizes that belong to a scale."""
    OmegaConf.register_new_resolver("sizes_of", _sizes_of, replace=True)


def _sizes_of(experiment: str, scale: str) -> str:
    """`auto` is the paper's scale on a GPU, and what a CPU does in an hour or so elsewhere."""
    if scale == "auto":
        scale = "paper" if torch.cuda.is_available() else "cpu"
    return f"{experiment}/{scale}"


register_resolvers()


def resolve(config: DictConfig) -> dict[str, Any]:
    """Plain containers, with every interpolation done; a missing value is an error."""
    return OmegaConf.to_container(config, resolve=True, throw_on_missing=True)  # type: ignore[return-value]


def run(config: DictConfig) -> dict[str, Any]:
    """Train, test and write the result file of one composed config; return the result.

    Raises:
        CausalityError: the model reads the future and `allow_noncausal` is not set.
        RunInUseError: another process runs the same config.
    """
    resolved = resolve(config)
    name = f"{resolved['model']['name']}-seed{resolved['seed']}"
    folder = run_folder(resolved)
    training: Training = instantiate(config.training)
    window = resolved["data"]["window"]
    report = LanguageTask.preflight(
        lambda vocab_size: instantiate(config.model.network, vocab_size=vocab_size),
        resolved["model"]["name"],
        window,
        resolved["allow_noncausal"],
    )
    print(
        f"{name}: scale {resolved['size']['name']}, {training.steps} steps, causality audit: {report.verdict}, "
        f"run folder {folder}",
        flush=True,
    )
    # Taken now: by the time the run ends, the checkout may have moved on.
    provenance = collect_provenance(
        "cuda" if torch.cuda.is_available() and resolved["trainer"]["accelerator"] != "cpu" else "cpu"
    )
    with exclusive(folder):
        if (folder / RESULT).exists():
            print(f"{name}: finished before, see {folder / RESULT}", flush=True)
            return read_result(folder / RESULT)
        OmegaConf.save(config, folder / "config.yaml", resolve=True)
        data = instantiate(config.data)
        data.setup()
        pl.seed_everything(resolved["seed"], verbose=False)
        network = instantiate(config.model.network, vocab_size=data.vocab_size)
        task = LanguageTask(network, training, window, resolved["seed"])
        result = _train_and_test(resolved, folder, name, training, data, task, report)
        result["provenance"] = provenance
        write_result(folder / RESULT, result)
    print(
        f"{name}: test perplexity {result['metrics']['test_perplexity']:.2f}, written to {folder / RESULT}",
        flush=True,
    )
    return result


def _train_and_test(
    config: Mapping[str, Any],
    folder: Path,
    name: str,
    training: Training,
    data: Any,
    task: LanguageTask,
    start: AuditReport,
) -> dict[str, Any]:
    tokens_per_step = data.batch_size * data.window
    settings = config["trainer"]
    best = BestCheckpoint(folder, "validation/nats")
    progress = Progress(name, training.steps, tokens_per_step, settings["log_every"])
    stopping = EarlyStopping("validation/nats", patience=training.patience, mode="min")
    logger = make_logger(
        folder=folder,
        group=config["name"],
        name=name,
        run_id=folder.name,
        config={
            **{key: config[key] for key in ("model", "data", "training", "seed", "size")},
            "causal": start.passed,
        },
        **config["logger"],
    )
    trainer = pl.Trainer(
        accelerator=settings["accelerator"],
        devices=settings["devices"],
        precision=training.precision,  # type: ignore[arg-type]
        max_steps=training.steps,
        # One endless epoch: the data has no end, and evaluations come by steps.
        max_epochs=-1,
        val_check_interval=training.evaluate_every,
        num_sanity_val_steps=0,
        gradient_clip_val=training.clip_norm,
        log_every_n_steps=settings["log_every"],
        # The order matters: an evaluation's best weights are saved before it can stop the run.
        callbacks=[best, stopping, progress, PeriodicCheckpoint(folder, settings["checkpoint_every"])],
        logger=logger,
        plugins=[AtomicCheckpointIO()],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=str(folder),
    )
    last = folder / LAST
    if last.exists():
        print(f"{name}: resuming from {last}", flush=True)
    trainer.fit(task, datamodule=data, ckpt_path=str(last) if last.exists() else None, weights_only=True)
    if trainer.interrupted:
        raise KeyboardInterrupt(f"{name} was interrupted; the same command resumes it")

    steps_done = trainer.global_step
    load_weights(task, folder / BEST)
    report = task.audit()
    require_causal(report, name, config["allow_noncausal"])
    trainer.test(task, datamodule=data, verbose=False)
    blocks = task.result()
    best_nats = min(best.losses)
    blocks["metrics"].update(
        validation_nats=best_nats,
        validation_perplexity=float(torch.tensor(best_nats, dtype=torch.float64).exp()),
        validation_targets=int(task.validation_targets),
        best_step=best.best_step,
    )
    if logger:
        logger.experiment.summary.update({"causal": start.passed and report.passed, **blocks["metrics"]})
        logger.experiment.finish()
    return {
        "schema_version": SCHEMA_VERSION,
        "status": "finished",
        "experiment": config["name"],
        "model": config["model"]["name"],
        "seed": config["seed"],
        "config_hash": config_hash(config),
        "scale": config["size"]["name"],
        "causal": start.passed and report.passed,
        "protocol": config["protocol"],
        "published": config["model"]["published"],
        "command": _command(),
        "config": _portable(config),
        "audit": {"start": start.as_dict(), "best": report.as_dict()},
        "history": {
            "step": best.steps,
            "tokens": [step * tokens_per_step for step in best.steps],
            "validation_nats": best.losses,
        },
        "training": {
            "steps": steps_done,
            "tokens": steps_done * tokens_per_step,
            "budget_tokens": training.steps * tokens_per_step,
            "wall_seconds": progress.wall_seconds,
            "tokens_per_second": progress.tokens_per_second,
            "stopped_early": steps_done < training.steps,
        },
        **blocks,
    }


def _portable(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config without what is true of one machine only."""
    kept = {key: value for key, value in config.items() if key not in ("runs", "logger")}
    kept["data"] = {key: value for key, value in config["data"].items() if key != "root"}
    return kept


def _command() -> str:
    return portable_command("python -m experiments.train " + shlex.join(sys.argv[1:]))


@hydra.main(version_base="1.3", config_path="../conf", config_name="config")
def main(config: DictConfig) -> None:
    """Hydra's entry point."""
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    # Lightning's advice on workers and sessions does not apply: the data is made in memory, in microseconds.
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    warnings.filterwarnings("ignore", message=".*LeafSpec.*is deprecated.*")
    if HydraConfig.get().mode != RunMode.RUN:
        run(config)
        return
    try:
        run(config)
    except USER_ERRORS as error:
        # Hydra would add advice about its own internals.
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
