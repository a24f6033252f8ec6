"""The examples in the docstrings of the schedule layer run."""

import doctest
import importlib
import pkgutil

import pytest

import tilewright.schedule

MODULES = [m.name for m in pkgutil.walk_packages(tilewright.schedule.__path__, "tilewright.schedule.")]


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0
