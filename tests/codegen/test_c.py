"""C source: it compiles without a warning and computes what the machine code and the interpreter compute."""

import ctypes
import re
import shutil
import subprocess

import numpy as np
import pytest

from tilewright.codegen import Target, compile, lower
from tilewright.codegen.c import CEmitError, emit_c
from tilewright.codegen.c.inline_functions import Helpers
from tilewright.codegen.runtime.arguments import Arguments, c_types
from tilewright.tir.expr import DType, to_numpy
from tilewright.tir.interpret import interpret
from tilewright.tir.parser import parse

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")


def elementwise(expression, ins, out, n=17, kind="T.vectorized", extra=""):
    """for i: O[i] = expression of A[i], B[i], …"""
    arrays = ", ".join(f'{name}: T.Buffer(({n},), "{dtype}")' for name, dtype in zip("ABC", ins, strict=False))
    return f"""
@T.prim_func
def f({arrays}, O: T.Buffer(({n},), "{out}"){extra}):
    for i in {kind}({n}):
        with T.block("O"):
            v = T.axis.spatial({n}, i)
            O[v] = {expression}
"""


MATMUL = """
@T.prim_func
def f(A: T.Buffer((13, 7), "float32"), B: T.Buffer((7, 17), "float32"), C: T.Buffer((13, 17), "float32")):
    P = T.alloc_buffer((7, 17), "float32")
    for k, j in T.grid(7, 17):
        with T.block("P"):
            vk, vj = T.axis.remap("SS", [k, j])
            P[vk, vj] = B[vk, vj] + T.float32(1)
    for i in T.parallel(13):
        for k in range(7):
            for j in T.vectorized(17):
                with T.block("C"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    with T.init():
                        C[vi, vj] = T.float32(0)
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * P[vk, vj]
"""
PADDED = """
@T.prim_func
def f(A: T.Buffer((5, 17), "float32"), P: T.Buffer((7, 17), "float32")):
    for y in range(7):
        for x in T.vectorized(17):
            with T.block("P"):
                vy, vx = T.axis.remap("SS", [y, x])
                P[vy, vx] = T.if_then_else(1 <= vy and vy < 6, A[vy - 1, vx], T.float32(0))
"""
TRANSPOSE = """
@T.prim_func
def f(A: T.Buffer((13, 7), "int16"), B: T.Buffer((7, 13), "int16")):
    for i in range(7):
        for j in T.vectorized(13):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vj, vi]
"""
SYMBOLIC = """
@T.prim_func
def f(a: T.handle, b: T.handle, s: T.int32):
    n = T.int32()
    A = T.match_buffer(a, (n, 4), "int64")
    B = T.match_buffer(b, (n,), "int64")
    for i in range(n):
        for k in range(4):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.int64(0)
                B[vi] = B[vi] + A[vi, vk] // T.Cast("int64", s) + A[vi, vk] % T.int64(5)
"""
CASES = {
    "matmul": (MATMUL, ()),
    "padded rows": (PADDED, ()),
    "transpose": (TRANSPOSE, ()),
    "symbolic sizes": (SYMBOLIC, (-3,)),
    "add": (elementwise("A[v] + B[v]", ["float32", "float32"], "float32"), ()),
    "serial": (elementwise("A[v] * B[v] - A[v]", ["float64", "float64"], "float64", kind="T.serial"), ()),
    "one": (elementwise("A[v] / B[v]", ["float32", "float32"], "float32", n=1), ()),
    "minimum": (elementwise("T.min(A[v], T.max(B[v], T.float32(0.5)))", ["float32", "float32"], "float32", n=16), ()),
    "select": (elementwise("T.Select(A[v] < B[v], A[v], B[v] * T.float32(2))", ["float32"] * 2, "float32"), ()),
    "guard": (elementwise("T.if_then_else(v > 2, A[v - 3], T.float32(7))", ["float32"], "float32", n=13), ()),
    "int8 wraps": (elementwise("A[v] * B[v] + A[v]", ["int8", "int8"], "int8"), ()),
    "uint8": (elementwise("T.max(A[v], B[v]) - A[v]", ["uint8", "uint8"], "uint8"), ()),
    "int32 division": (elementwise("A[v] // T.int32(3) + A[v] % T.int32(-7)", ["int32"], "int32"), ()),
    "bits": (elementwise("(A[v] & B[v]) ^ (A[v] >> T.int32(3)) | (B[v] << T.int32(2))", ["int32"] * 2, "int32"), ()),
    "count": (elementwise("T.popcount(A[v]) + T.clz(A[v])", ["int32"], "int32", kind="T.serial"), ()),
    "to float": (elementwise('T.Cast("float32", A[v]) * T.float32(0.5)', ["int8"], "float32"), ()),
    "to int": (elementwise('T.Cast("int32", A[v] * T.float32(3))', ["float32"], "int32"), ()),
    "widening": (elementwise('T.Cast("int32", A[v]) * T.Cast("int32", B[v])', ["uint8", "int8"], "int32"), ()),
    "compare": (elementwise("A[v] <= B[v]", ["float32", "float32"], "bool"), ()),
    "bools": (elementwise("T.Select(A[v], B[v], -B[v])", ["bool", "float32"], "float32"), ()),
    "half": (elementwise('T.Cast("float16", T.Cast("float32", A[v]) * T.float32(1.5))', ["float16"], "float16"), ()),
    "bfloat16": (elementwise('T.Cast("bfloat16", T.Cast("float32", A[v]) * T.float32(3))', ["bfloat16"], "bfloat16"), ()),
    "square root": (elementwise("T.sqrt(T.fabs(A[v])) + T.floor(A[v]) * T.ceil(B[v])", ["float32"] * 2, "float32"), ()),
    "exponential": (elementwise("T.exp(A[v]) + T.tanh(B[v])", ["float32", "float32"], "float32"), ()),
    "double": (elementwise("T.exp(A[v] * T.float64(0.1)) + T.erf(B[v])", ["float64", "float64"], "float64"), ()),
    "waves": (elementwise("T.sin(A[v]) + T.tan(B[v])", ["float64", "float64"], "float64", n=40), ()),
    "rare lanes": (elementwise("T.cos(A[v] * T.float32(60000))", ["float32"], "float32", n=40), ()),
    "remainder": (elementwise("T.fmod(A[v], B[v]) + T.hypot(A[v], B[v])", ["float64"] * 2, "float64", n=40), ()),
    "powers": (elementwise("T.pow(A[v], T.floor(B[v]))", ["float32"] * 2, "float32", n=40), ()),
    "scalar argument": (elementwise("A[v] * x", ["float32"], "float32", extra=", x: T.float32"), (0.5,)),
    "index as data": (elementwise('T.Cast("float32", v * 3) + A[v]', ["float32"], "float32"), ()),
}  # fmt: skip


def arguments(func, scalars, seed=0):
    rng = np.random.default_rng(seed)
    out, scalars = [], list(scalars)
    for p in func.params:
        if p not in func.buffer_map:
            out.append(scalars.pop(0))
            continue
        b = func.buffer_map[p]
        shape = [int(e) if hasattr(e, "value") else 13 for e in b.shape]
        if b.dtype == "bfloat16":
            out.append((rng.integers(-8, 9, shape).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16))
        elif b.dtype.startswith("float"):
            out.append((rng.integers(-8, 9, shape) / 2 + 0.25).astype(to_numpy(b.dtype)))
        elif b.dtype == "bool":
            out.append(rng.integers(0, 2, shape).astype(bool))
        else:
            info = np.iinfo(b.dtype)
            low, high = max(info.min, -(2**30)), min(info.max, 2**30)
            out.append(rng.integers(low, high, shape, endpoint=True).astype(b.dtype))
    return out


def built(source, folder, *flags):
    (folder / "f.c").write_text(source)
    command = ["gcc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", *flags, "-o", str(folder / "f.so"), str(folder / "f.c"),
               "-lm"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stderr}\n{source}"
    return ctypes.CDLL(str(folder / "f.so"))


@needs_gcc
@pytest.mark.parametrize("case", sorted(CASES))
def test_c_agrees(case, tmp_path):
    text, scalars = CASES[case]
    func = parse(text)
    module = compile(func, "native -num-cores=2", "f")
    results = []
    for how in ("interpreter", "machine code", "c"):
        args = arguments(func, scalars)
        if how == "interpreter":
            interpret(func, *args)
        elif how == "machine code":
            module(*args)
        else:
            library = built(module.get_source("c"), tmp_path, "-march=native", "-fopenmp")
            function = module["f"]
            values, _ = Arguments("f", function.params).prepare(args)
            library.f.argtypes = c_types(function.params)
            assert library.f(*values) == 0
        results.append([a for a in args if isinstance(a, np.ndarray)])
    for name, got in (("machine code", results[1]), ("c", results[2])):
        for a, b in zip(results[0], got, strict=True):
            if a.dtype.kind == "f":
                np.testing.assert_allclose(b, a, rtol=1e-12 if a.dtype == np.float64 else 2e-6, err_msg=name)
            else:
                np.testing.assert_array_equal(b, a, err_msg=name)


@needs_gcc
def test_export_writes_source_and_header(tmp_path):
    module = compile(parse(MATMUL), "native -num-cores=1", "f")
    assert [p.name for p in module.export(tmp_path / "k.c")] == ["k.c", "k.h", "k.hpp"]
    (tmp_path / "main.c").write_text('#include "k.h"\nint main(void) { return f(0, 0, 0) * 0; }\n')
    for name in ("main.c", "k.c"):
        subprocess.run(["gcc", "-Wall", "-c", name, "-o", f"{name}.o"], cwd=tmp_path, check=True)
    assert "pragma omp" not in (tmp_path / "k.c").read_text()


@needs_gcc
def test_half_conversions_are_exact(tmp_path):
    helpers = Helpers()
    for name in ("f16_to_f32", "f32_to_f16", "bf16_to_f32", "f32_to_bf16"):
        helpers.plain(name)
    source = "#include <stdint.h>\n#include <string.h>\n" + helpers.text().replace("static inline ", "")
    library = built(source, tmp_path)
    library.tw_f16_to_f32.restype = ctypes.c_float
    library.tw_f16_to_f32.argtypes = [ctypes.c_uint16]
    library.tw_f32_to_f16.argtypes = [ctypes.c_float]
    library.tw_f32_to_f16.restype = ctypes.c_uint16
    halves = np.arange(65536, dtype=np.uint16)[::7]
    want = halves.view(np.float16).astype(np.float32)
    got = np.array([library.tw_f16_to_f32(int(h)) for h in halves], np.float32)
    np.testing.assert_array_equal(got, want)
    rng = np.random.default_rng(0)
    singles = np.concatenate(
        [rng.normal(0, scale, 300).astype(np.float32) for scale in (1e-8, 1e-5, 1e-3, 1, 1e3, 1e5)]
    )
    singles = np.concatenate(
        [singles, np.float32([0, -0.0, 65504, 65519, 65520, 65536, np.inf, -np.inf, 2**-25, 2**-24])]
    )
    with np.errstate(over="ignore"):
        want = singles.astype(np.float16).view(np.uint16)
    np.testing.assert_array_equal(np.array([library.tw_f32_to_f16(float(x)) for x in singles], np.uint16), want)


@needs_gcc
def test_float64_is_rounded_to_float16_once(tmp_path):
    helpers = Helpers()
    for name in ("f32_to_f16", "f64_to_odd_f32"):
        helpers.plain(name)
    both = "uint16_t both(double x) { return tw_f32_to_f16(tw_f64_to_odd_f32(x)); }"
    head = "#include <math.h>\n#include <stdint.h>\n#include <string.h>\n"
    library = built(head + helpers.text().replace("static inline ", "") + "\n" + both, tmp_path)
    library.both.argtypes, library.both.restype = [ctypes.c_double], ctypes.c_uint16
    middle = 1 + 2.0**-11 * np.array([1, 3, 5])  # halfway between two numbers, and a little beside it
    values = np.concatenate(
        [middle, middle + 2.0**-40, middle - 2.0**-40, [65519.999, 65520.0, 1e300, np.inf, -0.0, 2.0**-25]]
    )
    with np.errstate(over="ignore"):
        want = values.astype(np.float16).view(np.uint16)
    np.testing.assert_array_equal(np.array([library.both(float(x)) for x in values], np.uint16), want)


@needs_gcc
@pytest.mark.parametrize("lanes", [2, 8])
def test_elements_that_are_vectors(lanes, tmp_path):
    func = parse(f"""
@T.prim_func
def turned(A: T.Buffer((4,), "float32x{lanes}"), B: T.Buffer((4,), "float32x{lanes}")):
    for i in range(4):
        B[i] = A[3 - i] + A[i]
""")
    library = built(emit_c([lower(func, Target("c"))]), tmp_path)
    a, b = np.arange(4 * lanes, dtype=np.float32).reshape(4, lanes), np.zeros((4, lanes), np.float32)
    assert library.turned(a.ctypes.data_as(ctypes.c_void_p), b.ctypes.data_as(ctypes.c_void_p)) == 0
    np.testing.assert_array_equal(b, a[::-1] + a)


def test_vectors_that_c_does_not_have():
    with pytest.raises(CEmitError, match="2, 4, 8 … lanes, not 3"):
        Helpers().vector(DType("float32x3"))


def test_a_failed_assertion_returns_its_number(scale_module):
    text = emit_c(list(scale_module()._lowered.values()))
    assert re.search(r"/\* more than 99 rows \*/\n +return 1;\n", text)


CHECKED = """
@T.prim_func
def f(A: T.Buffer((40000,), "float32"), n: T.Buffer((17,), "int32"), B: T.Buffer((17,), "float32")):
    P = T.alloc_buffer((40000,), "float32")
    for i in range(40000):
        P[i] = A[i]
    for i in T.parallel(17):
        with T.Assert(n[i] >= 0, "the index is negative"):
            with T.Assert(n[i] < 40000, "the index is too large"):
                B[i] = P[n[i]]
"""


@needs_gcc
@pytest.mark.parametrize("flags", [("-fopenmp",), ("-Wno-unknown-pragmas",), ("-fopenmp", "-O3", "-march=native")])
def test_assertions_in_parallel_loops(tmp_path, flags):
    module = compile(parse(CHECKED), "native -num-cores=2", "f")
    library = built(module.get_source("c"), tmp_path, *flags)
    function = module["f"]
    library.f.argtypes = c_types(function.params)
    a, b = np.arange(40000, dtype="float32"), np.zeros(17, "float32")
    for wrong, code in (((), 0), ((-1,), 1), ((40000,), 2), ((40000, -1), 2)):
        n = np.arange(17, dtype="int32") * 7
        n[5 : 5 + len(wrong)] = wrong
        values, _ = Arguments("f", function.params).prepare([a, n, b])
        assert library.f(*values) == code
    np.testing.assert_array_equal(b[8:], np.arange(8, 17) * 7)


FUSED = """
@T.prim_func
def f(A: T.Buffer((17,), "float32"), B: T.Buffer((17,), "float32"), C: T.Buffer((1,), "float32")):
    for i in T.vectorized(17):
        B[i] = T.fma(A[i], A[i], T.float32(-1))
    C[0] = T.fma(A[1], A[1], T.float32(-1))
"""


@needs_gcc
@pytest.mark.parametrize("flags", [("-march=native", "-mno-fma"), ("-march=native",), ("-march=native", "-std=c11")])
def test_a_multiply_add_is_rounded_once(tmp_path, flags):
    module = compile(parse(FUSED), "native -num-cores=1", "f")
    library = built(module.get_source("c"), tmp_path, *flags)
    function = module["f"]
    library.f.argtypes = c_types(function.params)
    a = (1 + np.arange(17) * 2.0**-13 + 2.0**-20).astype("float32")
    b, c = np.empty(17, "float32"), np.empty(1, "float32")
    values, _ = Arguments("f", function.params).prepare([a, b, c])
    assert library.f(*values) == 0
    want = (a.astype("float64") ** 2 - 1).astype("float32")
    np.testing.assert_array_equal(b, want)
    assert c[0] == want[1] and np.any(a * a - 1 != want)
