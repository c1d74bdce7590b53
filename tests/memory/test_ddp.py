"""The memory under DistributedDataParallel: two processes give the gradients of one."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from tests.helpers import FLOAT32, assert_close

PROGRAM = """
import json, sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from tensormem import TensorMemory

class Read(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.memory = TensorMemory(5, 3, (3, 2, 4), chunk=2)

    def forward(self, x):
        return self.memory(x)[0]

rank, size, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
torch.manual_seed(0)
model = Read()
x = torch.randn(4, 8, 5, generator=torch.Generator().manual_seed(1)).chunk(size)[rank]
if size > 1:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    model = DistributedDataParallel(model)
model(x).square().mean().backward()
if rank == 0:
    print(json.dumps({name.removeprefix("module."): p.grad.tolist() for name, p in model.named_parameters()}))
if size > 1:
    dist.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes_give_the_gradients_of_one(tmp_path):
    def gradients(size: int) -> dict[str, torch.Tensor]:
        command = [sys.executable, "-c", PROGRAM]
        processes = [
            subprocess.Popen(
                [*command, str(rank), str(size), str(tmp_path / "store")], stdout=subprocess.PIPE, text=True
            )
            for rank in range(size)
        ]
        outputs = [process.communicate(timeout=120)[0] for process in processes]
        assert all(process.returncode == 0 for process in processes)
        return {name: torch.tensor(value) for name, value in json.loads(outputs[0]).items()}

    one, two = gradients(1), gradients(2)
    assert one.keys() == two.keys()
    for name in one:
        assert_close(two[name], one[name], name, FLOAT32)
