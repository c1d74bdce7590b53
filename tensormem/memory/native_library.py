"""Builds ``native.cpp`` with the machine's C++ compiler, once, and loads it.

The library lies in the user's cache folder under a name that stands for all that it was built from: the source, the
compiler's command and version, and the processor. What another machine built is not taken.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = Path(__file__).with_name("native.cpp")
FLAGS = ("-std=c++20", "-O3", "-march=native", "-fopenmp", "-fPIC", "-shared", "-fno-strict-aliasing")
BUILD_SECONDS = 300

_log = logging.getLogger(__name__)


@functools.cache
def library() -> ctypes.CDLL | None:
    """The library, or None where it can't be built; the log says why, once."""
    compiler = _compiler()
    if compiler is None:
        return None
    try:
        path = _built(compiler)
        loaded = ctypes.CDLL(str(path))
    except (OSError, subprocess.SubprocessError) as error:
        output = getattr(error, "stderr", None) or ""
        _log.warning("fused scan on cpu: native.cpp was not built, %s\n%s", error, output[-2000:])
        return None
    _log.info("fused scan on cpu: native, vectors of %d bytes", loaded.vector_bytes())
    loaded.vector_bytes.restype = ctypes.c_int64
    for name in ("scratch_size_float", "scratch_size_double"):
        getattr(loaded, name).restype = ctypes.c_int64
    return loaded


@torch.compiler.assume_constant_result
def vector_bytes() -> int:
    """Bytes of the vectors that the library was built for; 0 where it could not be built."""
    loaded = library()
    return 0 if loaded is None else int(loaded.vector_bytes())


def cache_folder() -> Path:
    """Where what is built is kept: ``TENSORMEM_CACHE``, else the user's cache folder."""
    named = os.environ.get("TENSORMEM_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tensormem"


def _compiler() -> str | None:
    """A compiler that knows the vector types and the OpenMP that the source uses."""
    named = os.environ.get("CXX")
    return next((found for name in ([named] if named else ["g++", "clang++"]) if (found := shutil.which(name))), None)


def _built(compiler: str) -> Path:
    command = [compiler, *FLAGS]
    version = subprocess.run([compiler, "--version"], check=True, capture_output=True, text=True, timeout=60).stdout
    made_from = [SOURCE.read_text(), *command, version, platform.machine(), _processor()]
    digest = hashlib.sha256("\0".join(made_from).encode()).hexdigest()[:16]
    target = cache_folder() / f"native-{digest}.so"
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        # Several processes may build at once: each its own file, and the last to be ready takes the name.
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            made = Path(folder, target.name)
            _log.info("fused scan on cpu: building native.cpp, a few seconds, once on this machine")
            subprocess.run(
                [*command, str(SOURCE), "-o", str(made)],
                check=True, capture_output=True, text=True, timeout=BUILD_SECONDS,
            )  # fmt: skip
            made.replace(target)
    return target


def _processor() -> str:
    """What tells processors apart for whom ``-march=native`` means different things."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
