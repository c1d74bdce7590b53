"""Make finished runs results of record: copy their result files to `experiments/<benchmark>/results/`.

python scripts/publish.py outputs/wikitext/base-seed0-0123456789 ...
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.results import ResultError, publish


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Copy the result files of finished runs to the results of record.")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folder, or its result.json")
    options = parser.parse_args(arguments)
    for run in options.runs:
        path = run / "result.json" if run.is_dir() else run
        try:
            print(publish(path))
        except (ResultError, OSError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    print("python -m experiments.tables all --write    # makes tables, sources of figures and READMEs anew")
    return 0


if __name__ == "__main__":
    sys.exit(main())
