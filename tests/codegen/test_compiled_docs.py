"""The examples in the docstrings of code generation run."""

import doctest
import importlib
from pathlib import Path

import pytest

CODEGEN = Path(__file__).parents[2] / "codegen"
EXAMPLES = [p for p in sorted(CODEGEN.rglob("*.py")) if ">>>" in p.read_text()]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_docstrings(path):
    name = ".".join(("tilewright", *path.relative_to(CODEGEN.parent).with_suffix("").parts))
    assert doctest.testmod(importlib.import_module(name)).failed == 0
