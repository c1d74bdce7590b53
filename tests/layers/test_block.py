"""The block and the gated fusion against their equations."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from tensormem.layers.attention import CausalAttention
from tensormem.layers.block import MLP, Block, DropPath, GatedFusion
from tensormem.memory import TensorMemory
from tests.helpers import EXACT_FLOAT64, assert_close, randomise

DIM = 8


def make_tokens(length=7, seed=1):
    return torch.randn(2, length, DIM, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def randomised(module, seed=0):
    module = module.double()
    randomise(module, torch.Generator().manual_seed(seed))
    return module


def layer_norm(x, norm):
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + norm.eps).sqrt() * norm.weight + norm.bias


def gelu(x):
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def test_mlp_is_two_linear_maps_around_a_gelu():
    mlp, x = randomised(MLP(DIM, ratio=2.5)), make_tokens()
    assert mlp.hidden.weight.shape == (20, DIM)
    inner = gelu(x @ mlp.hidden.weight.T + mlp.hidden.bias)
    assert_close(mlp(x), inner @ mlp.output.weight.T + mlp.output.bias, "output", EXACT_FLOAT64)


def test_block_is_pre_norm_with_a_residual_around_each_branch():
    block, x = randomised(Block(DIM, CausalAttention(DIM, 2), mlp_ratio=2.0)), make_tokens()
    mixed, expected_state = block.mixer(layer_norm(x, block.mixer_norm))
    expected = x + mixed
    expected = expected + block.mlp(layer_norm(expected, block.mlp_norm))
    actual, state = block(x)
    assert_close(actual, expected, "output", EXACT_FLOAT64)
    assert_close(state.keys, expected_state.keys, "keys in the state", EXACT_FLOAT64)


def test_block_hands_the_state_to_its_mixer():
    block, x = randomised(Block(DIM, CausalAttention(DIM, 2), mlp_ratio=2.0)), make_tokens()
    first, state = block(x[:, :3])
    second, _ = block(x[:, 3:], state)
    assert_close(torch.cat([first, second], dim=1), block(x)[0], "output in two calls", EXACT_FLOAT64)


def test_block_drops_both_branches_and_nothing_else():
    """With everything dropped, the residual stream must come out as it went in."""
    block, x = randomised(Block(DIM, CausalAttention(DIM, 2), mlp_ratio=2.0, dropout=1.0)), make_tokens()
    assert torch.equal(block.train()(x)[0], x)
    assert not torch.equal(block.eval()(x)[0], x)


def test_drop_path_leaves_out_whole_sequences_and_scales_the_others():
    drop, x = DropPath(0.25), torch.ones(4000, 3, 2)
    torch.manual_seed(0)
    y = drop.train()(x)
    assert sorted(set(y.flatten().tolist())) == [0.0, pytest.approx(1 / 0.75)]
    assert torch.equal(y, y[:, :1, :1].expand_as(y))
    # Five standard deviations of a share of 4,000.
    assert float((y[:, 0, 0] == 0).double().mean()) == pytest.approx(0.25, abs=5 * math.sqrt(0.25 * 0.75 / 4000))
    assert drop.eval()(x) is x
    with pytest.raises(ValueError, match=r"drop_path=1\.0 must lie in \[0, 1\)"):
        DropPath(1.0)


def test_block_leaves_out_each_branch_by_itself():
    block, x = randomised(Block(DIM, CausalAttention(DIM, 2), mlp_ratio=2.0, drop_path=0.5)), make_tokens()
    x = x[:1].expand(64, -1, -1)
    torch.manual_seed(0)
    left_out = (block.train()(x)[0] - x).abs().amax((1, 2)) == 0
    # Both branches in a quarter of the sequences.
    assert 4 <= int(left_out.sum()) <= 32


@pytest.mark.parametrize("gamma", [-3.0, 0.0, 0.7])
def test_fusion_adds_the_gate_times_what_the_memory_reads_from_normed_tokens(gamma):
    memory = randomised(TensorMemory(DIM, 3, (2, 3), 3))
    fusion = randomised(GatedFusion(DIM, gamma))
    with torch.no_grad():
        fusion.gamma.fill_(gamma)
    x, before = make_tokens(), memory(make_tokens(5, seed=2))[1]
    read, expected_state = memory(layer_norm(x, fusion.norm), before)
    actual, state = fusion(x, memory, before)
    assert_close(actual, x + read / (1 + math.exp(-gamma)), "output", EXACT_FLOAT64)
    for name in state._fields:
        assert_close(getattr(state, name), getattr(expected_state, name), name, EXACT_FLOAT64)
    assert read.abs().max() > 1e-3


@pytest.mark.parametrize("gamma", [-2.0, 0.0, 1.5])
def test_the_gate_is_the_sigmoid_of_gamma(gamma):
    fusion = GatedFusion(DIM, gamma).double()
    assert isinstance(fusion.gamma, nn.Parameter)
    assert fusion.gamma.shape == fusion.gate.shape == ()
    assert_close(fusion.gate, torch.tensor(1 / (1 + math.exp(-gamma)), dtype=torch.float64), "gate", EXACT_FLOAT64)


def test_fusion_drops_the_memorys_contribution_only():
    memory, fusion, x = randomised(TensorMemory(DIM, 3, (2, 3), 3)), GatedFusion(DIM, dropout=1.0), make_tokens()
    fusion = randomised(fusion)
    assert torch.equal(fusion.train()(x, memory, None)[0], x)
    assert not torch.equal(fusion.eval()(x, memory, None)[0], x)
