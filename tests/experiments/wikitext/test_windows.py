"""Training windows as a function of (seed, index); evaluation windows and what they cover."""

import itertools
import pickle
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from experiments.wikitext.corpus import load_corpus
from experiments.wikitext.vocabulary import Vocabulary
from experiments.wikitext.windows import (
    ORDERS,
    TrainingWindows,
    evaluation_batches,
    num_targets,
    random_windows,
    stream_windows,
)

# Token = position, so that a batch shows where it was cut.
STREAM = torch.arange(1000)
FIRST_STARTS = [748, 822, 812, 96, 751]


def take(batches, count):
    return [(inputs.clone(), targets.clone()) for inputs, targets in itertools.islice(batches, count)]


def assert_same(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one[0], other[0])
        assert torch.equal(one[1], other[1])


def test_windows_are_contiguous_and_targets_one_later() -> None:
    inputs, targets = random_windows(STREAM, window=7, batch_size=5, seed=3, index=2)
    assert inputs.shape == targets.shape == (5, 7)
    assert torch.equal(inputs, inputs[:, :1] + torch.arange(7))
    assert torch.equal(targets, inputs + 1)


def test_a_batch_depends_on_seed_and_index_alone() -> None:
    first = random_windows(STREAM, 7, 5, seed=3, index=2)
    torch.manual_seed(99)
    random_windows(STREAM, 7, 5, seed=3, index=1)
    assert_same([random_windows(STREAM, 7, 5, seed=3, index=2)], [first])
    assert not torch.equal(random_windows(STREAM, 7, 5, seed=4, index=2)[0], first[0])
    assert not torch.equal(random_windows(STREAM, 7, 5, seed=3, index=3)[0], first[0])
    assert not torch.equal(random_windows(STREAM, 7, 5, seed=2, index=3)[0], first[0])


def test_batch_zero_never_changes() -> None:
    # Written down from the first run: a change of it breaks the comparison with every earlier result.
    starts = random_windows(STREAM, 7, 5, seed=0, index=0)[0][:, 0]
    assert starts.tolist() == FIRST_STARTS


def test_starts_are_uniform_and_reach_both_ends() -> None:
    tokens = torch.arange(14)  # 10 starts, 0..9, for windows of 4
    starts = torch.cat([random_windows(tokens, 4, 50, seed=1, index=i)[0][:, 0] for i in range(40)])
    counts = torch.bincount(starts, minlength=10)
    assert len(counts) == 10
    assert counts.min() > 150  # 200 expected, standard deviation 13
    assert counts.max() < 250


def test_a_window_that_just_fits() -> None:
    inputs, targets = random_windows(torch.arange(5), 4, 2, seed=0, index=0)
    assert inputs.tolist() == [[0, 1, 2, 3]] * 2
    assert targets.tolist() == [[1, 2, 3, 4]] * 2


def test_resuming_gives_the_batches_of_an_uninterrupted_run() -> None:
    whole = take(TrainingWindows(STREAM, 7, 5, seed=3), 9)
    assert_same(take(TrainingWindows(STREAM, 7, 5, seed=3, start=4), 5), whole[4:])


def test_streams_go_on_where_they_ended_and_read_everything_alike() -> None:
    batches = [stream_windows(STREAM, 7, 5, seed=3, index=index) for index in range(999)]
    for (_, before), (inputs, targets) in itertools.pairwise(batches):
        # Where the text begins again, the last token is a target only and the first an input only.
        assert torch.equal(inputs[:, 0], before[:, -1] % 999)
        assert torch.equal(targets[:, :-1] % 999, inputs[:, 1:])
    read = torch.cat([inputs for inputs, _ in batches], dim=1)
    assert all(torch.bincount(row, minlength=999).tolist() == [7] * 999 for row in read)
    assert sorted(set(read[:, 0].diff().remainder(999).tolist())) == [199, 200]


def test_streams_start_where_the_seed_says() -> None:
    starts = {int(stream_windows(STREAM, 7, 5, seed, index=0)[0][0, 0]) for seed in range(20)}
    assert len(starts) > 15


@pytest.mark.parametrize("order", ORDERS)
def test_an_order_resumes_and_shares_out_its_rows(order: str) -> None:
    whole = take(TrainingWindows(STREAM, 7, 6, seed=3, order=order), 5)
    assert_same(take(TrainingWindows(STREAM, 7, 6, seed=3, start=2, order=order), 3), whole[2:])
    share = take(TrainingWindows(STREAM, 7, 6, seed=3, rank=1, world_size=2, order=order), 5)
    assert_same(share, [(inputs[1::2], targets[1::2]) for inputs, targets in whole])


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(ValueError, match="order='backwards'"):
        TrainingWindows(STREAM, 7, 6, seed=3, order="backwards")


@pytest.mark.parametrize("start", [0, 3])
def test_spawned_workers_give_the_batches_of_one_process(start: int) -> None:
    dataset = TrainingWindows(STREAM, 7, 5, seed=3, start=start)
    loader = DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context="spawn")
    iterator = iter(loader)
    found = take(iterator, 7)
    del iterator  # ends the workers
    assert_same(found, take(dataset, 7))
    assert_same(found, [random_windows(STREAM, 7, 5, 3, start + i) for i in range(7)])


def test_processes_share_out_the_rows_of_one_batch() -> None:
    whole = take(TrainingWindows(STREAM, 7, 6, seed=3), 3)
    shares = [take(TrainingWindows(STREAM, 7, 6, seed=3, rank=r, world_size=3), 3) for r in range(3)]
    for index, (inputs, targets) in enumerate(whole):
        rows = torch.stack([share[index][0] for share in shares], dim=1).flatten(0, 1)
        assert torch.equal(rows, inputs)
        assert torch.equal(torch.stack([share[index][1] for share in shares], dim=1).flatten(0, 1), targets)


def test_the_dataset_pickles() -> None:
    dataset = TrainingWindows(STREAM, 7, 5, seed=3, start=2)
    assert_same(take(pickle.loads(pickle.dumps(dataset)), 2), take(dataset, 2))


@pytest.mark.parametrize("batch_size", [1, 3, 32])
@pytest.mark.parametrize("num_tokens", [2, 7, 8, 9, 15, 22, 100, 1000])
def test_full_scores_every_target_once(num_tokens: int, batch_size: int) -> None:
    batches = evaluation_batches(STREAM[:num_tokens], window=7, batch_size=batch_size, protocol="full")
    for inputs, targets in batches:
        assert inputs.shape == targets.shape
        assert inputs.shape[0] <= batch_size
        assert inputs.shape[1] <= 7
        assert torch.equal(targets, inputs + 1)
        assert torch.equal(inputs, inputs[:, :1] + torch.arange(inputs.shape[1]))
    scored = torch.cat([targets.flatten() for _, targets in batches])
    assert torch.equal(scored, torch.arange(1, num_tokens))
    assert num_targets(num_tokens, 7, "full") == len(scored)
    short = [inputs.shape for inputs, _ in batches if inputs.shape[1] < 7]
    rest = (num_tokens - 1) % 7
    assert short == ([(1, rest)] if rest else [])
    assert all(inputs.shape[0] == batch_size for inputs, _ in batches[:-2])


def test_paper_cuts_32_streams_and_drops_their_tails() -> None:
    batches = evaluation_batches(STREAM, window=7, batch_size=4, protocol="paper")
    # 31 tokens a stream: 4 windows take 28 inputs, the 28th with its target at position 28.
    assert len(batches) == 4
    for number, (inputs, targets) in enumerate(batches):
        assert inputs.shape == (32, 7)
        assert torch.equal(inputs[:, 0], 31 * torch.arange(32) + 7 * number)
        assert torch.equal(inputs, inputs[:, :1] + torch.arange(7))
        assert torch.equal(targets, inputs + 1)
    assert num_targets(1000, 7, "paper") == sum(targets.numel() for _, targets in batches) == 32 * 28


@pytest.mark.parametrize(("length", "windows"), [(8, 1), (14, 1), (15, 2)])
def test_paper_needs_the_target_of_a_window_in_its_stream(length: int, windows: int) -> None:
    batches = evaluation_batches(torch.arange(32 * length), 7, 4, "paper")
    assert len(batches) == windows
    assert int(batches[-1][1].max()) < 32 * length


def test_paper_drops_what_the_design_says_of_the_real_test_split(data_root: Path) -> None:
    corpus = load_corpus(data_root, download=False)
    tokens = Vocabulary.build("paper", corpus).encode(corpus["test"])
    scored = sum(targets.numel() for _, targets in evaluation_batches(tokens, 512, 32, "paper"))
    every = sum(targets.numel() for _, targets in evaluation_batches(tokens, 512, 32, "full"))
    assert every == len(tokens) - 1 == 241_210
    assert scored == num_targets(len(tokens), 512, "paper") == 14 * 512 * 32
    assert round(100 * (1 - scored / every), 1) == 4.9


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="7 tokens are too few for one window of 7"):
        random_windows(STREAM[:7], 7, 5, 0, 0)
    with pytest.raises(ValueError, match="7 tokens are too few for one window of 7"):
        TrainingWindows(STREAM[:7], 7, 5, 0)
    with pytest.raises(ValueError, match="1 tokens are too few for evaluation=full"):
        evaluation_batches(STREAM[:1], 7, 5, "full")
    with pytest.raises(ValueError, match=r"255 tokens are too few for evaluation=paper.*at least 256"):
        evaluation_batches(STREAM[:255], 7, 5, "paper")
    with pytest.raises(ValueError, match="'papper' is unknown: use one of full, paper"):
        evaluation_batches(STREAM, 7, 5, "papper")
    for window, batch_size, name in ((0, 5, "window=0"), (7, 0, "batch_size=0")):
        for call in (
            lambda w, b: random_windows(STREAM, w, b, 0, 0),
            lambda w, b: TrainingWindows(STREAM, w, b, 0),
            lambda w, b: evaluation_batches(STREAM, w, b, "full"),
        ):
            with pytest.raises(ValueError, match=name):
                call(window, batch_size)
    with pytest.raises(ValueError, match="seed=-1"):
        random_windows(STREAM, 7, 5, -1, 0)
    with pytest.raises(ValueError, match="start=-1"):
        TrainingWindows(STREAM, 7, 5, 0, start=-1)
    with pytest.raises(ValueError, match="batch_size=5 can't be shared out to process 0 of 2"):
        TrainingWindows(STREAM, 7, 5, 0, rank=0, world_size=2)
