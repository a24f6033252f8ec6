"""The examples in docstrings and in docs/schedule.md are true."""

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import tilewright.schedule

MODULES = [m.name for m in pkgutil.walk_packages(tilewright.schedule.__path__, "tilewright.schedule.")]


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


def test_the_page_about_schedules():
    page = Path(__file__).parents[2] / "docs" / "schedule.md"
    result = doctest.testfile(str(page), module_relative=False, optionflags=doctest.ELLIPSIS, encoding="utf-8")
    assert result.failed == 0 and result.attempted > 5
