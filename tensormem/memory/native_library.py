"""Builds ``native.cpp`` with a C++ compiler, once, and loads it.

The compiler is the machine's own, or else that of the package ``ziglang``, which pip installs. The library lies in the
user's cache folder under a name that stands for all that it was built from: the source, the compiler's command and
version, and the processor, and for its own content. What another machine built is not taken, nor what is not whole.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import logging
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

SOURCE = Path(__file__).with_name("native.cpp")
FLAGS = ("-std=c++20", "-O3", "-march=native", "-pthread", "-fPIC", "-shared", "-fno-strict-aliasing")
BUILD_SECONDS = 300

_log = logging.getLogger(__name__)


@functools.cache
def library() -> ctypes.CDLL | None:
    """The library, or None where it can't be built; the log says why, once."""
    try:
        command = compiler()
    except ValueError as error:
        _log.warning("fused scan on cpu: CXX=%r is no command, %s", os.environ.get("CXX"), error)
        return None
    if command is None:
        missing = f"CXX={os.environ['CXX']!r} is not found" if os.environ.get("CXX") else "no compiler for native.cpp"
        _log.info(
            "fused scan on cpu: %s; without CXX the first of g++, clang++ and ziglang is taken, "
            "and `pip install ziglang` brings the last",
            missing,
        )
        return None
    try:
        loaded = ctypes.CDLL(str(_built(command)))
    except (OSError, subprocess.SubprocessError) as error:
        output = getattr(error, "stderr", None) or ""
        _log.warning("fused scan on cpu: native.cpp was not built, %s\n%s", error, output[-2000:])
        return None
    for name in ("vector_bytes", "shares_threads", "scratch_size_float", "scratch_size_double"):
        getattr(loaded, name).restype = ctypes.c_int64
    threads = "PyTorch's threads" if loaded.shares_threads() else "new threads a call"
    _log.info("fused scan on cpu: native, vectors of %d bytes, %s", loaded.vector_bytes(), threads)
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
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tensormem"
    except RuntimeError:  # a user without a home
        return Path(tempfile.gettempdir(), f"tensormem-{os.getuid()}")


def compiler() -> tuple[str, ...] | None:
    """The command of a compiler that knows the vector types that the source uses; None where there is none."""
    named = shlex.split(os.environ.get("CXX", ""))
    for name, *rest in [named] if named else [["g++"], ["clang++"]]:
        if found := shutil.which(name):
            return found, *rest
    if not named and importlib.util.find_spec("ziglang") is not None:
        return sys.executable, "-m", "ziglang", "c++"
    return None


def compiler_version(command: tuple[str, ...]) -> str:
    """What a compiler says of its version."""
    return _run([*command, "--version"], timeout=60)


def _run(command: list[str], timeout: int) -> str:
    environment = os.environ | {"ZIG_GLOBAL_CACHE_DIR": str(cache_folder() / "zig")}
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=timeout, env=environment).stdout


def _built(command: tuple[str, ...]) -> Path:
    version = compiler_version(command)
    made_from = [SOURCE.read_text(), *command, *FLAGS, version, platform.machine(), _processor()]
    digest = _digest("\0".join(made_from).encode())
    cache = cache_folder()
    for path in sorted(cache.glob(f"native-{digest}-*.so")):
        # What was cut off since it was built would end the process that loads it.
        if path.stem.endswith(_digest(path.read_bytes())):
            return path
        path.unlink(missing_ok=True)
    cache.mkdir(parents=True, exist_ok=True)
    # Several processes may build at once, each its own file.
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        made = Path(folder, "native.so")
        _log.info("fused scan on cpu: building native.cpp, at most a minute or two, once on this machine")
        _run([*command, *FLAGS, str(SOURCE), "-o", str(made)], timeout=BUILD_SECONDS)
        target = cache / f"native-{digest}-{_digest(made.read_bytes())}.so"
        made.replace(target)
    return target


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _processor() -> str:
    """What tells processors apart for whom ``-march=native`` means different things."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
