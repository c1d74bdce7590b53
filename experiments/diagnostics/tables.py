"""Result files of the diagnostic suite to tables: one per task, and one of the ablations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from experiments.diagnostics.groups import Group, Row, first_gates, group_results
from experiments.render import Section, Table, render_markdown
from experiments.results import Result
from experiments.summary import Measured, plain

BEST = "best achievable"
CHANCE = "chance"
_ZERO = ", reads set to zero"
NOTES = (
    "Columns are the settings that the models were trained and tested with. Mean over the seeds; ± is the sample "
    "standard deviation. Below a model with a memory: the same weights, tested with the memory's reads set to zero.",
    "streams: whether the model can take a sequence in pieces. tensor (the published route of the state, depth) and "
    "slots see the whole sequence before their second layer, which matters to no answer here but those of no_harm.",
    "state bytes: what the model holds for one sequence of the hardest of these settings that it was trained with.",
)
PAPER_NOTE = "paper: the range that the paper gives over its settings."


def diagnostics_tables(results: Iterable[Result]) -> list[Table]:
    """One table for each task and way to train, one more for the ablations of each model that has some."""
    tables = []
    for group in group_results(results):
        if group.main.rows:
            tables.append(_accuracy_table(group.main, _records(group)))
        for place, model in enumerate(group.ablated):
            # The records of a group are with its first table.
            with_records = not group.main.rows and place == 0
            tables.append(_ablation_table(group, model, _records(group) if with_records else ()))
    return tables


def condition_table(results: Iterable[Result]) -> str:
    """Accuracy under conditions that the models were not trained with (Markdown)."""
    return render_markdown([table for group in group_results(results) for table in _condition_tables(group.main)])


def gate_table(results: Iterable[Result]) -> str:
    """The gates that the models with a memory learned, by layer (Markdown)."""
    return render_markdown([_gate_table(group) for group in group_results(results) if _gated(group)])


def percent(measured: Measured | None) -> str:
    """An accuracy as in the tables; nothing where there is none."""
    if measured is None:
        return ""
    spread = "" if measured.deviation is None else f" ± {100 * measured.deviation:.1f}"
    return f"{100 * measured.mean:.1f}{spread}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"


def _column(group: Group, difficulty: Any) -> str:
    return "accuracy" if group.setting is None else f"{group.setting} {plain(difficulty)}"


def _accuracy_table(group: Group, records: Sequence[dict[str, Any]]) -> Table:
    has_paper = any(_paper(row) for row in group.rows)
    columns = [_column(group, value) for value in group.difficulties]
    header = ("model", "streams", "seeds", "parameters", "state bytes", *columns, *(("paper",) if has_paper else ()))
    sections = [Section(None, tuple(_section_rows(group, None, len(header), has_paper)))]
    for name in group.answer_groups:
        sections.append(Section(f"{name} alone", tuple(_section_rows(group, name, len(header), has_paper))))
    return Table(
        group.caption,
        header,
        2,
        tuple(sections),
        (*NOTES, *((PAPER_NOTE,) if has_paper else ())),
        tuple(records),
    )


def _section_rows(group: Group, answers: str | None, width: int, has_paper: bool) -> Iterable[tuple[str, ...]]:
    for title, key in ((BEST, "best"), (CHANCE, "chance")):
        cells = [_share(group.reference(value, key, answers)) for value in group.difficulties]
        row = (title, "", "", "", "", *cells)
        yield row + ("",) * (width - len(row))
    for row in group.rows:
        cells = [percent(row.measured(value, group=answers)) for value in group.difficulties]
        yield (*_who(row, group.difficulties), *cells, *((_paper(row),) if has_paper else ()))
        silent = [percent(row.measured(value, reads="zero", group=answers)) for value in group.difficulties]
        if any(silent):
            yield (row.label + _ZERO, "", "", "", "", *silent, *(("",) if has_paper else ()))


def _who(row: Row, difficulties: Iterable[Any]) -> tuple[str, ...]:
    """Name, streams, seeds, parameters and state of a row, as far as it was trained with these difficulties."""
    shown = [row.runs[value] for value in difficulties if value in row.runs]
    last = shown[-1][-1]
    seeds = sorted({len(runs) for runs in shown})
    return (
        row.label,
        "yes" if last["streaming"] != "none" else "no",
        "-".join(str(count) for count in dict.fromkeys((seeds[0], seeds[-1]))),
        f"{last['parameters']['total']:,}",
        f"{last['state_bytes']['per_sequence']:,}",
    )


def _paper(row: Row) -> str:
    found = row.results[0]["published"].get("test_accuracy")
    if found is None:
        return ""
    low, high = (f"{100 * value:g}" for value in found)
    return low if low == high else f"{low} to {high}"


def _ablation_table(group: Group, model: str, records: Sequence[dict[str, Any]]) -> Table:
    compared = group.ablations(model)
    difficulties = {value for row in compared if row.ablation for value in row.runs}
    columns = [(value, suffix) for value in group.difficulties if value in difficulties for suffix in ("", _ZERO)]
    header = (
        "model",
        "seeds",
        "parameters",
        "state bytes",
        *(_column(group, value) + suffix for value, suffix in columns),
    )
    rows = []
    for row in compared:
        cells = [percent(row.measured(value, reads="zero" if suffix else "memory")) for value, suffix in columns]
        if any(cells):
            who = _who(row, [value for value, suffix in columns if not suffix])
            rows.append((who[0], *who[2:], *cells))
    return Table(f"Ablations of {model}. {group.caption}", header, 1, (Section(None, tuple(rows)),), (), tuple(records))


def _condition_tables(group: Group) -> Iterable[Table]:
    for difficulty in group.difficulties:
        conditions: dict[str, dict[str, Any]] = {}
        for row in group.rows:
            for result in row.runs.get(difficulty, ()):
                for test in result["tests"]:
                    conditions.setdefault(plain(test["changes"]), test)
        if len(conditions) < 2:
            continue
        names = [
            ", ".join(f"{key} {plain(value)}" for key, value in test["changes"].items()) or "as trained"
            for test in conditions.values()
        ]
        rows = [
            (title, *(_share(test[key]) for test in conditions.values()))
            for title, key in ((BEST, "best"), (CHANCE, "chance"))
        ]
        for row in group.rows:
            for reads, suffix in (("memory", ""), ("zero", _ZERO)):
                cells = [percent(row.measured(difficulty, test["changes"], reads)) for test in conditions.values()]
                if any(cells):
                    rows.append((row.label + suffix, *cells))
        trained = "" if group.setting is None else f"Trained with {group.setting} {plain(difficulty)}. "
        yield Table(trained + group.caption, ("model", *names), 1, (Section(None, tuple(rows)),))


def _gated(group: Group) -> bool:
    return any(result["gates"] for result in group.results)


def _gate_table(group: Group) -> Table:
    num_layers = max(len(result["gates"] or ()) for result in group.results)
    rows = []
    for row in group.rows:
        for difficulty, runs in row.runs.items():
            if runs[0]["gates"]:
                gates = [Measured.of(values) for values in zip(*(run["gates"] for run in runs), strict=True)]
                cells = [_gate(gate) for gate in gates] + [""] * (num_layers - len(gates))
                rows.append((row.label, "" if group.setting is None else plain(difficulty), *cells))
    header = ("model", group.setting or "setting", *(f"layer {layer + 1}" for layer in range(num_layers)))
    caption = f"The memory's gates after training; they start at {first_gates(group.results)}. {group.caption}"
    return Table(caption, header, 2, (Section(None, tuple(rows)),))


def _gate(measured: Measured) -> str:
    spread = "" if measured.deviation is None else f" ± {measured.deviation:.3f}"
    return f"{measured.mean:.3f}{spread}"


def _records(group: Group) -> Sequence[dict[str, Any]]:
    return [
        {
            "diagnostic": group.diagnostic,
            "steps": group.steps,
            "scale": group.scale,
            **{f"trained_{key}": value for key, value in group.settings.items()},
            "model": row.label,
            "seed": result["seed"],
            "trained_setting": group.setting,
            "trained_value": result["difficulty"]["value"],
            "test_changes": plain(test["changes"]) if test["changes"] else "",
            "reads": test["reads"],
            "answers_of": answers,
            "accuracy": values["accuracy"],
            "best_achievable": values["best"],
            "chance": test["chance"],
            "answers": values["answers"],
        }
        for row in group.rows
        for result in row.results
        for test in result["tests"]
        for answers, values in {"all": test, **test["groups"]}.items()
    ]
