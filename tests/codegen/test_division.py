"""Integer division and shifts have one meaning for all operands, in the interpreter, in machine code and in C.

A quotient and a remainder by zero are 0, the smallest number divided by -1 is itself, and a shift by all bits or more
leaves none: NumPy's results, which are the oracle.
"""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import Target, compile, lower
from tilewright.codegen.llvm.emit import emit
from tilewright.schedule import Schedule
from tilewright.tir.analysis.simplify import simplify
from tilewright.tir.interpret import interpret
from tilewright.tir.parser import parse

NATIVE = "native -num-cores=1"
TYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
OPERATIONS = {
    "floordiv": (te.floordiv, lambda a, b: a // b),
    "floormod": (te.floormod, lambda a, b: a % b),
    "truncdiv": (te.truncdiv, lambda a, b: a // b + ((a % b != 0) & ((a < 0) != (b < 0))).astype(a.dtype)),
    "truncmod": (te.truncmod, np.fmod),
    "shift_left": (te.shift_left, np.left_shift),
    "shift_right": (te.shift_right, np.right_shift),
}


def edges(dtype):
    info = np.iinfo(dtype)
    some = {info.min, info.min + 1, -7, -3, -1, 0, 1, 2, 3, 7, 8, 16, 31, 32, 63, 64, info.max - 1, info.max}
    return sorted(v for v in some if info.min <= v <= info.max)


def pairs(dtype):
    both = np.array(list(itertools.product(edges(dtype), repeat=2)), dtype)
    return np.ascontiguousarray(both[:, 0]), np.ascontiguousarray(both[:, 1])


def all_operations(dtype, n, vector):
    """O_k[i] = A[i] op_k B[i]"""
    A, B = te.placeholder((n,), dtype, name="A"), te.placeholder((n,), dtype, name="B")
    outs = [te.compute((n,), lambda i, f=f: f(A[i], B[i]), name=name) for name, (f, _) in OPERATIONS.items()]
    sch = Schedule(te.create_prim_func([A, B, *outs]))
    for name in OPERATIONS if vector else ():
        sch.vectorize(sch.get_loops(name)[0])
    return sch


def check(call, dtype, a, b):
    outs = [np.full(len(a), 77, dtype) for _ in OPERATIONS]
    call(a, b, *outs)
    for (name, (_, numpy_has)), out in zip(OPERATIONS.items(), outs, strict=True):
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(out, numpy_has(a, b), err_msg=f"{name} of {dtype}")


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("vector", [False, True])
def test_every_operand(dtype, vector):
    a, b = pairs(dtype)
    sch = all_operations(dtype, len(a), vector)
    check(lambda *args: interpret(sch.func, *args), dtype, a, b)
    check(lambda *args: interpret(lower(sch, NATIVE).func, *args), dtype, a, b)
    for target in (NATIVE, "llvm -mcpu=x86-64-v2 -num-cores=1"):
        check(compile(sch, target), dtype, a, b)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("vector", [False, True])
def test_every_operand_in_c(dtype, vector, through_c):
    a, b = pairs(dtype)
    check(through_c(all_operations(dtype, len(a), vector)), dtype, a, b)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
@pytest.mark.parametrize("name", ["floordiv", "floormod", "truncdiv", "truncmod"])
def test_constant_divisors(name, dtype):
    make, numpy_has = OPERATIONS[name]
    x = np.array(edges(dtype), dtype)
    info = np.iinfo(dtype)
    divisors = [info.min, info.min + 1, -7, -1, 1, 8, info.max]
    A = te.placeholder(x.shape, dtype, name="A")
    outs = [te.compute(x.shape, lambda i, c=c: make(A[i], te.const(c, dtype)), name="O") for c in divisors]
    sch = Schedule(te.create_prim_func([A, *outs]))
    for block in ("O", *[f"O_{k}" for k in range(1, len(outs))]):
        sch.vectorize(sch.get_loops(block)[0])
    for func in (sch.func, simplify(sch.func)):
        for call in (compile(func, NATIVE), lambda *args, f=func: interpret(f, *args)):
            got = [np.zeros_like(x) for _ in divisors]
            call(x, *got)
            for c, out in zip(divisors, got, strict=True):
                with np.errstate(all="ignore"):
                    want = numpy_has(x, np.full_like(x, c))
                np.testing.assert_array_equal(out, want, err_msg=f"{name} by {c}")


def test_division_by_the_constant_zero():
    func = parse("""
@T.prim_func
def f(A: T.Buffer((17,), "int32"), B: T.Buffer((17,), "int32")):
    for i in T.vectorized(17):
        B[i] = A[i] // 0 + A[i] % 0 + T.truncdiv(A[i], 0) + T.truncmod(A[i], 0) + i
""")
    for call in (compile(func, NATIVE), lambda *args: interpret(func, *args)):
        b = np.zeros(17, "int32")
        call(np.full(17, 5, "int32"), b)
        np.testing.assert_array_equal(b, np.arange(17))


@pytest.mark.parametrize("n", [1, 7, 13, 16, 17, 33])
@pytest.mark.parametrize("dtype", ["int32", "int8", "uint64"])
def test_masked_tails(n, dtype):
    """The lanes beyond the end hold zeros, which nothing divides by."""
    a, b = np.arange(n).astype(dtype) + 100, np.full(n, 2, dtype)
    A, B = te.placeholder((n,), dtype, name="A"), te.placeholder((n,), dtype, name="B")
    C = te.compute((n,), lambda i: A[i] // B[i] + A[i] % B[i], name="C")
    sch = Schedule(te.create_prim_func([A, B, C]))
    sch.vectorize(sch.get_loops("C")[0])
    c = np.zeros(n, dtype)
    compile(sch, NATIVE)(a, b, c)
    np.testing.assert_array_equal(c, a // b + a % b)


@pytest.mark.parametrize("choose", [te.if_then_else, te.select])
def test_guarded_division(choose, through_c):
    n = 33
    A, B = te.placeholder((n,), "int32", name="A"), te.placeholder((n,), "int32", name="B")
    C = te.compute((n,), lambda i: choose(B[i] != 0, A[i] // B[i], 7), name="C")
    sch = Schedule(te.create_prim_func([A, B, C]))
    sch.vectorize(sch.get_loops("C")[0])
    a, b = np.arange(n, dtype="int32") + 50, np.arange(n, dtype="int32") % 4
    want = np.where(b != 0, a // np.maximum(b, 1), 7)
    for call in (compile(sch, NATIVE), through_c(sch)):
        c = np.zeros(n, "int32")
        call(a, b, c)
        np.testing.assert_array_equal(c, want)


@pytest.mark.parametrize("n", [0, -1, 3])
def test_an_index_by_a_scalar(n, through_c):
    """No side is chosen by a branch that reads no memory, so the other side must not fault."""
    func = parse("""
@T.prim_func
def f(n: T.int32, B: T.Buffer((17,), "int32")):
    for i in range(17):
        B[i] = T.if_then_else(n > 0, i // n + i % n, 5)
""")
    i = np.arange(17)
    for call in (compile(func, NATIVE), through_c(func), lambda *args: interpret(func, *args)):
        b = np.zeros(17, "int32")
        call(n, b)
        np.testing.assert_array_equal(b, i // 3 + i % 3 if n == 3 else 5)


def test_a_factor_that_may_be_zero_is_not_divided_out():
    func = parse("""
@T.prim_func
def f(A: T.Buffer((17,), "int8"), B: T.Buffer((17,), "int32")):
    for i in range(17):
        B[i] = T.Cast("int32", A[i]) * i // T.Cast("int32", A[i]) + i % T.Cast("int32", A[i])
""")
    a, i = np.zeros(17, "int8"), np.arange(17)
    a[::2] = 3
    for f in (func, simplify(func)):
        b = np.zeros(17, "int32")
        interpret(f, a, b)
        np.testing.assert_array_equal(b, np.where(a == 3, i + i % 3, 0))


@pytest.mark.parametrize(
    "expression",
    ["A[v] // T.int32(3)", "A[v] % T.int32(-7)", "A[v] // T.max(B[v], 1)", "A[v] // (B[v] % 8 + 1)",
     'A[v] % (T.Cast("int32", C[v]) + 1)', "A[v] << (B[v] & 31)", "A[v] >> (32 - T.bitwise_and(B[v], 7) - 2)"],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["T.vectorized", "T.serial"])
def test_what_needs_no_care_gets_none(expression, kind):
    func = parse(f"""
@T.prim_func
def f(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32"), C: T.Buffer((16,), "uint8"), O: T.Buffer((16,), "int32")):
    for v in {kind}(16):
        O[v] = {expression}
""")
    text = emit(lower(func, Target("llvm -mcpu=x86-64-v3 -num-cores=1")))
    assert not re.search(r"select (<16 x )?i1>? %\w+, (<16 x i32> splat \(i32 1\)|i32 1),|umin|icmp ult", text), text


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("operation", ["truncdiv", "truncmod"])
@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
@pytest.mark.parametrize("cpu", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_products_of_a_few_bytes_divided_by_constants(dtype, operation, lanes, cpu):
    """LLVM 22 took the product of a reversed quotient of bytes for zero on AVX2."""
    divisors = [3, 8, 100, -7 if dtype == "int8" else 249]
    split, numpy_split = OPERATIONS[operation]
    A, B = te.placeholder((lanes,), dtype, name="A"), te.placeholder((4, lanes), dtype, name="B")
    rows = [
        te.compute((lanes,), lambda i, n=n, c=c: split(B[n, lanes - 1 - i], te.const(c, dtype)) * A[i], name=f"O{n}")
        for n, c in enumerate(divisors)
    ]
    sch = Schedule(te.create_prim_func([A, B, *rows]))
    for n in range(4):
        sch.vectorize(sch.get_loops(f"O{n}")[0])
    r = np.random.default_rng(lanes)
    ends = np.iinfo(dtype)
    a, b = (r.integers(ends.min, ends.max, shape, dtype, endpoint=True) for shape in (lanes, (4, lanes)))
    made = np.zeros((4, lanes), dtype)
    compile(sch, Target(f"llvm -mcpu={cpu} -num-cores=1"))(a, b, *made)
    by = np.array(divisors, "int64")[:, None]
    wanted = numpy_split(b[:, ::-1].astype("int64"), by) * a
    np.testing.assert_array_equal(made, wanted.astype(dtype))
