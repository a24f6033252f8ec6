"""C for microcontrollers: a static workspace of stated size, functions of its own in place of libm's, refusals."""

import ctypes
import re
import shutil
import subprocess

import numpy as np
import pytest

from tilewright.codegen import Target, lower
from tilewright.codegen.c import CEmitError, emit_c
from tilewright.codegen.runtime.arguments import Arguments, c_types
from tilewright.tir.interpret import interpret
from tilewright.tir.parser import parse

TARGET = Target("c -mcpu=cortex-m7")
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")

STAGES = """
@T.prim_func
def f(A: T.Buffer((16, 50), "float32"), B: T.Buffer((16, 50), "float32")):
    P = T.alloc_buffer((16, 50), "float32")
    Q = T.alloc_buffer((16, 50), "int32")
    R = T.alloc_buffer((16, 50), "float32")
    for i, j in T.grid(16, 50):
        with T.block("P"):
            vi, vj = T.axis.remap("SS", [i, j])
            P[vi, vj] = T.floor(A[vi, vj]) + T.ceil(A[vi, vj] * T.float32(0.5)) + T.trunc(A[vi, vj] * T.float32(3))
    for i, j in T.grid(16, 50):
        with T.block("Q"):
            vi, vj = T.axis.remap("SS", [i, j])
            Q[vi, vj] = T.Cast("int32", P[15 - vi, vj])
    for i, j in T.grid(16, 50):
        with T.block("R"):
            vi, vj = T.axis.remap("SS", [i, j])
            R[vi, vj] = T.sqrt(T.fabs(P[vi, 49 - vj])) + T.Cast("float32", Q[vi, 49 - vj])
    for i, j in T.grid(16, 50):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = R[15 - vi, vj] + T.exp(A[vi, vj] * T.float32(0.125)) + T.nearbyint(A[vi, vj])
"""


def built(func, folder):
    lowered = lower(func, TARGET, "f")
    text = emit_c([lowered])
    (folder / "f.c").write_text(text)
    flags = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-shared", "-fPIC", "-nostdlib"]
    done = subprocess.run(
        ["gcc", *flags, "-o", str(folder / "f.so"), str(folder / "f.c"), "-lc"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return text, lowered, ctypes.CDLL(str(folder / "f.so"))


def run(lowered, library, *args):
    values, alive = Arguments("f", lowered.params).prepare(list(args))
    library.f.argtypes = c_types(lowered.params)
    assert library.f(*values) == 0
    del alive


@needs_gcc
def test_memory_is_static_and_nothing_is_called(tmp_path):
    func = parse(STAGES)
    text, lowered, library = built(func, tmp_path)
    assert "malloc" not in text and "stdlib" not in text
    sizes = re.findall(r"static (\w+) tw_workspace_\w+\[(\d+)\]", text)
    assert sum(4 * int(n) for _, n in sizes) == int(re.search(r"WORKSPACE_BYTES (\d+)", text)[1]) == 3 * 4 * 800
    a = (np.random.default_rng(0).integers(-40, 41, (16, 50)) / 4).astype("float32")
    want, got = np.full_like(a, np.nan), np.full_like(a, np.nan)
    interpret(func, a, want)
    run(lowered, library, a, got)
    np.testing.assert_allclose(got, want, rtol=2e-6)


@needs_gcc
def test_square_roots_are_rounded_to_nearest(tmp_path):
    func = parse("""
@T.prim_func
def f(A: T.Buffer((4096,), "float32"), B: T.Buffer((4096,), "float32")):
    for i in range(4096):
        B[i] = T.sqrt(A[i])
""")
    _, lowered, library = built(func, tmp_path)
    rng = np.random.default_rng(0)
    a = np.abs(rng.integers(0, 0x7F800000, 4096).astype("uint32").view("float32"))
    a[:10] = [0, -0.0, 1, 2, 4, np.inf, 1e-45, 1.1754944e-38, 3.4028235e38, -1]
    got = np.zeros_like(a)
    run(lowered, library, a, got)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(got, np.sqrt(a))


DOT = """
@T.prim_func
def f(A: T.Buffer((32,), "uint8"), B: T.Buffer((32,), "int8"), C: T.Buffer((1,), "int32")):
    C[0] = 5
    for i in range(8):
        C[0] = T.dot4_u8i8(C[0], A.vload([i * 4], "uint8x4"), B.vload([i * 4], "int8x4"))
"""


@needs_gcc
def test_four_products_of_bytes(tmp_path):
    text, lowered, library = built(parse(DOT), tmp_path)
    assert "smlad" in text
    rng = np.random.default_rng(0)
    a, b, c = rng.integers(0, 256, 32).astype("uint8"), rng.integers(-128, 128, 32).astype("int8"), np.zeros(1, "int32")
    run(lowered, library, a, b, c)
    assert c[0] == 5 + a.astype("int32") @ b.astype("int32")


@pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="needs arm-none-eabi-gcc")
def test_the_dot_product_is_two_instructions(tmp_path):
    (tmp_path / "f.c").write_text(emit_c([lower(parse(DOT), TARGET, "f")]))
    command = ["arm-none-eabi-gcc", "-mcpu=cortex-m7", "-mthumb", "-O2", "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-S",
               "-o", "-", str(tmp_path / "f.c")]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"\bsmlad\b", done.stdout)) >= 2 and "memcpy" not in done.stdout


def test_what_a_microcontroller_lacks_is_named():
    unknown = """
@T.prim_func
def f(A: T.Buffer((4,), "float64"), B: T.Buffer((4,), "float64")):
    for i in range(4):
        B[i] = T.sqrt(A[i])
"""
    with pytest.raises(CEmitError, match=r"f: tir.sqrt of float64 is a function of the mathematical library, sqrt"):
        emit_c([lower(parse(unknown), TARGET, "f")])
    sized = """
@T.prim_func
def f(a: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (n,), "float32")
    P = T.alloc_buffer((n,), "float32")
    for i in range(n):
        P[i] = A[i]
    for i in range(n):
        A[i] = P[n - 1 - i]
"""
    with pytest.raises(
        CEmitError, match="f: the size of P is known at the call only, and a microcontroller has no heap"
    ):
        emit_c([lower(parse(sized), TARGET, "f")])
