"""Download CUB-200-2011 (1.1 GB), check it and unpack it under the data root.

python scripts/data_cub200.py --root ~/data
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from experiments.cub200.download import OFFICIAL, prepare
from experiments.download import Archive, run_command

_WHAT = (
    "Download CUB-200-2011 (1.1 GB), check it and unpack it under the data root. What is there "
    "already is not downloaded again: neither a part of the archive, nor the archive, nor the unpacked folder."
)


def main(arguments: Sequence[str] | None = None, archive: Archive = OFFICIAL) -> int:
    """Command line; returns the exit status."""
    return run_command(arguments, _WHAT, lambda root: prepare(root, archive))


if __name__ == "__main__":
    sys.exit(main())
