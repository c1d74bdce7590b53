"""Attention without a direction against a loop over pairs of tokens."""

from __future__ import annotations

import math

import pytest
import torch

from tensormem.layers.bidirectional import BidirectionalAttention
from tests.helpers import EXACT_FLOAT64, assert_all_close, assert_close, gradients, randomise

DIM, NUM_HEADS, LENGTH = 8, 2, 9


def make(half_width=None, **kwargs):
    attention = BidirectionalAttention(DIM, NUM_HEADS, half_width=half_width, **kwargs).double()
    randomise(attention, torch.Generator().manual_seed(0))
    return attention


def make_tokens():
    return torch.randn(2, LENGTH, DIM, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def pair_by_pair(attention, x):
    head_dim = DIM // NUM_HEADS
    queries, keys, values = attention.qkv(x).split(DIM, dim=-1)
    rows = []
    for n in range(LENGTH):
        heads = []
        for head in range(NUM_HEADS):
            part = slice(head * head_dim, (head + 1) * head_dim)
            near = [m for m in range(LENGTH) if attention.half_width is None or abs(n - m) <= attention.half_width]
            scores = torch.stack([(queries[:, n, part] * keys[:, m, part]).sum(-1) for m in near]) / math.sqrt(head_dim)
            shares = scores.softmax(0)
            heads.append(sum(share[:, None] * values[:, m, part] for share, m in zip(shares, near, strict=True)))
        rows.append(torch.cat(heads, dim=-1))
    return attention.output(torch.stack(rows, dim=1))


@pytest.mark.parametrize("half_width", [None, 0, 1, 4, LENGTH])
def test_each_token_attends_to_those_in_reach(half_width):
    attention, x = make(half_width), make_tokens().requires_grad_()
    actual, state = attention(x)
    assert state is None
    expected = pair_by_pair(attention, x)
    assert_close(actual, expected, "output", EXACT_FLOAT64)
    inputs = [("x", x), *attention.named_parameters()]
    assert_all_close(
        gradients({"output": actual}, inputs, torch.Generator().manual_seed(2)),
        gradients({"output": expected}, inputs, torch.Generator().manual_seed(2)),
        EXACT_FLOAT64,
    )


def test_dropout_acts_in_training_only():
    attention, x = make(dropout=0.5), make_tokens()
    assert not torch.equal(attention.train()(x)[0], attention(x)[0])
    assert torch.equal(attention.eval()(x)[0], attention(x)[0])


@pytest.mark.usefixtures("unchecked")
def test_a_wrong_setting_is_named():
    with pytest.raises(ValueError, match="half_width=-1 must not be negative"):
        BidirectionalAttention(DIM, NUM_HEADS, half_width=-1)
    with pytest.raises(ValueError, match=r"num_heads=3 .*dim=8"):
        BidirectionalAttention(DIM, 3)
