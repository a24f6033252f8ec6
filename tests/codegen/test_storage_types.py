"""Storage types: integers of 2 and 4 bits and floats of 8, against ml_dtypes and against programs on whole bytes."""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen.lower import lower
from tilewright.schedule import Schedule, Trace
from tilewright.tir import InterpretError, interpret, parse
from tilewright.tir.expr.dtype import DType, float8_from_bits, float8_to_bits, pack, unpack

PACKED = ("int4", "uint4", "int2", "uint2")
FLOATS = ("float8_e4m3fn", "float8_e5m2")
SIZES = (1, 2, 3, 4, 7, 8, 13, 16, 17, 33, 64)


def numbers(dtype, shape, seed=0):
    low, high = (int(f) for f in (tw.tir.expr.min_value(dtype), tw.tir.expr.max_value(dtype)))
    return np.random.default_rng(seed).integers(low, high + 1, shape).astype(np.int32)


def interpreted(tensors, *arrays):
    interpret(te.create_prim_func(tensors), *arrays)


@pytest.mark.parametrize("dtype", FLOATS)
def test_float8_is_that_of_ml_dtypes(dtype):
    types = pytest.importorskip("ml_dtypes")
    kind = getattr(types, dtype)
    every = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(float8_from_bits(every, dtype), every.view(kind).astype(np.float32))
    halves = np.arange(1 << 16, dtype=np.uint32) << 16
    x = np.concatenate([halves, halves + 1, halves - np.uint32(1), halves + 0x8000]).view(np.float32)
    with np.errstate(invalid="ignore"):
        want = x.astype(kind)
    np.testing.assert_array_equal(float8_from_bits(float8_to_bits(x, dtype), dtype), want.astype(np.float32))

    n = len(x)
    A = te.placeholder((n,), "float32", name="A")
    B = te.compute((n,), lambda i: A[i].astype(dtype), name="B")
    got = np.zeros(n, np.uint8)
    tw.build([A, B])(x, got)
    real = ~np.isnan(x)
    np.testing.assert_array_equal(got.view(kind).astype(np.float32), want.astype(np.float32))
    assert (got[real] >> 7 == np.signbit(x[real])).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("wide", ["float32", "float16", "bfloat16", "float64", "int32"])
def test_each_float8_is_read_and_written(dtype, wide):
    types = pytest.importorskip("ml_dtypes")
    kind = getattr(types, dtype)
    every = np.arange(256, dtype=np.uint8)
    A = te.placeholder((256,), dtype, name="A")
    B = te.compute((256,), lambda i: A[i].astype(wide), name="B")
    C = te.compute((256,), lambda i: B[i].astype("float32").astype(dtype), name="C")
    with np.errstate(invalid="ignore"):
        want = every.view(kind).astype(np.float32)
        if wide == "int32":
            want = np.nan_to_num(want.astype(np.float64), posinf=2.0**31 - 1, neginf=-(2.0**31)).astype(np.int32)
        want = want.astype(np.float32).astype(kind).astype(np.float32)
    for given in (every, every.view(kind)):
        got = np.zeros(256, np.uint8)
        tw.build([A, C])(given, got)
        np.testing.assert_array_equal(got.view(kind).astype(np.float32), want)
    slow = np.zeros(256, np.uint8)
    interpreted([A, C], every, slow)
    np.testing.assert_array_equal(slow, got)
    made = tw.build([A, C])(every.view(kind))
    assert made.dtype == kind and (made.view(np.uint8) == got).all()
    assert tw.build([A, C])(every).dtype == np.uint8


@pytest.mark.parametrize("dtype", PACKED)
@pytest.mark.parametrize("n", SIZES)
def test_rows_of_few_bits(dtype, n):
    x = numbers(dtype, (3, n), n)
    data = pack(x, dtype)
    assert data.shape == (3, -(-n // DType(dtype).per_byte))
    np.testing.assert_array_equal(unpack(data, dtype, n), x)
    A = te.placeholder((3, n), dtype, name="A")
    B = te.compute((3, n), lambda i, j: A[i, j].astype("int32") * 3 + 1, name="B")
    got = tw.build([A, B])(data)
    np.testing.assert_array_equal(got, x * 3 + 1)
    slow = np.zeros((3, n), np.int32)
    interpreted([A, B], data, slow)
    np.testing.assert_array_equal(slow, x * 3 + 1)


@pytest.mark.parametrize("dtype", PACKED)
@pytest.mark.parametrize("n", SIZES)
def test_written_rows_of_few_bits(dtype, n):
    a, b = numbers(dtype, (3, n), n), numbers(dtype, (3, n), n + 1)
    A, B = (te.placeholder((3, n), dtype, name=name) for name in "AB")
    C = te.compute((3, n), lambda i, j: (A[i, j].astype("int32") + B[i, j].astype("int32")).astype(dtype), name="C")
    want = pack(a + b, dtype)
    np.testing.assert_array_equal(tw.build([A, B, C])(pack(a, dtype), pack(b, dtype)), want)
    slow = np.full(want.shape, 0xA5, np.uint8)
    interpreted([A, B, C], pack(a, dtype), pack(b, dtype), slow)
    np.testing.assert_array_equal(slow, want)


@pytest.mark.parametrize("dtype", PACKED)
def test_every_integer_and_fraction_is_converted(dtype):
    whole = np.arange(-300, 300, dtype=np.int32)
    A = te.placeholder((600,), "int32", name="A")
    B = te.compute((600,), lambda i: A[i].astype(dtype), name="B")
    np.testing.assert_array_equal(tw.build([A, B])(whole), pack(whole, dtype))
    x = np.concatenate([np.linspace(-20, 20, 599), [np.nan]]).astype(np.float32)
    X = te.placeholder((600,), "float32", name="X")
    Y = te.compute((600,), lambda i: X[i].astype(dtype), name="Y")
    low, high = tw.tir.expr.min_value(dtype), tw.tir.expr.max_value(dtype)
    want = np.trunc(np.clip(np.nan_to_num(x), low, high)).astype(np.int32)
    np.testing.assert_array_equal(tw.build([X, Y])(x), pack(want, dtype))


@pytest.mark.parametrize("dtype", PACKED)
def test_vectors_of_few_bits(dtype):
    n = 64
    x = numbers(dtype, (5, n))
    A = te.placeholder((5, n), dtype, name="A")
    B = te.compute((5, n), lambda i, j: A[i, j].astype("float32"), name="B")
    for lanes in (2, 4, 8, 16, 32):
        sch = Schedule(te.create_prim_func([A, B]))
        i, j = sch.get_loops(sch.get_block("B"))
        _, inner = sch.split(j, [None, lanes])
        sch.vectorize(inner)
        sch.parallel(i)
        got = np.zeros((5, n), np.float32)
        tw.build(sch)(pack(x, dtype), got)
        np.testing.assert_array_equal(got, x)


@pytest.mark.parametrize("dtype", PACKED)
def test_parallel_loops_do_not_share_a_byte(dtype):
    n = 1001
    x = numbers("int4", (n,)) % 4
    A = te.placeholder((n,), "int32", name="A")
    B = te.compute((n,), lambda i: A[i].astype(dtype), name="B")
    sch = Schedule(te.create_prim_func([A, B]))
    sch.parallel(sch.get_loops(sch.get_block("B"))[0])
    f = tw.build(sch, target="native -num-cores=2")
    for _ in range(20):
        np.testing.assert_array_equal(f(x.astype(np.int32)), pack(x, dtype))


def test_vectors_by_hand():
    func = parse(
        """
@T.prim_func
def vec(A: T.Buffer((3, 24), "int4"), B: T.Buffer((3, 24), "int32"), C: T.Buffer((3, 24), "uint2")):
    for i in range(3):
        with T.block("B"):
            vi = T.axis.spatial(3, i)
            T.reads(A[vi, 0:24])
            T.writes(B[vi, 0:24], C[vi, 0:24])
            for j in range(3):
                B[vi, j * 8:j * 8 + 8] = T.Cast("int32x8", A[vi, j * 8:j * 8 + 8])
                C[vi, j * 8:j * 8 + 8] = T.Cast("uint2x8", T.Cast("int32x8", A[vi, j * 8:j * 8 + 8]))
"""
    )
    x = numbers("int4", (3, 24))
    for run in (tw.build(func), lambda *args: interpret(func, *args)):
        b, c = np.zeros((3, 24), np.int32), np.zeros((3, 6), np.uint8)
        run(pack(x, "int4"), b, c)
        np.testing.assert_array_equal(b, x)
        np.testing.assert_array_equal(c, pack(x, "uint2"))


@pytest.mark.parametrize("dtype", PACKED)
def test_a_gather_of_few_bits(dtype):
    rows, n = 9, 13
    x, at = numbers(dtype, (rows, n)), np.array([8, 0, 3, 3, 7], np.int32)
    A, at_row = te.placeholder((rows, n), dtype, name="A"), te.placeholder((5,), "int32", name="at_row")
    B = te.compute((5, n), lambda i, j: A[at_row[i], n - 1 - j].astype("int32"), name="B")
    C = te.compute((n, 5), lambda j, i: A[at_row[i], (j * 3) % n].astype("int32"), name="C")
    np.testing.assert_array_equal(tw.build([A, at_row, B])(pack(x, dtype), at), x[at][:, ::-1])
    np.testing.assert_array_equal(tw.build([A, at_row, C])(pack(x, dtype), at), x[at][:, np.arange(n) * 3 % n].T)


@pytest.mark.parametrize("dtype", [*PACKED, *FLOATS])
def test_products_with_stored_weights(dtype):
    wide = "float32" if dtype in FLOATS else "int32"
    rng = np.random.default_rng(5)
    m, n, k = 7, 33, 45
    x = rng.integers(-4, 5, (m, k)).astype(wide)
    if dtype in FLOATS:
        data = float8_to_bits(rng.integers(-8, 9, (n, k)).astype(np.float32), dtype)
        w = float8_from_bits(data, dtype)
    else:
        w = numbers(dtype, (n, k))
        data = pack(w, dtype)
    X, W = te.placeholder((m, k), wide, name="X"), te.placeholder((n, k), dtype, name="W")
    r = te.reduce_axis((0, k), name="r")
    Y = te.compute((m, n), lambda i, j: te.sum(X[i, r] * W[j, r].astype(wide), axis=r), name="Y")
    np.testing.assert_array_equal(tw.build([X, W, Y])(x, data), x @ w.T)
    V = te.compute((n, k), lambda i, j: W[i, j].astype(wide), name="V")
    Z = te.compute((m, n), lambda i, j: te.sum(X[i, r] * V[j, r], axis=r), name="Z")
    np.testing.assert_array_equal(tw.build([X, W, Z])(x, data), x @ w.T)


@pytest.mark.parametrize("dtype", PACKED)
def test_stages_and_choices_keep_numbers(dtype):
    n = 21
    x = numbers(dtype, (4, n))
    A = te.placeholder((4, n), dtype, name="A")
    S = te.compute(
        (4, n + 2), lambda i, j: te.if_then_else(j < n, A[i, te.min(j, n - 1)], te.const(1, dtype)), name="S"
    )
    B = te.compute((n + 2, 4), lambda i, j: S[j, i], name="B")
    want = np.concatenate([x, np.ones((4, 2), np.int32)], axis=1).T
    np.testing.assert_array_equal(tw.build([A, B])(pack(x, dtype)), pack(want, dtype))
    func = te.create_prim_func([A, B])
    again = parse(func.script())
    assert tw.tir.structural_equal(func, again)
    sch = Schedule(func)
    sch.cache_read(sch.get_block("S"), 0, "local")
    np.testing.assert_array_equal(tw.build(sch)(pack(x, dtype)), pack(want, dtype))
    slow = np.zeros((n + 2, -(-4 // DType(dtype).per_byte)), np.uint8)
    interpret(sch.func, pack(x, dtype), slow)
    np.testing.assert_array_equal(slow, pack(want, dtype))


def test_symbolic_rows():
    m, n = te.var("m"), te.var("n")
    A, B = te.placeholder((m, n), "int4", name="A"), te.placeholder((m, n), "int32", name="B")
    C = te.compute((m, n), lambda i, j: A[i, j].astype("int32") + B[i, j], name="C")
    f = tw.build([A, B, C])
    for size in range(20):
        x, y = numbers("int4", (3, size), size), numbers("int4", (3, size), size + 1)
        np.testing.assert_array_equal(f(pack(x, "int4"), y), x + y)
    k = te.reduce_axis((0, n), name="k")
    D = te.compute((m,), lambda i: te.sum(A[i, k].astype("int32"), axis=k), name="D")
    with pytest.raises(ValueError, match="size n"):
        tw.build([A, D])(np.zeros((3, 2), np.uint8), np.zeros(3, np.int32))
    with pytest.raises(InterpretError, match="size n"):
        interpreted([A, D], np.zeros((3, 2), np.uint8), np.zeros(3, np.int32))


def test_partial_writes_keep_the_other_numbers():
    func = parse(
        """
@T.prim_func
def some(A: T.Buffer((3,), "int4"), B: T.Buffer((7,), "int4")):
    for i in range(3):
        with T.block("B"):
            vi = T.axis.spatial(3, i)
            B[vi * 2] = A[vi]
"""
    )
    a, b = np.array([1, -2, 3]), np.array([7, 6, 5, 4, 3, 2, 1])
    want = b.copy()
    want[:6:2] = a
    for run in (tw.build(func), lambda *args: interpret(func, *args)):
        out = pack(b, "int4")
        run(pack(a, "int4"), out)
        np.testing.assert_array_equal(out, pack(want, "int4"))


@pytest.mark.parametrize("dtype", [*PACKED, *FLOATS])
def test_arithmetic_is_refused(dtype):
    A = te.placeholder((4,), dtype, name="A")
    wide = "float32" if dtype in FLOATS else "int32"
    for f in (
        lambda x: x + x, lambda x: x * 2, lambda x: -x, lambda x: x < x, te.abs, lambda x: x == x, lambda x: x % 3
    ):  # fmt: skip
        with pytest.raises(TypeError, match=f"of {dtype}, which only keeps numbers; write .astype..{wide}"):
            te.compute((4,), lambda i, f=f: f(A[i]), name="B")
    k = te.reduce_axis((0, 4), name="k")
    with pytest.raises(TypeError, match="only keeps numbers"):
        te.compute((1,), lambda i: te.sum(A[k], axis=k), name="B")


@pytest.mark.parametrize("dtype", PACKED)
@pytest.mark.parametrize("columns", [1, 4, 5, 8])
def test_numbers_of_a_byte_each_are_packed_at_the_call(dtype, columns):
    A = te.placeholder((3, columns), dtype, name="A")
    f = tw.build([A, te.compute((3, columns), lambda i, j: A[i, j].astype("int32"), name="B")])
    x = numbers(dtype, (3, columns))
    np.testing.assert_array_equal(f(x.astype(np.int8)), x)
    np.testing.assert_array_equal(f(te.pack(x, dtype)), x)
    if dtype.startswith("u") and columns > 1:
        np.testing.assert_array_equal(f(x.astype(np.uint8)), x)
    with pytest.raises(ValueError, match=f"expected {columns} numbers of {dtype} in a row, got {columns + 1}"):
        f(np.zeros((3, columns + 1), np.int8))
    x = np.zeros((3, columns), np.int8)
    x[1, 0] = 100
    with pytest.raises(ValueError, match=f"100 is outside of {dtype}"):
        f(x)


def test_results_of_few_bits_are_given_as_bytes():
    A = te.placeholder((6,), "int32", name="A")
    f = tw.build([A, te.compute((6,), lambda i: A[i].astype("int4"), name="B")])
    with pytest.raises(ValueError, match="written to as bytes, 2 numbers in each"):
        f(np.zeros(6, np.int32), np.zeros(6, np.int8))


def test_arguments_are_told_how_to_be_packed():
    types = pytest.importorskip("ml_dtypes")
    A = te.placeholder((3, 5), "int4", name="A")
    B = te.compute((3, 5), lambda i, j: A[i, j].astype("int32"), name="B")
    f = tw.build([A, B])
    with pytest.raises(ValueError, match=r'te.pack\(array, "int4"\)'):
        f(np.zeros((3, 5), np.int16))
    x = numbers("int4", (3, 5)).astype(types.int4)
    for given in (x, te.pack(x, "int4")):
        np.testing.assert_array_equal(f(given), x.astype(np.int32))
    with pytest.raises(ValueError, match="expected 3 in dimension 1, got 5"):
        f(np.zeros((3, 5), np.uint8))
    with pytest.raises(ValueError, match=r"A: uint8\[3, 3\] \(int4\)"):
        f(np.zeros((3, 3), np.float32))
    E = te.placeholder((4,), "float8_e5m2", name="E")
    F = te.compute((4,), lambda i: E[i].astype("float32"), name="F")
    with pytest.raises(ValueError, match="ml_dtypes.float8_e5m2"):
        tw.build([E, F])(np.zeros(4, types.float8_e4m3fn))


def test_views_and_addresses_of_shared_bytes_are_refused():
    strided = parse(
        """
@T.prim_func
def some(a: T.handle, B: T.Buffer((7,), "int32")):
    A = T.match_buffer(a, (7,), "int4", strides=(2,))
    for i in range(7):
        with T.block("B"):
            vi = T.axis.spatial(7, i)
            B[vi] = T.Cast("int32", A[vi])
"""
    )
    with pytest.raises(ValueError, match="has strides"):
        lower(strided, "native")


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is needed")
@pytest.mark.parametrize("dtype", [*PACKED, *FLOATS])
@pytest.mark.parametrize(
    "target", ["native", "c", "c -openmp -num-cores=2", "c -vector-extensions", "c -mcpu=cortex-m7"]
)
def test_c_reads_and_writes_them(dtype, target, tmp_path):
    n, wide = 37, "float32" if dtype in FLOATS else "int32"
    data = np.random.default_rng(2).integers(0, 256, (5, -(-n // DType(dtype).per_byte))).astype(np.uint8)
    A = te.placeholder((5, n), dtype, name="A")
    B = te.compute((5, n), lambda i, j: (A[i, j].astype(wide) + te.const(1, wide)).astype(dtype), name="B")
    module = tw.build([A, B])
    want = module(data)
    source, library = tmp_path / "k.c", tmp_path / "k.so"
    tw.build([A, B], target=target).export(source)
    subprocess.run(
        [
            "gcc",
            "-O2",
            *["-fopenmp"] * ("openmp" in target),
            "-march=native",
            "-shared",
            "-fPIC",
            "-o",
            library,
            source,
            "-lm",
        ],
        check=True,
    )
    got = np.zeros_like(want)
    run = ctypes.CDLL(str(library)).kernel
    assert run(data.ctypes.data_as(ctypes.c_void_p), got.ctypes.data_as(ctypes.c_void_p)) == 0
    if dtype in FLOATS:
        want, got = float8_from_bits(want, dtype), float8_from_bits(got, dtype)
    np.testing.assert_array_equal(got, want)
    assert dtype in (tmp_path / "k.h").read_text()


@pytest.mark.parametrize("dtype", PACKED)
def test_symbolic_rows_are_written(dtype):
    n = te.var("n")
    A = te.placeholder((3, n), "int32", name="A")
    B = te.compute((3, n), lambda i, j: A[i, j].astype(dtype), name="B")
    f = tw.build([A, B])
    for size in (0, 1, 2, 3, 5, 31, 64, 67, 130):
        x = numbers(dtype, (3, size), size)
        np.testing.assert_array_equal(f(x), pack(x, dtype))


@pytest.mark.parametrize("shape", [(), (1,), (0,), (0, 5), (2, 0), (2, 3, 129)])
@pytest.mark.parametrize("dtype", PACKED)
def test_shapes_of_few_elements(dtype, shape):
    x = numbers(dtype, shape)
    A = te.placeholder(shape, dtype, name="A")
    B = te.compute(shape, lambda *i: A(*i).astype("int32"), name="B")
    C = te.compute(shape, lambda *i: B(*i).astype(dtype), name="C")
    data = np.asarray(pack(x, dtype), order="C")
    got, again = np.zeros(shape, np.int32), np.zeros_like(data)
    tw.build([A, B, C])(data, got, again)
    np.testing.assert_array_equal(got, x)
    np.testing.assert_array_equal(again, data)


@pytest.mark.parametrize("dtype", [*PACKED, *FLOATS])
def test_kernels_of_a_gpu_read_them(dtype):
    wide, n = "float32" if dtype in FLOATS else "int32", 33
    x = numbers("int2" if dtype in FLOATS else dtype, (8, n))
    data = float8_to_bits(x.astype(np.float32), dtype) if dtype in FLOATS else pack(x, dtype)
    A = te.placeholder((8, n), dtype, name="A")
    B = te.compute((8, n), lambda i, j: A[i, j].astype(wide), name="B")
    C = te.compute((8, n), lambda i, j: A[i, j].astype(wide).astype(dtype), name="C")
    made = []
    for out in (B, C):
        sch = Schedule(te.create_prim_func([A, out]))
        for loop, axis in zip(sch.get_loops(out.op.name), ("blockIdx.x", "threadIdx.x"), strict=True):
            sch.bind(loop, axis)
        made.append(sch)
    got = np.zeros((8, n), wide)
    tw.build(made[0], "gpu-sim")(data, got)
    np.testing.assert_array_equal(got, x)
    if dtype in FLOATS:
        again = np.zeros_like(data)
        tw.build(made[1], "gpu-sim")(data, again)
        np.testing.assert_array_equal(again, data)
    else:
        with pytest.raises(ValueError, match="without bound threads"):
            tw.build(made[1], "gpu-sim")


def random_program(rng, dtype):
    """Return a te program over a packed tensor, the same over int8, and the shape of the packed one."""
    m, n = (int(v) for v in rng.integers(1, 40, 2))
    kinds = rng.integers(0, 4, 3)
    shift, step = int(rng.integers(0, n)), int(rng.integers(1, 5))
    out = str(rng.choice(PACKED)) if rng.random() < 0.4 else "int32"

    def program(A):
        def value(i, j):
            v = A[i, (j * step + shift) % n].astype("int32")
            if kinds[0] == 1:
                v = v * A[i, n - 1 - j].astype("int32")
            if kinds[0] == 2:
                v = te.if_then_else(j >= shift, A[i, te.max(j - shift, 0)].astype("int32") - v, v)
            if kinds[0] == 3:
                v = te.select(A[i, j].astype("int32") > 0, A[i, j], te.const(1, A.dtype)).astype("int32") + v
            return v

        S = te.compute((m, n), value, name="S")
        if kinds[1] == 1:
            k = te.reduce_axis((0, n), name="k")
            S2 = te.compute((m, m), lambda i, j: te.sum(S[i, k] * A[j, k].astype("int32"), axis=k), name="S2")
        elif kinds[1] == 2:
            S2 = te.compute((n, m), lambda j, i: S[i, j], name="S2")
        else:
            S2 = S
        return [A, te.compute(S2.shape, lambda i, j: (S2[i, j] + 1).astype(out), name="R")]

    return program, (m, n), out


@pytest.mark.parametrize("seed", range(24))
def test_random_programs_compute_as_on_whole_bytes(seed):
    rng = np.random.default_rng(seed)
    dtype = PACKED[seed % 4]
    program, shape, out = random_program(rng, dtype)
    x = numbers(dtype, shape, seed)
    narrow, wide = (program(te.placeholder(shape, t, name="A")) for t in (dtype, "int8"))
    want = tw.build(wide)(x.astype(np.int8))
    got = tw.build(narrow)(pack(x, dtype))
    np.testing.assert_array_equal(got, want)
    plain = lower(te.create_prim_func(narrow), "native")
    np.testing.assert_array_equal(tw.build(plain.scheduled)(pack(x, dtype)), want)
    slow = np.zeros(got.shape, got.dtype)
    interpreted(narrow, pack(x, dtype), slow)
    np.testing.assert_array_equal(slow, want)


def test_few_bits_are_tuned():
    X, W = te.placeholder((4, 64), "float32", name="X"), te.placeholder((48, 64), "int4", name="W")
    r = te.reduce_axis((0, 64), name="r")
    Y = te.compute((4, 48), lambda i, j: te.sum(X[i, r] * W[j, r].astype("float32"), axis=r), name="Y")
    Z = te.compute((4, 48), lambda i, j: Y[i, j].astype("uint2"), name="Z")
    E = te.compute((4, 48), lambda i, j: Y[i, j].astype("float8_e4m3fn"), name="E")
    tuned = tw.tune([X, W, Z, E], trials=4)
    assert tuned.best is not None, tuned.problem
    assert not tuned.failures
    sch = Schedule(tuned.func)
    Trace.apply_json_to_schedule(tuned.best.trace, sch)
    x, w = np.random.default_rng(0).integers(-3, 4, (4, 64)).astype(np.float32), numbers("int4", (48, 64))
    y = x @ w.T.astype(np.float32)
    z, e = tw.build(sch)(x, pack(w, "int4"))
    np.testing.assert_array_equal(z, pack(np.clip(y, 0, 3).astype(np.int32), "uint2"))
    np.testing.assert_array_equal(
        float8_from_bits(e, "float8_e4m3fn"), float8_from_bits(float8_to_bits(y, "float8_e4m3fn"), "float8_e4m3fn")
    )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("library", ["torch", "jax.numpy"])
def test_arrays_of_other_libraries(dtype, library):
    module = pytest.importorskip(library)
    A = te.placeholder((8,), dtype, name="A")
    B = te.compute((8,), lambda i: A[i].astype("float32") * 2, name="B")
    C = te.compute((8,), lambda i: B[i].astype(dtype), name="C")
    x = module.arange(8)
    x = x.float().to(getattr(module, dtype)) if library == "torch" else x.astype(dtype)
    b, c = tw.build([A, B, C])(x)
    assert c.dtype == x.dtype and type(c) is type(x)
    assert (
        b.tolist() == (c.float() if library == "torch" else c.astype("float32")).tolist() == [2.0 * i for i in range(8)]
    )


@pytest.mark.parametrize("dtype", [*PACKED, *FLOATS])
def test_constant_operands_are_packed_ahead(dtype):
    m, n, k = 16, 65, 47
    X, W = te.placeholder((m, k), "float32", name="X"), te.placeholder((n, k), dtype, name="W")
    r = te.reduce_axis((0, k), name="r")
    Y = te.compute(
        (m, n), lambda i, j: te.sum(X[i, r] * W[j, r].astype("float32"), axis=r), name="Y",
        attrs={"layout_free_placeholders": [W]},
    )  # fmt: skip
    x, w = np.random.default_rng(0).integers(-3, 4, (m, k)).astype(np.float32), numbers("int2", (n, k))
    w = numbers(dtype, (n, k)) if dtype in PACKED else w
    f = tw.build([X, W, Y])
    packed = f.pack_weights(pack(w, dtype) if dtype in PACKED else float8_to_bits(w.astype(np.float32), dtype))
    np.testing.assert_array_equal(f(x, packed), x @ w.T)
