"""The diagnostics task: questions about a generated sequence, answered at the end of it.

Legend: B sequences, Q answers of a sequence, P tokens that give one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from pytorch_lightning.utilities import move_data_to_device
from torch import Tensor, nn
from torchmetrics import Metric

from experiments.checkpoints import BestCheckpoint
from experiments.data import EVALUATED_BY_EACH
from experiments.diagnostics.data import Condition, DiagnosticsData
from experiments.diagnostics.diagnostic import Batch
from experiments.task import Task
from experiments.training import Training
from tensormem.memory import without_reads
from tensormem.models.diagnostics import DiagnosticModel, Tokens

# Sequences of a sample.
_SHOWN = 8
# How the memory of a tested model is read.
READS = ("memory", "zero")


class Answers(Metric):
    """Accuracy, loss and the best achievable accuracy, over all answers and over each group of them.

    Args:
        groups: names of the groups.
    """

    full_state_update = False

    def __init__(self, groups: Sequence[str] = ()) -> None:
        super().__init__(**EVALUATED_BY_EACH)
        self.groups = ("all", *groups)
        for name in ("count", "correct", "nats", "best"):
            self.add_state(name, torch.zeros(len(self.groups), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, logits: Tensor, batch: Batch) -> None:
        """Add the answers (B, Q, classes) to a batch."""
        nats = nn.functional.cross_entropy(logits.float().flatten(0, 1), batch.targets.flatten(), reduction="none")
        values = {
            "count": torch.ones_like(batch.best),
            "correct": (logits.argmax(-1) == batch.targets).double(),
            "nats": nats.reshape(batch.targets.shape),
            "best": batch.best,
        }
        for place, group in enumerate(self.groups):
            mask = torch.ones_like(batch.targets) if group == "all" else batch.groups[group]
            for name, value in values.items():
                getattr(self, name)[place] += (value.double() * mask).sum()

    def compute(self) -> dict[str, dict[str, Any]]:
        """By group: how many answers; the accuracy, the mean loss (nats) and the best achievable accuracy, or None."""
        found: dict[str, dict[str, Any]] = {}
        for place, group in enumerate(self.groups):
            count = int(self.count[place])
            totals = {"accuracy": self.correct, "nats": self.nats, "best": self.best}
            means = {name: float(total[place]) / count if count else None for name, total in totals.items()}
            found[group] = {"answers": count, **means}
        return found


class DiagnosticsTask(Task):
    """Trains and evaluates a model on a diagnostic.

    Args:
        model: the model.
        training: optimiser and schedule.
        conditions: what it is tested on; the first one is what it is trained on.
        groups: names of the groups of answers that are reported apart.
        seed: see Task.
        built_from: see Task.
    """

    followed = ("validation/accuracy",)
    published_metric = "test_accuracy"

    def __init__(
        self,
        model: DiagnosticModel,
        training: Training,
        conditions: Sequence[Condition],
        groups: Sequence[str],
        seed: int,
        built_from: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        super().__init__(model, training, seed, built_from)
        self.conditions = list(conditions)
        self.validation_answers = Answers(groups)
        # What zero reads change is asked only where there is a memory.
        self.reads = READS if self.model.stack.memory is not None else READS[:1]
        self.test_answers = nn.ModuleList(Answers(groups) for _ in self.conditions for _ in self.reads)
        self._tested: dict[str, nn.Module] = {}

    @classmethod
    def of_run(
        cls,
        model: nn.Module,
        training: Training,
        data: DiagnosticsData,
        seed: int,
        built_from: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> DiagnosticsTask:
        """The task of a run; see `Task.of_run`."""
        groups = data.diagnostic.sample(1, torch.Generator().manual_seed(0)).groups
        return cls(model, training, data.conditions, tuple(groups), seed, built_from)  # type: ignore[arg-type]

    @classmethod
    def preflight(
        cls, build: Callable[..., nn.Module], name: str, data: DiagnosticsData, allow_noncausal: bool
    ) -> None:
        """Answer one sequence of the longest condition; there is no future to be read, so there is no audit."""
        longest = max((condition.diagnostic for condition in data.conditions), key=lambda each: each.length)
        with torch.no_grad():
            answer(build(**data.network_arguments), longest.sample(1, torch.Generator().manual_seed(0)))

    def loss(self, batch: Batch) -> Tensor:
        """Mean nats over the answers of a batch."""
        logits = answer(self.model, batch)
        return nn.functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Add a batch's answers."""
        self.validation_answers.update(answer(self.model, batch), batch)

    def on_validation_epoch_end(self) -> None:
        """Log the loss and the accuracy."""
        found = self.validation_answers.compute()["all"]
        for name in ("nats", "accuracy"):
            self.log(f"validation/{name}", found[name])
        self.validation_answers.reset()

    def on_test_epoch_start(self) -> None:
        """Make the copy whose memory reads nothing."""
        self._tested = {"memory": self.model}
        if "zero" in self.reads:
            self._tested["zero"] = without_reads(self.model)

    def test_step(self, batch: Batch, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Add a batch's answers, with the memory's reads and without them."""
        for place, reads in enumerate(self.reads):
            metric = self.test_answers[dataloader_idx * len(self.reads) + place]
            metric.update(answer(self._tested[reads], batch), batch)

    def on_test_epoch_end(self) -> None:
        """Log the accuracy under the conditions of the training."""
        self._tested = {}
        self.log("test/accuracy", self.test_answers[0].compute()["all"]["accuracy"])

    def sample(self) -> str:
        """Right and given answers of a few test sequences."""
        loader = self.trainer.datamodule.test_dataloader()[0]  # type: ignore[attr-defined]
        batch: Batch = move_data_to_device(next(iter(loader)), self.device)
        given = answer(self.model.eval(), batch).argmax(-1)
        pairs = zip(batch.targets[:_SHOWN].tolist(), given[:_SHOWN].tolist(), strict=True)
        return "\n".join(
            f"right {' '.join(map(str, right))}   given {' '.join(map(str, said))}" for right, said in pairs
        )

    def evaluation_line(self, metrics: Mapping[str, Any]) -> str:
        """The loss of a validation and its accuracy."""
        return f"{float(metrics['validation/nats']):.4f} nats, accuracy {float(metrics['validation/accuracy']):.1%}"

    @staticmethod
    def headline(metrics: Mapping[str, Any]) -> str:
        """The test accuracy, and the best that there is."""
        return f"test accuracy {metrics['test_accuracy']:.1%} (best achievable {metrics['test_best']:.1%})"

    def result(self, best: BestCheckpoint) -> dict[str, Any]:
        """The blocks of the result file that belong to diagnostics, after the test."""
        tests = []
        for number, condition in enumerate(self.conditions):
            for place, reads in enumerate(self.reads):
                found = self.test_answers[number * len(self.reads) + place].compute()
                overall = found.pop("all")
                tests.append(
                    {
                        "changes": condition.changes,
                        "reads": reads,
                        **overall,
                        "chance": condition.diagnostic.chance,
                        "groups": found,
                    }
                )
        first, diagnostic = tests[0], self.conditions[0].diagnostic
        setting = diagnostic.difficulty
        return {
            "metrics": {
                "test_accuracy": first["accuracy"],
                "test_nats": first["nats"],
                "test_best": first["best"],
                "test_answers": first["answers"],
                "chance": first["chance"],
                "validation_nats": min(best.losses),
                "validation_accuracy": best.values["validation/accuracy"][best.losses.index(min(best.losses))],
                "best_step": best.best_step,
            },
            "tests": tests,
            "difficulty": {"setting": setting, "value": setting and getattr(diagnostic, setting)},
            **self.model_blocks(self.conditions[0].diagnostic.length),
        }


def answer(model: nn.Module, batch: Batch) -> Float[Tensor, "B Q classes"]:
    """The logits of each answer: the mean over the tokens that give it."""
    logits, _ = model(Tokens(batch.numbers, batch.symbols))
    return logits[:, batch.answers].mean(2)
