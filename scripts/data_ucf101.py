"""Download UCF-101 (6.9 GB), unpack it under the data root and check it.

python scripts/data_ucf101.py --root ~/data
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.ucf101.download import OFFICIAL, Source, prepare


def main(arguments: Sequence[str] | None = None, source: Source = OFFICIAL) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        description="Download UCF-101 (6.9 GB) and its official splits, unpack and check them under the data root. "
        "What is there already is not downloaded again: neither a part of an archive, nor an archive, nor an unpacked "
        "folder. The clips are a RAR archive: it takes unrar, unar, 7z or bsdtar to unpack them.",
    )
    parser.add_argument("--root", type=Path, help="data root (default: the environment variable TENSORMEM_DATA)")
    options = parser.parse_args(arguments)
    root = options.root or os.environ.get("TENSORMEM_DATA")
    if not root:
        parser.error("no data root: set TENSORMEM_DATA to the folder for data sets, or give --root FOLDER")
    try:
        prepare(Path(root), source)
    except (OSError, ValueError) as error:  # of the download, the archives and the lists; of the disk, too
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
