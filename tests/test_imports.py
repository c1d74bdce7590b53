"""The house's walls: what the library may import, in which direction, and how long a room may be."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = sorted((ROOT / "tensormem").rglob("*.py"))
CODE = LIBRARY + sorted((ROOT / "experiments").rglob("*.py"))
MAX_LINES = 350
# torch and jaxtyping are all that a plain install brings; timm may be imported inside a function only.
ALLOWED = {"torch", "jaxtyping", "tensormem", "__future__"} | set(sys.stdlib_module_names)
ALLOWED_INSIDE_FUNCTIONS = {"timm"}
# A layer may import itself and those before it; loose modules (losses, audit) stand above them all.
LAYERS = ("memory", "layers", "models")


def name_of(path: Path, root: Path = ROOT) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def imports(source: str, module: str, is_package: bool = False) -> Iterator[tuple[str, bool, int]]:
    """Every imported dotted name, whether the import is at module level, and its line."""
    tree = ast.parse(source)
    inside = {
        child
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".")
                parents = parents[: len(parents) - node.level + (1 if is_package else 0)]
                base = ".".join([*parents, base]).rstrip(".")
            # `from package import module` may name a module, so both forms count.
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            yield name, node not in inside, node.lineno


def violations(source: str, module: str, is_package: bool = False) -> list[str]:
    """What a library module imports against the rules."""
    found = []
    rank = {layer: index for index, layer in enumerate(LAYERS)}
    own = rank.get(module.split(".")[1]) if "." in module else None
    for name, at_module_level, line in imports(source, module, is_package):
        top = name.split(".")[0]
        if top not in ALLOWED and (at_module_level or top not in ALLOWED_INSIDE_FUNCTIONS):
            found.append(f"{module}:{line} imports {name}, which the library does without")
        parts = name.split(".")
        if top == "tensormem" and own is not None and len(parts) > 1:
            other = rank.get(parts[1], len(LAYERS))
            if other > own:
                found.append(f"{module}:{line} imports {name}, upwards from {LAYERS[own]}")
    return found


def test_there_is_something_to_check():
    assert {"memory"} <= {path.parent.name for path in LIBRARY}


@pytest.mark.parametrize("path", LIBRARY, ids=name_of)
def test_the_library_imports_only_torch_and_downwards(path):
    found = violations(path.read_text(encoding="utf-8"), name_of(path), path.name == "__init__.py")
    assert not found, "\n".join(found)


@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_a_room_is_one_concept(path):
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_LINES, f"{name_of(path)} has {lines} lines; split it at its second concept"


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("tensormem.memory.grid", "import pytorch_lightning"),
        ("tensormem.memory.grid", "from lightning.pytorch import Trainer"),
        ("tensormem.audit", "import hydra.utils"),
        ("tensormem.audit", "def f():\n    import wandb"),
        ("tensormem.losses", "from experiments.results import read_result"),
        ("tensormem.losses", "from scripts import dashboard"),
        ("tensormem.models.vision", "import timm"),
        ("tensormem.models.vision", "if True:\n    from torchvision import ops"),
        ("tensormem.memory.scan", "from tensormem.layers import block"),
        ("tensormem.memory.scan", "from tensormem import audit"),
        ("tensormem.memory.scan", "from ..layers.block import Block"),
        ("tensormem.layers.block", "from ..models import language"),
        ("tensormem.layers.block", "import tensormem.models"),
    ],
)
def test_the_check_sees_a_violation(module, source):
    assert violations(source, module)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        (
            "tensormem.memory.grid",
            "import math\nimport torch.nn.functional as F\nfrom jaxtyping import Float",
        ),
        ("tensormem.models.vision", "def f():\n    import timm"),
        ("tensormem.layers.block", "from ..memory import scan\nfrom .attention import Attention"),
        (
            "tensormem.models.language",
            "from tensormem.layers.block import Block\nfrom tensormem.memory import grid",
        ),
        ("tensormem.audit", "from tensormem.models import language"),
    ],
)
def test_the_check_lets_the_rest_pass(module, source):
    assert not violations(source, module)


def test_relative_imports_of_a_package_resolve_to_its_own_modules():
    assert not violations("from .grid import read", "tensormem.memory", is_package=True)
    assert violations("from ..layers import block", "tensormem.memory", is_package=True)
