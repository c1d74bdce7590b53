"""Weights & Biases: a mirror of the runs, never their store."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import Any, Literal, get_args

import wandb
from pytorch_lightning.loggers import WandbLogger

Mode = Literal["auto", "online", "offline", "disabled"]


def resolve_mode(mode: Mode) -> str:
    """`auto` is what WANDB_MODE says, else online where a key is found, else offline.

    Raises:
        ValueError: an unknown mode.
    """
    if mode not in get_args(Mode):
        raise ValueError(f"logger.mode={mode!r} is unknown; choose one of {', '.join(get_args(Mode))}")
    if mode != "auto":
        return mode
    said = os.environ.get("WANDB_MODE")
    if said in ("online", "offline", "disabled"):
        return said
    return "online" if os.environ.get("WANDB_API_KEY") or _key_in_netrc() else "offline"


def make_logger(
    mode: Mode, project: str, folder: Path, group: str, name: str, run_id: str, config: Mapping[str, Any]
) -> WandbLogger | bool:
    """A logger that writes under the run's folder; False where W&B is disabled.

    Every metric is drawn against `trainer/global_step`, which Lightning logs beside it.

    Args:
        mode: see `resolve_mode`.
        project: W&B project.
        folder: the run's folder.
        group: the experiment; runs of one experiment stand together.
        name: the run's name.
        run_id: the same for the same run, so that a resumed run goes on where it was.
        config: what W&B shows as the run's config.

    Raises:
        OSError: ``online``, and W&B can't be reached; ``auto`` goes on offline.
    """
    resolved = resolve_mode(mode)
    if resolved == "disabled":
        return False
    # Read by wandb's own processes too, which settings passed here would not reach.
    os.environ.setdefault("WANDB_SILENT", "true")

    def start(mode: str) -> Any:
        return wandb.init(
            project=project,
            group=group,
            name=name,
            id=run_id,
            dir=str(folder),
            mode=mode,  # type: ignore[arg-type]
            resume=None if mode == "offline" else "allow",
            # A job of a multirun that failed may have left its run open.
            reinit="finish_previous",
            config=dict(config),
        )

    try:
        run = start(resolved)
    except wandb.Error as error:
        if mode == "online":
            raise OSError(f"logger.mode=online: {error}; logger.mode=offline needs no server") from error
        print(f"warning: W&B is not reached ({error}); logging offline", file=sys.stderr)
        run = start("offline")
    run.define_metric("trainer/global_step")
    run.define_metric("*", step_metric="trainer/global_step", step_sync=True)
    return WandbLogger(experiment=run)


def end_logging(logger: WandbLogger | bool, failed: bool = False, summary: Mapping[str, Any] | None = None) -> None:
    """End the run in W&B, which mirrors results and must not cost one: what goes wrong here is told, not raised.

    Args:
        logger: of `make_logger`.
        failed: how the run is marked.
        summary: of the run, added to what was logged.
    """
    if not isinstance(logger, WandbLogger):
        return
    try:
        if summary is not None:
            logger.experiment.summary.update(dict(summary))
        wandb.finish(exit_code=int(failed))
    except Exception as error:
        print(f"warning: W&B did not take the end of the run ({error}); its files are as they were", file=sys.stderr)


def _key_in_netrc() -> bool:
    try:
        return netrc().authenticators("api.wandb.ai") is not None
    except (FileNotFoundError, NetrcParseError):
        return False
