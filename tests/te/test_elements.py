"""The table of element-wise operators: its page, and broadcasting operators of one, two and three operands."""

import inspect

import numpy as np
import pytest

import tilewright
from tilewright import te
from tilewright.te import ops
from tilewright.te.ops.elements import ELEMENTS

from .element_table import PAGE, STUB, page, stub


def test_the_page_and_the_signatures_are_those_of_the_table():
    assert PAGE.read_text() == page(), "python -m tests.te.element_table writes the page"
    assert STUB.read_text() == stub(), "python -m tests.te.element_table writes the signatures"


@pytest.mark.parametrize("name", sorted(ELEMENTS))
def test_a_row_is_an_operator_with_a_signature(name):
    row = ELEMENTS[name]
    assert getattr(ops, name) is row.function and name in ops.__all__
    assert [*inspect.signature(row.function).parameters] == [*row.operand_names, *row.parameters, "name"]
    assert inspect.getdoc(row.function)


@pytest.mark.parametrize("shapes", [((3,), (3,), (3,)), ((2, 1), (3,), ()), ((), (2, 3), (2, 1)), ((1,), (), (4, 1))])
def test_where_broadcasts(shapes, evaluate, rng):
    c, x, y = rng.integers(0, 2, shapes[0]), *[rng.standard_normal(s).astype("float32") for s in shapes[1:]]
    c, x, y = np.asarray(c, "int32"), np.asarray(x, "float32"), np.asarray(y, "float32")
    placeholders = [te.placeholder(a.shape, str(a.dtype), n) for a, n in zip((c, x, y), "CXY", strict=True)]
    np.testing.assert_array_equal(evaluate(ops.where(*placeholders), placeholders, c, x, y), np.where(c, x, y))


def test_numbers_take_the_type_of_the_tensors_beside_them(evaluate):
    x = np.array([-2.0, 0.5, np.nan], "float16")
    X = te.placeholder((3,), "float16", "X")
    out = ops.where(ops.greater(X, 0), X, -1)
    assert out.dtype == "float16"
    np.testing.assert_array_equal(evaluate(out, [X], x), np.where(x > 0, x, np.float16(-1)))


def test_sizes_of_two_names_broadcast_at_the_call():
    n, m = te.var("n"), te.var("m")
    C, X = te.placeholder((n,), "bool", "C"), te.placeholder((m,), "float32", "X")
    f = tilewright.build([C, X, ops.where(C, X, 0.5)], target="native -num-cores=1")
    x = np.arange(3, dtype="float32")
    np.testing.assert_array_equal(f(np.array([False, True, True]), x), [0.5, 1, 2])
    np.testing.assert_array_equal(f(np.array([True]), x), x)
    with pytest.raises(ValueError, match="have to broadcast"):
        f(np.array([True, False]), x)


def test_wrong_arguments_are_named():
    X = te.placeholder((3,), "float32", "X")
    with pytest.raises(TypeError, match=r"celu: .*'alfa'; its parameters are x, alpha, name"):
        ops.celu(X, alfa=2.0)
    with pytest.raises(ValueError, match="hardtanh: the lower bound 2 is above the upper bound 1"):
        ops.hardtanh(X, 2, 1)
