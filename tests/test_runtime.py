"""The allocator's settings, in processes of their own."""

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import json, resource, sys
import torch
from tensormem.runtime import keep_freed_memory

kept = keep_freed_memory() if sys.argv[1] == "keep" else None

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def use():
    # 32 MB in four blocks, every page of them touched.
    blocks = [torch.ones(2_000_000) for _ in range(4)]

for _ in range(3):
    use()
before = faults()
for _ in range(5):
    use()
print(json.dumps({"kept": kept, "faults": faults() - before}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_freed_memory_is_used_again():
    def run(argument: str) -> dict:
        # Fixed from outside, because glibc moves its thresholds as a process goes on, and not always alike.
        environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}
        command = [sys.executable, "-c", PROGRAM, argument]
        process = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return json.loads(process.stdout)

    kept = run("keep")
    if not kept["kept"]:
        pytest.skip("the C library has no mallopt")
    # 160 MB are 39,000 pages; a block that finds its place taken once costs 1,953.
    assert kept["faults"] < 4_000
    assert run("default")["faults"] > 30_000
