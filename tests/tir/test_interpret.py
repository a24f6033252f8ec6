"""The interpreter: what programs compute, and what it refuses."""

import math

import numpy as np
import pytest

from tilewright.tir import (
    Allocate,
    AssertStmt,
    Block,
    BlockRealize,
    Broadcast,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    Call,
    Cast,
    Div,
    Evaluate,
    Expr,
    For,
    IntImm,
    IterVar,
    Let,
    LetStmt,
    MatchBufferRegion,
    Max,
    PrimFunc,
    Ramp,
    Range,
    Select,
    Shuffle,
    Stmt,
    StringImm,
    Var,
    const,
    decl_buffer,
)
from tilewright.tir.expr import op
from tilewright.tir.expr.dtype import bfloat16_from_bits, bfloat16_to_bits
from tilewright.tir.expr.intrinsics import operation_named
from tilewright.tir.expr.intrinsics.control_and_memory import if_then_else
from tilewright.tir.expr.intrinsics.number_operations import clz, erf, fma, isnan, popcount, pow_, reinterpret, round_
from tilewright.tir.interpret import interpret
from tilewright.tir.interpret.interpret_expr import InterpretError
from tilewright.tir.stmt import seq

TRUE = IntImm(1, "bool")


def func(body: Stmt, *buffers: Buffer, scalars: tuple[Var, ...] = ()) -> PrimFunc:
    params = tuple([Var(b.name.lower(), "handle") for b in buffers])
    return PrimFunc((*scalars, *params), body, dict(zip(params, buffers, strict=True)), {"global_symbol": "main"})


def loop(v: Var, extent: object, body: Stmt, kind: str = "serial") -> For:
    return For(v, const(0), op.convert(extent), kind, body)


def matmul(n: int, dtype: str = "float32", tile: int | None = None) -> PrimFunc:
    A, B, C = [decl_buffer((n, n), dtype, x) for x in "ABC"]
    i, j, k = [Var(x) for x in "ijk"]
    vi, vj, vk = [Var(f"v{x}") for x in "ijk"]
    axes = tuple([IterVar(Range.from_extent(n), v, "reduce" if v is vk else "spatial") for v in (vi, vj, vk)])
    block = Block(
        axes,
        (A[vi : vi + 1, vk : vk + 1], B[vk : vk + 1, vj : vj + 1]),
        (C[vi : vi + 1, vj : vj + 1],),
        "C",
        BufferStore(C, C[vi, vj] + A[vi, vk] * B[vk, vj], (vi, vj)),
        BufferStore(C, const(0, dtype), (vi, vj)),
    )
    if tile is None:
        return func(loop(i, n, loop(j, n, loop(k, n, BlockRealize((i, j, k), TRUE, block)))), A, B, C)
    ii = Var("ii")
    realize = BlockRealize((i * tile + ii, j, k), i * tile + ii < n, block)
    return func(loop(i, -(-n // tile), loop(j, n, loop(k, n, loop(ii, tile, realize)))), A, B, C)


@pytest.mark.parametrize("n", [1, 7, 13, 16, 17])
@pytest.mark.parametrize("tile", [None, 4])
@pytest.mark.parametrize("check_regions", [False, True])
def test_matmul(n: int, tile: int | None, check_regions: bool) -> None:
    rng = np.random.default_rng(n)
    a, b = [rng.integers(-4, 5, (n, n)).astype("float32") for _ in range(2)]
    c = np.full((n, n), np.nan, "float32")
    interpret(matmul(n, tile=tile), a, b, c, check_regions=check_regions)
    np.testing.assert_array_equal(c, a @ b)


def value_of(e: Expr, *arrays: np.ndarray, buffers: tuple[Buffer, ...] = ()) -> np.ndarray:
    lanes = int(e.dtype.split("x")[1]) if "x" in e.dtype else 1
    element = e.dtype.split("x")[0]
    out = decl_buffer((lanes,), element, "OUT")
    index = const(0) if lanes == 1 else Ramp(const(0), const(1), lanes)
    kind = {"bfloat16": "uint16"}.get(element, element)
    result = np.zeros(lanes, kind)
    interpret(func(BufferStore(out, e, (index,)), *buffers, out), *arrays, result)
    return result[0] if lanes == 1 else result


def load(dtype: str, *values: float) -> tuple[Buffer, np.ndarray]:
    return decl_buffer((len(values),), dtype, "X"), np.array(values, dtype)


def test_float32_rounds_after_every_operation() -> None:
    X, x = load("float32", 1e8, 1.0)
    e = X[0] + X[1] - X[0]
    assert value_of(e, x, buffers=(X,)) == 0.0
    third = value_of(Div(X[1], const(3.0)), x, buffers=(X,))
    assert third == np.float32(1) / np.float32(3)


def test_integers_wrap() -> None:
    X, x = load("int8", 127, -128)
    assert value_of(X[0] + const(1, "int8"), x, buffers=(X,)) == -128
    assert value_of(X[1] * X[1], x, buffers=(X,)) == 0
    U, u = load("uint8", 255)
    assert value_of(U[0] + const(2, "uint8"), u, buffers=(U,)) == 1
    W, w = load("int32", 2**31 - 1)
    assert value_of(W[0] + 1, w, buffers=(W,)) == -(2**31)
    both = BufferLoad(X, (Ramp(const(0), const(1), 2),))
    assert value_of(both + both, x, buffers=(X,)).tolist() == [-2, 0]


@pytest.mark.parametrize("a", [-7, -1, 0, 5, 7])
@pytest.mark.parametrize("b", [-3, -1, 2, 7])
def test_divisions(a: int, b: int) -> None:
    X, x = load("int32", a, b)
    p, q = X[0], X[1]
    assert value_of(p // q, x, buffers=(X,)) == a // b
    assert value_of(p % q, x, buffers=(X,)) == a % b
    assert value_of(op.truncdiv(p, q), x, buffers=(X,)) == int(a / b)
    assert value_of(op.truncmod(p, q), x, buffers=(X,)) == math.fmod(a, b)
    v = BufferLoad(X, (Broadcast(const(0), 2),))
    w = BufferLoad(X, (Broadcast(const(1), 2),))
    assert value_of(op.truncdiv(v, w), x, buffers=(X,)).tolist() == [int(a / b)] * 2


def test_nan_goes_through_max_and_min() -> None:
    X, x = load("float32", np.nan, 1.0)
    for e in (Max(X[0], X[1]), Max(X[1], X[0]), op.min_(X[0], X[1]), op.min_(X[1], X[0])):
        assert np.isnan(value_of(e, x, buffers=(X,)))


def test_calls() -> None:
    X, x = load("float32", 0.5, -2.5, 3.0)
    cases = {
        "exp": np.exp, "log1p": np.log1p, "tanh": np.tanh, "sqrt": np.sqrt, "floor": np.floor, "round": np.rint,
        "fabs": np.abs, "rsqrt": lambda v: 1 / np.sqrt(v),
    }  # fmt: skip
    for name, f in cases.items():
        got = value_of(operation_named(name)(X[0]), x, buffers=(X,))
        assert got == np.float32(f(np.float64(0.5))), name
    assert value_of(erf(X[0]), x, buffers=(X,)) == np.float32(math.erf(0.5))
    assert value_of(round_(X[1]), x, buffers=(X,)) == -2
    assert value_of(pow_(X[2], X[0]), x, buffers=(X,)) == np.float32(3**0.5)
    assert value_of(isnan(X[0]), x, buffers=(X,)) == 0
    assert value_of(reinterpret("int32", X[0]), x, buffers=(X,)) == 0x3F000000
    K, k = load("int32", 12, 3)
    for e, want in (
        (K[0] << K[1], 96), (K[0] >> K[1], 1), (K[0] & K[1], 0), (K[0] | K[1], 15), (K[0] ^ K[0], 0), (~K[0], -13),
        (popcount(K[0]), 2), (clz(K[0]), 28),
    ):  # fmt: skip
        assert value_of(e, k, buffers=(K,)) == want


def test_fma_rounds_once() -> None:
    a, b = 1.0 + 2.0**-13, 1.0 - 2.0**-13
    X, x = load("float32", a, b, -1.0)
    assert value_of(fma(X[0], X[1], X[2]), x, buffers=(X,)) == np.float32(-(2.0**-26))
    assert value_of(X[0] * X[1] + X[2], x, buffers=(X,)) == 0
    Y, y = load("float64", 1.0 + 2.0**-30, 1.0 - 2.0**-30, -1.0)
    assert value_of(fma(Y[0], Y[1], Y[2]), y, buffers=(Y,)) == -(2.0**-60)


def test_casts() -> None:
    X, x = load("float32", -2.7, 300.5, np.nan, 0.1)
    assert value_of(Cast("int32", X[0]), x, buffers=(X,)) == -2
    assert value_of(Cast("uint8", X[1]), x, buffers=(X,)) == 255  # the nearer end of the range
    assert value_of(Cast("float64", X[3]), x, buffers=(X,)) == float(np.float32(0.1))
    assert value_of(Cast("float16", X[3]), x, buffers=(X,)) == np.float16(np.float32(0.1))
    assert value_of(Cast("bool", X[3]), x, buffers=(X,))
    assert bfloat16_from_bits(value_of(Cast("bfloat16", X[3]), x, buffers=(X,))) == np.float32(0.10009765625)
    K, k = load("int64", 2**40 + 5)
    assert value_of(Cast("int32", K[0]), k, buffers=(K,)) == 5


def test_bfloat16_is_stored_as_bits() -> None:
    X = decl_buffer((3,), "bfloat16", "X")
    x = bfloat16_to_bits(np.array([1.0, 1.0 / 128, np.nan], "float32"))
    total = X[0] + X[1] * const(0.25, "bfloat16")
    assert bfloat16_from_bits(value_of(total, x, buffers=(X,))) == 1.0  # rounds to bfloat16
    wide = X[0].astype("float32") + X[1].astype("float32") * 0.25
    assert value_of(wide, x, buffers=(X,)) == np.float32(1 + 1 / 512)
    assert np.isnan(value_of(X[2].astype("float32"), x, buffers=(X,)))
    lanes = BufferLoad(X, (Ramp(const(0), const(1), 2),)).astype("float32")
    assert value_of(lanes, x, buffers=(X,)).tolist() == [1.0, 1 / 128]


def test_vectors() -> None:
    X, x = load("float32", *range(8))
    lanes = Ramp(const(1), const(2), 4)
    assert value_of(BufferLoad(X, (lanes,)), x, buffers=(X,)).tolist() == [1, 3, 5, 7]
    mask = lanes < Broadcast(const(4), 4)
    assert value_of(BufferLoad(X, (lanes,), mask), x, buffers=(X,)).tolist() == [1, 3, 0, 0]
    far = Ramp(const(6), const(1), 4)
    guarded = BufferLoad(X, (far,), far < Broadcast(const(8), 4))
    assert value_of(guarded, x, buffers=(X,)).tolist() == [6, 7, 0, 0]
    low = BufferLoad(X, (Ramp(const(0), const(1), 4),))
    assert value_of(Shuffle((low, low), (3, 4, 0)), x, buffers=(X,)).tolist() == [3, 0, 0]
    assert value_of(Shuffle((low,), (2,)), x, buffers=(X,)) == 2
    assert value_of(Select(low > Broadcast(const(1.5), 4), low, Broadcast(const(9.0), 4)), x, buffers=(X,)).tolist() == [
        9, 9, 2, 3,
    ]  # fmt: skip
    assert value_of(Call("tir.vector_reduce_add", (low,), "float32"), x, buffers=(X,)) == 6
    assert value_of(Call("tir.vectorhigh", (low,), "float32x2"), x, buffers=(X,)).tolist() == [2, 3]
    Y = decl_buffer((4,), "float32", "Y")
    y = np.zeros(4, "float32")
    store = BufferStore(Y, low, (Ramp(const(2), const(1), 4),), Ramp(const(2), const(1), 4) < Broadcast(const(4), 4))
    interpret(func(store, X, Y), x, y)
    assert y.tolist() == [0, 0, 0, 1]


def test_lets_and_lazy_sides() -> None:
    X, x = load("float32", 2.0)
    t = Var("t", "float32")
    assert value_of(Let(t, X[0] * 3.0, t * t), x, buffers=(X,)) == 36
    i = Var("i")
    guarded = if_then_else(i < 1, X[i], 5.0)
    Y = decl_buffer((3,), "float32", "Y")
    y = np.zeros(3, "float32")
    interpret(func(loop(i, 3, BufferStore(Y, guarded, (i,))), X, Y), x, y)
    assert y.tolist() == [2, 5, 5]
    n = Var("n")
    interpret(func(LetStmt(n, const(2), BufferStore(Y, X[0], (n,))), X, Y), x, y)
    assert y[2] == 2


def test_deep_expressions() -> None:
    X, x = load("float32", 1.0)
    e: Expr = X[0]
    for _ in range(300):
        e = e + 1.0
    assert value_of(e, x, buffers=(X,)) == 301


def test_symbolic_shapes_and_scalars() -> None:
    n, s, i = Var("n"), Var("s", "float32"), Var("i")
    A, B = decl_buffer((n,), name="A"), decl_buffer((n * 2,), name="B")
    body = loop(i, n, seq(BufferStore(B, A[i] * s, (i * 2,)), BufferStore(B, A[i], (i * 2 + 1,))))
    f = func(body, A, B, scalars=(s,))
    a, b = np.arange(3, dtype="float32"), np.zeros(6, "float32")
    interpret(f, 2.0, a, b)
    assert b.tolist() == [0, 0, 2, 1, 4, 2]
    with pytest.raises(InterpretError, match=r"argument 2 \(B\) has shape \(7,\), expected \(6,\)"):
        interpret(f, 2.0, a, np.zeros(7, "float32"))


def test_strides_are_read_off_the_array() -> None:
    s, i, j = Var("s"), Var("i"), Var("j")
    A, B = decl_buffer((2, 3), name="A", strides=(s, 1)), decl_buffer((2, 3), name="B")
    a = np.arange(10, dtype="float32").reshape(2, 5)[:, :3]
    b = np.zeros((2, 3), "float32")
    interpret(func(loop(i, 2, loop(j, 3, BufferStore(B, A[i, j] + s.astype("float32"), (i, j)))), A, B), a, b)
    np.testing.assert_array_equal(b, a + 5)
    with pytest.raises(InterpretError, match="strides"):
        interpret(func(Evaluate(const(0)), decl_buffer((2, 3), name="A", strides=(7, 1))), a)


def test_flat_views_of_one_memory() -> None:
    A = decl_buffer((3, 4), name="A")
    flat = Buffer("A_1", (const(12),), data=A.data)
    i = Var("i")
    a = np.zeros((3, 4), "float32")
    interpret(func(loop(i, 12, BufferStore(flat, i.astype("float32"), (i,))), A), a)
    np.testing.assert_array_equal(a, np.arange(12).reshape(3, 4))
    L = decl_buffer((2, 2), name="L", scope="local")
    part = Buffer("L_1", (const(4),), scope="local", data=L.data)
    body = seq(BufferStore(part, const(5.0), (const(3),)), BufferStore(A, L[1, 1], (const(0), const(0))))
    interpret(func(Allocate(L, body), A), a)
    assert a[0, 0] == 5


def test_match_buffers() -> None:
    A, s, o = decl_buffer((8, 8), name="A"), Var("s"), Var("o")
    W = Buffer("W", (const(4), const(4)), strides=(s, const(1)), elem_offset=o)
    inner = Buffer("V", (const(4),), elem_offset=Var("o2"))
    i, vi = Var("i"), Var("vi")
    store = BufferStore(inner, (s + o).astype("float32"), (const(1),))
    nested = Block((), (), (), "nested", store, match_buffers=(MatchBufferRegion(inner, W[2:3, 0:4]),))
    block = Block(
        (IterVar(Range.from_extent(2), vi),), (), (A[vi * 4 : vi * 4 + 4, 4:8],), "outer",
        BlockRealize((), TRUE, nested),
        match_buffers=(MatchBufferRegion(W, A[vi * 4 : vi * 4 + 4, 4:8]),),
    )  # fmt: skip
    a = np.zeros((8, 8), "float32")
    interpret(func(loop(i, 2, BlockRealize((i,), TRUE, block)), A), a, check_regions=True)
    want = np.zeros((8, 8), "float32")
    want[2, 5], want[6, 5] = 8 + 4, 8 + 36
    np.testing.assert_array_equal(a, want)


def test_fresh_memory_is_nan() -> None:
    A, T, K = decl_buffer((2,), name="A"), decl_buffer((2,), name="T"), decl_buffer((1,), "int32", "K")
    a, k = np.zeros(2, "float32"), np.zeros(1, "int32")
    interpret(func(Allocate(T, BufferStore(A, T[0], (const(0),))), A), a)
    assert np.isnan(a[0])
    P = decl_buffer((1,), "int32", "P")
    interpret(func(Allocate(P, BufferStore(K, P[0], (const(0),))), K), k)
    assert k[0] == 0x5A5A5A5A


@pytest.mark.parametrize(
    "indices, message",
    [
        ((const(4), const(0)), r"reads A\[4, 0\] is outside its shape \(4, 3\)"),
        ((const(0), const(-1)), r"reads A\[0, -1\] is outside its shape"),
        ((const(0), Ramp(const(1), const(1), 4)), r"reads A\[0, \[1, 2, 3, 4\]\] is outside its shape"),
    ],
)
def test_reads_outside_are_refused(indices: tuple[Expr, ...], message: str) -> None:
    A = decl_buffer((4, 3), name="A")
    with pytest.raises(InterpretError, match=message):
        interpret(func(Evaluate(BufferLoad(A, indices)), A), np.zeros((4, 3), "float32"))


@pytest.mark.parametrize("dtype", ["float32", "int8", "uint64", "bool", "bfloat16"])
@pytest.mark.parametrize("rank", range(6))
def test_elements_of_any_rank_are_copied_and_checked(rank: int, dtype: str) -> None:
    shape = (2, 3, 1, 4, 2)[:rank]
    A, B = decl_buffer(shape, dtype, "A"), decl_buffer(shape, dtype, "B")
    at = [Var(f"i{n}") for n in range(rank)]
    stored = {"bool": np.bool_, "bfloat16": np.uint16}.get(dtype, dtype)
    a = np.random.default_rng(rank).integers(0, 2 if dtype == "bool" else 200, shape).astype(stored)

    def copied(read: list[Expr], write: list[Expr]) -> np.ndarray:
        body: Stmt = BufferStore(B, BufferLoad(A, tuple(read)), tuple(write))
        for v, extent in reversed(list(zip(at, shape, strict=True))):
            body = loop(v, extent, body)
        b = np.zeros(shape, stored)
        interpret(func(body, A, B), a, b)
        return b

    np.testing.assert_array_equal(copied([*at], [*at]), a)
    for d in range(rank):
        for moved in (at[d] + 1, at[d] - 1):
            outside = [*at[:d], moved, *at[d + 1 :]]
            with pytest.raises(InterpretError, match="reads A.* outside its shape"):
                copied(outside, [*at])
            with pytest.raises(InterpretError, match="writes B.* outside its shape"):
                copied([*at], outside)


def test_writes_outside_are_refused() -> None:
    A, i = decl_buffer((4,), name="A"), Var("i")
    with pytest.raises(InterpretError, match=r"writes A\[4\] is outside its shape \(4,\)"):
        interpret(func(loop(i, 5, BufferStore(A, const(0.0), (i,))), A), np.zeros(4, "float32"))
    lanes = Ramp(const(2), const(1), 4)
    with pytest.raises(InterpretError, match=r"writes A\[\[2, 3, 4, 5\]\] is outside"):
        interpret(func(BufferStore(A, Broadcast(const(0.0), 4), (lanes,)), A), np.zeros(4, "float32"))


def test_declared_regions_are_kept() -> None:
    A, B, vi, i = decl_buffer((8,), name="A"), decl_buffer((8,), name="B"), Var("vi"), Var("i")
    axis = IterVar(Range.from_extent(4), vi)

    def program(reads: tuple[BufferRegion, ...], writes: tuple[BufferRegion, ...], extent: int = 4) -> PrimFunc:
        block = Block((axis,), reads, writes, "copy", BufferStore(B, A[vi + 1], (vi,)))
        return func(loop(i, extent, BlockRealize((i,), TRUE, block)), A, B)

    a, b = np.zeros(8, "float32"), np.zeros(8, "float32")
    good_read, good_write = A[vi + 1 : vi + 2], B[vi : vi + 1]
    interpret(program((good_read,), (good_write,)), a, b, check_regions=True)
    with pytest.raises(
        InterpretError, match=r"reads A\[1\] is outside the regions that its block declares: \[\(\(0, 1\)"
    ):
        interpret(program((A[vi : vi + 1],), (good_write,)), a, b, check_regions=True)
    with pytest.raises(InterpretError, match=r"writes B\[0\] is outside the regions"):
        interpret(program((good_read,), ()), a, b, check_regions=True)
    with pytest.raises(InterpretError, match=r"block copy: the axis vi is 4, outside its domain \[0, 4\)"):
        interpret(program((good_read,), (good_write,), 5), a, b, check_regions=True)
    interpret(program((A[vi : vi + 1],), ()), a, b)


def test_arguments_are_checked() -> None:
    A, s = decl_buffer((4,), name="A"), Var("s", "int8")
    f = func(Evaluate(const(0)), A, scalars=(s,))
    good = np.zeros(4, "float32")
    with pytest.raises(InterpretError, match="takes 2 arguments, got 1"):
        interpret(f, good)
    with pytest.raises(InterpretError, match=r"argument 1 \(A\) has dtype float64, expected float32"):
        interpret(f, 1, np.zeros(4))
    with pytest.raises(InterpretError, match="has 2 dimensions, expected 1"):
        interpret(f, 1, np.zeros((2, 2), "float32"))
    with pytest.raises(InterpretError, match=r"argument 0 \(s\) is 300, which is no int8"):
        interpret(f, 300, good)
    with pytest.raises(InterpretError, match="not a NumPy array"):
        interpret(f, 1, [1, 2])


def test_what_cannot_run() -> None:
    A, i = decl_buffer((4,), name="A"), Var("i")
    a = np.zeros(4, "float32")
    with pytest.raises(InterpretError, match="more than 100 loop iterations, stopped in the loop i"):
        interpret(func(loop(i, 1000, Evaluate(const(0))), A), a, max_steps=100)
    with pytest.raises(InterpretError, match="an assertion failed: too small"):
        interpret(func(AssertStmt(const(False), "too small", Evaluate(const(0))), A), a)
    unknown = Call("tir.call_extern", (StringImm("root"), A[0]), "float32")
    with pytest.raises(InterpretError, match="tir.call_extern"):
        interpret(func(Evaluate(unknown), A), a)
    a[0] = 9
    interpret(func(BufferStore(A, unknown, (const(1),)), A), a, externs={"root": np.sqrt})
    assert a[1] == 3
    with pytest.raises(InterpretError, match="no value"):
        interpret(func(BufferStore(A, const(0.0), (Var("nowhere") + 1,)), A), a)


def test_init_runs_at_the_start_of_the_domain() -> None:
    A, S = decl_buffer((5,), "int32", "A"), decl_buffer((), "int32", "S")
    vk, k = Var("vk"), Var("k")
    block = Block(
        (IterVar(Range.from_min_extent(2, 3), vk, "reduce"),), (), (), "S",
        BufferStore(S, S[()] + A[vk], ()), BufferStore(S, const(100), ()),
    )  # fmt: skip
    a, s = np.arange(5, dtype="int32"), np.zeros((), "int32")
    interpret(func(loop(k, 3, BlockRealize((k + 2,), TRUE, block)), A, S), a, s)
    assert s == 109
