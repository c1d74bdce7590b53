"""LanguageData: arguments, set-up, loaders, and resuming under a Lightning trainer."""

import itertools
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from experiments.wikitext import data as data_module
from experiments.wikitext.corpus import CorpusMismatchError, SplitCounts
from experiments.wikitext.data import LanguageData
from experiments.wikitext.windows import random_windows

WORDS = ["the", "<unk>", "and", "cat", "dog"]


@pytest.fixture
def arguments(tmp_path: Path) -> dict[str, Any]:
    """Arguments of a small, valid data module: 400 / 60 / 80 words in lines of ten."""
    (tmp_path / "wikitext-2").mkdir()
    counts = {}
    for split, name, size in (("train", "train", 400), ("validation", "valid", 60), ("test", "test", 80)):
        words = [WORDS[(i * i + i // 7) % 5] for i in range(size)]
        lines = [" ".join(words[i : i + 10]) for i in range(0, size, 10)]
        (tmp_path / "wikitext-2" / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        counts[split] = SplitCounts(lines=size // 10, words=size)
    return {"root": tmp_path, "window": 8, "batch_size": 4, "expected_counts": counts, "download": False}


def set_up(arguments: dict[str, Any], **changes: Any) -> LanguageData:
    data = LanguageData(**{**arguments, **changes})
    data.setup()
    return data


class Recorder(pl.LightningModule):
    """Keeps the inputs it is trained on."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen: list[torch.Tensor] = []
        self.evaluated = 0

    def training_step(self, batch: Any, batch_index: int) -> torch.Tensor:
        self.seen.append(batch[0].clone())
        return self.weight * batch[1].float().mean()

    def validation_step(self, batch: Any, batch_index: int) -> None:
        self.evaluated += batch[1].numel()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(arguments: dict[str, Any], max_steps: int, checkpoint: Path | None = None, **options: Any) -> Any:
    trainer = pl.Trainer(
        max_steps=max_steps,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=arguments["root"],
        num_sanity_val_steps=0,
        **options,
    )
    model = Recorder()
    trainer.fit(model, datamodule=LanguageData(**arguments), ckpt_path=checkpoint, weights_only=True)
    return trainer, model


@pytest.mark.parametrize(("kind", "size"), [("paper", 5), ("paper_fixed", 5), ("standard", 6)])
def test_set_up_encodes_every_split(arguments: dict[str, Any], kind: str, size: int) -> None:
    data = set_up(arguments, vocabulary=kind)
    assert data.vocab_size == data.vocabulary.size == size
    lines = 1 if kind == "standard" else 0
    assert len(data.train_tokens) == 400 + 40 * lines
    assert len(data.validation_tokens) == 60 + 6 * lines
    assert len(data.test_tokens) == 80 + 8 * lines
    assert data.train_tokens.dtype == torch.int64
    assert data.source == "local files"


def test_set_up_runs_once(arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    data = set_up(arguments)
    tokens = data.train_tokens
    monkeypatch.setattr(data_module, "load_tokens", lambda *args: pytest.fail("loaded again"))
    data.setup("test")
    assert data.train_tokens is tokens


def test_nothing_is_there_before_set_up(arguments: dict[str, Any]) -> None:
    data = LanguageData(**arguments)
    for name in ("vocab_size", "vocabulary", "source", "train_tokens", "validation_tokens", "test_tokens"):
        with pytest.raises(RuntimeError, match=r"call setup\(\) first"):
            getattr(data, name)


def test_the_counts_are_checked_unless_told_otherwise(arguments: dict[str, Any]) -> None:
    del arguments["expected_counts"]
    with pytest.raises(CorpusMismatchError, match="2,051,910 words, found 40 lines and 400 words"):
        set_up(arguments)


def test_training_batches_follow_the_seed(arguments: dict[str, Any]) -> None:
    data = set_up(arguments, seed=5)
    found = list(itertools.islice(data.train_dataloader(), 3))
    for index, (inputs, targets) in enumerate(found):
        expected = random_windows(data.train_tokens, 8, 4, seed=5, index=index)
        assert torch.equal(inputs, expected[0])
        assert torch.equal(targets, expected[1])


def test_evaluation_loaders_cover_their_split(arguments: dict[str, Any]) -> None:
    data = set_up(arguments)
    for loader, tokens in (
        (data.val_dataloader(), data.validation_tokens),
        (data.test_dataloader(), data.test_tokens),
    ):
        for _ in range(2):  # a second pass must not be empty
            scored = torch.cat([targets.flatten() for _, targets in loader])
            assert torch.equal(scored, tokens[1:])
        assert len(loader) == len(list(loader))


def test_evaluation_follows_the_protocol(arguments: dict[str, Any]) -> None:
    data = set_up(arguments, evaluation="paper", window=1)
    (batch,) = data.test_dataloader()  # 80 tokens: 2 a stream
    assert batch[0].shape == (32, 1)


def test_max_eval_tokens_cuts_validation_and_test_only(arguments: dict[str, Any]) -> None:
    whole, cut = set_up(arguments), set_up(arguments, max_eval_tokens=20)
    assert torch.equal(cut.validation_tokens, whole.validation_tokens[:20])
    assert torch.equal(cut.test_tokens, whole.test_tokens[:20])
    assert torch.equal(cut.train_tokens, whole.train_tokens)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("window", 0, "window=0: must be at least 1"),
        ("batch_size", 0, "batch_size=0: must be at least 1"),
        ("seed", -1, "seed=-1: must be at least 0"),
        ("num_workers", -1, "num_workers=-1: must be at least 0"),
        ("max_eval_tokens", 1, "max_eval_tokens=1: must be at least 2"),
        (
            "vocabulary",
            "papper",
            "vocabulary='papper' does not go with corpus=wikitext-2: use one of paper, paper_fixed, standard",
        ),
        ("evaluation", "papper", "evaluation='papper' is unknown: use one of full, paper"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], name: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LanguageData(**{**arguments, name: value})


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_resumed_fit_goes_on_with_the_next_batch(arguments: dict[str, Any], accumulate: int) -> None:
    options = {"accumulate_grad_batches": accumulate}
    _, whole = fit(arguments, 5, **options)
    trainer, first = fit(arguments, 2, **options)
    checkpoint = arguments["root"] / "state.ckpt"
    trainer.save_checkpoint(checkpoint)
    _, second = fit(arguments, 5, checkpoint, **options)
    assert len(whole.seen) == 5 * accumulate
    assert len(first.seen) == 2 * accumulate
    assert torch.equal(torch.stack(first.seen + second.seen), torch.stack(whole.seen))


def test_lightning_validates_on_every_target(arguments: dict[str, Any]) -> None:
    _, model = fit(arguments, 4, val_check_interval=2, check_val_every_n_epoch=None)
    assert model.evaluated == 2 * 59


def test_workers_under_a_trainer_give_the_same_batches(arguments: dict[str, Any]) -> None:
    _, alone = fit(arguments, 3)
    _, helped = fit({**arguments, "num_workers": 2}, 3)
    assert torch.equal(torch.stack(alone.seen), torch.stack(helped.seen))
