"""What an observer sees of a memory is what the memory does."""

import pytest
import torch

from tensormem import TensorMemory
from tensormem.layers.block import Block
from tensormem.layers.local import LocalAttention
from tensormem.layers.stack import Stack
from tensormem.memory import without_reads
from tensormem.memory.observe import observed, occupancy


@pytest.fixture
def memory():
    torch.manual_seed(0)
    return TensorMemory(12, channels=3, grid=(4, 3), chunk=4)


def test_every_call_is_seen_and_nothing_afterwards(memory):
    x = torch.randn(2, 11, 12)
    with observed(memory) as seen:
        _, state = memory(x)
        memory.flush(state)
    expected = memory(x)[1].h
    memory(x)
    (one,) = seen
    assert torch.equal(one.h, expected)
    assert one.inputs.read_coordinates.shape == (2, 3, 2)
    assert one.inputs.write_coordinates.shape == (2, 2, 2)
    assert one.inputs.sigma.shape == (2, 2, 1)
    assert not any(tensor.requires_grad for tensor in (*one.inputs, one.h))
    assert memory.observers == []


def test_observers_leave_when_something_fails(memory):
    with pytest.raises(ValueError, match="this memory takes"), observed(memory):
        memory(torch.randn(2, 11, 13))
    assert memory.observers == []


@pytest.mark.parametrize("threading", ["layer", "depth"])
def test_a_stack_is_seen_layer_by_layer(memory, threading):
    blocks = [Block(12, LocalAttention(12, 2, window=4)) for _ in range(3)]
    stack = Stack(blocks, 12, memory, threading)
    x = torch.randn(1, 10, 12)
    with observed(stack) as seen:
        stack(x)
    assert len(seen) == 3
    assert not torch.equal(seen[0].h, seen[1].h)


def test_occupancy_is_the_least_share_of_the_points():
    one = torch.zeros(1, 2, 4, 5)
    one[0, :, 1, 2] = torch.tensor([3.0, 4.0])
    even = torch.ones(1, 2, 4, 5)
    # 20 points: one with half of the energy, 19 that share the rest.
    half = torch.ones(1, 1, 4, 5)
    half[0, 0, 0, 0] = 19**0.5
    empty = torch.zeros(1, 1, 4, 5)
    assert occupancy(one).item() == pytest.approx(1 / 20)
    assert occupancy(even).item() == pytest.approx(0.9)
    assert occupancy(half, 0.49).item() == pytest.approx(1 / 20)
    assert occupancy(half, 0.75).item() == pytest.approx((1 + 10) / 20)
    assert occupancy(empty).item() == 0


def test_a_copy_without_reads_is_not_observed(memory):
    tokens = torch.randn(2, 11, 12)
    with observed(memory) as seen:
        memory(tokens)
        without_reads(memory)(tokens)
    assert len(seen) == 1
