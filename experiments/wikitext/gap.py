"""What the gap between a plain Transformer and the published model is made of: width, a causal memory, and the leak."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from experiments.render import Section, Table, render_markdown
from experiments.results import Result
from experiments.summary import Measured, Pair, pairs_of
from experiments.wikitext.tables import Group, group_results

# What is added, the model without it, and the model with it.
_PARTS = (
    ("width", "base", "base_wide"),
    ("a causal memory", "base_wide", "tensor"),
    ("width and a causal memory", "base", "tensor"),
    ("the leak", "tensor", "tensor_depth"),
    ("all", "base", "tensor_depth"),
)
HEADER = ("what is added", "from", "to", "seeds", "test perplexity", "gain in test nats per token")
NOTES = (
    "Runs of the same seed are compared, which train on the same batches in the same order: the gain is the mean of "
    "their differences, ± the sample standard deviation of these.",
)


def gap_table(results: Iterable[Result]) -> str:
    """What the gap between base and tensor_depth is made of (Markdown).

    One table per comparable group that has two of the models with a seed in common.
    """
    tables = [_table(group) for group in group_results(results)]
    return render_markdown([table for table in tables if any(section.rows for section in table.sections)])


def _table(group: Group) -> Table:
    rows = tuple(
        _cells(part, pair) for part, first, second in _PARTS for pair in pairs_of(group.results, first, second)
    )
    return Table(group.caption, HEADER, num_text_columns=3, sections=(Section(None, rows),), notes=NOTES)


def _cells(part: str, pair: Pair) -> tuple[str, ...]:
    gain = Measured.of([first["metrics"]["test_nats"] - second["metrics"]["test_nats"] for first, second in pair.runs])
    without, added = zip(*pair.runs, strict=True)
    spread = "" if gain.deviation is None else f" ± {gain.deviation:.4f}"
    return (
        part,
        pair.first,
        pair.second if added[0]["causal"] else f"{pair.second} (reads the future)",
        ", ".join(str(run["seed"]) for run in without),
        f"{_perplexity(without)} to {_perplexity(added)}",
        f"{gain.mean:.4f}{spread}",
    )


def _perplexity(runs: Sequence[Result]) -> str:
    return f"{statistics.fmean(run['metrics']['test_perplexity'] for run in runs):.2f}"
