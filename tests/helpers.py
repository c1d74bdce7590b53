"""What the tests share: how tensors are compared, and how a module is made hard to get right by accident."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

# Largest error allowed, as a share of the largest value of the reference.
EXACT_FLOAT64 = 1e-9  # the same mathematics in float64, summed in another order
FLOAT32 = 1e-5  # the same mathematics in float32
BFLOAT16 = 3e-2  # some of it rounded to bfloat16, whose unit is 2^-8


def assert_close(actual: Tensor, expected: Tensor, name: str, tolerance: float) -> None:
    """Both tensors finite and of one shape, and max |actual - expected| <= tolerance * max |expected|.

    Where the reference is zero throughout, nothing but zero is close to it.
    """
    # A NaN would pass any comparison that asks whether the error is too large.
    for role, value in (("actual", actual), ("expected", expected)):
        bad = ~torch.isfinite(value)
        if bad.any():
            first = tuple(bad.nonzero()[0].tolist())
            raise AssertionError(f"{name} ({role}): {int(bad.sum())} of {value.numel()} not finite, first at {first}")
    if actual.shape != expected.shape:
        raise AssertionError(f"{name}: shape {tuple(actual.shape)}, expected {tuple(expected.shape)}")
    if expected.numel() == 0:
        return
    actual, expected = actual.detach().cpu().double(), expected.detach().cpu().double()
    absolute = (actual - expected).abs().max().item()
    scale = expected.abs().max().item()
    if absolute > tolerance * scale:
        relative = absolute / scale if scale else float("inf")
        raise AssertionError(
            f"{name} {tuple(expected.shape)}: max absolute error {absolute:.3e}, relative error {relative:.3e} "
            f"> {tolerance:.0e} (max |expected| = {scale:.3e})"
        )


def assert_all_close(actual: Mapping[str, Tensor], expected: Mapping[str, Tensor], tolerance: float) -> None:
    """``assert_close`` for every tensor of two mappings with the same names."""
    if actual.keys() != expected.keys():
        raise AssertionError(f"names differ: {sorted(actual)} and {sorted(expected)}")
    for name, value in expected.items():
        assert_close(actual[name], value, name, tolerance)


def randomise(module: nn.Module, generator: torch.Generator) -> None:
    """Random values for every parameter, those that start at zero, one or the identity included.

    Weights shrink with their inputs, so that squashing functions stay out of saturation. The draws are made in
    float64 on the CPU: modules that differ in dtype or device get the same values.
    """
    with torch.no_grad():
        for parameter in module.parameters():
            scale = parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 0.5
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))


def gradients(
    outputs: Mapping[str, Tensor], inputs: Iterable[tuple[str, Tensor]], generator: torch.Generator
) -> dict[str, Tensor]:
    """Gradients of one scalar in which every element of every output has a random weight of its own.

    A plain sum would hide errors that cancel. An input on which nothing depends gets zeros.
    """
    loss = torch.zeros((), dtype=torch.float64)
    for value in outputs.values():
        weight = torch.randn(value.shape, generator=generator, dtype=torch.float64)
        loss = loss + (weight * value.double()).sum()
    names, tensors = zip(*inputs, strict=True)
    values = torch.autograd.grad(loss, tensors, allow_unused=True, materialize_grads=True)
    return {f"gradient of {name}": value for name, value in zip(names, values, strict=True)}
