"""The language task: next-word prediction, its evaluation and its causality audit.

Legend: B batch, T positions of a window.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map, tree_structure, tree_unflatten
from torchmetrics import Metric

from experiments.checkpoints import BestCheckpoint
from experiments.data import EVALUATED_BY_EACH
from experiments.task import Task
from experiments.training import Training
from experiments.wikitext.data import LanguageData
from experiments.wikitext.perplexity import perplexity
from tensormem.audit import AuditReport, audit, require_causal
from tensormem.losses import chunked_cross_entropy, token_nats
from tensormem.models.language_model import LanguageModel
from tensormem.models.sequence_model import SequenceState

# A leak is a matter of the architecture, not of the vocabulary: a small one makes the first audit quick.
_PREFLIGHT_VOCABULARY = 64


class NatsByPosition(Metric):
    """Total cross-entropy and number of targets at each position inside a window.

    Args:
        window: T, the longest window.
    """

    full_state_update = False

    def __init__(self, window: int) -> None:
        super().__init__(**EVALUATED_BY_EACH)
        self.add_state("nats", torch.zeros(window, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("targets", torch.zeros(window, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, nats: Tensor) -> None:
        """Add the losses (B, T') of windows of T' <= T positions."""
        length = nats.shape[1]
        self.nats[:length] += nats.double().sum(0)
        self.targets[:length] += nats.shape[0]

    def compute(self) -> Tensor:
        """Mean nats over all targets, 0-d float64."""
        return self.nats.sum() / self.targets.sum()


class LanguageTask(Task):
    """Trains and evaluates a language model on windows.

    Args:
        model: the language model.
        training: optimiser and schedule.
        window: T, the longest window.
        seed: with the step, seeds the dropout: a resumed run draws what an uninterrupted one does.
        carry: start each window from the state that the one before left, without its gradient, and not from an empty
            one. The batches must be streams (`LanguageData(order="stream")`).
        built_from: the config's sections `network` and `data`, in plain containers, for the checkpoints; None: they
            do not say what builds their model.
    """

    published_metric = "test_perplexity"

    def __init__(
        self,
        model: LanguageModel,
        training: Training,
        window: int,
        seed: int,
        carry: bool = False,
        built_from: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        super().__init__(model, training, seed, built_from)
        self.window = window
        self.carry = carry
        self._train_state: SequenceState | None = None
        self._evaluation_state: SequenceState | None = None
        self.validation_nats = NatsByPosition(window)
        self.test_nats = NatsByPosition(window)
        self.validation_targets = 0

    @classmethod
    def of_run(
        cls,
        model: nn.Module,
        training: Training,
        data: LanguageData,
        seed: int,
        built_from: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> LanguageTask:
        """The task of a run; see `Task.of_run`."""
        return cls(model, training, data.window, seed, data.order == "stream", built_from)  # type: ignore[arg-type]

    @classmethod
    def preflight(
        cls, build: Callable[..., nn.Module], name: str, data: LanguageData, allow_noncausal: bool
    ) -> AuditReport:
        """Audit a small twin of the model; see `Task.preflight`.

        Raises:
            CausalityError: the model reads the future and that is not allowed, or the audit is inconclusive.
            ValueError: a state is to be carried, which the model does not have, or which has no end.
        """
        model = build(vocab_size=_PREFLIGHT_VOCABULARY)
        if data.order == "stream":
            _require_bounded_state(model, name, data.window)  # type: ignore[arg-type]
        report = audit(model, _PREFLIGHT_VOCABULARY, audit_lengths(data.window))
        require_causal(report, name, allow_noncausal)
        return report

    def audit(self) -> AuditReport:
        """Audit the model as it is now."""
        return audit(self.model, self.model.output_weight.shape[0], audit_lengths(self.window))

    def on_fit_start(self) -> None:
        """Refuse to carry states in several processes: a checkpoint would hold those of one of them."""
        if self.carry and self.trainer.world_size > 1:
            raise ValueError(
                f"data.order=stream carries a state and needs one process, not {self.trainer.world_size}: set "
                "trainer.devices=1"
            )

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add what builds the model, and the state that the next training batch starts from."""
        super().on_save_checkpoint(checkpoint)
        if self._train_state is not None:
            checkpoint["carried"] = tree_leaves(self._train_state)

    def loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Mean nats of a batch of windows (inputs (B, T), targets (B, T))."""
        inputs, targets = batch
        hidden, self._train_state = self._hidden(inputs, self._train_state)
        return chunked_cross_entropy(hidden.flatten(0, 1), self.model.output_weight, targets.flatten())

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Go on from the state that was kept."""
        carried = checkpoint.get("carried")
        if carried is not None:
            self._train_state = tree_unflatten(carried, tree_structure(self.model.init_state(1)))

    def on_train_start(self) -> None:
        """Move a state that was kept to where the model is: a checkpoint is read on the CPU."""
        if self._train_state is not None:
            # The counters of a state are on the CPU wherever the model is.
            where = self.model.init_state(1, self.device)
            self._train_state = tree_map(lambda kept, like: kept.to(like.device), self._train_state, where)

    def on_validation_epoch_start(self) -> None:
        """Each evaluation starts from an empty state."""
        self._evaluation_state = None

    def on_test_epoch_start(self) -> None:
        """As `on_validation_epoch_start`."""
        self._evaluation_state = None

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Add a batch's losses."""
        self.validation_nats.update(self._nats(batch))

    def on_validation_epoch_end(self) -> None:
        """Log the validation loss and its perplexity."""
        self.validation_targets = int(self.validation_nats.targets.sum())
        self._log_evaluation("validation", self.validation_nats)

    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Add a batch's losses."""
        self.test_nats.update(self._nats(batch))

    def on_test_epoch_end(self) -> None:
        """Log the test loss and its perplexity."""
        self._log_evaluation("test", self.test_nats, reset=False)

    def sample(self) -> str | None:
        """How the model goes on from words of the validation; None where it can't generate."""
        if self.model.streaming != "token":
            return None
        data: LanguageData = self.trainer.datamodule  # type: ignore[attr-defined]
        inputs, _ = next(iter(data.val_dataloader()))
        given = inputs[:1, : max(1, self.window // 4)].to(self.device)
        draws = torch.Generator(self.device).manual_seed(0)
        text = self.model.generate(given, min(100, self.window - given.shape[1]), generator=draws, top_k=50)[0].tolist()
        words = data.vocabulary
        return f"{words.text(text[: given.shape[1]])}\n=> {words.text(text[given.shape[1] :])}"

    def evaluation_line(self, metrics: Mapping[str, Any]) -> str:
        """The loss of a validation and its perplexity."""
        nats = float(metrics["validation/nats"])
        return f"{nats:.4f} nats, perplexity {perplexity(nats):.2f}"

    @staticmethod
    def headline(metrics: Mapping[str, Any]) -> str:
        """The test perplexity."""
        return f"test perplexity {metrics['test_perplexity']:.2f}"

    def result(self, best: BestCheckpoint) -> dict[str, Any]:
        """The blocks of the result file that belong to language, after the test."""
        nats = float(self.test_nats.compute())
        validation_nats = min(best.losses)
        counts = self.test_nats.targets
        return {
            "metrics": {
                "test_nats": nats,
                "test_perplexity": perplexity(nats),
                "test_targets": int(counts.sum()),
                "validation_nats": validation_nats,
                "validation_perplexity": perplexity(validation_nats),
                "validation_targets": self.validation_targets,
                "best_step": best.best_step,
            },
            "loss_by_position": {
                "nats": (self.test_nats.nats / counts.clamp(min=1)).tolist(),
                "targets": counts.tolist(),
            },
            **self.model_blocks(self.window),
        }

    def _nats(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        inputs, targets = batch
        hidden, self._evaluation_state = self._hidden(inputs, self._evaluation_state)
        return token_nats(hidden.flatten(0, 1), self.model.output_weight, targets.flatten()).reshape(targets.shape)

    def _hidden(self, inputs: Tensor, state: SequenceState | None) -> tuple[Tensor, SequenceState | None]:
        """The hidden vectors, and the state to carry on; None where none is carried."""
        hidden, state = self.model.hidden(inputs, state)
        return hidden, tree_map(torch.detach, state) if self.carry else None

    def _log_evaluation(self, split: str, metric: NatsByPosition, reset: bool = True) -> None:
        nats = metric.compute()
        self.log(f"{split}/nats", nats.float())
        self.log(f"{split}/perplexity", nats.exp().float())
        if reset:
            metric.reset()


def _require_bounded_state(model: LanguageModel, name: str, window: int) -> None:
    """Refuse to train from state to state what can't go on for ever so."""
    model.init_state(1)  # which a model of one call refuses
    if model.positions is not None:
        raise ValueError(
            f"data.order=stream carries {name}'s state from window to window, but positions=learned ends at "
            f"{model.positions.max_length} tokens: set model.network.positions=rope or none, or data.order=random"
        )
    far = 1024 * window
    if model.state_bytes(2 * far) > 1.5 * model.state_bytes(far):
        raise ValueError(
            f"data.order=stream carries {name}'s state from window to window, and it grows with every token: "
            "set data.order=random"
        )


def audit_lengths(window: int) -> tuple[int, ...]:
    """Two odd lengths, which the usual chunk sizes don't divide, and the whole window."""
    return tuple(sorted({min(29, window), min(53, window), window}))
