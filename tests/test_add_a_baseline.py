"""The README's "Add a baseline", done literally: what it shows is written where it says, and its commands are run.

Each domain, a folder of conf/model/ whose models a benchmark trains, has an example of its own there, under a heading
that is the domain's name.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from experiments.benchmarks import BENCHMARKS

ROOT = Path(__file__).resolve().parents[1]
DOMAINS = sorted({benchmark.domain for benchmark in BENCHMARKS.values()})
# What a domain's training command is given besides, so that it takes two steps on little data.
TWO_STEPS = {
    "language": "corpus=synthetic data.max_eval_tokens=500 training.steps=2 training.evaluate_every=1 "
    "training.warmup_steps=1 trainer.accelerator=cpu logger.mode=disabled",
    "diagnostics": "data.tests=[] data.num_test_batches=1 training.steps=2 training.evaluate_every=1 "
    "trainer.accelerator=cpu logger.mode=disabled",
    "vision": "data.max_images=8 training.steps=2 training.evaluate_every=1 training.warmup_steps=1 "
    "trainer.accelerator=cpu logger.mode=disabled",
    "video": "data.folder=Weizmann4 training.steps=2 training.evaluate_every=1 trainer.accelerator=cpu "
    "logger.mode=disabled",
}
# Domains whose data is not made on the spot.
NEED_DATA = {"vision", "video"}
# Each takes half a minute of a core, most of it to start.
IN_TURN = pytest.mark.parametrize(
    "domain", [pytest.param(domain, marks=[pytest.mark.slow] * (domain != "language")) for domain in DOMAINS]
)


@dataclass(frozen=True)
class Example:
    """What one domain's part of the section shows; a block's first line is the path of its file."""

    domain: str
    text: str

    def blocks(self, language: str) -> list[str]:
        return re.findall(rf"```{language}\n(.*?)```", self.text, flags=re.DOTALL)

    def file(self, language: str) -> tuple[Path, str]:
        found = self.blocks(language)
        assert len(found) == 1, f"{self.domain}: {len(found)} {language} blocks; the example is one class and one YAML"
        assert found[0].startswith("# "), (
            f"{self.domain}: the {language} block's first line must be `# path/of/the/file`"
        )
        return Path(found[0].splitlines()[0].removeprefix("# ")), found[0]

    @property
    def name(self) -> str:
        return self.file("yaml")[0].stem

    def command(self, part: str, without: str = "--config-dir") -> str:
        lines = [line for block in self.blocks("bash") for line in block.splitlines()]
        found = [line for line in lines if part in line and without not in line]
        assert len(found) == 1, f"{self.domain}: {len(found)} commands with {part!r}; the README needs one"
        return found[0]


def examples() -> dict[str, Example]:
    section = re.search(
        r"^## Add a baseline\n(.*?)(?=^## )", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE
    )
    assert section, "README.md has no section `## Add a baseline`"
    _, *parts = re.split(r"^### (\S+)\n", section[1], flags=re.MULTILINE)
    return {domain: Example(domain, text) for domain, text in zip(parts[::2], parts[1::2], strict=True)}


def example_of(domain: str) -> Example:
    found = examples()
    assert domain in found, (
        f"README.md, `## Add a baseline`: no example under `### {domain}`, though there is conf/model/{domain}"
    )
    return found[domain]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the checkout, to be added to."""
    for name in ("tensormem", "experiments", "conf", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def write(path: Path, text: str) -> None:
    assert not path.exists(), f"{path} is in the checkout already, so the example shows nothing"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def add(example: Example, checkout: Path) -> None:
    for path, text in (example.file("python"), example.file("yaml")):
        write(checkout / path, text)


def shell(command: str, checkout: Path, fails: bool = False) -> str:
    """What a command prints that is typed in the checkout, its environment activated."""
    hidden = ("PYTHONPATH", "TENSORMEM_RUNS", "PYTEST_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    if "TENSORMEM_DATA" in environment:
        # It may be relative to where the tests are run.
        environment["TENSORMEM_DATA"] = str(Path(environment["TENSORMEM_DATA"]).resolve())
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    process = subprocess.run(
        ["bash", "-c", command], cwd=checkout, env=environment, capture_output=True, text=True, timeout=280
    )
    assert (process.returncode != 0) == fails, f"$ {command}\n{process.stdout}{process.stderr}"
    return process.stdout


def rows(table: str) -> list[str]:
    return [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("|")]


def test_there_are_domains_and_no_example_of_another():
    assert "language" in DOMAINS
    assert sorted(set(examples()) - set(DOMAINS)) == []


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_files_lie_where_the_house_looks_for_them(domain):
    example = example_of(domain)
    (module, source), (config, text) = example.file("python"), example.file("yaml")
    assert module.parent == Path("tensormem/models")
    assert config.parent == Path("conf/model", domain)
    network = OmegaConf.create(text).network
    path, _, kind = network._target_.rpartition(".")
    assert path == ".".join(module.with_suffix("").parts)
    assert f"class {kind}(" in source


@IN_TURN
def test_it_trains_and_has_its_row_in_the_table(domain, checkout, request):
    if domain in NEED_DATA:
        request.getfixturevalue("data_root")
    example = example_of(domain)
    add(example, checkout)
    assert domain in TWO_STEPS, f"TWO_STEPS has no {domain}: say there how its training command takes two steps"
    printed = shell(f"{example.command('experiments.train')} {TWO_STEPS[domain]}", checkout)
    assert "causality audit: causal" in printed or domain != "language"
    assert example.name in rows(shell(example.command("experiments.tables"), checkout))


@IN_TURN
def test_it_keeps_the_contract_of_the_zoo(domain, checkout):
    example = example_of(domain)
    add(example, checkout)
    passed = re.search(r"(\d+) passed", shell(example.command("pytest"), checkout))
    assert passed
    assert int(passed[1]) > (5 if domain in NEED_DATA else 20)


@pytest.mark.slow
@pytest.mark.parametrize("domain", [domain for domain, example in examples().items() if "--config-dir" in example.text])
def test_both_files_may_lie_outside_the_checkout(domain, checkout):
    example = example_of(domain)
    (module, source), (config, text) = example.file("python"), example.file("yaml")
    write(checkout / "mine" / module.name, source)
    write(checkout / "mine" / config.relative_to("conf"), text.replace("tensormem.models.", ""))
    command = example.command("--config-dir", without="experiments.tables")
    shell(f"{command} {TWO_STEPS[domain]}", checkout)
    # The table is one of files: it does without the class.
    assert example.name in rows(shell(example.command("experiments.tables"), checkout))


def test_outside_the_checkout_is_shown():
    assert "--config-dir" in example_of("language").text


@pytest.mark.slow
def test_a_model_that_forgets_between_calls_is_caught(checkout):
    example = example_of("language")
    add(example, checkout)
    path = checkout / example.file("python")[0]
    whole = path.read_text()
    forgetful = whole.replace(
        "ConvolutionState(seen[:, x.shape[1] :].clone())", "self.init_state(x.shape[0], x.device)"
    )
    assert forgetful != whole
    path.write_text(forgetful)
    printed = shell(example.command("pytest"), checkout, fails=True)
    assert "test_any_split_equals_one_call[single-learned-language-convolution]" in printed
    assert "test_a_split_has_the_gradients_of_one_call" in printed


@pytest.mark.slow
def test_every_other_walk_over_the_models_takes_it_in(data_root, checkout):
    """The configs of all scales, a run to a result and the quickstart, without an edit of a test."""
    example = example_of("language")
    add(example, checkout)
    passed = re.search(r"(\d+) passed", shell(f"python -m pytest tests/experiments -k {example.name}", checkout))
    assert passed
    assert int(passed[1]) >= 6
    # What is not by model, but goes through all of them.
    shell("python -m pytest tests/experiments/test_drawing.py", checkout)
