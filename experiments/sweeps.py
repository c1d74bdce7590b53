"""Sweeps that finish: every job of a `--multirun` is a process of its own, and what fails is told at the end.

A job leaves `<sweep folder>/<number>/status.json`. One that fails, whatever it dies of, stops no other; the same sweep
again runs what is missing, because a finished run is not run again and one that was cut off goes on.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

STATUS = "status.json"
INTERRUPTED = 130
# Lines of a failed job's errors that are kept.
_KEPT_LINES = 200

State = Literal["running", "finished", "failed", "killed", "interrupted", "skipped"]
# What the end of a sweep lists.
_FAILURES = ("failed", "killed")


def run_job(folder: Path, name: str, overrides: Sequence[str], done: bool, fail_fast: bool) -> State:
    """Run a job of a sweep to its end and leave its status; a failure is no error here.

    Args:
        folder: of the job, in that of the sweep.
        name: of the run.
        overrides: of the run, as on the command line of `experiments.train`.
        done: whether it was finished before.
        fail_fast: run nothing once a job of the sweep has failed.

    Raises:
        KeyboardInterrupt: the job was interrupted, and with it the sweep.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if done:
        print(f"{name}: finished before", flush=True)
        return _leave(folder, name, overrides, "finished")
    if fail_fast and any(status["state"] in _FAILURES for status in statuses(folder.parent)):
        return _leave(folder, name, overrides, "skipped")
    _leave(folder, name, overrides, "running")
    code, errors = _run(overrides)
    if code == INTERRUPTED or code == -signal.SIGINT:
        _leave(folder, name, overrides, "interrupted")
        raise KeyboardInterrupt
    if code < 0:
        reason = f"killed by {signal.Signals(-code).name}"
        return _leave(folder, name, overrides, "killed", reason=reason, traceback=errors)
    if code:
        reason = next((line for line in reversed(errors.splitlines()) if line.strip()), f"exit status {code}")
        return _leave(folder, name, overrides, "failed", reason=reason, traceback=errors)
    return _leave(folder, name, overrides, "finished")


def statuses(sweep: Path) -> list[dict[str, Any]]:
    """What the jobs of a sweep left, by their numbers; a job that has just begun to write is not there yet."""
    found = []
    for path in sorted(sweep.glob(f"*/{STATUS}"), key=lambda path: (len(path.parent.name), path.parent.name)):
        try:
            found.append(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            continue
    return found


def summary(found: Sequence[Mapping[str, Any]]) -> tuple[str, bool]:
    """What is said at the end of a sweep, and whether all went well."""
    counts = {state: sum(status["state"] == state for status in found) for state in State.__args__}  # type: ignore[attr-defined]
    lines = [f"{len(found)} jobs: " + ", ".join(f"{count} {state}" for state, count in counts.items() if count)]
    for status in found:
        if status["state"] in _FAILURES:
            command = f"python -m experiments.train {shlex.join(status['overrides'])}"
            lines.append(f"  {status['state']}: {status['name']}: {status['reason']}\n    {command}")
    missing = len(found) - counts["finished"]
    if missing:
        lines.append(f"The same sweep again runs the {missing} that are missing.")
    return "\n".join(lines), not missing


class EndOfSweep(Callback):
    """Hydra's hook: tells what became of the jobs, and ends the process with status 1 where one isn't finished."""

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Say it."""
        found = statuses(Path(config.hydra.sweep.dir))
        if not found:
            return
        text, well = summary(found)
        print(f"\n{text}", file=sys.stdout if well else sys.stderr, flush=True)
        if not well:
            sys.exit(1)


def job_folder() -> Path:
    """Of the job that Hydra is running."""
    return Path(HydraConfig.get().runtime.output_dir)


def job_overrides() -> list[str]:
    """Of the job that Hydra is running."""
    return list(HydraConfig.get().overrides.task)


def _run(overrides: Sequence[str]) -> tuple[int, str]:
    """The exit status of a run, and the last that it wrote to its standard error, which is passed on."""
    # A failure's traceback whole, and lines as they come.
    environment = os.environ | {"HYDRA_FULL_ERROR": "1", "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "experiments.train", *overrides]
    errors: deque[str] = deque(maxlen=_KEPT_LINES)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace", env=environment) as process:
        assert process.stderr is not None
        # A terminal interrupts the run as well: it is waited for.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            for line in process.stderr:
                errors.append(line)
                print(line, end="", file=sys.stderr, flush=True)
        finally:
            signal.signal(signal.SIGINT, before)
    return process.returncode, "".join(errors)


def _leave(folder: Path, name: str, overrides: Sequence[str], state: State, **more: str) -> State:
    status = {"state": state, "name": name, "overrides": list(overrides), **more}
    partial = folder / f".{STATUS}.partial"
    partial.write_text(json.dumps(status, indent=1) + "\n", encoding="utf-8")
    os.replace(partial, folder / STATUS)
    return state
