"""The examples in docs/te.md and in te's docstrings run."""

import doctest
import importlib
import pathlib
import pkgutil

import pytest

from tilewright import te

MODULES = sorted(m.name for m in pkgutil.walk_packages(te.__path__, "tilewright.te."))


@pytest.mark.parametrize("name", ["tilewright.te", *MODULES])
def test_docstrings(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_page():
    page = pathlib.Path(__file__).parents[2] / "docs" / "te.md"
    assert doctest.testfile(str(page), module_relative=False).failed == 0
