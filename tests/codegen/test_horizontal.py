"""Reductions over the lanes of a vector: sums, maxima, the largest of those that are numbers."""

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import Target, compile
from tilewright.schedule import Schedule, ScheduleError
from tilewright.tir.interpret import interpret

LARGEST = te.comm_reducer(lambda a, b: te.select(b > a, b, a), lambda d: te.min_value(d), name="largest")
SMALLEST = te.comm_reducer(lambda a, b: te.select(b < a, b, a), lambda d: te.max_value(d), name="smallest")
EITHER = te.comm_reducer(lambda a, b: te.select(a > b, a, b), lambda d: te.min_value(d), name="either")


def declared(reduce, rows: int, columns: int, dtype: str = "float32"):
    x = te.placeholder((rows, columns), dtype, name="x")
    k = te.reduce_axis((0, columns), name="k")
    return te.create_prim_func([x, te.compute((rows,), lambda i: reduce(x[i, k], axis=k), name="y")])


def by_lanes(func, lanes: int) -> Schedule:
    sch = Schedule(func)
    sch.rfactor(sch.split(sch.get_loops("y")[-1], [None, lanes])[1], 1)
    sch.annotate(sch.get_loops("y")[-1], "tir.horizontal_reduce", 1)
    return sch


@pytest.mark.parametrize("target", ["native", "llvm -mcpu=x86-64-v2"])
@pytest.mark.parametrize("columns", [16, 33, 61])
@pytest.mark.parametrize(
    ("reduce", "numpy"), [(LARGEST, np.fmax.reduce), (SMALLEST, np.fmin.reduce), (te.max, np.max), (te.sum, np.sum)]
)
def test_lanes(reduce, numpy, columns, target):
    func = declared(reduce, 7, columns)
    sch = by_lanes(func, 16)
    x = np.random.default_rng(0).integers(-9, 9, (7, columns)).astype("float32")
    x[1, 5], x[2, ::2], x[3, :8], x[4, 3] = np.nan, np.nan, -np.inf, np.inf
    want = numpy(x, axis=1).astype("float32")
    for run in (lambda *a: interpret(sch.func, *a), compile(sch.func, Target(f"{target} -num-cores=1"), "kernel")):
        y = np.full(7, np.nan, "float32")
        run(x, y)
        np.testing.assert_array_equal(y, want)


def test_the_numbers_take_one_instruction_a_step():
    func = by_lanes(declared(LARGEST, 7, 64), 16).func
    asm = compile(func, Target("llvm -mcpu=x86-64-v4 -num-cores=1"), "kernel").get_source("asm")
    assert "vmaxps" in asm and "vcmpunord" not in asm


def test_a_maximum_that_depends_on_the_order_is_left_alone():
    with pytest.raises(ScheduleError, match="no known reduction"):
        by_lanes(declared(EITHER, 7, 64), 16)
