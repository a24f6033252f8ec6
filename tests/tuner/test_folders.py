"""The files of the tuner and the driver: no circle and at most five floors in a folder; rules and recipes are leaves."""

import ast
from pathlib import Path

import pytest

import tilewright

ROOT = Path(tilewright.__file__).parent
FOLDERS = sorted({path.parent for top in ("tuner", "driver") for path in (ROOT / top).rglob("*.py")})
SHARED = {"schedule_rule", "loop_steps", "panels"}
"""What rules and recipes have in common: base classes, and steps."""


def neighbours(folder):
    """The files of a folder, each with those that it imports."""
    names = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    out = {}
    for name in names:
        tree = ast.parse((folder / f"{name}.py").read_text())
        imported = [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.level == 1]
        out[name] = {module.partition(".")[0] for module in imported} & names
    return out


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.relative_to(ROOT).as_posix())
def test_no_circle_and_few_floors(folder):
    graph, floors = neighbours(folder), 0
    while graph:
        ground = {name for name, below in graph.items() if not below & graph.keys()}
        assert ground, f"a circle of {sorted(graph)}"
        graph = {name: below for name, below in graph.items() if name not in ground}
        floors += 1
    assert floors <= 5


@pytest.mark.parametrize("folder", ["tuner/rules", "tuner/recipes"])
def test_leaves_import_no_leaf(folder):
    assert {name: below - SHARED for name, below in neighbours(ROOT / folder).items() if below - SHARED} == {}
