"""The examples in the docstrings of te run."""

import doctest
import importlib
import pkgutil

import pytest

from tilewright import te

MODULES = sorted(m.name for m in pkgutil.walk_packages(te.__path__, "tilewright.te."))


@pytest.mark.parametrize("name", ["tilewright.te", *MODULES])
def test_docstrings(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
