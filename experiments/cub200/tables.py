"""Result files of masked reconstruction to tables: one per protocol, scale and budget."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from experiments.render import Section, Table
from experiments.results import Result
from experiments.summary import Measured, canonical, hardware_of, pool_seeds, scale_order

RATIOS = (0.25, 0.5, 0.75)
_ZERO = ", reads set to zero"
_METRICS = {
    "pixels": "PSNR (dB) of the hidden pixels, SSIM at hidden pixels",
    "normalised": "PSNR (dB) and SSIM of whole images, hidden patches brought to the mean and deviation of the answer",
}
_NOTES = (
    "Mean over the seeds; ± is the sample standard deviation. reads set to zero: the same weights, tested with the "
    "memory's reads set to zero. The last row learns nothing: what is worth more must be seen beside it.",
    "The paper claims gains in PSNR and SSIM over base, local and registers at each ratio, and prints no numbers.",
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


def _alike(result: Result) -> dict[str, Any]:
    """What the runs of a table have in common."""
    data = {
        key: value for key, value in result["config"]["data"].items() if key not in ("seed", "cache", "num_workers")
    }
    return {
        "protocol": result["protocol"],
        "scale": result["scale"],
        "data": data,
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
    for label, runs in pool_seeds(members):
        who = (label, str(len(runs)), f"{runs[0]['parameters']['total']:,}")
        rows.append((*who, *_scores(runs, "memory")))
        if any(test["subject"] == "zero" for test in runs[0]["tests"]):
            rows.append((label + _ZERO, "", "", *_scores(runs, "zero")))
        records += [_record(label, run, test) for run in runs for test in run["tests"]]
    rows.append((first["control"], "", "", *_scores([first], "control")))
    columns = [f"{name} {ratio:.0%}" for name in ("PSNR", "SSIM") for ratio in RATIOS]
    data, training = first["config"]["data"], first["config"]["training"]
    hardware = "; ".join(sorted({hardware_of(result) for result in members}))
    settings = ", ".join(f"{key} {value}" for key, value in sorted(first["protocol"].items()))
    caption = (
        f"{_METRICS[target]}, with so many of the patches hidden. Scale {first['scale']}: {data['image_size']} pixels, "
        f"patches of {data['patch']}, {training['steps']:,} steps of {data['batch_size']} images; "
        f"{first['metrics']['test_images']:,} test images; {settings}; on {hardware}."
    )
    notes = _NOTES if target == "pixels" else (_PAPER_NOTE, *_NOTES)
    return Table(
        caption, ("model", "seeds", "parameters", *columns), 1, (Section(None, tuple(rows)),), notes, tuple(records)
    )


def _scores(runs: Sequence[Result], subject: str) -> list[str]:
    cells = []
    for metric, digits in (("psnr", 2), ("ssim", 3)):
        for ratio in RATIOS:
            values = [
                test[metric]
                for run in runs
                for test in run["tests"]
                if test["subject"] == subject and test["mask_ratio"] == ratio
            ]
            measured = Measured.of(values)
            spread = "" if measured.deviation is None else f" ± {measured.deviation:.{digits}f}"
            cells.append(f"{measured.mean:.{digits}f}{spread}")
    return cells


def _record(label: str, run: Result, test: dict[str, Any]) -> dict[str, Any]:
    return {
        "scale": run["scale"],
        **{f"protocol_{key}": value for key, value in sorted(run["protocol"].items())},
        "model": label,
        "seed": run["seed"],
        **test,
    }
