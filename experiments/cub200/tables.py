"""Result files of masked reconstruction to tables: one per protocol, scale and budget."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from experiments.render import Section, Table
from experiments.results import Result
from experiments.summary import UNSCIENTIFIC_KEYS, Measured, canonical, machines, pairs_of, pool_seeds, scale_order

RATIOS = (0.25, 0.5, 0.75)
_DIGITS = {"psnr": 2, "ssim": 3}
_COLUMNS = [(metric, ratio) for metric in _DIGITS for ratio in RATIOS]
_BASELINES = ("base", "local", "registers", "base_wide")
_CLAIM = "gain of tensor; the paper claims one over base, local and registers in every column"
_ZERO = ", reads set to zero"
_METRICS = {
    "pixels": "PSNR (dB) of the hidden pixels, SSIM at hidden pixels",
    "normalised": "PSNR (dB) and SSIM of whole images, hidden patches brought to the mean and deviation of the answer",
}
_NOTES = (
    "Mean over the seeds; ± is the sample standard deviation. reads set to zero: the same weights, tested with the "
    "memory's reads set to zero. The last row above the gains learns nothing: a model has learned what it has more. "
    "Gains are the means over the seeds that both models have.",
    "The paper claims gains in PSNR and SSIM over base, local and registers at each ratio, and prints no numbers. "
    "base_wide, a control of ours, has as many parameters as tensor.",
)
_PAPER_NOTE = (
    "Published protocol, not ours: its scores use the hidden answer. Compare a model's with those of 0 everywhere."
)


def reconstruction_tables(results: Iterable[Result]) -> list[Table]:
    """One table for each group of runs that may be compared, ours first."""
    return [_table(members) for members in comparable(results)]


def comparable(results: Iterable[Result]) -> list[list[Result]]:
    """Sort finished results into groups of one protocol, scale, data and budget, ours first, large scales first."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        if result["status"] == "finished":
            groups.setdefault(json.dumps(_alike(result), sort_keys=True), []).append(result)
    return sorted(groups.values(), key=lambda members: _order(members[0]))


def named_groups(results: Iterable[Result]) -> list[tuple[str, list[Result]]]:
    """As `comparable`, each group with a name of its own for files: of its target and scale, numbered if need be."""
    named: list[tuple[str, list[Result]]] = []
    for members in comparable(results):
        stem = f"{members[0]['protocol']['target']}-{members[0]['scale']}"
        number = 1 + sum(name.startswith(stem) for name, _ in named)
        named.append((stem if number == 1 else f"{stem}-{number}", members))
    return named


def _alike(result: Result) -> dict[str, Any]:
    """What the runs of a table have in common."""
    data = canonical(result["config"]["data"])
    return {
        "protocol": result["protocol"],
        "scale": result["scale"],
        "data": {key: value for key, value in data.items() if key not in UNSCIENTIFIC_KEYS},
        "training": canonical(result["config"]["training"]),
        "images": result["metrics"]["test_images"],
    }


def _order(result: Result) -> tuple[Any, ...]:
    published = sum(value in ("normalised", "shuffled", "paper") for value in result["protocol"].values())
    return (published, scale_order(result["scale"]), json.dumps(_alike(result), sort_keys=True))


def _table(members: Sequence[Result]) -> Table:
    first = members[0]
    target = first["protocol"]["target"]
    rows, records = [], []
    pooled = dict(pool_seeds(members))
    for label, runs in pooled.items():
        who = (label, str(len(runs)), f"{runs[0]['parameters']['total']:,}")
        rows.append((*who, *_scores(runs, "memory")))
        if any(test["subject"] == "zero" for test in runs[0]["tests"]):
            rows.append((label + _ZERO, "", "", *_scores(runs, "zero")))
        records += [_record(label, run, test) for run in runs for test in run["tests"]]
    rows.append((first["control"], "", "", *_scores([first], "control")))
    sections = [Section(None, tuple(rows))]
    if gains := _gains(members):
        sections.append(Section(_CLAIM, gains))
    columns = [f"{metric.upper()} {ratio:.0%}" for metric, ratio in _COLUMNS]
    data, training = first["config"]["data"], first["config"]["training"]
    hardware = "; ".join(machines(members))
    settings = ", ".join(f"{key} {value}" for key, value in sorted(first["protocol"].items()))
    caption = (
        f"{_METRICS[target]}, with so many of the patches hidden. Scale {first['scale']}: {data['image_size']} pixels, "
        f"patches of {data['patch']}, {training['steps']:,} steps of {data['batch_size']} images; "
        f"{first['metrics']['test_images']:,} test images; {settings}; on {hardware}."
    )
    notes = _NOTES if target == "pixels" else (_PAPER_NOTE, *_NOTES)
    return Table(caption, ("model", "seeds", "parameters", *columns), 1, tuple(sections), notes, tuple(records))


def _gains(members: Sequence[Result]) -> tuple[tuple[str, ...], ...]:
    """What tensor has more than each of its baselines at the same seeds."""
    rows = []
    for pair in (pair for baseline in _BASELINES for pair in pairs_of(members, "tensor", baseline)):
        ours, theirs = ([_means(runs, column) for column in _COLUMNS] for runs in zip(*pair.runs, strict=True))
        cells = [
            # The sum makes 0 of -0.
            f"{round(mine - other, _DIGITS[metric]) + 0.0:+.{_DIGITS[metric]}f}"
            for (metric, _), mine, other in zip(_COLUMNS, ours, theirs, strict=True)
        ]
        ours_is = "" if pair.first == "tensor" else f"{pair.first} "
        rows.append((f"{ours_is}over {pair.second}", str(len(pair.runs)), "", *cells))
    return tuple(rows)


def _means(runs: Sequence[Result], column: tuple[str, float]) -> float:
    return measured(runs, "memory", *column).mean


def measured(runs: Sequence[Result], subject: str, metric: str, ratio: float) -> Measured:
    """A score of the runs of a row, over the seeds.

    Args:
        runs: of the row.
        subject: ``memory`` (the model as trained), ``zero`` (its reads set to zero) or ``control``.
        metric: ``psnr`` or ``ssim``.
        ratio: share of hidden patches, one of `RATIOS`.
    """
    tests = [test for run in runs for test in run["tests"]]
    return Measured.of([t[metric] for t in tests if t["subject"] == subject and t["mask_ratio"] == ratio])


def _scores(runs: Sequence[Result], subject: str) -> list[str]:
    cells = []
    for metric, ratio in _COLUMNS:
        score, digits = measured(runs, subject, metric, ratio), _DIGITS[metric]
        spread = "" if score.deviation is None else f" ± {score.deviation:.{digits}f}"
        cells.append(f"{score.mean:.{digits}f}{spread}")
    return cells


def _record(label: str, run: Result, test: dict[str, Any]) -> dict[str, Any]:
    return {
        "scale": run["scale"],
        **{f"protocol_{key}": value for key, value in sorted(run["protocol"].items())},
        "model": label,
        "seed": run["seed"],
        **test,
    }
