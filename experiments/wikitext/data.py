"""LanguageData: a corpus as a Lightning data module."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor
from torch.utils.data import DataLoader

from experiments.batches import FixedLoader, endless_loader
from experiments.data import Data, check_minima
from experiments.wikitext.corpora import TokenCorpus, check_choice, load_tokens
from experiments.wikitext.corpus import OFFICIAL_COUNTS, SplitCounts
from experiments.wikitext.vocabulary import Vocabulary
from experiments.wikitext.windows import ORDERS, PROTOCOLS, Batch, TrainingWindows, evaluation_batches


class LanguageData(Data):
    """A corpus as random windows for training and fixed windows for validation and test.

    Batches are ``(inputs (B, T), targets (B, T))``, int64. Training batches go on for ever: bound the run by
    its steps.

    Args:
        root: data root that holds ``wikitext-2/`` and ``shakespeare/``; None: no local files. See `load_tokens`.
        corpus: ``wikitext-2``, ``shakespeare`` (characters) or ``synthetic`` (a Markov source).
        window: positions T of a window.
        batch_size: windows B of a batch; in training over all processes together.
        vocabulary: ``paper``, ``paper_fixed`` or ``standard`` words of WikiText-2 (see `Vocabulary.build`),
            ``characters`` of Shakespeare, ``symbols`` of the synthetic source.
        evaluation: ``full`` or ``paper``; see `evaluation_batches`.
        order: ``random`` windows for training, or ``stream``: every row goes on where it ended in the batch before,
            for models that carry their state on. It holds for validation and test as well, which then go one window
            at a time (``full``).
        seed: seed of the training windows; batch g depends on (seed, g) alone.
        num_workers: processes that prepare training batches (spawned); they don't change the batches.
        download: whether the Hugging Face hub may be asked when there are no local files.
        max_eval_tokens: cut validation and test to their first so many tokens, for smoke runs. The numbers
            can then not be compared with anything; None for the whole splits.
        markov: arguments of `MarkovSource`, for ``synthetic`` alone.
        expected_counts: lines and words of each split; the official ones unless a test brings a toy corpus.

    Raises:
        ValueError: an argument out of range, with its name, value and what is allowed.
    """

    def __init__(
        self,
        *,
        root: str | Path | None,
        corpus: str = "wikitext-2",
        window: int = 512,
        batch_size: int = 32,
        vocabulary: str = "paper_fixed",
        evaluation: str = "full",
        order: str = "random",
        seed: int = 0,
        num_workers: int = 0,
        download: bool = True,
        max_eval_tokens: int | None = None,
        markov: Mapping[str, Any] | None = None,
        expected_counts: Mapping[str, SplitCounts] = OFFICIAL_COUNTS,
    ) -> None:
        super().__init__()
        minima = {"window": (window, 1), "batch_size": (batch_size, 1), "seed": (seed, 0)}
        minima["num_workers"] = (num_workers, 0)
        if max_eval_tokens is not None:
            minima["max_eval_tokens"] = (max_eval_tokens, 2)
        check_minima(minima)
        check_choice(corpus, vocabulary, markov)
        if evaluation not in PROTOCOLS:
            raise ValueError(f"evaluation={evaluation!r} is unknown: use one of {', '.join(PROTOCOLS)}")
        if order not in ORDERS:
            raise ValueError(f"order={order!r} is unknown: use one of {', '.join(ORDERS)}")
        self.root = root
        self.corpus = corpus
        self.markov = markov
        self.window = window
        self.batch_size = batch_size
        self.vocabulary_kind = vocabulary
        self.evaluation = evaluation
        self.order = order
        self.seed = seed
        self.num_workers = num_workers
        self.download = download
        self.max_eval_tokens = max_eval_tokens
        self.expected_counts = expected_counts
        self._loaded: TokenCorpus | None = None

    def setup(self, stage: str | None = None) -> None:
        """Load, check and encode the corpus, once; ``stage`` makes no difference.

        Raises:
            DatasetNotFoundError: the data set is not there and can't be downloaded.
            CorpusMismatchError: a split has the wrong size.
        """
        if self._loaded is not None:
            return
        loaded = load_tokens(
            self.corpus, self.vocabulary_kind, self.root, self.download, self.markov, self.expected_counts
        )
        for split in ("validation", "test"):
            loaded.tokens[split] = loaded.tokens[split][: self.max_eval_tokens]
        self._loaded = loaded

    @property
    def vocabulary(self) -> Vocabulary:
        """What the ids stand for; raises RuntimeError before `setup`."""
        return self._require_setup().vocabulary

    @property
    def vocab_size(self) -> int:
        """Number of token ids, which is the number of embedding rows; raises RuntimeError before `setup`."""
        return self._require_setup().vocabulary.size

    @property
    def source(self) -> str:
        """Where the text came from, without a path; raises RuntimeError before `setup`."""
        return self._require_setup().origin

    @property
    def network_arguments(self) -> dict[str, Any]:
        """The size of the vocabulary; raises RuntimeError before `setup`."""
        return {"vocab_size": self.vocab_size}

    @property
    def tokens_per_step(self) -> int:
        """Positions of a training batch."""
        return self.batch_size * self.window

    @property
    def num_evaluation_tokens(self) -> tuple[int, int]:
        """Tokens of validation and of test; raises RuntimeError before `setup`."""
        return len(self.validation_tokens), len(self.test_tokens)

    @property
    def extra_result(self) -> dict[str, Any]:
        """The floor of a generated language."""
        return {} if self.floor is None else {"floor": self.floor}

    @property
    def floor(self) -> dict[str, float] | None:
        """The true source's mean nats on the very targets of the evaluations; None for real text.

        No model that does not read the future can be expected to do better; raises RuntimeError before `setup`.
        """
        source = self._require_setup().source
        if source is None:
            return None
        floors = {}
        for split in ("validation", "test"):
            tokens = self._split_tokens(split)
            places = torch.arange(len(tokens))
            batches = evaluation_batches(places, self.window, self.batch_size, self.evaluation)
            scored = torch.cat([targets.flatten() for _, targets in batches])
            floors[f"{split}_nats"] = float(source.nats(tokens)[scored].mean())
        return floors

    @property
    def train_tokens(self) -> Int64[Tensor, " N"]:
        """(N,) ids of the training split; raises RuntimeError before `setup`."""
        return self._split_tokens("train")

    @property
    def validation_tokens(self) -> Int64[Tensor, " N"]:
        """(N,) ids of validation, cut to ``max_eval_tokens``; raises RuntimeError before `setup`."""
        return self._split_tokens("validation")

    @property
    def test_tokens(self) -> Int64[Tensor, " N"]:
        """(N,) ids of test, cut to ``max_eval_tokens``; raises RuntimeError before `setup`."""
        return self._split_tokens("test")

    def _split_tokens(self, split: str) -> Tensor:
        return self._require_setup().tokens[split]

    def _require_setup(self) -> TokenCorpus:
        if self._loaded is None:
            raise RuntimeError("LanguageData has no data yet: call setup() first")
        return self._loaded

    def train_dataloader(self) -> DataLoader[Batch]:
        """Endless training batches, from the first one the attached trainer hasn't used (0 without one)."""
        start, rank, world_size = self.place
        batches = TrainingWindows(
            self.train_tokens, self.window, self.batch_size, self.seed, start, rank, world_size, self.order
        )
        return endless_loader(batches, self.num_workers)

    def val_dataloader(self) -> FixedLoader:
        """One pass over the validation split by the chosen protocol."""
        return self._evaluation_loader(self.validation_tokens)

    def test_dataloader(self) -> FixedLoader:
        """One pass over the test split by the chosen protocol."""
        return self._evaluation_loader(self.test_tokens)

    def _evaluation_loader(self, tokens: Tensor) -> FixedLoader:
        # A state can be carried from window to window, not between windows that stand side by side.
        batch_size = 1 if self.order == "stream" else self.batch_size
        return FixedLoader(evaluation_batches(tokens, self.window, batch_size, self.evaluation))
