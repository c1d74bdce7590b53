"""Positions: learned ones end at their trained length, rotary ones turn pairs of components as complex numbers."""

from __future__ import annotations

import pytest
import torch

from tensormem.layers.positions import LearnedPositions, RotaryPositions, check_kind
from tests.helpers import EXACT_FLOAT64, FLOAT32, assert_close


def make_learned(max_length=6, dim=4):
    positions = LearnedPositions(max_length, dim).double()
    with torch.no_grad():
        positions.weight.copy_(torch.arange(max_length * dim, dtype=torch.float64).reshape(max_length, dim))
    return positions


def test_rotary_positions_are_those_of_llama():
    """Against the published implementation in transformers, which pairs components e and e + E/2 as ours does."""
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    head_dim, num_tokens, offset = 8, 50, 7
    queries, keys = torch.randn(2, 2, 3, num_tokens, head_dim, generator=torch.Generator().manual_seed(0)).unbind()
    position = torch.arange(offset, offset + num_tokens, dtype=torch.float32)
    angle = torch.outer(position, 10_000.0 ** (-torch.arange(0, head_dim, 2) / head_dim))
    angle = torch.cat([angle, angle], dim=-1)[None]
    expected = apply_rotary_pos_emb(queries, keys, angle.cos(), angle.sin())
    rotary = RotaryPositions(head_dim)
    for actual, published in zip((rotary(queries, offset), rotary(keys, offset)), expected, strict=True):
        assert_close(actual, published, "rotated", FLOAT32)


def test_learned_positions_start_at_zero():
    assert torch.equal(LearnedPositions(5, 3).weight, torch.zeros(5, 3))


@pytest.mark.parametrize(("offset", "num_tokens"), [(0, 6), (0, 1), (5, 1), (2, 3)])
def test_learned_positions_are_the_rows_from_the_offset_on(offset, num_tokens):
    positions = make_learned()
    assert torch.equal(positions(offset, num_tokens), positions.weight[offset : offset + num_tokens])


@pytest.mark.parametrize(("offset", "num_tokens", "asked"), [(0, 7, 6), (6, 1, 6), (4, 5, 8)])
def test_learned_positions_end_at_the_trained_length(offset, num_tokens, asked):
    with pytest.raises(ValueError, match=rf"6 positions, but position {asked} .*positions=rope"):
        make_learned()(offset, num_tokens)


@pytest.mark.parametrize("offset", [0, 1, 77_777])
@pytest.mark.parametrize("base", [10_000.0, 50.0])
def test_rotary_positions_multiply_by_a_complex_exponential(offset, base):
    width, length = 6, 5
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, length, width, generator=generator, dtype=torch.float64)
    pairs = torch.complex(x[..., : width // 2], x[..., width // 2 :])
    expected = torch.empty_like(pairs)
    for place in range(length):
        for pair in range(width // 2):
            angle = torch.tensor((offset + place) / base ** (2 * pair / width), dtype=torch.float64)
            expected[..., place, pair] = pairs[..., place, pair] * torch.exp(1j * angle)
    actual = RotaryPositions(width, base)(x, offset)
    assert_close(actual, torch.cat([expected.real, expected.imag], dim=-1), "rotated", EXACT_FLOAT64)


def test_rotary_positions_leave_position_zero_and_every_length_alone():
    x = torch.randn(2, 2, 4, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = RotaryPositions(8)(x, 0)
    assert torch.equal(y[:, :, 0], x[:, :, 0])
    assert_close(y.norm(dim=-1), x.norm(dim=-1), "length", EXACT_FLOAT64)


def test_rotary_positions_far_out_are_as_good_in_float32():
    """A float32 angle would be off by thousandths of a radian at position 100,000."""
    x = torch.randn(1, 1, 3, 8, generator=torch.Generator().manual_seed(0))
    rotary = RotaryPositions(8)
    assert rotary(x, 100_000).dtype == torch.float32
    assert (rotary(x, 100_000).double() - rotary(x.double(), 100_000)).abs().max() < 1e-6


@pytest.mark.parametrize("width", [1, 5])
def test_rotary_positions_need_an_even_width(width):
    with pytest.raises(ValueError, match=rf"positions=rope .*even.*{width}"):
        RotaryPositions(width)


@pytest.mark.parametrize("kind", ["learned", "rope", "none"])
def test_known_kinds_pass(kind):
    check_kind(kind)


@pytest.mark.parametrize("kind", ["rotary", ""])
def test_an_unknown_kind_is_an_error_that_names_the_choices(kind):
    with pytest.raises(ValueError, match=r"positions=.*unknown.*learned.*rope.*none"):
        check_kind(kind)
