"""For every test: the programs that it made print as text that parses back equal, and lowering verifies after each pass."""

import os
from collections import deque

import pytest

from tilewright.tir import PrimFunc, VerifyError, assert_structural_equal, parse, verify
from tilewright.tir.parser.parser_base import MAX_NESTING

os.environ.setdefault("TILEWRIGHT_VERIFY", "passes")
_LINES = 400
_made: deque[PrimFunc] = deque(maxlen=4)
_create = PrimFunc.__init__


def _remember(self, *args, **kwargs):
    _create(self, *args, **kwargs)
    _made.append(self)


PrimFunc.__init__ = _remember


def _brackets(text):
    """How many brackets stand inside one another; the parser refuses deeper texts, which lowering may make."""
    depth = deepest = 0
    for c in text:
        depth += (c in "([{") - (c in ")]}")
        deepest = max(deepest, depth)
    return deepest


@pytest.fixture(autouse=True)
def what_prints_parses_back():
    """After the test, the last programs made in it are printed and parsed; those that are not well-formed are not."""
    _made.clear()
    yield
    for func in list(_made):
        try:
            verify(func)
        except VerifyError:
            continue
        text = func.script()
        if text.count("\n") <= _LINES and _brackets(text) <= MAX_NESTING:
            again = parse(text)
            assert_structural_equal(func, again, map_free_vars=True)
            assert again.script() == text
    _made.clear()
