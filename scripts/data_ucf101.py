"""Download UCF-101 (6.9 GB), unpack it under the data root and check it.

python scripts/data_ucf101.py --root ~/data
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from experiments.download import run_command
from experiments.ucf101.download import OFFICIAL, Source, prepare

_WHAT = (
    "Download UCF-101 (6.9 GB) and its official splits, unpack and check them under the data root. "
    "What is there already is not downloaded again: neither a part of an archive, nor an archive, nor an unpacked "
    "folder. The clips are a RAR archive: it takes unrar, unar, 7z or bsdtar to unpack them."
)


def main(arguments: Sequence[str] | None = None, source: Source = OFFICIAL) -> int:
    """Command line; returns the exit status."""
    return run_command(arguments, _WHAT, lambda root: prepare(root, source))


if __name__ == "__main__":
    sys.exit(main())
