"""The audit of the product's own models: the causal ones pass, the published route is caught however it hides."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from torch import nn

from tensormem.audit import AuditReport, audit
from tensormem.models.language import BaseLM, TensorLM

VOCABULARY = 7
CHUNK = 4
# No multiples of the chunk, several chunks each.
LENGTHS = (13, 18)


def make_model(kind, dropout=0.0, **kwargs):
    torch.manual_seed(0)
    sizes = dict(vocab_size=VOCABULARY, dim=8, num_layers=2, num_heads=2, dropout=dropout, max_length=32)
    if kind == "base":
        return BaseLM(**sizes, **kwargs)
    threading = "depth" if kind == "tensor_depth" else "layer"
    return TensorLM(**sizes, memory_channels=3, memory_grid=(2, 3), memory_chunk=CHUNK, threading=threading, **kwargs)


@pytest.mark.parametrize("kind", ["base", "tensor"])
@pytest.mark.parametrize("positions", ["learned", "rope", "none"])
def test_causal_models_pass(kind, positions):
    report = audit(make_model(kind, positions=positions), VOCABULARY, LENGTHS)
    assert report.passed, report
    assert report.largest_change == 0
    assert report.changed_position is report.leaking_position is None


@pytest.mark.parametrize("switches", [{"write": "hard"}, {"coordinates": "separate"}, {"update": "pointwise"}], ids=str)
def test_the_ablations_of_the_memory_pass(switches):
    assert audit(make_model("tensor", memory_options=switches), VOCABULARY, LENGTHS).passed


def test_the_published_route_is_caught():
    report = audit(make_model("tensor_depth"), VOCABULARY, LENGTHS)
    assert report.verdict == "leaks"
    assert not report.passed
    assert report.leaking_position < report.changed_position < report.length
    assert report.largest_change > 1e-9
    assert str(report.changed_position) in report.reason
    assert str(report.leaking_position) in report.reason


def test_a_closed_gate_does_not_hide_the_leak():
    model = make_model("tensor_depth", gamma=-1e4)
    report = audit(model, VOCABULARY, LENGTHS)
    assert (report.verdict, report.weights) == ("leaks", "random")


def test_a_silent_memory_does_not_hide_the_leak():
    model = make_model("tensor_depth")
    nn.init.zeros_(model.stack.memory.output.weight)
    nn.init.zeros_(model.stack.memory.output.bias)
    assert audit(model, VOCABULARY, LENGTHS).verdict == "leaks"
    model = make_model("tensor_depth", gamma=-1e4)
    nn.init.zeros_(model.stack.memory.output.weight)
    nn.init.zeros_(model.stack.memory.output.bias)
    assert audit(model, VOCABULARY, LENGTHS).verdict == "leaks"


@pytest.mark.parametrize("kind", ["base", "tensor", "tensor_depth"])
@pytest.mark.parametrize("training", [True, False])
def test_dropout_changes_no_verdict_and_the_model_stays_as_it_was(kind, training):
    model = make_model(kind, dropout=0.3).train(training)
    model.stack.blocks[0].eval()  # a mode set by hand on one part must survive too
    modes = [module.training for module in model.modules()]
    weights = copy.deepcopy(model.state_dict())
    report = audit(model, VOCABULARY, LENGTHS)
    assert report.verdict == ("leaks" if kind == "tensor_depth" else "causal")
    assert [module.training for module in model.modules()] == modes
    for name, value in model.state_dict().items():
        assert value.dtype == weights[name].dtype
        assert torch.equal(value, weights[name]), name
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_audit_leaves_the_random_numbers_of_the_run_alone():
    """It runs at the start of every training run, whose batches and dropout must not depend on it."""
    model = make_model("tensor", dropout=0.3)
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    audit(model, VOCABULARY, LENGTHS)
    assert torch.equal(torch.rand(3), expected)


def test_equal_audits_give_equal_reports():
    model = make_model("tensor_depth")
    assert audit(model, VOCABULARY, LENGTHS, seed=3) == audit(model, VOCABULARY, LENGTHS, seed=3)


@pytest.mark.parametrize("kind", ["base", "tensor_depth"])
def test_a_report_is_plain_values(kind):
    report = audit(make_model(kind), VOCABULARY, LENGTHS)
    read_back = json.loads(json.dumps(report.as_dict()))
    assert AuditReport(**read_back) == report
