"""What the READMEs tell a newcomer to type exists and does what is said."""

import re
import shlex
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from experiments import figures, generate, runner, stream_video, tables
from experiments.benchmarks import BENCHMARKS
from experiments.readmes import tables_by_key
from experiments.report import __main__ as report
from experiments.resolvers import resolve
from experiments.results import load_results
from experiments.runs import run_folder
from tests.experiments.composing import composed, finished_run

ROOT = Path(__file__).resolve().parents[1]
WIKITEXT = ROOT / "experiments" / "wikitext" / "README.md"
READMES = [ROOT / "README.md", *sorted((ROOT / "experiments").glob("*/README.md"))]


# What is typed here needs files that the section shows; tests/test_add_a_baseline.py does all of it.
ADD_A_BASELINE = re.compile(r"^## Add a baseline\n.*?(?=^## )", re.DOTALL | re.MULTILINE)


def blocks(language):
    for readme in READMES:
        text = ADD_A_BASELINE.sub("", readme.read_text())
        yield from re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def commands():
    lines = [line.split("#")[0].strip() for block in blocks("bash") for line in block.replace("\\\n", " ").splitlines()]
    inline = [found for readme in READMES for found in re.findall(r"`(make [^`]+)`", readme.read_text())]
    return sorted({line for line in [*lines, *inline] if line})


def with_results_of_record(words):
    """The arguments of a command of tables or figures, with the committed results in the place of the user's."""
    if "--results" in words:
        words[words.index("--results") + 1] = str(ROOT / "experiments" / BENCHMARKS[words[0]].home / "results")
    return words


def test_there_are_commands():
    assert {"make reproduce-wikitext", "make test"} <= set(commands())


@pytest.mark.parametrize("command", [command for command in commands() if command.startswith("make ")])
def test_make_targets_exist(command):
    subprocess.run([*shlex.split(command), "--dry-run"], cwd=ROOT, check=True, capture_output=True)


@pytest.mark.parametrize("command", [command for command in commands() if "experiments.train" in command])
def test_training_commands_compose(command):
    words = shlex.split(command)
    overrides = [word for word in words[words.index("experiments.train") + 1 :] if word != "--multirun"]
    first_choices = [override if "[" in override else override.split(",")[0] for override in overrides]
    assert composed(*first_choices).name in BENCHMARKS


@pytest.mark.parametrize("command", [command for command in commands() if "experiments.tables" in command])
def test_table_commands_run(command, capsys):
    words = shlex.split(command)[3:]
    assert tables.main(with_results_of_record(words)) == 0
    assert "| base |" in capsys.readouterr().out


@pytest.mark.parametrize("command", [command for command in commands() if "experiments.figures" in command])
def test_figure_commands_run(command, tmp_path):
    words = with_results_of_record(shlex.split(command)[3:])
    words[words.index("--output") + 1] = str(tmp_path)
    assert figures.main(words) == 0
    assert list(tmp_path.glob("*.png"))


@pytest.mark.parametrize("command", [command for command in commands() if "experiments.report" in command])
def test_report_commands_run(command, tmp_path):
    words = shlex.split(command)[3:]
    if "--results" in words:
        words[words.index("--results") + 1] = str(WIKITEXT.parent / "results")
    words[words.index("--output") + 1] = str(tmp_path / "report.html")
    assert report.main([*words, "--no-figures"]) == 0
    assert "Tensor Memory, measured again" in (tmp_path / "report.html").read_text()


def with_a_checkpoint(command):
    """The arguments of a command, and which is its checkpoint, that of a run that a README trains."""
    words = shlex.split(command)[3:]
    place = next(place for place, word in enumerate(words) if word.startswith("checkpoint="))
    single = [line for line in commands() if "experiments.train" in line and "--multirun" not in line]
    trained = [shlex.split(line)[3:] for line in single if "scale=cpu" in line]
    folders = [run_folder(resolve(composed(*overrides))) for overrides in trained]
    assert Path(words[place].removeprefix("checkpoint=")).name in [folder.name for folder in folders]
    return words, place


@pytest.mark.parametrize("command", [command for command in commands() if "experiments.generate" in command])
def test_generating_commands_run(command, data_root, tmp_path, capsys):
    words, place = with_a_checkpoint(command)
    # A run of two steps takes the place of the one that the README trains, with positions for the text's length.
    overrides = ["model=language/tensor", "model.network.max_length=64", f"data.root={data_root}"]
    words[place] = f"checkpoint={finished_run(tmp_path, *overrides)}"
    assert generate.main(words) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("the history of ")


@pytest.mark.parametrize("command", [command for command in commands() if "experiments.stream_video" in command])
def test_streaming_commands_run(command, data_root, tmp_path, capsys):
    words, place = with_a_checkpoint(command)
    overrides = ["experiment=ucf101", "model=video/tensor", "scale=smoke", "training.steps=5", "logger.mode=disabled"]
    config = composed(*overrides, f"data.root={data_root}", "data.folder=Weizmann4", f"runs.root={tmp_path}")
    runner.run(config)
    words[place] = f"checkpoint={run_folder(resolve(config))}"
    file = next(place for place, word in enumerate(words) if word.startswith("file="))
    words[file] = f"file={min((data_root / 'Weizmann4' / 'Jack').iterdir())}"
    assert stream_video.main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.count("%") for line in lines if line.startswith("frame ")] == [3] * 4


def test_every_command_is_tested():
    scripts = [f"python scripts/{name}.py --" for name in ("benchmark_decoding", "benchmark_video", "dashboards")]
    known = ("make ", "python -m experiments.", *scripts)
    assert [command for command in commands() if not command.startswith(known)] == []


def test_python_examples_run():
    from tensormem.models.language import BaseLM

    namespace = {"model": BaseLM(1000, 16, 1, 1, max_length=64)}
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), namespace)
    assert namespace["y"].shape == (2, 100, 128)
    whole, split = namespace["y"], [namespace["first"], namespace["rest"]]
    assert all(part.shape[0] == 2 for part in split)
    assert (whole[:, :37] - split[0]).abs().max() < 1e-5
    assert (whole[:, 37:] - split[1]).abs().max() < 1e-5


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_the_tables_of_the_readmes_are_those_of_the_result_files(benchmark):
    home = ROOT / "experiments" / BENCHMARKS[benchmark].home / "README.md"
    made = tables_by_key([tables.make_table(load_results(benchmark))])
    assert made
    # The first page has the tables of language; the suite's are many.
    for readme in (READMES[0], home) if home == WIKITEXT else (home,):
        missing = [key for key, table in made.items() if _placed(table) not in readme.read_text()]
        assert missing == [], f"{readme}: python -m experiments.tables all --write fills in what stands between marks"


def test_the_losses_by_position_are_those_of_the_result_files(capsys):
    assert tables.main(["wikitext", "--by-position"]) == 0
    made = tables_by_key([capsys.readouterr().out])
    assert [key for key, table in made.items() if _placed(table) not in WIKITEXT.read_text()] == []


def _placed(table):
    return f"<!-- record -->\n\n{table}\n\n<!-- /record -->"


def test_the_pictures_of_the_readmes_are_there():
    for readme in READMES:
        for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", readme.read_text()):
            assert (readme.parent / picture).is_file(), f"{readme.name}: {picture}"


def test_a_table_is_ruled_for_the_columns_of_its_head():
    for readme in READMES:
        lines = readme.read_text().splitlines()
        for head, rule in pairwise(lines):
            if re.fullmatch(r"\|( ?:?-+:? ?\|)+", rule):
                assert head.count("|") == rule.count("|"), f"{readme}: {head}"
