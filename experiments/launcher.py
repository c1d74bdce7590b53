"""Training runs that start at once: `python -m experiments.launcher` loads the libraries once and forks for each run.

A run is what `python -m experiments.train` is, a process of its own; it is spared the seconds that the imports take, of
which a suite of dozens of short runs would be made. A line of JSON on the standard input is the overrides of a run; its
output is passed on, and a line that starts with `DONE` and ends with the exit status follows it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

# What a run imports; `experiments.train` itself is run anew for every run.
PRELOAD = ("experiments.runner", "experiments.wikitext.task")
# No run prints it.
DONE = "\x04done "
# Lines as they come; and what `tensormem.runtime` says of pools of memory.
_ENVIRONMENT = {"PYTHONUNBUFFERED": "1", "MALLOC_ARENA_MAX": "1"}


class Launcher:
    """Runs `experiments.train`, one run after the other, as a context manager.

    Args:
        module: what is run in the place of `experiments.train`; for tests.
        preload: what is imported once, for all runs.
    """

    def __init__(self, module: str = "experiments.train", preload: Sequence[str] = PRELOAD) -> None:
        self.module = module
        self.preload = list(preload)

    def __enter__(self) -> Self:
        """Start loading."""
        self._server = subprocess.Popen(
            [sys.executable, "-m", "experiments.launcher", self.module, *self.preload],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | _ENVIRONMENT,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Let it end; a run that goes on is waited for."""
        with contextlib.suppress(BrokenPipeError):
            if self._server.stdin is not None:
                self._server.stdin.close()
        self._server.wait()

    def run(self, overrides: Sequence[str], see: Callable[[str], None]) -> int:
        """One run; its exit status.

        Args:
            overrides: as on the command line of `experiments.train`.
            see: called with each line that the run prints.

        Raises:
            KeyboardInterrupt: once the run, which the terminal interrupts as well, has ended.
            ChildProcessError: the launcher itself is gone.
        """
        stdin, stdout = self._server.stdin, self._server.stdout
        if stdin is None or stdout is None:
            raise ChildProcessError("the launcher has no pipes")
        try:
            stdin.write(json.dumps(list(overrides)) + "\n")
            stdin.flush()
        except BrokenPipeError as error:
            raise ChildProcessError(f"the launcher ended with status {self._server.wait()}") from error
        interrupts: list[int] = []
        # An exception could come between a line's arrival and its reading, and the line would be lost.
        before = signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
        try:
            for line in iter(stdout.readline, ""):
                # A run may end within a line.
                text, found, code = line.partition(DONE)
                if not found:
                    see(line)
                    continue
                if text:
                    see(text + "\n")
                if interrupts:
                    raise KeyboardInterrupt
                return int(code)
        finally:
            signal.signal(signal.SIGINT, before)
        raise ChildProcessError(f"the launcher ended with status {self._server.wait()}")


def serve(module: str) -> None:
    """Fork for each line of the standard input, wait for the run, say its status."""
    # A terminal interrupts all processes: this one only waits.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _become(module, json.loads(line))
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        print(f"{DONE}{code}", flush=True)


def _become(module: str, overrides: list[str]) -> None:
    """In the child: be `python -m module overrides`, to the end."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.argv = [module, *overrides]
    status: int | str | None = 1
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as error:
        status = error.code  # type: ignore[assignment]
        if isinstance(status, str):
            print(status, file=sys.stderr)
            status = 1
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Not sys.exit, which would go on with the loop of the parent's copy.
        os._exit(status or 0)


if __name__ == "__main__":
    for name in sys.argv[2:]:
        importlib.import_module(name)
    serve(sys.argv[1])
