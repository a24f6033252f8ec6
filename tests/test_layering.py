"""Imports flow one way, and each heavy package has one home: read off the source, nothing is run."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import tilewright
from tilewright.codegen.late_tables import BACKENDS, TARGET_KINDS

ROOT = Path(tilewright.__file__).parent

MAY_IMPORT = {
    "pages": set(),
    "exported": set(),
    "tir": {"pages"},
    "schedule": {"pages", "tir"},
    "codegen": {"pages", "tir", "exported"},
    "gpu": {"pages", "tir", "codegen"},
    "circuits": {"pages", "tir", "codegen"},
    "mlir": {"pages", "tir", "codegen"},
    "te": {"pages", "tir"},
    "tuning_db": {"pages", "tir"},
    "tuner": {"pages", "tir", "schedule", "codegen", "tuning_db"},
    "graph": {"pages", "tir", "te"},
    "frontends": {"pages", "tir", "te", "graph"},
    "driver": {"pages", "tir", "schedule", "codegen", "te", "tuner", "tuning_db", "graph", "frontends", "gpu", "mlir"},
    "doors": {"pages", "tir", "codegen", "te", "graph", "frontends", "driver"},
    "triton": {"pages", "tir", "codegen", "tuning_db"},
    "cli": {"pages", "tir", "schedule", "codegen", "te", "tuner", "tuning_db", "graph", "frontends", "driver"},
    "tvm_names": {"pages", "tir", "schedule", "codegen", "exported", "te", "tuner", "tuning_db", "driver"},
}
"""What each layer may import besides itself. ``tuner`` stores what it measures: it knows the database, not the reverse."""

FORWARDED = {"tir/__init__.py": "tvm_names", "te/__init__.py": "tvm_names"}
"""Front pages that hand out names of an upper layer, and that layer. It loads when such a name is asked for, and the front
page works without it: the import stands in ``__getattr__``, and elsewhere in the file for type checkers alone."""

HOMES = {
    "llvmlite": {"codegen"},
    "xgboost": {"tuner/cost/cost_model.py"},
    "sqlite_utils": {"tuning_db"},
    "sqlite3": {"tuning_db", "cli/doctor.py"},
    "click": {"cli"},
    "rich": {"cli"},
    "z3": {"tir/arith/smt.py"},
    "pandas": {"tuning_db", "tuner/search", "triton/testing.py"},
    "plotly": {"tuner/search"},
    "IPython": {"driver/tuning.py"},
    "pyopencl": {"gpu/opencl/opencl_device.py"},
    "wgpu": {"gpu/wgsl/webgpu_device.py"},
    "xdsl": {"mlir"},
    "platformdirs": {"codegen/object_cache.py"},
    "threadpoolctl": {"driver/benching.py"},
}
"""Heavy packages, and the folders or files that may import them."""

HEAVY = {
    "llvmlite",
    "xgboost",
    "sqlite_utils",
    "rich",
    "z3",
    "pandas",
    "plotly",
    "IPython",
    "threadpoolctl",
    "pyopencl",
    "wgpu",
}
"""Load when first used: never at the top of a module."""

BESIDE = ("gpu", "circuits", "mlir")
"""Ways to code beside that of processors. Each is reached through a table of ``codegen``, and loads when it is first used."""


def sources():
    return sorted(path for layer in MAY_IMPORT for path in (ROOT / layer).rglob("*.py"))


@cache
def imports(path, text=None):
    """``(module, is at the top)`` of every import, relative ones resolved to ``tilewright.…``; each file is read once."""
    return tuple(_imports(path, path.read_text() if text is None else text))


def _imports(path, text):
    here = ("tilewright", *path.relative_to(ROOT).parts[:-1])
    tree = ast.parse(text)
    late = set()
    guarded = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            late.update(id(inner) for inner in ast.walk(node))
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            guarded.update(id(inner) for inner in ast.walk(node))
    for node in ast.walk(tree):
        top = id(node) not in late and id(node) not in guarded
        if isinstance(node, ast.Import):
            yield from ((alias.name, top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else ()
            whole = ".".join([*base, *([node.module] if node.module else [])])
            yield whole, top
            if node.module is None or whole == "tilewright":
                yield from ((f"{whole}.{alias.name}", top) for alias in node.names)


def test_there_are_sources():
    assert len(sources()) > 50


@pytest.mark.parametrize("layer", MAY_IMPORT)
def test_layers_import_downwards_only(layer):
    wrong = []
    for path in sorted((ROOT / layer).rglob("*.py")):
        for module, _ in imports(path):
            parts = module.split(".")
            if parts[0] == "tilewright" and len(parts) > 1 and parts[1] in MAY_IMPORT:
                forwarded = FORWARDED.get(path.relative_to(ROOT).as_posix()) == parts[1]
                if parts[1] != layer and parts[1] not in MAY_IMPORT[layer] and not forwarded:
                    wrong.append(f"{path.relative_to(ROOT)} imports {module}")
    assert not wrong


@pytest.mark.parametrize("page", FORWARDED)
def test_a_front_page_forwards_in_getattr_alone(page):
    text = (ROOT / page).read_text()
    (asked,) = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef) and n.name == "__getattr__"]
    lines = text.splitlines()
    rest = "\n".join(lines[: asked.lineno - 1] + [" " * asked.col_offset + "pass"] + lines[asked.end_lineno :])
    upper = f"tilewright.{FORWARDED[page]}"
    assert upper in [module for module, _ in imports(ROOT / page, text)]
    assert upper not in [module for module, _ in imports(ROOT / page, rest)]


def test_modules_of_the_library_are_not_loaded_by_name():
    """``import_module("tilewright…")`` would be an import that the tests above do not see. The tables of ``codegen`` whose
    rows are loaded late are tested below."""
    texts = {p.relative_to(ROOT).as_posix(): ast.walk(ast.parse(p.read_text())) for p in sources()}
    wrong = [
        place
        for place, nodes in texts.items()
        for n in nodes
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "import_module"
        if "tilewright" in ast.unparse(n.args[0]).split(".")[0] and not place.startswith("tvm_names/")
    ]
    assert not wrong


def test_the_order_has_no_cycle():
    order = list(MAY_IMPORT)
    for layer, below in MAY_IMPORT.items():
        assert all(order.index(other) < order.index(layer) for other in below)


@pytest.mark.parametrize("package", HOMES)
def test_each_heavy_package_has_one_home(package):
    wrong = []
    for path in sources():
        place = path.relative_to(ROOT).as_posix()
        if any(place == home or place.startswith(home + "/") for home in HOMES[package]):
            continue
        if any(module.split(".")[0] == package for module, _ in imports(path)):
            wrong.append(place)
    assert not wrong


def test_heavy_packages_load_when_first_used():
    wrong = [
        f"{path.relative_to(ROOT)} imports {module} at its top"
        for path in sources()
        for module, top in imports(path)
        if top and module.split(".")[0] in HEAVY
    ]
    assert not wrong


def test_ways_to_code_load_when_first_used():
    at_top = [
        f"{path.relative_to(ROOT)} imports {module} at its top"
        for path in sources()
        for module, top in imports(path)
        if top and module.split(".")[1:2] and module.split(".")[1] in BESIDE
        if path.relative_to(ROOT).parts[0] not in BESIDE
    ]
    assert not at_top
    program = (
        "import sys, tilewright as tw; A = tw.te.placeholder((8,), 'float32', 'A');"
        "tw.build([A, tw.te.compute((8,), lambda i: A[i] + 1.0)]); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {f"tilewright.{name}" for name in BESIDE} & set(done.stdout.split())


@pytest.mark.parametrize("table", [TARGET_KINDS, BACKENDS], ids=["kinds of targets", "back ends"])
def test_each_row_of_a_late_table_has_its_name(table):
    assert {name: table[name].name for name in table} == {name: name for name in table}


def test_inside_the_package_imports_are_relative():
    wrong = []
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            wrong += [f"{path.relative_to(ROOT)}: {n}" for n in names if n.split(".")[0] in ("tilewright", *MAY_IMPORT)]
    assert not wrong


def test_an_upward_import_would_be_noticed():
    text = "def f():\n    from ..schedule import Schedule\nfrom ...codegen import Target\nfrom . import walk\n"
    found = list(imports(ROOT / "tir" / "arith" / "x.py", text))
    assert ("tilewright.tir.schedule", False) in found
    assert ("tilewright.codegen", True) in found and ("tilewright.tir.arith.walk", True) in found


@pytest.mark.parametrize("layer", [*MAY_IMPORT, "schedule/primitives", "tir/arith", "te/ops", "tuner/measure"])
def test_front_pages_have_a_docstring(layer):
    tree = ast.parse((ROOT / layer / "__init__.py").read_text())
    text = ast.get_docstring(tree)
    assert text and "being written" not in text


def order(name):
    """Constants, classes, functions, each in alphabetical order, as ruff sorts ``__all__``."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2, name)


@pytest.mark.parametrize("layer", [layer for layer in MAY_IMPORT if layer not in ("cli", "doors", "frontends")])
def test_names_on_a_front_page_are_in_order_and_there(layer):
    module = getattr(tilewright, layer)
    names = list(module.__all__)
    assert names in (sorted(names), sorted(names, key=order))
    assert [name for name in names if not hasattr(module, name)] == []
