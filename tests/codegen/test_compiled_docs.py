"""The examples in docs/compiled.md are true."""

import doctest
from pathlib import Path

import pytest

from tilewright.codegen import Target


def test_the_page_about_compiled_code():
    if Target("native").arch != "x86_64":
        pytest.skip("it shows x86-64 assembly")
    page = Path(__file__).parents[2] / "docs" / "compiled.md"
    result = doctest.testfile(str(page), module_relative=False, optionflags=doctest.ELLIPSIS, encoding="utf-8")
    assert result.failed == 0 and result.attempted > 15
