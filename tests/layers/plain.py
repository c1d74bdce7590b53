"""What the tests of the attentions share: rotation by complex numbers, and a sequence cut into calls."""

from __future__ import annotations

import torch


def rotated(vector, position, base=10_000.0):
    """One vector turned by its position: component pairs as complex numbers, times exp(i * angle)."""
    half = len(vector) // 2
    frequencies = torch.tensor([base ** (-pair / half) for pair in range(half)], dtype=torch.float64)
    turned = torch.complex(vector[:half], vector[half:]) * torch.polar(
        torch.ones(half).double(), position * frequencies
    )
    return torch.cat([turned.real, turned.imag])


def in_calls(attention, x, sizes, state=None):
    outputs = []
    for piece in x.split(sizes, dim=1):
        y, state = attention(piece, state)
        outputs.append(y)
    return torch.cat(outputs, dim=1), state
