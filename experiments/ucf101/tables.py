"""Result files of action recognition to tables: one per protocol, data set, scale and budget."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from experiments.render import Section, Table
from experiments.results import Result
from experiments.summary import UNSCIENTIFIC_KEYS, Measured, canonical, machines, pool_seeds, scale_order

FRACTIONS = (0.25, 0.5, 0.75)
HIDDEN = {"frames": "of the frames", "patch": "of each frame, behind a moving patch"}
_COLUMNS = (
    *((kind, fraction, f"{kind} {fraction:.0%}") for kind in HIDDEN for fraction in FRACTIONS),
    ("shuffled", 0.0, "shuffled"),
    ("single", 0.0, "one frame"),
)
_ZERO = ", reads set to zero"
_NOTES = (
    "Mean over the runs, which differ in seed and official split; ± is the sample standard deviation. frames, patch: "
    "top-1 with so many of the frames blanked, or so much of each behind a moving patch. shuffled: the frames in "
    "random order; one frame: the middle one in the place of all. reads set to zero: the same weights, tested with the "
    "memory's reads set to zero. minutes: of training, wall time, with what else the machine did.",
    "base_wide, a control of ours, has as many parameters as tensor. tensor_layer has a state of its own per layer.",
)
_PAPER = "published, on UCF-101; whether from scratch is not said"
# What the files say of a run on all of UCF-101 (`Index.describe`).
_WHOLE = "all 13,320 clips of 101 classes"


def classification_tables(results: Iterable[Result]) -> list[Table]:
    """One table for each group of runs that may be compared."""
    return [_table(members) for members in comparable(results)]


def comparable(results: Iterable[Result]) -> list[list[Result]]:
    """Sort finished results into groups of one protocol, data set, scale and budget, large scales first."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        if result["status"] == "finished":
            groups.setdefault(json.dumps(_alike(result), sort_keys=True), []).append(result)
    return sorted(groups.values(), key=lambda members: _order(members[0]))


def named_groups(results: Iterable[Result]) -> list[tuple[str, list[Result]]]:
    """As `comparable`, each group with a name of its own for files: of its scale, numbered if need be."""
    named: list[tuple[str, list[Result]]] = []
    for members in comparable(results):
        stem = members[0]["scale"]
        number = 1 + sum(name.startswith(stem) for name, _ in named)
        named.append((stem if number == 1 else f"{stem}-{number}", members))
    return named


def pool_runs(members: Iterable[Result]) -> list[tuple[str, list[Result]]]:
    """As `pool_seeds`, with the official splits of a row together too."""
    runs = list(members)
    merged = [
        {**run, "config": {**run["config"], "data": {k: v for k, v in run["config"]["data"].items() if k != "split"}}}
        for run in runs
    ]
    whole = {id(without): run for without, run in zip(merged, runs, strict=True)}
    return [(label, [whole[id(run)] for run in row]) for label, row in pool_seeds(merged)]


def measured(runs: Sequence[Result], metric: str, subject: str, kind: str, fraction: float) -> Measured:
    """A score of the runs of a row.

    Args:
        runs: of the row.
        metric: ``top1`` or ``top5``, in percent, or ``nats``.
        subject: ``memory`` (the model as trained) or ``zero`` (its reads set to zero).
        kind: the condition's; see `Condition`.
        fraction: the condition's.
    """
    wanted = (subject, kind, fraction)
    tests = [test for run in runs for test in run["tests"]]
    return Measured.of([t[metric] for t in tests if (t["subject"], t["condition"], t["fraction"]) == wanted])


def _alike(result: Result) -> dict[str, Any]:
    """What the runs of a table have in common."""
    data = canonical(result["config"]["data"])
    return {
        "protocol": result["protocol"],
        "scale": result["scale"],
        "data": {key: value for key, value in data.items() if key not in UNSCIENTIFIC_KEYS | {"split"}},
        "training": canonical(result["config"]["training"]),
        # A part of a data set is another one.
        "clips": result["clips"]["found"],
    }


def _order(result: Result) -> tuple[Any, ...]:
    return (scale_order(result["scale"]), json.dumps(_alike(result), sort_keys=True))


def _table(members: Sequence[Result]) -> Table:
    first = members[0]
    data, training = first["config"]["data"], first["config"]["training"]
    rows, records = [], []
    for label, runs in pool_runs(members):
        splits = ", ".join(str(split) for split in sorted({run["config"]["data"]["split"] for run in runs}))
        minutes = Measured.of([run["training"]["wall_seconds"] / 60 for run in runs]).mean
        size = f"{runs[0]['parameters']['total']:,}"
        rows.append((label, splits, str(len(runs)), size, f"{minutes:.1f}", *_scores(runs, "memory")))
        if any(test["subject"] == "zero" for test in runs[0]["tests"]):
            rows.append((label + _ZERO, "", "", "", "", *_scores(runs, "zero")))
        records += [_record(label, run, test) for run in runs for test in run["tests"]]
    blank = ("",) * len(_COLUMNS)
    rows.append(("chance", "", "", "", "", f"{first['metrics']['chance']:.2f}", "", *blank))
    sections = [Section(None, tuple(rows))]
    # The paper's numbers are of the whole of UCF-101, and stand beside nothing else.
    if first["scale"] == "paper" and first["clips"]["found"] == _WHOLE and data.get("max_clips") is None:
        reached = {run["model"]: run["published"]["test_top1"] for run in members if "test_top1" in run["published"]}
        if reached:
            published = [(name, "", "", "", "", f"{value:.2f}", "", *blank) for name, value in sorted(reached.items())]
            sections.append(Section(_PAPER, tuple(published)))
    found = first["clips"]["found"]
    part = "" if found.startswith("all ") else f", of which there were {found}"
    clips = ", ".join(sorted({f"{run['metrics']['test_clips']:,}" for run in members}))
    hardware = "; ".join(machines(members))
    settings = ", ".join(f"{key} {value}" for key, value in sorted(first["protocol"].items()))
    subject = f"{data.get('folder') or 'UCF-101'}{part}"
    caption = (
        f"Accuracy in percent on the official test split ({clips} clips) of {subject}. Scale {first['scale']}: "
        f"{data['num_frames']} frames of {data['image_size']} pixels, patches of {data['patch']}, "
        f"{training['steps']:,} steps of {data['batch_size']} clips; {settings}; on {hardware}."
    )
    header = ("model", "splits", "runs", "parameters", "minutes", "top-1", "top-5", *(name for _, _, name in _COLUMNS))
    return Table(caption, header, 2, tuple(sections), _NOTES, tuple(records))


def _scores(runs: Sequence[Result], subject: str) -> list[str]:
    cells = [measured(runs, metric, subject, "frames", 0.0) for metric in ("top1", "top5")]
    cells += [measured(runs, "top1", subject, kind, fraction) for kind, fraction, _ in _COLUMNS]
    return [f"{cell.mean:.2f}" + ("" if cell.deviation is None else f" ± {cell.deviation:.2f}") for cell in cells]


def _record(label: str, run: Result, test: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "scale": run["scale"],
        **{f"protocol_{key}": value for key, value in sorted(run["protocol"].items())},
        "model": label,
        "split": run["config"]["data"]["split"],
        "seed": run["seed"],
        **test,
    }
