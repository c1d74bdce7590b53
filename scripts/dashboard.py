"""Look at the offline W&B runs in the terminal: lists them, then opens `wandb leet` on all of them.

    python scripts/dashboard.py [--root DIR] [--match TEXT] [--list]

The run root is `--root`, else `$TENSORMEM_RUNS`, else `outputs/`. Nothing is uploaded.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path


def find_runs(root: Path, match: str = "") -> list[Path]:
    """Offline run folders (`wandb/offline-run-*` with a log in it) below `root`, newest first.

    Args:
        match: keep only the runs whose path below `root` holds this text.
    """
    logs = root.rglob("wandb/offline-run-*/*.wandb")
    runs = {log.parent for log in logs if match in str(log.parent.relative_to(root))}
    # The folder's name starts with its date and time.
    return sorted(runs, key=lambda run: (run.name, str(run)), reverse=True)


def gather(runs: Sequence[Path], workspace: Path) -> Path:
    """A `wandb` folder under `workspace` that shows all `runs`, by links to their logs.

    `wandb leet` takes one folder, and each run may keep its log in its own. The run folders made here are
    real ones with links inside: a folder that is itself a link is easily passed over.
    """
    folder = workspace / "wandb"
    for run in runs:
        (folder / run.name).mkdir(parents=True, exist_ok=True)
        for log in run.glob("*.wandb"):
            (folder / run.name / log.name).symlink_to(log.resolve())
    return folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    default = os.environ.get("TENSORMEM_RUNS") or "outputs"
    parser = argparse.ArgumentParser(description="Look at the offline W&B runs in the terminal.")
    parser.add_argument("--root", type=Path, default=Path(default), help=f"run root (default: {default})")
    parser.add_argument("--match", default="", help="only runs whose path holds this text")
    parser.add_argument("--list", action="store_true", help="list the runs and stop")
    options = parser.parse_args(arguments)

    runs = find_runs(options.root, options.match) if options.root.is_dir() else []
    if not runs:
        chosen = f" that match {options.match!r}" if options.match else ""
        print(
            f"error: no offline W&B runs{chosen} under {options.root}; train something first, "
            "say `make reproduce-wikitext ARGS='scale=smoke'`, or name the root: --root or TENSORMEM_RUNS",
            file=sys.stderr,
        )
        return 1
    print(f"{len(runs)} offline run(s) under {options.root}, newest first:")
    for run in runs:
        print(f"  {run.relative_to(options.root)}")
    if options.list:
        return 0
    if not sys.stdout.isatty():
        print("no terminal to draw in; open one with: wandb leet RUN_FOLDER")
        return 0
    with tempfile.TemporaryDirectory(prefix="tensormem-dashboard-") as workspace:
        folder = gather(runs, Path(workspace))
        # The interpreter's own wandb, whatever is first on PATH.
        command = [sys.executable, "-m", "wandb", "leet", str(folder)]
        return subprocess.run(command, env=os.environ | {"WANDB_MODE": "offline"}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
