"""Batches without end, and the processes that prepare them."""

import subprocess
import sys

from torch import Tensor, zeros
from torch.utils.data import IterableDataset

from experiments.batches import batch_numbers, endless_loader


class Many(IterableDataset):
    """Batches of so many tensors that a worker is always sending one."""

    def __iter__(self):
        for number in batch_numbers(7):
            yield [number, *(zeros(3) for _ in range(200))]


def test_workers_share_the_batches_out_and_end_well_while_they_send():
    batches = iter(endless_loader(Many(), num_workers=2))
    assert [next(batches)[0] for _ in range(5)] == [7, 8, 9, 10, 11]
    # Lightning does so at the end of training; it raises where a worker was killed.
    batches._shutdown_workers()
    assert [worker.exitcode for worker in batches._workers] == [0, 0]


def test_without_workers_the_order_is_the_same():
    batches = iter(endless_loader(Many(), num_workers=0))
    first = next(batches)
    assert first[0] == 7
    assert all(isinstance(tensor, Tensor) for tensor in first[1:])
    assert next(batches)[0] == 8


def test_what_a_worker_imports_is_without_the_trainer():
    """A spawned worker imports the main module, and that of its batches; Lightning would take it seconds."""
    modules = [f"experiments.{name}" for name in ("train", "wikitext.windows", "cub200.batches", "ucf101.batches")]
    heavy = {"pytorch_lightning", "lightning_fabric", "torchmetrics", "wandb", "matplotlib", "datasets"}
    code = f"import sys, {', '.join(modules)}; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "[]\n"
