"""What the diagnostic tasks have in common: their batches, their sizes and how their settings are checked.

Letters: B sequences, N tokens, A numbers and S symbols of a token, Q answers of a sequence, P tokens that give one.
"""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple, Self

from jaxtyping import Bool, Float32, Int64
from torch import Generator, Tensor


class Batch(NamedTuple):
    """Sequences, what is asked of them and what the best possible answer is worth.

    Attributes:
        numbers: (B, N, A) continuous features of each token.
        symbols: (B, N, S) discrete features of each token.
        answers: (Q, P) positions of the tokens whose averaged outputs give answer q, the same in every sequence.
        targets: (B, Q) the right class.
        best: (B, Q) probability that the best possible answer is right, given all that the tokens show.
        groups: (B, Q) masks by name; accuracy is reported apart for each.
    """

    numbers: Float32[Tensor, "B N A"]
    symbols: Int64[Tensor, "B N S"]
    answers: Int64[Tensor, "Q P"]
    targets: Int64[Tensor, "B Q"]
    best: Float32[Tensor, "B Q"]
    groups: dict[str, Bool[Tensor, "B Q"]]


@dataclass(frozen=True)
class Diagnostic(ABC):
    """A task whose sequences are generated; a subclass is a frozen dataclass whose fields are the settings.

    `sample` is the composition of two parts: `draw` makes the random latent variables (what is written, where the
    views are, how the ball moves), and `encode`, a pure function, turns them into tokens and answers.

    Attributes:
        name: of the task, in configs and tables.
        difficulty: the setting that a table sweeps, or None.
    """

    name: ClassVar[str]
    difficulty: ClassVar[str | None]

    @property
    @abstractmethod
    def num_numbers(self) -> int:
        """A, continuous features of a token."""

    @property
    @abstractmethod
    def vocabularies(self) -> tuple[int, ...]:
        """How many values each of the S symbols of a token takes."""

    @property
    @abstractmethod
    def num_classes(self) -> int:
        """Classes among which an answer chooses, all equally likely."""

    @property
    @abstractmethod
    def length(self) -> int:
        """N, tokens of a sequence."""

    @property
    def chance(self) -> float:
        """Accuracy of a guess that looks at nothing."""
        return 1 / self.num_classes

    @abstractmethod
    def draw(self, batch_size: int, generator: Generator) -> tuple[Tensor, ...]:
        """The latent variables of B sequences, in the order in which `encode` takes them."""

    @abstractmethod
    def encode(self, *latents: Any, **named: Any) -> Batch:
        """The sequences and answers that latent variables determine; each task names its own."""

    def sample(self, batch_size: int, generator: Generator) -> Batch:
        """B sequences, drawn on the CPU from the generator and nothing else.

        Raises:
            ValueError: batch_size below 1.
        """
        check_whole("batch_size", batch_size, 1)
        return self.encode(*self.draw(batch_size, generator))

    def changed(self, **settings: Any) -> Self:
        """The same task with other settings.

        Raises:
            ValueError: a setting that the task does not have, or a value that it does not take.
        """
        known = [field.name for field in fields(self)]
        for setting in settings:
            if setting not in known:
                [nearest] = difflib.get_close_matches(setting, known, n=1, cutoff=0)
                raise ValueError(
                    f"{self.name} has no setting {setting!r}; did you mean {nearest}? It has {', '.join(known)}"
                )
        return replace(self, **settings)


def check_whole(name: str, value: int, least: int, most: int | None = None, bound: str = "") -> None:
    """Refuse a setting that is no whole number from `least` to `most`; `bound` says what sets the upper limit.

    Raises:
        ValueError: naming the setting, its value and what is allowed.
    """
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole and value >= least and (most is None or value <= most):
        return
    allowed = f"at least {least}" if most is None else f"from {least} to {most} ({bound})"
    raise ValueError(f"{name}={value!r} must be a whole number, {allowed}")


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse a setting that is none of the choices.

    Raises:
        ValueError: naming the setting, its value and the choices.
    """
    if value not in choices:
        raise ValueError(f"{name}={value!r} is unknown: use one of {', '.join(choices)}")
