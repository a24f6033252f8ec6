"""The programs shown in the primitives' documentation are what comes out."""

import doctest
import importlib
import pkgutil

import pytest

import tilewright.schedule
import tilewright.schedule.primitives

MODULES = [
    m.name
    for package in (tilewright.schedule, tilewright.schedule.primitives)
    for m in pkgutil.iter_modules(package.__path__, package.__name__ + ".")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
