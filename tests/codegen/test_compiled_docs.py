"""The examples in docs/compiled.md and in the docstrings of code generation are true."""

import doctest
import importlib
from pathlib import Path

import pytest

from tilewright.codegen import Target

CODEGEN = Path(__file__).parents[2] / "codegen"
EXAMPLES = [p for p in sorted(CODEGEN.rglob("*.py")) if ">>>" in p.read_text()]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_docstrings(path):
    name = ".".join(("tilewright", *path.relative_to(CODEGEN.parent).with_suffix("").parts))
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_the_page_about_compiled_code():
    if Target("native").arch != "x86_64":
        pytest.skip("it shows x86-64 assembly")
    page = Path(__file__).parents[2] / "docs" / "compiled.md"
    result = doctest.testfile(str(page), module_relative=False, optionflags=doctest.ELLIPSIS, encoding="utf-8")
    assert result.failed == 0 and result.attempted > 15
