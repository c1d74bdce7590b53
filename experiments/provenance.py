"""Where a result comes from: code revision, package versions, hardware. What is unknown is null."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "pytorch-lightning", "hydra-core", "omegaconf", "numpy", "wandb", "datasets")


def collect_provenance(device: Any = "cpu") -> dict[str, Any]:
    """The `provenance` block of a result.

    Args:
        device: where the run computes: a `torch.device` or its name (`cpu`, `cuda`, `cuda:1`).

    Returns:
        `git_revision` and `git_dirty` of the checkout that holds this code (null outside a checkout or
        without git), `versions` (null for a package that isn't installed) and `hardware`: `device`, `name` of
        the processor or GPU, its vector `instructions` as torch uses them (`AVX2`, `AVX512`, ...; null for a GPU),
        usable `cores`, torch `threads`, `memory_gib` of that device (GiB, null if unknown) and `platform`. Never
        raises.
    """
    revision, dirty = _git_state(Path(__file__).resolve().parents[1])
    return {
        "git_revision": revision,
        "git_dirty": dirty,
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
        "hardware": _hardware(str(device)),
    }


def machine(provenance: dict[str, Any]) -> str:
    """Processor, its vector instructions where they are on record, and threads, for a caption."""
    hardware = provenance["hardware"]
    instructions = f", {hardware['instructions']}" if hardware.get("instructions") else ""
    threads = hardware["threads"]
    return f"{hardware['name']}{instructions}, {threads} thread{'' if threads == 1 else 's'}"


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git_state(root: Path) -> tuple[str | None, bool | None]:
    # Inside a git hook these variables point git at another repository.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(root), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=20,
        ).stdout.strip()

    try:
        # Installed into some other project's checkout, that project's revision would be a lie.
        if Path(git("rev-parse", "--show-toplevel")).resolve() != root:
            return None, None
        return git("rev-parse", "--verify", "HEAD"), bool(git("status", "--porcelain"))
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return None, None


def _hardware(device: str) -> dict[str, Any]:
    kind = device.partition(":")[0]
    name, memory, threads, instructions = None, None, 1, None
    try:
        import torch  # here, so that tables need no torch

        threads = torch.get_num_threads()
        instructions = None if kind == "cuda" else torch.backends.cpu.get_cpu_capability()
        if kind == "cuda":
            properties = torch.cuda.get_device_properties(device)
            name, memory = properties.name, properties.total_memory
    except Exception:  # a broken driver must not cost a finished run its result
        name = None
    if kind != "cuda":
        name, memory = _processor(), _physical_memory()
    return {
        "device": kind,
        "name": name or "unknown",
        "instructions": instructions,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "threads": threads,
        "memory_gib": None if memory is None else round(memory / 2**30, 1),
        "platform": f"{platform.system()} {platform.machine()}",
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except (OSError, UnicodeError):
        pass
    return platform.processor() or platform.machine()


def _physical_memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
