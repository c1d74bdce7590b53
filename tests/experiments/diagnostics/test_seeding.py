"""The streams of the batches."""

import pytest
import torch

from experiments.diagnostics.seeding import SPLITS, batch_generator


def draws(seed, split, index):
    return tuple(torch.rand(4, generator=batch_generator(seed, split, index)).tolist())


def test_a_stream_is_a_function_of_its_three_arguments():
    expected = draws(3, "train", 5)
    torch.rand(10)  # what else draws random numbers does not matter
    assert draws(3, "train", 5) == expected
    seen = {draws(seed, split, index) for seed in range(5) for split in SPLITS for index in range(5)}
    assert len(seen) == 5 * 3 * 5


def test_splits_share_no_stream_even_where_hashes_collide():
    # What PyTorch makes of a seed: only its low 32 bits.
    seeds = {
        split: {batch_generator(seed, split, index).initial_seed() for seed in range(4) for index in range(250)}
        for split in SPLITS
    }
    assert all(0 <= value < 2**32 for values in seeds.values() for value in values)
    for number, split in enumerate(SPLITS):
        assert {value % 4 for value in seeds[split]} == {number}
        # The other 30 bits are all used.
        assert all({value >> bit & 1 for value in seeds[split]} == {0, 1} for bit in range(2, 32))
        assert len(seeds[split]) == 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, "val", 0), "split='val' is unknown: use one of train, validation, test"),
        ((-1, "train", 0), "seed=-1 must be from 0"),
        ((2**32, "train", 0), "seed=4294967296 must be from 0"),
        ((0, "train", -1), "index=-1 must be from 0"),
        ((0, "train", 2**32), "index=4294967296 must be from 0"),
    ],
)
def test_impossible_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        batch_generator(*arguments)
