"""What is committed beside the result files of record is what they come to, byte for byte."""

import shutil

import pytest

from experiments import record, tables
from experiments.drawing import UNLISTED, new_figure, source
from experiments.results import write_result


def test_the_files_of_record_are_what_their_results_come_to(capsys):
    assert tables.main(["all", "--check"]) == 0
    assert "are what the result files of record come to" in capsys.readouterr().out


@pytest.fixture
def root(tmp_path, make_reconstruction):
    """A folder of benchmarks with results of one, and what they come to."""
    root = tmp_path / "experiments"
    for name, value in (("base", 20.0), ("tensor", 22.0)):
        zero = (1.0, 1.0, 1.0) if name == "tensor" else None
        result = make_reconstruction(name, (value, value, value), zero=zero)
        write_result(root / "cub200" / "results" / f"{name}.json", result)
    (root / "cub200" / "results" / "psnr-pixels-cpu.png").touch()
    record.write_record(root)
    assert record.check_record(root)[1] == []
    # Of one figure, which is of record, and not of the others.
    assert [path.name for path in root.rglob("results/*.csv")] == ["psnr-pixels-cpu.csv"]
    return root


def test_whatever_is_not_what_the_results_come_to_is_named(root):
    folder = root / "cub200" / "tables"
    assert record.write_record(root) == ([], [])
    (folder / "cub200.md").write_bytes((folder / "cub200.md").read_bytes().replace(b"22.0", b"23.0", 1))
    (folder / "cub200.csv").unlink()
    (folder / "cub300.md").write_text("a table of nothing")
    picture = (root / "cub200" / "results" / "psnr-pixels-cpu.png").stat().st_mtime_ns
    _, problems = record.check_record(root)
    assert [problem.partition(" ")[0] for problem in problems] == [
        "experiments/cub200/tables/cub300.md:",
        "experiments/cub200/tables/cub200.md",
        "experiments/cub200/tables/cub200.csv",
    ]
    changed, problems = record.write_record(root)
    assert problems == []
    assert {path.name for path in changed} == {"cub200.md", "cub200.csv", "cub300.md"}
    assert (root / "cub200" / "results" / "psnr-pixels-cpu.png").stat().st_mtime_ns == picture
    assert record.check_record(root)[1] == []


def test_a_result_more_changes_what_there_should_be(root, make_reconstruction):
    write_result(root / "cub200" / "results" / "local.json", make_reconstruction("local", (19.0, 18.0, 17.0)))
    assert {problem.partition(" ")[0] for problem in record.check_record(root)[1]} >= {
        "experiments/cub200/tables/cub200.md",
        "experiments/cub200/tables/cub200.csv",
    }
    picture = root / "cub200" / "results" / "psnr-pixels-cpu.png"
    before = picture.read_bytes()
    changed, _ = record.write_record(root)
    assert {picture, picture.with_suffix(".csv")} < set(changed)
    assert picture.read_bytes() != before
    shutil.rmtree(root / "cub200" / "results")
    _, problems = record.check_record(root)
    assert all("no result of record stands for it" in problem for problem in problems)


@pytest.mark.parametrize("place", ["README.md", "experiments/cub200/README.md"])
def test_the_table_of_a_readme_follows_the_results(root, make_reconstruction, place, monkeypatch, capsys):
    readme = root.parent / place
    table = (root / "cub200" / "tables" / "cub200.md").read_text().strip()
    readme.write_text(f"# A title\n\n<!-- record -->\n\n{table}\n\n<!-- /record -->\n\nWhat it shows.\n")
    assert record.check_record(root)[1] == []
    local = make_reconstruction("local", (19.0, 18.0, 17.0))
    local["provenance"]["hardware"]["name"] = "Another CPU"
    write_result(root / "cub200" / "results" / "local.json", local)
    assert f"{place} is not what the result files come to" in record.check_record(root)[1]
    assert readme in record.write_record(root)[0]
    text = readme.read_text()
    assert (root / "cub200" / "tables" / "cub200.md").read_text().strip() in text
    assert "Another CPU" in text
    assert text.startswith("# A title\n\n<!-- record -->\n\n")
    assert text.endswith("\n\n<!-- /record -->\n\nWhat it shows.\n")
    assert record.check_record(root)[1] == []
    # The rest is brought up to date all the same.
    readme.write_text(text.replace("Scale cpu", "Scale cqu"))
    (root / "cub200" / "tables" / "cub200.csv").unlink()
    monkeypatch.setattr(tables, "write_record", lambda: record.write_record(root))
    assert tables.main(["all", "--write"]) == 1
    assert f"{place}: no table of record has the caption and columns of" in capsys.readouterr().err
    assert (root / "cub200" / "tables" / "cub200.csv").exists()


def test_a_broken_result_is_named(root, capsys, monkeypatch):
    (root / "cub200" / "results" / "half.json").write_text('{"status": "fin')
    monkeypatch.setattr(tables, "check_record", lambda: record.check_record(root))
    assert tables.main(["all", "--check"]) == 1
    assert "half.json" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["all"], ["all", "--check", "--write"], ["wikitext", "--check"]])
def test_check_and_write_are_for_all(arguments):
    with pytest.raises(SystemExit):
        tables.main(arguments)


def test_the_source_of_a_figure_is_what_it_shows(tmp_path):
    axes, save = new_figure("steps", "loss")
    axes.errorbar([1, 2], [3.0, 4.0], yerr=[0.5, 0.0], label="base", capsize=2)
    axes.plot([1, 2], [0.25, 0.25], color="#7F7F7F", label="chance")
    axes.plot([1], [7.0], "o", color="#123456", label="gates", gid="gates of one")
    axes.plot([2], [8.0], "o", color="#123456", label=UNLISTED, gid="gates of another")
    axes.axhline(1.0, color="#000000")
    axes.barh(0, 12.5)
    axes.set_yticks([0], ["an ablation"])
    save(tmp_path / "figure.png")
    text = (tmp_path / "figure.csv").read_text()
    assert text == source(axes)
    assert text.splitlines() == [
        "series,steps,loss,low,high",
        "base,1.0,3.0,2.5,3.5",
        "base,2.0,4.0,,",
        "an ablation,12.5,,,",
        "chance,1.0,0.25,,",
        "chance,2.0,0.25,,",
        "gates of one,1.0,7.0,,",
        "gates of another,2.0,8.0,,",
    ]
