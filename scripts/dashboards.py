"""W&B dashboards as code: for each benchmark a workspace of its runs and a report that compares them with the paper.

    python scripts/dashboards.py [wikitext ...] [--output DIR]                   # writes what would be pushed, as JSON
    python scripts/dashboards.py [wikitext ...] --entity NAME --push             # makes them on W&B, with a key

Runs are found by their group, the experiment's name, in the project; `wandb sync` uploads offline ones.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws

from experiments.drawing import COLOURS
from experiments.memory_watch import GATES, QUANTILES
from experiments.results import ResultError, load_results
from experiments.tables import make_table
from experiments.tracking import resolve_mode

STEP = "trainer/global_step"
# What a report says beside its table.
_CAUSAL = "Models that read no future token."
_NONCAUSAL = "Models that read the future: their numbers can't be ranked with those above."


@dataclass(frozen=True)
class Board:
    """What is drawn of a benchmark's runs.

    Attributes:
        title: of the workspace and the report.
        score: summary key of the test's score.
        score_title: what that is.
        curves: metrics of each validation, by their titles.
        loss: name of the loss in training.
        media: keys of pictures.
        marks_causality: whether its runs say whether they are causal.
    """

    title: str
    score: str
    score_title: str
    curves: dict[str, str]
    loss: str = "nats"
    media: tuple[str, ...] = ()
    marks_causality: bool = False


_LANGUAGE = {
    "score": "test_perplexity",
    "score_title": "test perplexity (lower is better)",
    "curves": {"validation perplexity": "validation/perplexity", "validation nats": "validation/nats"},
    "marks_causality": True,
}
BOARDS = {
    "wikitext": Board("Tensor Memory: WikiText-2", **_LANGUAGE),  # type: ignore[arg-type]
    "quickstart": Board("Tensor Memory: the quickstart's language", **_LANGUAGE),  # type: ignore[arg-type]
    "diagnostics": Board(
        "Tensor Memory: diagnostics",
        "test_accuracy",
        "test accuracy",
        {"validation accuracy": "validation/accuracy", "validation nats": "validation/nats"},
    ),
    "cub200": Board(
        "Tensor Memory: CUB-200, masked reconstruction",
        "test_psnr",
        "test PSNR (dB) with 75% hidden",
        {"validation PSNR (dB)": "validation/psnr", "validation mse": "validation/mse"},
        loss="mse",
        media=("test/reconstructions",),
    ),
    "ucf101": Board(
        "Tensor Memory: UCF-101, action recognition",
        "test_top1",
        "test top-1 (%)",
        {"validation top-1": "validation/top1", "validation nats": "validation/nats"},
    ),
}


def sections(board: Board) -> dict[str, list[Any]]:
    """Panels by the titles of their sections, the comparison first."""
    bars = wr.BarPlot(title=board.score_title, metrics=[wr.SummaryMetric(board.score)], groupby="config.model.name")
    found = {
        "Comparison": [bars],
        "Learning": [
            *(_lines(title, metric) for title, metric in board.curves.items()),
            _lines(f"training {board.loss}", f"train/{board.loss}"),
            _lines("learning rate", "train/learning_rate"),
        ],
        "Memory": [
            _lines_like("gate of each layer", "gate/layer_.*"),
            _lines_like("share of grid points with 90% of the energy", "memory/layer_.*/occupancy"),
            *(_lines_like(f"spread of writes, {name}", f"memory/layer_.*/spread_{name}") for name in QUANTILES),
            *(_lines_like(f"{gate} gate of the update, mean", f"memory/layer_.*/{gate}_gate") for gate in GATES),
        ],
        "Where it writes and reads": [
            _lines_like(f"{what} along each axis, {how}", f"memory/layer_.*/{what}_[0-9]+_{how}")
            for what in ("write", "read")
            for how in ("mean", "deviation")
        ],
        "Speed": [_lines("training tokens/s", "train/tokens_per_second")],
    }
    if board.media:
        found["Pictures"] = [wr.MediaBrowser(title="what models make of test images", media_keys=list(board.media))]
    return found


def workspace(name: str, entity: str, project: str) -> ws.Workspace:
    """The workspace of a benchmark's runs."""
    board = BOARDS[name]
    made = [ws.Section(name=title, panels=panels, is_open=True) for title, panels in sections(board).items()]
    columns = ["run:displayName", f"summary:{board.score}", "config:model.name", "config:seed", "config:causal"]
    return ws.Workspace(
        entity=entity,
        project=project,
        name=board.title,
        sections=made,
        settings=ws.WorkspaceSettings(x_axis=STEP),
        runset_settings=ws.RunsetSettings(filters=f"Group = '{name}'", pinned_columns=columns),
    )


def report(
    name: str, entity: str, project: str, results: Sequence[str] | None = None, online: bool = False
) -> wr.Report:
    """The report of a benchmark: the tables with the paper's column, then the runs, those that read the future apart.

    Args:
        name: of the benchmark.
        entity: W&B user or team.
        project: W&B project.
        results: roots of result files; None: those of record.
        online: name the project in every set of runs, which W&B is asked about then.
    """
    board = BOARDS[name]
    try:
        tables = make_table(load_results(name, results))
    except ResultError as error:
        tables = f"No table yet: {error}"
    blocks: list[Any] = [wr.MarkdownBlock(text=tables)]
    kinds = {_CAUSAL: "True", _NONCAUSAL: "False"} if board.marks_causality else {"The runs.": None}
    for text, causal in kinds.items():
        condition = f"Group = '{name}'" + (f" and Config('causal') = {causal}" if causal else "")
        where = {"entity": entity, "project": project} if online else {}
        runs = wr.Runset(name=text, filters=condition, **where)
        blocks += [wr.P(text)]
        blocks += [wr.PanelGrid(runsets=[runs], panels=panels) for panels in sections(board).values()]
    return wr.Report(project=project, entity=entity, title=board.title, blocks=blocks, width="fluid")


def specification(made: ws.Workspace | wr.Report) -> dict[str, Any]:
    """What would be sent to W&B."""
    return json.loads(made._to_model().model_dump_json(by_alias=True, exclude_none=True))


def _lines(title: str, metric: str) -> wr.LinePlot:
    return wr.LinePlot(title=title, x=STEP, y=[metric], groupby="config.model.name", line_colors=dict(COLOURS))


def _lines_like(title: str, pattern: str) -> wr.LinePlot:
    return wr.LinePlot(title=title, x=STEP, metric_regex=pattern)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="W&B workspaces and reports of the benchmarks, as code.")
    parser.add_argument("benchmarks", nargs="*", help=f"some of: {', '.join(BOARDS)} (default: all)")
    parser.add_argument("--entity", default=os.environ.get("WANDB_ENTITY", ""), help="W&B user or team")
    parser.add_argument("--project", default="tensormem", help="W&B project (default: tensormem)")
    parser.add_argument("--results", nargs="+", metavar="DIR", help="roots of result files (default: those of record)")
    parser.add_argument("--output", type=Path, default=Path("outputs/dashboards"), help="folder for the JSON files")
    parser.add_argument("--push", action="store_true", help="make them on W&B; needs a key and --entity")
    options = parser.parse_args(arguments)
    chosen = options.benchmarks or list(BOARDS)
    if unknown := [name for name in chosen if name not in BOARDS]:
        parser.error(f"{', '.join(unknown)} unknown: use some of {', '.join(BOARDS)}")
    if options.push and (not options.entity or resolve_mode("auto") != "online"):
        parser.error("--push needs --entity NAME and a W&B key (`wandb login`, or WANDB_API_KEY)")
    options.output.mkdir(parents=True, exist_ok=True)
    for name in chosen:
        made = {
            "workspace": workspace(name, options.entity, options.project),
            "report": report(name, options.entity, options.project, options.results, options.push),
        }
        for kind, each in made.items():
            path = options.output / f"{name}-{kind}.json"
            path.write_text(json.dumps(specification(each), indent=1) + "\n", encoding="utf-8")
            if options.push:
                each.save()
                print(f"{name}: {kind} at {each.url}")
            else:
                print(f"{name}: {kind} written to {path}; --push makes it on W&B")
    return 0


if __name__ == "__main__":
    sys.exit(main())
