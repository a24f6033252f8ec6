"""A reducer is one row: it is associative, its start changes nothing, and te makes the reduction that rfactor knows."""

import itertools

import numpy as np
import pytest

from tilewright import te
from tilewright.schedule import Schedule
from tilewright.tir import Expr, IntImm, Var, const
from tilewright.tir.expr.reducers import ALL, ANY, ARGMAX, ARGMIN, MAX, MIN, PROD, REDUCERS, SUM
from tilewright.tir.interpret.interpret_expr import ExprCompiler

PAIRS = [(1, 2.0), (2, 2.0), (0, -1.0), (3, 5.0), (4, -1.0)]
ROWS = [row for row in REDUCERS if row.starts_from]


def combined(row, x, y):
    """The numbers that ``row`` makes of two tuples of numbers."""
    given = [
        tuple([v if isinstance(v, Expr) else const(getattr(v, "item", lambda v=v: v)()) for v in t]) for t in (x, y)
    ]
    exprs = row.combine(*given)
    return tuple([ExprCompiler(lambda *_: None, {}).compile(e)() for e in exprs])


def elements(row):
    if row.arity == 2:
        return PAIRS
    values = (True, False) if row in (ANY, ALL) else (2, -3, 0, 7)
    return [(v,) for v in values]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_starts_change_nothing_and_grouping_does_not_matter(row):
    items = elements(row)
    kinds = [const(v).dtype for v in items[0]]
    start = row.identity(kinds)
    assert row.starts(start)
    for x in items:
        assert combined(row, start, x) == x
    for x, y, z in itertools.product(items, repeat=3):
        assert combined(row, combined(row, x, y), z) == combined(row, x, combined(row, y, z))


def test_other_starts_are_refused():
    v = Var("v", "float32")
    for row in (SUM, PROD, MAX, MIN):
        assert not row.starts((const(3.5),)) and not row.starts((v,))
    assert (
        SUM.starts((IntImm(0).astype("float32"),))
        and MAX.starts((const(-np.inf),))
        and not MIN.starts((const(-np.inf),))
    )


@pytest.mark.parametrize(("reduce", "name"), [(te.sum, "sum"), (te.prod, "prod"), (te.max, "max"), (te.min, "min")])
def test_te_makes_what_rfactor_knows(reduce, name):
    x = te.placeholder((4, 8), "float32", name="x")
    k = te.reduce_axis((0, 8), "k")
    sch = Schedule(te.create_prim_func([x, te.compute((4,), lambda i: reduce(x[i, k], axis=k), name="y")]))
    sch.rfactor(sch.split(sch.get_loops("y")[-1], [2, 4])[0], 0)
    assert reduce.__name__ == name


def test_an_extreme_has_a_position_when_all_are_infinite():
    for row, worst in ((ARGMAX, -np.inf), (ARGMIN, np.inf)):
        index, value = row.identity(("int32", "float32"))
        assert combined(row, (index, value), (3, np.float32(worst))) == (3, worst)
