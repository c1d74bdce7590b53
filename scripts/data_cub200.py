"""Download CUB-200-2011 (1.1 GB), check it and unpack it under the data root.

python scripts/data_cub200.py --root ~/data
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.cub200.download import OFFICIAL, prepare
from experiments.download import Archive


def main(arguments: Sequence[str] | None = None, archive: Archive = OFFICIAL) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        description="Download CUB-200-2011 (1.1 GB), check it and unpack it under the data root. What is there "
        "already is not downloaded again: neither a part of the archive, nor the archive, nor the unpacked folder.",
    )
    parser.add_argument("--root", type=Path, help="data root (default: the environment variable TENSORMEM_DATA)")
    options = parser.parse_args(arguments)
    root = options.root or os.environ.get("TENSORMEM_DATA")
    if not root:
        parser.error("no data root: set TENSORMEM_DATA to the folder for data sets, or give --root FOLDER")
    try:
        prepare(Path(root), archive)
    except (OSError, ValueError) as error:  # of the download, the archive and the lists; of the disk, too
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
