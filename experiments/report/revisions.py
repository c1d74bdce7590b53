"""When the code was written that a run was made with: results hold its revision, and no date that could differ."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_REVISION = re.compile(r"[0-9a-f]{40,64}")


def revision_dates(revisions: Iterable[str | None]) -> dict[str, str]:
    """Dates (YYYY-MM-DD) of those revisions that this checkout knows; none, where it is no checkout."""
    known = sorted({revision for revision in revisions if revision and _REVISION.fullmatch(revision)})
    if not known:
        return {}
    # Inside a git hook these variables point git at another repository.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    command = ["git", "-C", str(_ROOT), "log", "--no-walk", "--ignore-missing", "--format=%H %cs", *known, "--"]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    # Where all are missing, git shows the latest revision instead.
    dates = dict(line.split() for line in done.stdout.splitlines())
    return {revision: dates[revision] for revision in known if revision in dates}
