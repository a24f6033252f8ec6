"""What a schedule does to a program does not depend on the names of its variables."""

from contextlib import nullcontext

import pytest

from tilewright.schedule import ScheduleError
from tilewright.tir import IRModule, assert_structural_equal, parse

from ..fuzz.one_name import one_name


def gives(sch, case):
    expected = parse(case.gives)
    assert_structural_equal(sch.mod if isinstance(expected, IRModule) else sch.func, expected)
    text = sch.mod.script()
    assert_structural_equal(parse(text), sch.mod)
    assert parse(text).script() == text


def test_case_with_one_name(case, steps_of):
    """Every variable, those that the primitives make included, is called ``v``; the result is the same program."""
    if "get_symbol" in case.steps:
        return  # it finds a variable by its name
    with one_name():
        with pytest.raises(ScheduleError) if case.refused is not None else nullcontext():
            sch = steps_of(case)
    if case.refused is None:
        gives(sch, case)


def test_case_with_one_name_for_buffers(case, steps_of):
    """The same with every buffer called ``v``, in cases that find neither a buffer nor a block by that name."""
    if "get_symbol" in case.steps or case.refused is not None:
        return
    with one_name(buffers=True):
        try:
            sch = steps_of(case)
        except ScheduleError:
            return  # it names a buffer, or a block that is named after one
    gives(sch, case)
