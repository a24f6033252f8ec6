"""The core ring: it needs nothing outside of it, has a budget, and works when everything else is deleted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import tilewright

from . import budgets
from .ring import TABLES, kept, needs, ring_modules, without_leaves
from .sources import LAYERS, library

ROOT = Path(tilewright.__file__).parent
FILES = library(ROOT)
RING = ring_modules()


def test_the_list_names_files():
    assert RING - FILES.keys() == set()


def test_the_ring_needs_nothing_else():
    code = [name for name in RING if name not in TABLES and not FILES[name].is_front_page]
    outside = {name: sorted(needs(FILES[name], FILES) - kept(FILES)) for name in code}
    assert {name: found for name, found in outside.items() if found} == {}


def test_lines_of_the_ring():
    """Code lines: neither empty, nor comments, nor docstrings."""
    assert sum(FILES[name].code_lines for name in kept(FILES)) <= budgets.RING_CODE_LINES


def test_the_ring_works_without_the_leaves(tmp_path):
    copy = tmp_path / "tilewright"
    for layer in LAYERS:
        shutil.copytree(ROOT / layer, copy / layer, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "__init__.py", copy / "__init__.py")
    gone = without_leaves(copy, FILES)
    assert gone > len(FILES) // 3
    checks = tmp_path / "test_ring_program.py"
    shutil.copy(Path(__file__).parent / "ring_program.py", checks)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(checks)],
        cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
