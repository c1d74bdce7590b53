"""One bar for all the runs of a table."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

# What `experiments.progress` prints every few steps.
_STEP = re.compile(r": step (\d+)/(\d+)  train ")
_WIDTH = 24


class OverallProgress:
    """How much of all runs is done, by the minutes that each was estimated at, and how long the rest takes.

    Args:
        minutes: estimate for what is left of each run that is to be done, in order.
        steps_done: for each of them the steps that it has done before.
    """

    def __init__(self, minutes: Sequence[float], steps_done: Sequence[int]) -> None:
        self.minutes = list(minutes)
        self.steps_done = list(steps_done)
        self.done = 0
        self.share = 0.0
        self._start = time.monotonic()

    def finish_run(self) -> None:
        """The current run is over, well or not."""
        self.done += 1
        self.share = 0.0

    def see(self, line: str) -> bool:
        """Take the step out of a run's line; False where there is none."""
        found = _STEP.search(line)
        if found is None:
            return False
        step, total = int(found[1]), int(found[2])
        before = self.steps_done[self.done]
        self.share = (step - before) / max(1, total - before)
        return True

    def relay(self, line: str) -> None:
        """Print a line of a run, and the bar below each of its steps."""
        print(line, end="", flush=True)
        if self.see(line):
            print(self.bar(), flush=True)

    def bar(self) -> str:
        """One line: the bar, runs done, and minutes left by the pace so far (by the estimates at first)."""
        total = sum(self.minutes)
        done = sum(self.minutes[: self.done])
        if self.done < len(self.minutes):
            done += self.share * self.minutes[self.done]
        fraction = done / total if total else 1.0
        spent = (time.monotonic() - self._start) / 60
        left = spent * (1 - fraction) / fraction if fraction > 0.02 else total - done
        filled = round(_WIDTH * fraction)
        number = min(self.done + 1, len(self.minutes))
        return (
            f"  overall [{'#' * filled}{'.' * (_WIDTH - filled)}] {fraction:.0%}, run {number} of {len(self.minutes)}, "
            f"about {duration(left)} left"
        )


def duration(minutes: float) -> str:
    """`40 min`, or `5.2 h` from a hundred minutes on."""
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"
