"""A test file loads where the packages of ``[test]`` alone are installed: it asks for others by ``pytest.importorskip`` first."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10; pytest brings tomli there
    import tomli as tomllib

TESTS = Path(__file__).parents[1]
PROJECT = TESTS.parent
FILES = sorted(p for p in TESTS.rglob("*.py") if p.name.startswith("test_") or p.name == "conftest.py")
ROOTS = [PROJECT, *PROJECT.glob("benchmarks/**/"), *PROJECT.glob("examples/**/")]
"""Where a test finds modules of this project that it imports by their names alone."""
BRINGS = {"onnx": {"ml_dtypes"}, "jax": {"jaxlib", "ml_dtypes"}}
"""Packages that come with another one."""


def _installed() -> set[str]:
    """Returns the modules that ``pip install .[test]`` gives, beside Python's own."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    names = {
        re.split(r"[^\w-]", line)[0] for line in [*project["dependencies"], *project["optional-dependencies"]["test"]]
    }
    return {name.replace("-", "_") for name in names} | {"tilewright", *sys.stdlib_module_names}


ALWAYS = _installed()


@cache
def _statements(path: Path) -> list[ast.stmt]:
    return ast.parse(path.read_text()).body


def unguarded(path: Path, asked: set[str] | None = None, seen: set[Path] | None = None) -> list[str]:
    """Returns the imports of packages that may be missing, those of the helpers that ``path`` imports included."""
    asked, seen, found = set() if asked is None else asked, set() if seen is None else seen, []
    if path in seen:
        return []
    seen.add(path)
    for node in _statements(path):
        if not isinstance(node, ast.Import | ast.ImportFrom | ast.Expr | ast.Assign):
            continue  # an import below a condition asks in its own way
        for call in [n for n in ast.walk(node) if isinstance(n, ast.Call)]:
            if ast.unparse(call.func) == "pytest.importorskip" and isinstance(call.args[0], ast.Constant):
                package = str(call.args[0].value).partition(".")[0]
                asked |= {package, *BRINGS.get(package, ())}
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            modules = [base] if node.module else [base + alias.name for alias in node.names]
        else:
            continue
        for module in modules:
            if module.startswith("tilewright.tests"):  # an installed package has no tests: a helper has a relative name
                found.append(f"{path.name}: {module}")
            dots, parts = len(module) - len(module.lstrip(".")), module.lstrip(".").split(".")
            roots = [path.parents[dots - 1]] if dots else [path.parent, *ROOTS]
            helper = next((h for root in roots if (h := root.joinpath(*parts).with_suffix(".py")).exists()), None)
            if helper is not None:
                found += unguarded(helper, asked, seen)
            elif (
                not dots
                and parts[0] not in ALWAYS | asked
                and not any(root.joinpath(parts[0]).is_dir() for root in roots)
            ):
                found.append(f"{path.relative_to(TESTS) if TESTS in path.parents else path.name}: {module}")
    return found


def test_files_load_without_extras():
    assert [line for path in FILES for line in unguarded(path)] == []


def test_an_import_without_a_question_is_found(tmp_path):
    (tmp_path / "helper.py").write_text("import torch\n")
    bad = tmp_path / "test_bad.py"
    bad.write_text("import numpy\nimport onnx\nfrom .helper import x\n")
    assert unguarded(bad) == ["test_bad.py: onnx", "helper.py: torch"]
    good = tmp_path / "test_good.py"
    good.write_text(
        'import pytest\npytest.importorskip("onnx")\ntorch = pytest.importorskip("torch")\nimport ml_dtypes\nfrom .helper import x\n'
    )
    assert unguarded(good) == []
    own = tmp_path / "test_own.py"
    own.write_text("from tilewright.tests.exported.model_pairs import whole\n")
    assert unguarded(own) == ["test_own.py: tilewright.tests.exported.model_pairs"]
