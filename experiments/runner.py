"""A run of one composed config: checked, trained, tested, and its result written to the run's folder."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import pytorch_lightning as pl
import torch
from hydra.utils import get_class, instantiate
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.utilities import rank_zero_only

from experiments.config_check import check_config
from experiments.fitting import fit_and_test
from experiments.resolvers import resolve
from experiments.results import (
    RESULT,
    SCHEMA_VERSION,
    check_portable,
    collect_provenance,
    portable_command,
    read_result,
    write_result,
)
from experiments.runs import check_unchanged, config_hash, exclusive, run_folder
from experiments.task import Task
from experiments.tracking import end_logging, make_logger
from experiments.training import Training


def run(config: DictConfig) -> dict[str, Any]:
    """Train, test and write the result file of one composed config; return the result.

    Nothing is written before the config, the model's causality and the data have been checked.

    Raises:
        ConfigError: the config is mistaken.
        CausalityError: the model reads the future and `allow_noncausal` is not set.
        RunInUseError: another process runs the same config.
        ConfigChangedError: the folder's run was made with other defaults.
    """
    resolved = resolve(config)
    check_config(resolved)
    check_portable(_portable(resolved))
    name = f"{resolved['model']['name']}-seed{resolved['seed']}"
    folder = run_folder(resolved)
    training: Training = instantiate(config.training)
    data = instantiate(config.data)
    task_class: type[Task] = get_class(resolved["task"])

    def build(**arguments: Any) -> Any:
        return instantiate(config.model.network, **arguments)

    # Of several processes one writes; Lightning knows which from the environment, before it has started.
    main_process = rank_zero_only.rank == 0
    report = task_class.preflight(build, resolved["model"]["name"], data, resolved["allow_noncausal"])
    verdict = "" if report is None else f"causality audit: {report.verdict}, "
    say = print if main_process else lambda *_, **__: None
    say(f"{name}: scale {resolved['size']['name']}, {training.steps} steps, {verdict}run folder {folder}", flush=True)
    if not (folder / RESULT).exists():
        data.setup()
    # Taken now: by the time the run ends, the checkout may have moved on.
    provenance = collect_provenance(_device(resolved["trainer"]["accelerator"]))
    with exclusive(folder) if main_process else nullcontext():
        if main_process:
            check_unchanged(folder, resolved)
        if (folder / RESULT).exists():
            say(f"{name}: finished before, see {folder / RESULT}", flush=True)
            return read_result(folder / RESULT)
        if main_process:
            OmegaConf.save(config, folder / "config.yaml", resolve=True)
        pl.seed_everything(resolved["seed"], verbose=False)
        built_from = {
            "network": resolved["model"]["network"],
            "data": _portable(resolved)["data"],
            "arguments": data.network_arguments,
        }
        task = task_class.of_run(build(**data.network_arguments), training, data, resolved["seed"], built_from)
        shown = {
            **_portable(resolved),
            "hash": config_hash(resolved),
            "causal": None if report is None else report.passed,
        }
        logger = main_process and make_logger(
            folder=folder,
            group=resolved["name"],
            name=name,
            run_id=folder.name,
            config=shown,
            **resolved["logger"],
        )
        blocks = fit_and_test(
            task, data, training, resolved["trainer"], folder, name, logger, resolved["allow_noncausal"]
        )
        if report is not None:
            blocks["causal"] = blocks["causal"] and report.passed
            blocks["audit"]["start"] = report.as_dict()
        published = resolved.get("published", {}).get(resolved["model"]["name"])
        result = {
            **_identity(resolved),
            "published": {} if published is None else {task.published_metric: published},
            "provenance": provenance,
            **blocks,
            **data.extra_result,
        }
        if main_process:
            write_result(folder / RESULT, result)
        # After that: whatever becomes of W&B, the result is there.
        causal = {} if report is None else {"causal": result["causal"]}
        end_logging(logger, summary=causal | result["metrics"])
    say(f"{name}: {task.headline(result['metrics'])}, written to {folder / RESULT}", flush=True)
    return result


def _identity(config: Mapping[str, Any]) -> dict[str, Any]:
    """The blocks of a result that say which run it is of."""
    model = config["model"]["name"]
    return {
        "schema_version": SCHEMA_VERSION,
        "status": "finished",
        "experiment": config["name"],
        "model": model,
        "seed": config["seed"],
        "config_hash": config_hash(config),
        "scale": config["size"]["name"],
        "protocol": config["protocol"],
        "command": portable_command("python -m experiments.train " + shlex.join(sys.argv[1:])),
        "config": _portable(config),
    }


def _portable(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config without what is true of one machine only."""
    kept = {key: value for key, value in config.items() if key not in ("runs", "logger", "published", "sweep")}
    here = ("root", "cache", "cache_folder")
    kept["data"] = {key: value for key, value in config["data"].items() if key not in here}
    return kept


def _device(accelerator: str) -> str:
    return "cuda" if torch.cuda.is_available() and accelerator != "cpu" else "cpu"
