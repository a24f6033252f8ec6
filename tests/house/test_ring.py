"""The rings: they need nothing outside of them, have a budget, and work when everything else is deleted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tilewright

from . import budgets
from .ring import OUTER_RING, RING, TABLES, kept, modules_of, needs, reduce_to
from .sources import LAYERS, library

ROOT = Path(tilewright.__file__).parent
FILES = library(ROOT)
CORE = kept(FILES, RING)
BOTH = kept(FILES, RING, OUTER_RING)


def test_the_lists_name_files():
    assert modules_of(RING, OUTER_RING) - FILES.keys() == set()
    assert modules_of(RING) & modules_of(OUTER_RING) == set()


@pytest.mark.parametrize("ring", [CORE, BOTH], ids=["core", "both"])
def test_a_ring_needs_nothing_else(ring):
    code = [name for name in ring if name not in TABLES and not FILES[name].is_front_page]
    outside = {name: sorted(needs(FILES[name], FILES) - ring) for name in code}
    assert {name: found for name, found in outside.items() if found} == {}


@pytest.mark.parametrize(
    ("ring", "budget"), [(CORE, budgets.RING_CODE_LINES), (BOTH, budgets.BOTH_RINGS_CODE_LINES)], ids=["core", "both"]
)
def test_lines_of_a_ring(ring, budget):
    """Code lines: neither empty, nor comments, nor docstrings."""
    assert sum(FILES[name].code_lines for name in ring) <= budget


@pytest.mark.parametrize(
    ("ring", "programs"),
    [(CORE, ["core_ring_program.py"]), (BOTH, ["core_ring_program.py", "outer_ring_program.py"])],
    ids=["core", "both"],
)
def test_a_ring_works_without_the_rest(tmp_path, ring, programs):
    copy = tmp_path / "tilewright"
    for layer in LAYERS:
        shutil.copytree(ROOT / layer, copy / layer, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "__init__.py", copy / "__init__.py")
    gone = reduce_to(ring, copy, FILES)
    assert gone > len(FILES) // 3
    for program in programs:
        shutil.copy(Path(__file__).parent / program, tmp_path / program)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), *programs],
        cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
