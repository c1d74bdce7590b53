"""Cutting a token stream: random windows or streams for training, fixed windows for evaluation.

Letters: N tokens of the stream, B windows of a batch, T positions of a window.
"""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor
from torch.utils.data import IterableDataset

from experiments.batches import batch_numbers

PROTOCOLS = ("full", "paper")
PAPER_STREAMS = 32

# (inputs, targets). The axes go unnamed to the shape checker: the batches of a list differ in size.
Batch = tuple[Int64[Tensor, "_B _T"], Int64[Tensor, "_B _T"]]


def random_windows(tokens: Int64[Tensor, " N"], window: int, batch_size: int, seed: int, index: int) -> Batch:
    """Batch ``index`` of training windows: ``(inputs (B, T), targets (B, T))``, targets one token later.

    The starts are uniform on ``0 .. N - T - 1``, drawn with replacement. They depend on ``(seed, index)``
    alone: the bits are those of PCG64 seeded by ``SeedSequence(seed, spawn_key=(index,))``, a stream that
    NumPy promises not to change, so no other use of random numbers, no resume and no worker alters a batch.

    Raises:
        ValueError: window or batch_size below 1, a negative seed or index, or fewer than ``T + 1`` tokens.
    """
    _check_sizes(window, batch_size)
    _check_length(tokens, window + 1, f"one window of {window} inputs and its targets")
    if seed < 0 or index < 0:
        raise ValueError(f"seed={seed}, index={index}: both must be at least 0")
    bits = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(index,))).random_raw(batch_size)
    # The bias of the modulo is below N / 2^64. Generator.integers would have none, but its stream may change.
    starts = (bits % np.uint64(len(tokens) - window)).astype(np.int64)
    positions = torch.from_numpy(starts)[:, None] + torch.arange(window)
    return tokens[positions], tokens[positions + 1]


def stream_windows(tokens: Int64[Tensor, " N"], window: int, batch_size: int, seed: int, index: int) -> Batch:
    """Batch ``index`` of B streams read side by side: ``(inputs (B, T), targets (B, T))``, targets one token later.

    Row b goes on where row b of the batch before ended. The streams start evenly spread over the tokens, from a
    place that the seed chooses, and run in a circle: what one of them reads, another has read before.

    Raises:
        ValueError: as `random_windows`.
    """
    _check_sizes(window, batch_size)
    _check_length(tokens, window + 1, f"one window of {window} inputs and its targets")
    if seed < 0 or index < 0:
        raise ValueError(f"seed={seed}, index={index}: both must be at least 0")
    num_inputs = len(tokens) - 1
    first = int(np.random.PCG64(np.random.SeedSequence(seed)).random_raw() % num_inputs)
    starts = [first + num_inputs * row // batch_size + index * window for row in range(batch_size)]
    positions = (torch.tensor(starts)[:, None] + torch.arange(window)) % num_inputs
    return tokens[positions], tokens[positions + 1]


# How training batches are drawn.
ORDERS = {"random": random_windows, "stream": stream_windows}


class TrainingWindows(IterableDataset[Batch]):
    """Training batches ``start, start + 1, ...`` without end, for a DataLoader with ``batch_size=None``.

    Workers share the batches out (`batch_numbers`). Process ``rank`` of ``world_size`` gets the rows
    ``rank, rank + world_size, ...`` of every batch. It pickles, for spawned workers.

    Args:
        tokens: (N,) the training stream.
        window: positions T of a window.
        batch_size: windows B of a batch, over all processes together.
        seed: the data seed; see `random_windows`.
        start: number of the first batch; a resumed run gives the batches already used.
        rank: number of this process.
        world_size: number of processes; must divide ``batch_size``.
        order: ``random`` (`random_windows`) or ``stream`` (`stream_windows`).

    Raises:
        ValueError: as `random_windows`; an unknown order; a negative start; ``world_size`` that does not divide
            ``batch_size``.
    """

    def __init__(
        self,
        tokens: Int64[Tensor, " N"],
        window: int,
        batch_size: int,
        seed: int,
        start: int = 0,
        rank: int = 0,
        world_size: int = 1,
        order: str = "random",
    ) -> None:
        """Check the sizes and keep them."""
        super().__init__()
        _check_sizes(window, batch_size)
        _check_length(tokens, window + 1, f"one window of {window} inputs and its targets")
        if seed < 0 or start < 0:
            raise ValueError(f"seed={seed}, start={start}: both must be at least 0")
        if not 0 <= rank < world_size or batch_size % world_size:
            raise ValueError(
                f"batch_size={batch_size} can't be shared out to process {rank} of {world_size}: "
                "use a batch size that is a multiple of the number of processes"
            )
        if order not in ORDERS:
            raise ValueError(f"order={order!r} is unknown: use one of {', '.join(ORDERS)}")
        self.tokens = tokens
        self.window = window
        self.batch_size = batch_size
        self.seed = seed
        self.start = start
        self.rank = rank
        self.world_size = world_size
        self.order = order

    def __iter__(self) -> Iterator[Batch]:
        """Yield ``(inputs (B / world_size, T), targets (B / world_size, T))`` for ever."""
        for index in batch_numbers(self.start):
            inputs, targets = ORDERS[self.order](self.tokens, self.window, self.batch_size, self.seed, index)
            yield inputs[self.rank :: self.world_size], targets[self.rank :: self.world_size]


def evaluation_batches(
    tokens: Int64[Tensor, " N"], window: int, batch_size: int, protocol: str = "full"
) -> list[Batch]:
    """All evaluation batches ``(inputs (B, T), targets (B, T))`` of a stream, as views of it where possible.

    - ``full``: consecutive windows that share no target, so that each of the N - 1 targets occurs exactly
      once. The windows go ``batch_size`` to a batch; a last, shorter window is a batch of its own, of shape
      (1, rest). Nothing is padded.
    - ``paper``: the stream is cut into 32 streams of N // 32 tokens and these, side by side, into windows of
      T; what does not fill a window is dropped, as are the targets between streams. A batch is one window of
      each stream (B = 32, whatever ``batch_size``). With T = 512 it leaves out 4.9% of the targets of the
      test split of WikiText-2.

    Raises:
        ValueError: unknown protocol, window or batch_size below 1, or a stream too short for a single target
            (``full``) or window (``paper``).
    """
    num_windows = num_targets(len(tokens), window, protocol) // window
    _check_sizes(window, batch_size)
    if protocol == "paper":
        length = len(tokens) // PAPER_STREAMS
        streams = tokens[: PAPER_STREAMS * length].view(PAPER_STREAMS, length)
        starts = range(0, num_windows // PAPER_STREAMS * window, window)
        return [(streams[:, i : i + window], streams[:, i + 1 : i + window + 1]) for i in starts]
    covered = num_windows * window
    inputs = tokens[:covered].view(num_windows, window)
    targets = tokens[1 : covered + 1].view(num_windows, window)
    batches = [(inputs[i : i + batch_size], targets[i : i + batch_size]) for i in range(0, num_windows, batch_size)]
    if covered < len(tokens) - 1:
        batches.append((tokens[None, covered:-1], tokens[None, covered + 1 :]))
    return batches


def num_targets(num_tokens: int, window: int, protocol: str = "full") -> int:
    """Number of targets that `evaluation_batches` scores in a stream of ``num_tokens`` tokens.

    Raises:
        ValueError: unknown protocol, window below 1, or a stream too short for a target (``full``) or window
            (``paper``).
    """
    _check_protocol(protocol)
    _check_sizes(window, batch_size=1)
    if protocol == "full":
        count, needed = num_tokens - 1, 2
    else:
        count = PAPER_STREAMS * window * max(0, (num_tokens // PAPER_STREAMS - 1) // window)
        needed = PAPER_STREAMS * (window + 1)
    if count < 1:
        raise ValueError(
            f"{num_tokens} tokens are too few for evaluation={protocol} with window={window}: "
            f"it needs at least {needed}; give more tokens or use a smaller window"
        )
    return count


def _check_protocol(protocol: str) -> None:
    if protocol not in PROTOCOLS:
        raise ValueError(f"evaluation={protocol!r} is unknown: use one of {', '.join(PROTOCOLS)}")


def _check_sizes(window: int, batch_size: int) -> None:
    for name, value in (("window", window), ("batch_size", batch_size)):
        if value < 1:
            raise ValueError(f"{name}={value}: must be at least 1")


def _check_length(tokens: Tensor, needed: int, purpose: str) -> None:
    if len(tokens) < needed:
        raise ValueError(
            f"{len(tokens)} tokens are too few for {purpose}: it takes at least {needed}; "
            "give more tokens or use a smaller window"
        )
