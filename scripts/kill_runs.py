"""Kill a run at random moments, again and again, and compare its end with that of a run that nobody disturbed.

    python scripts/kill_runs.py --kills 20

Compared bit for bit: weights, optimiser, schedule, best score, early stopping's count and the state of the loops in
both checkpoints; the result's metrics, history and tests; every line that was logged. Only the speed may differ.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from experiments.checkpoints import BEST, LAST
from experiments.logged import METRICS, read_metrics

# A small run with dropout, whose random numbers are what a resumed run gets wrong first; it saves before every step.
RUN = [
    *("experiment=diagnostics", "model=diagnostics/tensor_layer", "scale=smoke", "training.steps=240"),
    *("training.evaluate_every=20", "training.patience=1000", "trainer.checkpoint_every=1", "trainer.log_every=5"),
    *("model.network.dropout=0.1", "trainer.accelerator=cpu", "logger.mode=disabled"),
]
_STEP = "  train "
# What a clock says.
_OF_TIME = ("timed_seconds", "timed_steps", "wall_seconds", "tokens_per_second")


def start(root: Path) -> subprocess.Popen[str]:
    """Start the run, or go on with it."""
    # The number of threads decides the order of sums.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "experiments.train", *RUN, f"runs.root={root}"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def finish(root: Path) -> Path:
    """Let the run go to its end; its folder.

    Raises:
        RuntimeError: it fails.
    """
    output, _ = (process := start(root)).communicate()
    if process.returncode:
        raise RuntimeError(f"the run failed with status {process.returncode}:\n{output}")
    (result,) = root.glob("*/*/result.json")
    return result.parent


def kill_once(root: Path, longest: float) -> str:
    """Go on with the run, and kill it at most so many seconds after its first line of training; what it said last."""
    process = start(root)
    lines: list[str] = []
    training = threading.Event()

    def listen() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.strip())
            if _STEP in line or "resuming" in line:
                training.set()
        training.set()

    listener = threading.Thread(target=listen)
    listener.start()
    training.wait()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(random.uniform(0, longest))
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
    process.wait()
    listener.join()
    last = lines[-1] if lines else "nothing"
    if process.returncode not in (0, -signal.SIGKILL):
        raise RuntimeError(f"the run failed with status {process.returncode}, after: {last}")
    return last


def differences(one: Path, other: Path) -> list[str]:
    """Where two finished runs' folders differ in what they should not."""
    found = []
    for name in (LAST, BEST):
        contents = [torch.load(folder / name, map_location="cpu", weights_only=True) for folder in (one, other)]
        found += [f"{name}: {place}" for place in _unlike(*contents)]
    results = [json.loads((folder / "result.json").read_text()) for folder in (one, other)]
    for block in ("metrics", "history", "tests", "gates"):
        found += [f"result.json: {block}{place}" for place in _unlike(results[0][block], results[1][block])]
    found += [f"{METRICS}: {place}" for place in _unlike(*(read_metrics(folder / METRICS) for folder in (one, other)))]
    return found


def _unlike(one: Any, other: Any, place: str = "") -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}, key=str):
            if not any(word in str(key) for word in _OF_TIME):
                if key in one and key in other:
                    yield from _unlike(one[key], other[key], f"{place}.{key}")
                else:
                    yield f"{place}.{key} is there once"
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple):
        if len(one) != len(other):
            yield f"{place}: {len(one)} and {len(other)} entries"
        for number, (left, right) in enumerate(zip(one, other, strict=False)):
            yield from _unlike(left, right, f"{place}[{number}]")
    elif isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if not torch.equal(one, other):
            yield place
    elif one != other:
        yield f"{place}: {one!r} and {other!r}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Kill a run at random moments and compare its end with a whole run's.")
    parser.add_argument("--kills", type=int, default=20, help="how often (default: 20)")
    parser.add_argument("--longest", type=float, default=1.5, help="seconds from its first step to a kill, at most")
    parser.add_argument("--seed", type=int, default=None, help="of the moments (default: other ones each time)")
    options = parser.parse_args(arguments)
    random.seed(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        roots = Path(folder) / "whole", Path(folder) / "killed"
        whole = finish(roots[0])
        survived = 0
        for number in range(1, options.kills + 1):
            last = kill_once(roots[1], options.longest)
            done = any(roots[1].glob("*/*/result.json"))
            print(f"kill {number}: {'the run had ended' if done else last}", flush=True)
            if done:
                break
            survived += 1
        killed = finish(roots[1])
        found = differences(whole, killed)
    print(f"{survived} kills survived; " + (f"{len(found)} differences:" if found else "no difference"))
    print(*found[:20], sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
