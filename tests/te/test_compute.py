"""Declaring tensors: shapes, indices, axes, reductions, and what is refused."""

import numpy as np
import pytest

from tilewright import te
from tilewright.tir import script as T
from tilewright.tir import structural_equal
from tilewright.tir.expr import EQ, Call, IntImm, Reduce, Var


@pytest.fixture
def A():
    return te.placeholder((4, 8), name="A")


def test_placeholder():
    n = te.var("n")
    A = te.placeholder((n, 8), "int8", "A")
    assert (A.name, A.dtype, A.ndim, A.shape[0] is n, int(A.shape[1])) == ("A", "int8", 2, True, 8)
    assert te.placeholder((), name="s").ndim == 0
    assert te.placeholder(5).ndim == 1
    with pytest.raises(ValueError, match="dimension -1 in the shape"):
        te.placeholder((-1,))
    with pytest.raises(TypeError, match=r"a dimension is .*float32"):
        te.placeholder((2.5,))
    with pytest.raises(ValueError, match="float has the widths"):
        te.placeholder((2,), "float23")


def test_index_forms(A):
    i, j = te.var("i"), te.var("j")
    for e in (A[i, j], A(i, j), A[i][j]):
        assert isinstance(e, te.ProducerLoad) and e.producer is A and e.indices == (i, j) and e.dtype == "float32"
    k = te.reduce_axis((0, 8), "k")
    assert A[k, k].indices == (k.var, k.var)
    assert str(A[i, j + 1] * 2.0) == "A[i, j + 1] * T.float32(2.0)"


def test_index_errors(A):
    i = te.var("i")
    with pytest.raises(ValueError, match=r"tensor A of shape \(4, 8\) needs 2 indices, got 3"):
        A[i, i, i]
    with pytest.raises(ValueError, match="needs 2 indices, got 1"):
        A(i)
    with pytest.raises(TypeError, match="an index is float32, not an integer"):
        A[i, 1.5]
    with pytest.raises(IndexError, match="index 8 is outside dimension 1"):
        A[i, 8]
    with pytest.raises(TypeError, match="slices do not give an element"):
        A[i, 0:2]
    with pytest.raises(TypeError, match="indexed with 1 indices where an element is expected"):
        A[i] + 1.0
    with pytest.raises(TypeError, match="a whole tensor where one element is expected"):
        te.compute((4,), lambda i: A)
    with pytest.raises(TypeError, match="cannot be iterated over"):
        list(A)


def test_axis_names(A):
    def names(t):
        return [iv.var.name for iv in t.op.axis]

    assert names(te.compute((4, 8), lambda row, col: A[row, col])) == ["row", "col"]
    assert names(te.compute((4, 8), lambda *i: A(*i))) == ["i0", "i1"]
    assert names(te.compute((4, 8), lambda n, *i: A(n, *i))) == ["n", "i1"]
    assert names(te.compute((4, 8), lambda *i: A(*i), varargs_names=["x", "y"])) == ["x", "y"]
    assert names(te.compute((4, 8), lambda i, j, scale=2.0: A[i, j] * scale)) == ["i", "j"]
    assert names(te.compute((), lambda: te.const(1.0))) == []


def test_compute_operation(A):
    B = te.compute((4, 8), lambda i, j: A[i, j] + A[i, 0], name="B", tag="t", attrs={"x": 1})
    op = B.op
    assert (op.name, op.tag, op.attrs, op.num_outputs, op.output(0) is B) == ("B", "t", {"x": 1}, 1, True)
    assert op.input_tensors == (A,) and op.reduce_axis == ()


def test_several_outputs(A):
    x, y = te.compute((4, 8), lambda i, j: (A[i, j], A[i, j].astype("int32")), name="P")
    assert (x.name, y.name, x.dtype, y.dtype, x.op is y.op) == ("P_v0", "P_v1", "float32", "int32", True)


def test_compute_errors(A):
    with pytest.raises(ValueError, match="compute C: the function takes 1 axes, the shape has 2 dimensions"):
        te.compute((4, 8), lambda i: A[i, 0], name="C")
    with pytest.raises(TypeError, match="returns nothing"):
        te.compute((4,), lambda i: None)
    with pytest.raises(TypeError, match="keyword-only"):
        te.compute((4,), lambda i, *, j=1: A[i, j])
    k = te.reduce_axis((0, 8), "k")
    with pytest.raises(ValueError, match="a reduction inside a larger expression; make it a te.compute of its own"):
        te.compute((4,), lambda i: te.sum(A[i, k], axis=k) * 2.0)


def test_no_python_truth(A):
    with pytest.raises(ValueError, match="use te.if_then_else"):
        te.compute((4, 8), lambda i, j: A[i, j] if i < 2 else 0.0)


def test_axis_comparison_is_an_expression():
    k = te.reduce_axis((0, 8), "k")
    assert isinstance(k == 0, EQ) and isinstance(k.var == 0, EQ)
    assert k in [k] and not (k == te.reduce_axis((0, 8), "k"))
    assert str((k + 1) // 2 - 7 % (k + 1)) == "(k + 1) // 2 - 7 % (k + 1)"


def test_reduce_axis():
    k = te.reduce_axis((2, 8), "k")
    assert (int(k.dom.min), int(k.dom.extent), k.kind) == (2, 6, "reduce")
    n = te.var("n")
    assert te.reduce_axis((0, n)).dom.extent is n
    assert int(te.reduce_axis(7).dom.extent) == 7
    with pytest.raises(ValueError, match="the extent is -1"):
        te.reduce_axis((3, 2))
    with pytest.raises(TypeError, match="the domain is float32"):
        te.reduce_axis((0.0, 3.0))


def test_reducers(A):
    k = te.reduce_axis((0, 8), "k")
    for make, identity in ((te.sum, 0.0), (te.prod, 1.0)):
        e = make(A[0, k], axis=k)
        assert isinstance(e, Reduce) and e.combiner.identity_element[0].value == identity
    assert te.max(A[0, k], axis=[k]).combiner.identity_element[0].value < -3e38
    assert not isinstance(te.max(A[0, 0], A[0, 1]), Reduce)
    assert str(te.max(A[0, 0], A[0, 1], 3.0)) == "T.max(T.max(A[0, 0], A[0, 1]), T.float32(3.0))"
    assert str(te.sum(A[0, 0], A[0, 1])) == "A[0, 0] + A[0, 1]"


def test_reducer_errors(A):
    k = te.reduce_axis((0, 8), "k")
    with pytest.raises(ValueError, match="sum: no axis to reduce over"):
        te.sum(A[0, k], axis=[])
    with pytest.raises(TypeError, match="sum: give axis="):
        te.sum(A[0, k])
    with pytest.raises(ValueError, match="i is a spatial axis; reduce over one made by te.reduce_axis"):
        B = te.compute((4,), lambda i: A[i, 0])
        te.sum(A[0, k], axis=B.op.axis[0])
    with pytest.raises(ValueError, match="an axis is given twice"):
        te.sum(A[0, k], axis=[k, k])
    with pytest.raises(TypeError, match="where= is float32, not bool"):
        te.sum(A[0, k], axis=k, where=A[0, k])
    with pytest.raises(TypeError, match="any: where= and init= are for a reduction; give axis="):
        te.any(A[0, 0] > 0, A[0, 1] > 0, where=A[0, 2] > 0)
    with pytest.raises(TypeError, match="max: where= and init= are for a reduction; give axis="):
        te.max(A[0, 0], A[0, 1], init=0.0)
    with pytest.raises(TypeError, match="sum: where is given twice"):
        te.sum(A[0, k], k, k > 1, where=k > 2)
    with pytest.raises(TypeError, match="all: expressions beside an axis"):
        te.all(A[0, k] > 0, A[1, k] > 0, axis=k)
    two = te.comm_reducer(lambda x, y: (x[0] + y[0],), lambda a, b: (te.const(0, a), te.const(0, b)), "two")
    with pytest.raises(ValueError, match="two: the combination has to give 2 values"):
        two((A[0, k], A[1, k]), axis=k)
    narrow = te.comm_reducer(lambda x, y: (x + y).astype("int8"), lambda t: te.const(0, t), "narrow")
    with pytest.raises(TypeError, match="gives int8 where the reduction is over float32"):
        narrow(A[0, k], axis=k)


def test_tuple_reduction_has_to_come_whole(A):
    k = te.reduce_axis((0, 8), "k")
    pair = te.comm_reducer(
        lambda x, y: (x[0] + y[0], x[1] * y[1]), lambda a, b: (te.const(0, a), te.const(1, b)), "pair"
    )
    with pytest.raises(ValueError, match="the reduction gives 2 values; the function has to return all, in order"):
        te.compute((4,), lambda i: pair((A[i, k], A[i, k]), axis=k)[0])
    with pytest.raises(ValueError, match="have to come from one comm_reducer call"):
        te.compute((4,), lambda i: (te.sum(A[i, k], axis=k), te.max(A[i, k], axis=k)))


def test_any_all(A):
    a, b = A[0, 0] > 1.0, A[0, 1] > 1.0
    assert str(te.any(a, b)) == "A[0, 0] > T.float32(1.0) or A[0, 1] > T.float32(1.0)"
    k = te.reduce_axis((0, 8), "k")
    assert isinstance(te.all(A[0, k] > 0.0, axis=k), Reduce)


def test_every_exported_name_exists():
    for name in te.__all__:
        assert hasattr(te, name), name
    for name in te.ops.__all__:
        assert getattr(te.ops, name).__doc__, name


def test_constants():
    assert te.const(3).dtype == "int32" and te.const(3.0).dtype == "float32" and te.const(True).dtype == "bool"
    assert te.max_value("int8").value == 127 and te.min_value("uint8").value == 0
    assert isinstance(te.var("n"), Var) and isinstance(te.const(1), IntImm)
    assert te.thread_axis("threadIdx.x").thread_tag == "threadIdx.x"
    with pytest.raises(ValueError, match="needs a tag"):
        te.thread_axis((0, 4))


def test_data_types_and_shapes_of_numpy():
    A = te.placeholder(np.array([2, 3]), np.float16, name="A")
    assert A.dtype == "float16" and [int(d) for d in A.shape] == [2, 3]
    assert te.var("s", np.dtype("int64")).dtype == "int64"
    with pytest.raises(ValueError, match="3.5 is not a data type"):
        te.placeholder((3,), 3.5)


def test_operations_by_name(A):
    x = A[0, 0]
    for made, same in [
        (T.call_intrin("float32", "tir.exp", x), te.exp(x)),
        (T.call_intrin("int32", "tir.shift_left", te.var("n"), 1), None),
    ]:
        assert isinstance(made, Call) and made.op in ("tir.exp", "tir.shift_left")
        assert same is None or structural_equal(made, same, map_free_vars=True)
    assert T.call_intrin("int32", "tir.unheard_of", 1).op == "tir.call_intrin"
