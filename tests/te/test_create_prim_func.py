"""From tensors to blocks: the text, and the numbers."""

import numpy as np
import pytest

from tilewright import te
from tilewright.tir.difference import assert_structural_equal
from tilewright.tir.expr import Call, IntImm, Var
from tilewright.tir.interpret import interpret
from tilewright.tir.parser import parse
from tilewright.tir.stmt import BufferStore, For, decl_buffer
from tilewright.tir.verify import verify


def check(func, text):
    """``func`` is the program ``text``, is well-formed, and survives printing and parsing."""
    verify(func)
    assert_structural_equal(func, parse(text))
    assert_structural_equal(parse(func.script()), func)


def body_of(func):
    return func.script().split('# with T.block("root"):\n')[1]


def test_matmul():
    A, B = te.placeholder((16, 7), name="A"), te.placeholder((7, 13), name="B")
    k = te.reduce_axis((0, 7), name="k")
    C = te.compute((16, 13), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    check(
        te.create_prim_func([A, B, C]),
        """
@T.prim_func
def main(A: T.Buffer((16, 7), "float32"), B: T.Buffer((7, 13), "float32"), C: T.Buffer((16, 13), "float32")):
    T.func_attr({"global_symbol": "main", "tir.noalias": True})
    for i, j, k in T.grid(16, 13, 7):
        with T.block("C"):
            v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
            T.reads(A[v_i, v_k], B[v_k, v_j])
            T.writes(C[v_i, v_j])
            with T.init():
                C[v_i, v_j] = T.float32(0)
            C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
""",
    )


def test_stages_and_intermediate_buffers():
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((8,), lambda i: te.exp(B[i]), name="C", attrs={"hint": "x", "n": 3})
    func = te.create_prim_func([A, C], name="two")
    assert func.name == "two" and [b.name for b in func.buffers] == ["A", "C"]
    assert body_of(func).startswith("    B = T.alloc_buffer((8,))\n    for i in range(8):")
    assert 'T.block_attr({"hint": "x", "n": 3})' in func.script()
    assert [b.name for b in te.create_prim_func([C, B, A]).buffers] == ["C", "B", "A"]


def test_argmax(evaluate, rng):
    argmax = te.comm_reducer(
        lambda x, y: (te.select(x[1] >= y[1], x[0], y[0]), te.select(x[1] >= y[1], x[1], y[1])),
        lambda t0, t1: (te.const(-1, t0), te.min_value(t1)),
        name="argmax",
    )
    m, n = te.var("m"), te.var("n")
    idx, val = te.placeholder((m, n), "int32", "idx"), te.placeholder((m, n), "float32", "val")
    k = te.reduce_axis((0, n), "k")
    T0, T1 = te.compute((m,), lambda i: argmax((idx[i, k], val[i, k]), axis=k), name="T")
    func = te.create_prim_func([idx, val, T0, T1])
    check(
        func,
        """
@T.prim_func
def main(a: T.handle, b: T.handle, c: T.handle, d: T.handle):
    T.func_attr({"global_symbol": "main", "tir.noalias": True})
    m, n = T.int32(), T.int32()
    idx = T.match_buffer(a, (m, n), "int32")
    val = T.match_buffer(b, (m, n))
    T_v0 = T.match_buffer(c, (m,), "int32")
    T_v1 = T.match_buffer(d, (m,))
    for i, k in T.grid(m, n):
        with T.block("T"):
            v_i, v_k = T.axis.remap("SR", [i, k])
            T.reads(val[v_i, v_k], idx[v_i, v_k])
            T.writes(T_v0[v_i], T_v1[v_i])
            with T.init():
                T_v0[v_i] = -1
                T_v1[v_i] = T.min_value("float32")
            v_T_v0: T.int32 = T.Select(T_v1[v_i] >= val[v_i, v_k], T_v0[v_i], idx[v_i, v_k])
            v_T_v1: T.float32 = T.Select(T_v1[v_i] >= val[v_i, v_k], T_v1[v_i], val[v_i, v_k])
            T_v0[v_i] = v_T_v0
            T_v1[v_i] = v_T_v1
""",
    )
    v = rng.standard_normal((7, 13)).astype("float32")
    w = np.tile(np.arange(13, dtype="int32"), (7, 1))
    got = evaluate([T0, T1], [idx, val], w, v, shapes=[(7,), (7,)])
    np.testing.assert_array_equal(got[0], v.argmax(1))
    np.testing.assert_array_equal(got[1], v.max(1))


def test_several_outputs_make_several_blocks(evaluate):
    A = te.placeholder((5,), name="A")
    x, y = te.compute((5,), lambda i: (A[i] + 1.0, A[i] * 3.0), name="B")
    func = te.create_prim_func([A, x, y])
    text = body_of(func)
    assert text.count("for i in range(5)") == 1 and 'T.block("B.v0")' in text and 'T.block("B.v1")' in text
    a = np.arange(5, dtype="float32")
    got = evaluate([x, y], [A], a)
    np.testing.assert_array_equal(got[0], a + 1)
    np.testing.assert_array_equal(got[1], a * 3)
    got = evaluate(y, [A], a)  # the other output is a buffer of the function's own
    np.testing.assert_array_equal(got, a * 3)


def test_rank_zero(evaluate):
    a, b = te.placeholder((), "int32", "a"), te.placeholder((), "int32", "b")
    c = te.compute((), lambda: a() + b[()], name="c")
    check(
        te.create_prim_func([a, b, c]),
        """
@T.prim_func
def main(a: T.Buffer((), "int32"), b: T.Buffer((), "int32"), c: T.Buffer((), "int32")):
    T.func_attr({"global_symbol": "main", "tir.noalias": True})
    with T.block("c"):
        vi = T.axis.spatial(1, 0)
        T.reads(a[()], b[()])
        T.writes(c[()])
        c[()] = a[()] + b[()]
""",
    )
    A = te.placeholder((7,), name="A")
    k = te.reduce_axis((0, 7), "k")
    total = te.compute((), lambda: te.sum(A[k] * a, axis=k), name="total")
    got = evaluate(total, [A, a], np.arange(7), 3)
    assert got == 63


def test_where_and_init(evaluate):
    A = te.placeholder((3, 8), name="A")
    k = te.reduce_axis((0, 8), "k")
    B = te.compute((3,), lambda i: te.sum(A[i, k], axis=k, where=k % 2 == 0), name="B")
    C = te.compute((3,), lambda i: te.max(A[i, k], axis=k, init=100.0), name="C")
    a = np.arange(24, dtype="float32").reshape(3, 8)
    np.testing.assert_array_equal(evaluate(B, [A], a), a[:, ::2].sum(1))
    np.testing.assert_array_equal(evaluate(C, [A], a), [100, 100, 100])


@pytest.mark.parametrize("n", [1, 7, 16])
def test_any_and_all_take_what_every_reducer_takes(evaluate, n):
    A, B = te.placeholder((5, n), name="A"), te.placeholder((5,), "bool", name="B")
    k = te.reduce_axis((0, n), "k")
    a = np.random.default_rng(n).integers(-2, 3, (5, n)).astype("float32")
    b = np.array([1, 0, 1, 0, 1], bool)
    some = te.compute((5,), lambda i: te.any(A[i, k] > 0, axis=k, where=k % 2 == 0, init=B[i]), name="some")
    every = te.compute((5,), lambda i: te.all(A[i, k] > 0, k, k % 2 == 0, B[i]), name="every")
    np.testing.assert_array_equal(evaluate(some, [A, B], a, b), (a[:, ::2] > 0).any(1) | b)
    np.testing.assert_array_equal(evaluate(every, [A, B], a, b), (a[:, ::2] > 0).all(1) & b)


@pytest.mark.parametrize("n", [0, 1])
def test_empty_reduction(n, evaluate):
    A = te.placeholder((3, n), name="A")
    k = te.reduce_axis((0, n), "k")
    C = te.compute((3,), lambda i: te.prod(A[i, k], axis=k), name="C")
    want = np.full((3, n), 2.0).prod(1)  # of nothing: the identity, where TVM writes nothing
    np.testing.assert_array_equal(evaluate(C, [A], np.full((3, n), 2.0)), want)


def test_shifted_reduction(evaluate):
    A = te.placeholder((9,), name="A")
    k = te.reduce_axis((2, 7), "k")
    B = te.compute((1,), lambda i: te.sum(A[k], axis=k), name="B")
    a = np.arange(9, dtype="float32")
    assert evaluate(B, [A], a)[0] == a[2:7].sum()


def test_symbolic_sizes_and_scalars(evaluate):
    n, scale = te.var("n"), te.var("scale", "float32")
    A = te.placeholder((n,), name="A")
    B = te.compute((n * 2,), lambda i: A[i // 2] * scale + n, name="B")
    func = te.create_prim_func([A, scale, B])
    assert [p.dtype for p in func.params] == ["handle", "float32", "handle"]
    a, out = np.arange(7, dtype="float32"), np.full(14, np.nan, "float32")
    interpret(func, a, 0.5, out)
    np.testing.assert_array_equal(out, np.repeat(a, 2) * 0.5 + 7)
    size = te.var("m", "int64")
    X = te.placeholder((size,), name="X")
    text = te.create_prim_func([X, te.compute((size,), lambda i: X[i], name="Y")]).script()
    assert "m = T.int64()" in text and "v_i = T.axis.spatial(m, i)" in text


def test_regions_join():
    A = te.placeholder((16, 16), name="A")
    B = te.compute((14, 14), lambda i, j: A[i, j + 1] + A[i + 2, j] + A[i + 1, j + 2], name="B")
    text = te.create_prim_func([A, B]).script()
    assert "T.reads(A[v_i:v_i + 3, v_j:v_j + 3])" in text
    index = te.placeholder((7,), "int32", "index")
    C = te.compute((7, 16), lambda i, j: A[index[i], j], name="C")
    assert "T.reads(A[index[v_i], v_j], index[v_i])" in te.create_prim_func([A, index, C]).script()


def test_names_are_made_unique():
    A = te.placeholder((4,), name="x")
    B = te.compute((4,), lambda i: A[i], name="x")
    C = te.compute((4,), lambda i: B[i], name="x")
    func = te.create_prim_func([A, C])
    assert [b.name for b in func.buffers] == ["x", "x_1"]
    assert 'T.block("x")' in func.script() and 'T.block("x_1")' in func.script()
    D = te.compute((4,), lambda i: A[i], name="root")
    assert 'T.block("root_1")' in te.create_prim_func([A, D]).script()


def test_diamond_is_ordered():
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((4,), lambda i: B[i] + 1.0, name="C")
    D = te.compute((4,), lambda i: B[i] * C[i], name="D")
    text = te.create_prim_func([D, A]).script()
    places = [text.index(f'T.block("{name}")') for name in "BCD"]
    assert places == sorted(places)


def test_long_chain():
    t = A = te.placeholder((2,), name="A")
    for n in range(1500):
        previous = t
        t = te.compute((2,), lambda i, p=previous: p[i] + 1.0, name=f"S{n}")
    assert len(te.create_prim_func([A, t]).body.block.alloc_buffers) == 1499


def test_layout_free():
    A, W = te.placeholder((4,), name="A"), te.placeholder((4,), name="W")
    B = te.compute((4,), lambda i: A[i] * W[i], name="B", attrs={"layout_free_placeholders": [W]})
    assert te.create_prim_func([A, W, B]).attrs["layout_free_buffers"] == [1]


def test_errors():
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: A[i], name="B")
    with pytest.raises(ValueError, match=r"the input A is read but is not among the arguments \(B\)"):
        te.create_prim_func([B])
    with pytest.raises(ValueError, match="is given twice"):
        te.create_prim_func([A, A, B])
    with pytest.raises(TypeError, match="takes tensors and te.var"):
        te.create_prim_func([A, B.op])
    with pytest.raises(TypeError, match="one flat list"):
        te.create_prim_func([A, (B,)])
    k = te.reduce_axis((0, 4), "k")
    C = te.compute((4,), lambda i: A[k] + A[i], name="C")
    with pytest.raises(ValueError, match="nothing gives k a value.*has to be reduced over"):
        te.create_prim_func([A, C])
    n = te.var("n")
    with pytest.raises(ValueError, match="nothing gives n a value"):
        te.create_prim_func([A, te.compute((4,), lambda i: A[i] * n, name="D")])
    m = te.var("m")
    E = te.placeholder((n * m,), name="E")
    F = te.compute((4,), lambda i: E[i], name="F")
    with pytest.raises(ValueError, match=r"the size n \* m of E does not give m and n a value"):
        te.create_prim_func([E, F])
    assert te.create_prim_func([n, E, F]).params[0] is n


def test_extern(evaluate):
    A, B = te.placeholder((3, 4), name="A"), te.placeholder((3, 4), name="B")

    def add(ins, outs):
        i, j = Var("i"), Var("j")
        store = BufferStore(outs[0], ins[0][i, j] + ins[1][i, j], (i, j))
        return For(i, IntImm(0), IntImm(3), "serial", For(j, IntImm(0), IntImm(4), "serial", store))

    C = te.extern((3, 4), [A, B], add, name="C")
    D = te.compute((3, 4), lambda i, j: C[i, j] * 2.0, name="D")
    func = te.create_prim_func([A, B, D])
    verify(func)
    assert "T.reads(A[0:3, 0:4], B[0:3, 0:4])" in func.script()
    a, b = np.ones((3, 4)), np.full((3, 4), 2.0)
    np.testing.assert_array_equal(evaluate(D, [A, B], a, b), np.full((3, 4), 6.0))
    call = te.extern(
        [(3, 4), (3,)], [A], lambda ins, outs: Call("tir.call_extern", (ins[0].data, outs[0].data), "int32"),
        name="E", dtype=["float32", "int32"],
    )  # fmt: skip
    assert [t.dtype for t in call] == ["float32", "int32"]
    with pytest.raises(TypeError, match="returns int, not a statement or an expression"):
        te.extern((3,), [A], lambda ins, outs: 3)
    with pytest.raises(ValueError, match="say which dtype"):
        te.extern((3,), [], lambda ins, outs: None)
    assert decl_buffer((1,)).ndim == 1


def test_extern_primfunc(evaluate):
    scale = parse(
        """
@T.prim_func
def scale(X: T.Buffer((3, 4), "float32"), Y: T.Buffer((3, 4), "float32")):
    Z = T.alloc_buffer((3, 4))
    for i, j in T.grid(3, 4):
        with T.block("Z"):
            vi, vj = T.axis.remap("SS", [i, j])
            Z[vi, vj] = X[vi, vj] * T.float32(2)
    for i, j in T.grid(3, 4):
        with T.block("Y"):
            vi, vj = T.axis.remap("SS", [i, j])
            Y[vi, vj] = Z[vi, vj] + T.float32(1)
"""
    )
    A = te.placeholder((3, 4), name="A")
    B = te.extern_primfunc([A], scale, name="B")
    C = te.extern_primfunc([B], scale, name="C")  # the same function twice
    func = te.create_prim_func([A, C])
    verify(func)
    assert_structural_equal(parse(func.script()), func)
    a = np.arange(12, dtype="float32").reshape(3, 4)
    np.testing.assert_array_equal(evaluate(C, [A], a), (a * 2 + 1) * 2 + 1)
    with pytest.raises(ValueError, match="2 inputs for the buffers X"):
        te.extern_primfunc([A, B], scale)
    with pytest.raises(ValueError, match="does not fit"):
        te.extern_primfunc([te.placeholder((4, 3))], scale)


# Reductions over domains that depend on other axes


def triangular(n, ends, reducer=te.sum):
    """B[i] = the reduction of A[i, k] for ``k`` in ``ends(i)``."""
    A = te.placeholder((n, n + 1), name="A")

    def rows(i):
        k = te.reduce_axis(ends(i), "k")
        return reducer(A[i, k], axis=k)

    return A, te.compute((n,), rows, name="B")


def test_a_reduction_over_a_triangle_is_two_loops():
    A, B = triangular(16, lambda i: (0, i + 1))
    check(
        te.create_prim_func([A, B]),
        """
@T.prim_func
def main(A: T.Buffer((16, 17)), B: T.Buffer((16,))):
    T.func_attr({"global_symbol": "main", "tir.noalias": True})
    for i in range(16):
        for k in range(i + 1):
            with T.block("B"):
                v_i = T.axis.spatial(16, i)
                v_k = T.axis.reduce(i + 1, k)
                T.reads(A[v_i, v_k])
                T.writes(B[v_i])
                with T.init():
                    B[v_i] = T.float32(0.0)
                B[v_i] = B[v_i] + A[v_i, v_k]
""",
    )


@pytest.mark.parametrize("n", [1, 7, 16])
@pytest.mark.parametrize("reducer, numpy, start", [(te.sum, np.sum, 0), (te.max, np.max, -np.inf)])
@pytest.mark.parametrize(
    "ends, row",
    [
        (lambda i: (0, i), lambda i: range(i)),  # the first row has no elements
        (lambda i: (0, i + 1), lambda i: range(i + 1)),
        (lambda i: (i // 2, i + 1), lambda i: range(i // 2, i + 1)),
        (lambda i: i % 3, lambda i: range(i % 3)),
    ],
)
def test_a_domain_that_depends_on_the_element(evaluate, n, reducer, numpy, start, ends, row):
    A, B = triangular(n, ends, reducer)
    a = np.random.default_rng(n).integers(-4, 5, (n, n + 1)).astype("float32")
    want = [numpy(a[i, list(row(i))], initial=start) for i in range(n)]
    np.testing.assert_array_equal(evaluate(B, [A], a), np.float32(want))


def test_a_domain_that_depends_on_another_reduction(evaluate):
    n = 13
    A = te.placeholder((n, n), name="A")

    def corner(i, order):
        k = te.reduce_axis((0, i + 1), "k")
        j = te.reduce_axis((k, i + 2), "j")
        return te.sum(A[k, j], axis=order(k, j))

    B = te.compute((n - 1,), lambda i: corner(i, lambda k, j: [k, j]), name="B")
    a = np.random.default_rng(0).integers(-4, 5, (n, n)).astype("float32")
    want = [sum(a[k, k : i + 2].sum() for k in range(i + 1)) for i in range(n - 1)]
    np.testing.assert_array_equal(evaluate(B, [A], a), np.float32(want))
    C = te.compute((n - 1,), lambda i: corner(i, lambda k, j: [j, k]), name="C")
    with pytest.raises(ValueError, match=r"C: the domain of j, .*, depends on k, which comes after it; put k first"):
        te.create_prim_func([A, C])


def test_a_sparse_matrix_times_a_vector(evaluate):
    rows, stored, columns = 7, 20, 16
    begin, column = (
        te.placeholder((rows + 1,), "int32", name="begin"),
        te.placeholder((stored,), "int32", name="column"),
    )
    value, x = te.placeholder((stored,), name="value"), te.placeholder((columns,), name="x")

    def row(i):
        k = te.reduce_axis((begin[i], begin[i + 1]), "k")
        return te.sum(value[k] * x[column[k]], axis=k)

    y = te.compute((rows,), row, name="y")
    assert [t.name for t in y.op.input_tensors] == ["value", "x", "column", "begin"]
    rng = np.random.default_rng(0)
    b = np.array([0, 3, 3, 7, 8, 8, 15, 20], "int32")
    c = rng.integers(0, columns, stored).astype("int32")
    v, w = rng.integers(-4, 5, stored).astype("float32"), rng.integers(-4, 5, columns).astype("float32")
    want = [(v[b[i] : b[i + 1]] * w[c[b[i] : b[i + 1]]]).sum() for i in range(rows)]
    np.testing.assert_array_equal(evaluate(y, [begin, column, value, x], b, c, v, w), np.float32(want))


# Conditions that the domains of the axes decide


def test_conditions_that_always_hold_go(evaluate):
    n = te.var("n")
    A, N = te.placeholder((16,), name="A"), te.placeholder((n,), name="N")
    k = te.reduce_axis((0, 16), "k")
    cases = {
        "B": (16, lambda i: te.if_then_else(te.all(i >= 0, i < 16), A[i], 0.0), "B[v_i] = A[v_i]"),
        "C": (18, lambda i: te.if_then_else(te.all(i >= 0, i < 16), A[i], 0.0),
              "C[v_i] = T.if_then_else(v_i < 16, A[v_i], T.float32(0.0))"),
        "D": (16, lambda i: te.select(te.any(i > 15, i < 0), 1.0, A[i]), "D[v_i] = A[v_i]"),
        "E": (16, lambda i: te.select(te.not_(i * 2 >= 40), A[i], 1.0), "E[v_i] = A[v_i]"),
        "F": (16, lambda i: te.select(i > 16, A[i], 1.0), "F[v_i] = T.float32(1.0)"),
        "G": (16, lambda i: te.if_then_else(i % 4 < 4, A[i // 2], 0.0), "G[v_i] = A[v_i // 2]"),
        "H": (1, lambda i: te.sum(A[k], axis=k, where=k < 16), "H[v_i] = H[v_i] + A[v_k]"),
        "P": (n, lambda i: te.if_then_else(i < n, N[i], 0.0), "P[v_i] = N[v_i]"),
        "J": (n + 2, lambda i: te.if_then_else(te.all(i >= 1, i < n + 1), N[i - 1], 0.0),
              "J[v_i] = T.if_then_else(v_i >= 1 and v_i < n + 1, N[v_i - 1], T.float32(0.0))"),
        "K": (16, lambda i: te.select(A[i] > 0, A[i], 0.0), "K[v_i] = T.Select(A[v_i] > T.float32(0.0), A[v_i], T.float32(0.0))"),
    }  # fmt: skip
    stages = [te.compute((size,), f, name=name) for name, (size, f, _) in cases.items()]
    text = te.create_prim_func([A, N, *stages]).script()
    for _, _, line in cases.values():
        assert line in text
    a = np.arange(16, dtype="float32")
    got = evaluate([stages[1], stages[5]], [A], a)
    np.testing.assert_array_equal(got[0], [*a, 0, 0])
    np.testing.assert_array_equal(got[1], a[np.arange(16) // 2])
