"""Result files of the diagnostic suite to figures: accuracy by difficulty, beyond it, by step; ablations; gates."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.diagnostics.groups import Group, Row, find_test, first_gates, group_results
from experiments.drawing import UNLISTED, colour, draw_means, line_style, line_styles, new_figure
from experiments.results import Result, ResultError
from experiments.summary import Measured, plain

_GREY = "#7F7F7F"


def accuracy_by_difficulty(group: Group, path: str | os.PathLike[str]) -> None:
    """Accuracy against what makes the task hard: a line per model, chance, the best there is.

    Thin dashed lines are the same weights with the memory's reads set to zero; bands are the paper's ranges.
    """
    group = group.main
    axes, save = new_figure(str(group.setting), "accuracy (%)")
    _draw_paper(axes, group)
    for row in group.rows:
        _draw_row(axes, {value: (value, {}) for value in group.difficulties}, row)
    _draw_bounds(axes, group, group.difficulties, lambda value, key: group.reference(value, key))
    _ticks(axes, group.difficulties)
    _title(axes, group)
    save(path)


def accuracy_beyond(group: Group, path: str | os.PathLike[str], difficulty: Any) -> None:
    """Accuracy of models trained with one difficulty, against the difficulty that they are tested with.

    Lines as in `accuracy_by_difficulty`.
    """
    group = group.main
    axes, save = new_figure(f"{group.setting} in the test", "accuracy (%)")
    tested = _tested(group, difficulty)
    values = sorted(tested)
    for row in group.rows:
        _draw_row(axes, {value: (difficulty, tested[value]["changes"]) for value in values}, row)
    _draw_bounds(axes, group, values, lambda value, key: float(tested[value][key]))
    axes.axvline(difficulty, color=_GREY, linewidth=0.8, linestyle="--")
    _ticks(axes, values)
    _title(axes, group, f"trained with {_named(group, difficulty)}")
    save(path)


def accuracy_by_step(group: Group, path: str | os.PathLike[str]) -> None:
    """Validation accuracy against the training step at the greatest difficulty, one line per run."""
    group = group.main
    difficulty = group.difficulties[-1]
    axes, save = new_figure("training step", "validation accuracy (%)")
    for row in group.rows:
        runs = row.runs.get(difficulty, ())
        styles = line_styles(row.label, True, [result["seed"] for result in runs])
        for result, style in zip(runs, styles, strict=True):
            history = result["history"]
            accuracy = [100 * value for value in history["validation_accuracy"]]
            axes.plot(history["step"], accuracy, **(style | {"marker": None}))
    steps = [0, max(max(result["history"]["step"]) for row in group.rows for result in row.runs.get(difficulty, ()))]
    _draw_bounds(axes, group, steps, lambda _, key: group.reference(difficulty, key))
    _title(axes, group, _named(group, difficulty))
    save(path)


def ablations(group: Group, path: str | os.PathLike[str], model: str) -> None:
    """Accuracy of each ablation of a model beside that of the model."""
    axes, save = new_figure("accuracy (%)", "")
    rows = group.ablations(model)
    difficulty = next(value for row in rows if row.ablation for value in row.runs)
    bars = [(row, row.measured(difficulty)) for row in rows]
    bars = sorted(((row, found) for row, found in bars if found), key=lambda bar: bar[1].mean)
    for place, (row, found) in enumerate(bars):
        axes.barh(
            place,
            100 * found.mean,
            xerr=None if found.deviation is None else 100 * found.deviation,
            color=colour("base_wide") if row.ablation else colour(model),
        )
    axes.set_yticks(range(len(bars)), [row.label for row, _ in bars])
    chance = group.reference(difficulty, "chance")
    if chance is not None:
        axes.axvline(100 * chance, color=_GREY, linestyle=":", label="chance")
    _title(axes, group, _named(group, difficulty))
    save(path)


def gates(groups: Sequence[Group], path: str | os.PathLike[str]) -> None:
    """The memory's gates after training, by task and layer; a point a run."""
    start = first_gates(result for group in groups for result in group.main.results)
    axes, save = new_figure("layers from left to right", f"gate after training ({start} at the start)")
    named: set[str] = set()
    names = list(dict.fromkeys(group.diagnostic for group in groups))
    for group in groups:
        for row in group.main.rows:
            for result in row.results:
                for layer, gate in enumerate(result["gates"] or ()):
                    aside = 0.05 if row.label == "tensor" else -0.05
                    place = names.index(group.diagnostic) + 0.2 * (layer - 1) + aside
                    label = UNLISTED if row.label in named else row.label
                    named.add(row.label)
                    look = {"color": colour(row.label.split(" ")[0]), "markersize": 4, "gid": row.label}
                    axes.plot(place, gate, "o", label=label, **look)
    axes.axhline(0.5, color=_GREY, linewidth=0.8, linestyle="--")
    axes.set_xticks(range(len(names)), names)
    save(path)


def draw_all(results: Iterable[Result], folder: str | os.PathLike[str]) -> list[Path]:
    """Draw what the results have data for; returns the files, named by figure, task and scale.

    Raises:
        ResultError: no result is finished.
    """
    groups = group_results(results)
    if not groups:
        raise ResultError("no finished result to draw; resume the runs with `make reproduce-diagnostics`")
    names: list[str] = []
    written: list[Path] = []

    def draw(name: str, make: Callable[[Path], None]) -> None:
        # Groups may be of one name: they differ in what a name would be too long with.
        names.append(name)
        number = names.count(name)
        path = Path(folder) / f"{name}{f'-{number}' if number > 1 else ''}.png"
        make(path)
        written.append(path)

    for group in groups:
        main = group.main
        if main.rows:
            if len(main.difficulties) > 1:
                draw(f"accuracy-{group.slug}", lambda path, group=group: accuracy_by_difficulty(group, path))
            draw(f"steps-{group.slug}", lambda path, group=group: accuracy_by_step(group, path))
            for value in main.difficulties:
                if len(_tested(main, value)) > 1:
                    draw(
                        f"beyond-{group.slug}-{plain(value)}",
                        lambda path, group=group, value=value: accuracy_beyond(group, path, value),
                    )
        for model in group.ablated:
            draw(
                f"ablations-{model}-{group.slug}",
                lambda path, group=group, model=model: ablations(group, path, model),
            )
    for scale in dict.fromkeys(group.scale for group in groups):
        own = [group for group in groups if group.scale == scale]
        if any(result["gates"] for group in own for result in group.main.results):
            draw(f"gates-{scale}", lambda path, own=own: gates(own, path))
    return written


def _tested(group: Group, difficulty: Any) -> dict[Any, dict[str, Any]]:
    """By the difficulty of the test, where nothing else is changed: the test of a run trained with this one."""
    tested: dict[Any, dict[str, Any]] = {}
    for row in group.rows:
        for result in row.runs.get(difficulty, ()):
            for test in result["tests"]:
                if set(test["changes"]) <= {group.setting} and group.setting is not None:
                    value = test["changes"].get(group.setting, difficulty)
                    tested.setdefault(value, find_test(result, test["changes"], "memory") or test)
    return tested


def _named(group: Group, difficulty: Any) -> str:
    """A difficulty with its name; nothing where the task has none."""
    return "" if group.setting is None else f"{group.setting} {plain(difficulty)}"


def _draw_row(axes: Any, places: Mapping[Any, tuple[Any, Mapping[str, Any]]], row: Row) -> None:
    """A model's line, and thinner that with its memory's reads set to zero.

    Args:
        axes: to draw on.
        places: by the place on the horizontal axis, the difficulty of the training and the changes of the test.
        row: the model.
    """
    style = line_style(row.label, causal=True)
    silent = {**style, "linestyle": (0, (2, 2)), "linewidth": 0.9, "marker": None, "label": None}
    for reads, look in (("memory", style), ("zero", silent)):
        points = [(place, row.measured(trained, changes, reads)) for place, (trained, changes) in places.items()]
        if reads == "zero" and any(measured is not None for _, measured in points):
            look["label"] = f"{row.label}, reads set to zero"
        _draw_line(axes, points, look)


def _draw_line(axes: Any, points: Sequence[tuple[Any, Measured | None]], style: dict[str, Any]) -> None:
    found = [(value, measured) for value, measured in points if measured is not None]
    if not found:
        return
    means = [100 * measured.mean for _, measured in found]
    deviations = [None if measured.deviation is None else 100 * measured.deviation for _, measured in found]
    draw_means(axes, [value for value, _ in found], means, deviations, style)


def _draw_bounds(axes: Any, group: Group, values: Sequence[Any], reference: Callable[[Any, str], float | None]) -> None:
    for key, label, style in (("best", "best achievable", "-."), ("chance", "chance", ":")):
        found = [(value, reference(value, key)) for value in values]
        known = [(value, share) for value, share in found if share is not None]
        axes.plot(
            [value for value, _ in known],
            [100 * share for _, share in known],
            color=_GREY,
            linestyle=style,
            linewidth=1.0,
            label=label,
        )


def _draw_paper(axes: Any, group: Group) -> None:
    drawn: set[tuple[float, ...]] = set()
    for row in group.rows:
        low, high = row.results[0]["published"].get("test_accuracy", (0.0, 0.0))
        if high > low and (low, high) not in drawn:
            drawn.add((low, high))
            model = row.label.split(" ")[0]
            name = "attention baselines" if model.startswith("base") else model
            axes.axhspan(100 * low, 100 * high, color=colour(model), alpha=0.1, label=f"the paper: {name}")


def _ticks(axes: Any, values: Sequence[Any]) -> None:
    if values and min(values) > 0 and max(values) > 4 * min(values):
        axes.set_xscale("log")
    axes.set_xticks(list(values), [plain(value) for value in values])
    axes.minorticks_off()


def _title(axes: Any, group: Group, more: str = "") -> None:
    settings = [f"{key} {plain(value)}" for key, value in group.settings.items()]
    budget = [] if group.steps == "fixed" else ["trained until validation stops improving"]
    axes.set_title(", ".join([group.diagnostic, *settings, *([more] if more else []), *budget]), fontsize=9)
