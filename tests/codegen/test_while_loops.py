"""`while` in machine code and in C: both do what the interpreter does."""

import ctypes
import re
import shutil
import subprocess

import numpy as np
import pytest

from tilewright.codegen import Target, compile, lower
from tilewright.codegen.runtime.arguments import Arguments, c_types
from tilewright.schedule import Schedule
from tilewright.tir import parse
from tilewright.tir.interpret import interpret

COLLATZ = """
@T.prim_func
def f(A: T.Buffer((17,), "int32"), B: T.Buffer((17,), "int32")):
    for i in LOOP(17):
        with T.block("B"):
            vi = T.axis.spatial(17, i)
            n = T.alloc_buffer((1,), "int32")
            n[0] = T.abs(A[vi]) % 97 + 1
            B[vi] = 0
            while n[0] > 1:
                n[0] = T.if_then_else(n[0] % 2 == 0, n[0] // 2, n[0] * 3 + 1)
                B[vi] = B[vi] + 1
"""
CASES = {
    **{f"steps of Collatz, {loop}": COLLATZ.replace("LOOP", loop)
       for loop in ("range", "T.parallel", "T.vectorized", "T.unroll")},
    "a square root by Newton's iteration": """
@T.prim_func
def f(A: T.Buffer((13,), "float64"), B: T.Buffer((13,), "float64")):
    for i in range(13):
        with T.block("B"):
            vi = T.axis.spatial(13, i)
            x = T.alloc_buffer((2,), "float64")
            x[0] = 0.0
            x[1] = T.abs(A[vi]) + 1.0
            while T.abs(x[0] - x[1]) > 1e-12 * x[1]:
                x[0] = x[1]
                x[1] = (x[0] + (T.abs(A[vi]) + 1.0) / x[0]) * 0.5
            B[vi] = x[1]
""",
    "a binary search": """
@T.prim_func
def f(W: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32")):
    S = T.alloc_buffer((16,), "int32")
    for i in range(16):
        with T.block("S"):
            vi = T.axis.spatial(16, i)
            S[vi] = vi * vi - 30
    for i in T.parallel(16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            lo = T.alloc_buffer((1,), "int32")
            hi = T.alloc_buffer((1,), "int32")
            lo[0] = 0
            hi[0] = 16
            while lo[0] < hi[0]:
                mid: T.int32 = (lo[0] + hi[0]) // 2
                if S[mid] < W[vi] % 100:
                    lo[0] = mid + 1
                else:
                    hi[0] = mid
            B[vi] = lo[0]
""",
    "a condition that is false at first": """
@T.prim_func
def f(A: T.Buffer((7,), "int32"), B: T.Buffer((7,), "int32")):
    for i in range(7):
        while A[i] != A[i]:
            B[i] = 1
        while False:
            B[i] = 2
""",
    "one inside the other, with loops around and inside": """
@T.prim_func
def f(B: T.Buffer((7, 16), "int32"), N: T.Buffer((7,), "int32")):
    for i in range(7):
        N[i] = i
        while N[i] > 0:
            for v in T.vectorized(16):
                B[i, v] = B[i, v] + N[i]
            for u in T.unroll(2):
                while B[i, u] % 4 != u:
                    B[i, u] = B[i, u] + 1
            N[i] = N[i] - 1
""",
    "what an iteration leaves in scratch memory, the next one reads": """
@T.prim_func
def f(A: T.Buffer((1,), "int32"), B: T.Buffer((8,), "int32")):
    s = T.alloc_buffer((8,), "int32")
    A[0] = 0
    while A[0] < 5:
        for k in range(8):
            if A[0] == 0:
                s[k] = k
            else:
                s[k] = s[k] + s[(k + 1) % 8]
            B[k] = s[k]
        A[0] = A[0] + 1
""",
    "an array whose window moves": """
@T.prim_func
def f(A: T.Buffer((1,), "int32"), B: T.Buffer((8,), "int32")):
    s = T.alloc_buffer((8,), "int32")
    A[0] = 0
    while A[0] < 8:
        at: T.int32 = A[0]
        s[at] = at * 3
        A[0] = at + 1
        if at < A[0]:
            B[at] = s[0] + s[at]
""",
    "a tile of values in registers": """
@T.prim_func
def f(X: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    acc = T.alloc_buffer((2, 8), "float32", scope="local")
    for u in T.unroll(2):
        for v in T.vectorized(8):
            acc[u, v] = T.abs(X[u * 8 + v]) + T.float32(1)
    while acc[0, 0] < T.float32(100):
        for u in T.unroll(2):
            for v in T.vectorized(8):
                acc[u, v] = acc[u, v] * T.float32(2)
    for u in T.unroll(2):
        for v in T.vectorized(8):
            B[u * 8 + v] = acc[u, v]
""",
    "bounds of loops that change meanwhile": """
@T.prim_func
def f(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
    A[0] = 4
    B[0] = 0
    while A[0] > 0:
        for k in range(A[0]):
            A[0] = A[0] - 1
            if k < A[0]:
                B[0] = B[0] + 1
""",
    "blocks below, a reduction among them": """
@T.prim_func
def f(A: T.Buffer((13,), "int32"), B: T.Buffer((1,), "int32"), N: T.Buffer((1,), "int32")):
    N[0] = 0
    while N[0] < 3:
        for k in range(13):
            with T.block("sum"):
                vi = T.axis.spatial(1, 0)
                vk = T.axis.reduce(13, k)
                with T.init():
                    B[vi] = N[vi]
                B[vi] = B[vi] + A[vk] % 5
        N[0] = N[0] + 1
""",
    "a counter of its own in a block below": """
@T.prim_func
def f(A: T.Buffer((2,), "int32"), B: T.Buffer((17,), "int32")):
    A[0] = 3
    while A[0] > 0:
        for i in T.parallel(17):
            with T.block("B"):
                vi = T.axis.spatial(17, i)
                n = T.alloc_buffer((1,), "int32")
                n[0] = vi
                while n[0] % 7 != 0 and n[0] < 40:
                    n[0] = n[0] + 1
                B[vi] = B[vi] + n[0]
        A[0] = A[0] - 1
""",
}  # fmt: skip


def arguments(func):
    rng = np.random.default_rng(0)
    shapes = [([int(e) for e in b.shape], b.dtype) for b in func.buffers]
    return [(rng.integers(-99, 100, shape)).astype(dtype) for shape, dtype in shapes]


def from_c(module, folder, args):
    (folder / "f.c").write_text(module.get_source("c"))
    command = ["gcc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-march=native", "-fopenmp", "-o",
               str(folder / "f.so"), str(folder / "f.c"), "-lm"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    function = ctypes.CDLL(str(folder / "f.so")).f
    values, _ = Arguments("f", module["f"].params).prepare(args)
    function.argtypes = c_types(module["f"].params)
    assert function(*values) == 0


@pytest.mark.parametrize("name", CASES)
def test_machine_code_and_c_do_what_the_interpreter_does(name, tmp_path):
    func = parse(CASES[name])
    want, got = arguments(func), arguments(func)
    interpret(func, *want, check_regions=True)
    module = compile(func, "native -num-cores=2", "f")
    module(*got)
    for a, b in zip(want, got, strict=True):
        np.testing.assert_array_equal(b, a)
    if shutil.which("gcc"):
        got = arguments(func)
        from_c(module, tmp_path, got)
        for a, b in zip(want, got, strict=True):
            np.testing.assert_array_equal(b, a)


def test_what_a_while_holds_is_scheduled_and_computes_the_same():
    func = parse(COLLATZ.replace("LOOP", "range"))
    want = arguments(func)
    interpret(func, *want)
    sch = Schedule(func)
    (i,) = sch.get_loops("B")
    outer, inner = sch.split(i, [None, 4])
    sch.parallel(outer)
    sch.vectorize(inner)
    got = arguments(func)
    compile(sch.func, "native -num-cores=2", "f")(*got)
    np.testing.assert_array_equal(got[1], want[1])


def test_lowering_keeps_a_loop_of_vectors_serial_around_a_while():
    text = lower(parse(COLLATZ.replace("LOOP", "T.vectorized")), Target("llvm -mcpu=skylake-avx512")).func.script()
    assert "while" in text
    assert "x16" not in text and "vectorized" not in text


def test_loops_that_run_long_or_for_ever_are_not_run_by_the_compiler():
    func = parse("""
@T.prim_func
def f(A: T.Buffer((1,), "int64"), B: T.Buffer((1,), "int64")):
    n = T.alloc_buffer((1,), "int64")
    n[0] = T.int64(0)
    while n[0] < T.int64(1000000000000000):
        n[0] = n[0] + T.int64(1) + A[0]
    while True:
        B[0] = B[0] + n[0]
""")
    module = compile(func, "native", "f")
    assert re.search(r"br label %while", module.get_source("ll"))
    assert "while (" in module.get_source("c")


def test_a_while_that_nothing_leaves_is_no_code():
    func = parse("""
@T.prim_func
def f(A: T.Buffer((1,), "int32")):
    while 3 < 2:
        A[0] = 1
""")
    assert "while" not in lower(func, Target("llvm")).func.script()


def test_a_loop_around_a_while_is_not_unrolled_by_its_size():
    func = parse("""
@T.prim_func
def f(A: T.Buffer((4,), "int32")):
    for i in T.serial(4, annotations={"pragma_auto_unroll_max_step": 64}):
        while A[i] > 0:
            A[i] = A[i] - 1
""")
    assert lower(func, Target("llvm")).func.script().count("while") == 1
