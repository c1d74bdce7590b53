"""Batches without end, and the processes that prepare them."""

from torch import Tensor, zeros
from torch.utils.data import IterableDataset

from experiments.endless import batch_numbers, endless_loader


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
