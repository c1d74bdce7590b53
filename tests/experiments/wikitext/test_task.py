"""The language task: a state that is carried from batch to batch."""

import math
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch.utils._pytree import tree_leaves

from experiments.training import Training
from experiments.wikitext.perplexity import perplexity
from experiments.wikitext.task import LanguageTask
from experiments.wikitext.windows import evaluation_batches, stream_windows
from tensormem.models.language import BaseLM, LinearLM, TensorLM, TransformerXL
from tests.helpers import EXACT_FLOAT64, assert_close, randomise

VOCABULARY, WINDOW = 11, 6
TOKENS = torch.randint(VOCABULARY, (59,), generator=torch.Generator().manual_seed(0))


def make_task(carry=True):
    model = TransformerXL(VOCABULARY, 8, 2, 2, segment=WINDOW, memory_length=4, dropout=0.0).double()
    randomise(model, torch.Generator().manual_seed(1))
    training = Training(steps=4, learning_rate=1e-3, warmup_steps=0, evaluate_every=2, patience=2)
    return LanguageTask(model, training, WINDOW, seed=0, carry=carry)


def test_training_goes_on_from_the_state_before_without_its_gradient():
    task = make_task()
    first, second = (stream_windows(TOKENS, WINDOW, 3, seed=0, index=index) for index in range(2))
    task.loss(first)
    carried = task.loss(second)
    _, state = task.model(first[0])
    logits, _ = task.model(second[0], state)
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), second[1].flatten())
    assert_close(carried, expected, "loss", EXACT_FLOAT64)
    assert (carried - make_task(carry=False).loss(second)).abs().item() > 1e-6
    carried.backward()
    assert not task._train_state.stack.mixers[0].inputs.requires_grad


def test_an_evaluation_is_one_long_call_and_starts_anew():
    task = make_task().eval()
    batches = evaluation_batches(TOKENS, WINDOW, batch_size=1)
    logits, _ = task.model(TOKENS[None, :-1])
    expected = torch.nn.functional.cross_entropy(logits[0], TOKENS[1:])
    for _ in range(2):
        task.on_validation_epoch_start()
        with torch.no_grad():
            for batch in batches:
                task.validation_step(batch, 0)
        assert_close(task.validation_nats.compute(), expected, "nats", EXACT_FLOAT64)
        task.validation_nats.reset()


def test_the_carried_state_goes_through_a_checkpoint(tmp_path):
    task, other = make_task(), make_task()
    first, second = (stream_windows(TOKENS, WINDOW, 3, seed=0, index=index) for index in range(2))
    task.loss(first)
    checkpoint = {}
    task.on_save_checkpoint(checkpoint)
    torch.save(checkpoint, tmp_path / "last.ckpt")
    other.on_load_checkpoint(torch.load(tmp_path / "last.ckpt", weights_only=True))
    assert torch.equal(other.loss(second), task.loss(second))


def test_a_carried_state_goes_on_where_the_model_is(monkeypatch):
    """A checkpoint is read on the CPU; `meta` stands for a device that is another."""
    task = make_task()
    task.loss(stream_windows(TOKENS, WINDOW, 3, seed=0, index=0))
    before = task._train_state
    task.on_train_start()
    assert all(torch.equal(a, b) for a, b in zip(tree_leaves(task._train_state), tree_leaves(before), strict=True))
    task.to("meta")
    assert task.device.type == "meta"
    task.on_train_start()
    devices = {(tensor.dim() > 0, tensor.device.type) for tensor in tree_leaves(task._train_state)}
    assert devices == {(True, "meta"), (False, "cpu")}
    make_task().on_train_start()  # of no state


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (TensorLM, {"threading": "depth", "positions": "rope"}, r"(?s)layer.*time"),
        (BaseLM, {"positions": "learned"}, r"data\.order=stream.*mine.*positions=learned ends at 64"),
        (BaseLM, {"positions": "rope"}, r"data\.order=stream.*mine.*grows.*data\.order=random"),
        (TensorLM, {"positions": "none", "memory_grid": (6, 6, 6)}, r"mine.*grows"),
        (LinearLM, {"positions": "rope"}, None),
        (TransformerXL, {"segment": 50, "memory_length": 40}, None),
    ],
)
def test_what_cannot_be_carried_for_ever_is_refused_before_any_work(kind, settings, message):
    def build(**changes):
        return kind(
            **{"vocab_size": 5, "dim": 8, "num_layers": 2, "num_heads": 2, "max_length": 64} | settings | changes
        )

    def preflight(order):
        LanguageTask.preflight(build, "mine", SimpleNamespace(order=order, window=16), allow_noncausal=True)

    preflight("random")
    with nullcontext() if message is None else pytest.raises(ValueError, match=message):
        preflight("stream")


def test_the_perplexity_of_a_huge_loss_is_infinite():
    assert make_task().evaluation_line({"validation/nats": 800.0}) == "800.0000 nats, perplexity inf"
    assert perplexity(math.log(10)) == pytest.approx(10)


def test_carrying_in_several_processes_is_refused():
    task = make_task()
    task.trainer = SimpleNamespace(world_size=2)
    with pytest.raises(ValueError, match=r"data\.order=stream.*trainer\.devices=1"):
        task.on_fit_start()


@pytest.mark.parametrize("carry", [False, True])
def test_without_streams_nothing_is_kept(carry):
    task = make_task(carry)
    task.loss(stream_windows(TOKENS, WINDOW, 3, seed=0, index=0))
    checkpoint = {}
    task.on_save_checkpoint(checkpoint)
    assert ("carried" in checkpoint) == carry
