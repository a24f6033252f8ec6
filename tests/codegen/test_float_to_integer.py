"""Floats as integers: one value for each float, in every lane and on every back end; the oracle counts in Python."""

import ctypes
import math
import re
import shutil
import subprocess

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen import compile
from tilewright.codegen.runtime.wasm_module import wasm_linker
from tilewright.tir.expr import DType, to_numpy
from tilewright.tir.interpret import interpret
from tilewright.tir.parser import parse

ENDS = [2.0**b for b in (3, 4, 7, 8, 15, 16, 31, 32, 63, 64)]
VALUES = [0.0, -0.0, 1.5, -1.5, math.nan, math.inf, -math.inf, 1e30, -1e30, 5e-324, 1e-40, 0.999]
VALUES += [
    s * f * e + d for e in ENDS for s in (1, -1) for d in (0, 0.5, -0.5, 1, -1) for f in (1, 1 - 2.0**-11, 1 - 2.0**-24)
]
FLOATS, INTEGERS = (
    ("float32", "float64", "float16", "bfloat16"),
    ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
)
TARGETS = ("native -num-cores=1", "llvm -mcpu=x86-64 -num-cores=1", "llvm -mcpu=x86-64-v3 -num-cores=1")


def given(source):
    """Returns the values as an array of ``source``, and the numbers in it."""
    with np.errstate(all="ignore"):
        if source != "bfloat16":
            x = np.array(VALUES).astype(source)
            return x, x
        wide = np.array(VALUES).astype("float32")
        bits = np.where(np.isnan(wide), 0x7FC0, wide.view("uint32") >> 16).astype("uint16")
        return bits, (bits.astype("uint32") << 16).view("float32")


def expected(numbers, dtype, low=-math.inf, high=math.inf):
    """Returns the integers: the nearer end of the range beyond it, and 0 for NaN."""
    info = np.iinfo(dtype)

    def one(x):
        x = x if math.isnan(x) else min(max(x, low), high)
        return 0 if math.isnan(x) else info.max if x > info.max else info.min if x < info.min else int(x)

    return np.array([one(float(x)) for x in numbers], dtype)


def program(source, to, n, kind, body="A[i]"):
    return parse(f"""
@T.prim_func
def f(A: T.Buffer(({n},), "{source}"), O: T.Buffer(({n},), "{to}")):
    for i in {kind}({n}):
        with T.block("O"):
            v = T.axis.spatial({n}, i)
            O[v] = T.Cast("{to}", {body.replace("[i]", "[v]")})
""")


@pytest.mark.parametrize("source", FLOATS)
def test_every_lane_gives_the_same(source):
    x, numbers = given(source)
    for to in INTEGERS:
        want = expected(numbers, to)
        for kind in ("T.serial", "T.vectorized"):
            func, out = program(source, to, len(x), kind), np.zeros(len(x), to)
            interpret(func, x, out)
            np.testing.assert_array_equal(out, want, err_msg=f"interpreter {kind} {to}")
            for target in TARGETS if kind == "T.vectorized" else TARGETS[:1]:
                out = np.zeros(len(x), to)
                compile(func, target)(x, out)
                np.testing.assert_array_equal(out, want, err_msg=f"{target} {kind} {to}")


@pytest.mark.parametrize("to", ["int8", "uint8", "int16", "uint16", "int32"])
def test_a_value_that_is_clamped_already(to):
    x, numbers = given("float32")
    low, high = (0.0, 255.0) if to == "uint8" else (-3.0, 100.0) if to == "int32" else (0.0, 100.0)
    body = f"T.min(T.max(T.round(A[i]), T.float32({low})), T.float32({high}))"
    want = expected(np.rint(numbers), to, low, high)
    for kind in ("T.serial", "T.vectorized"):
        func = program("float32", to, len(x), kind, body)
        for target in TARGETS:
            out = np.zeros(len(x), to)
            compile(func, target)(x, out)
            np.testing.assert_array_equal(out, want, err_msg=f"{target} {kind}")


def test_a_clamp_is_not_repeated():
    clamped = "T.min(T.max(A[i], T.float32(-128)), T.float32(127))"
    plain, known = [
        compile(program("float32", "int8", 64, "T.vectorized", body), TARGETS[0]).get_source("ll")
        for body in ("A[i]", clamped)
    ]
    assert plain.count(" select ") == known.count(" select ") == 4  # one is the code of a wrong argument


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("target", ["native -num-cores=1", "c"])
def test_c_gives_the_same(source, target, tmp_path):
    x, numbers = given(source)
    text, calls = [], []
    for to in INTEGERS:
        for kind in ("serial", "vectorized"):
            name = f"{to}_{kind}"
            code = compile(program(source, to, len(x), f"T.{kind}"), target, name).get_source("c")
            path = tmp_path / f"{name}.c"
            path.write_text(code)
            text.append(str(path))
            calls.append((name, to))
    library = tmp_path / "k.so"
    checks = ["-fsanitize=float-cast-overflow,undefined", "-fsanitize-undefined-trap-on-error"]
    subprocess.run(
        ["gcc", "-O1", "-march=native", "-Wall", "-Werror", "-shared", "-fPIC", *checks, "-o", library, *text, "-lm"],
        check=True,
    )
    loaded = ctypes.CDLL(str(library))
    for name, to in calls:
        out = np.zeros(len(x), to)
        assert getattr(loaded, name)(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(out.ctypes.data)) == 0
        np.testing.assert_array_equal(out, expected(numbers, to), err_msg=name)


@pytest.mark.skipif(wasm_linker() is None, reason="needs wasm-ld or the package ziglang")
@pytest.mark.parametrize("kind", ["T.serial", "T.vectorized"])
def test_webassembly_gives_the_same(tmp_path, kind):
    wasmtime = pytest.importorskip("wasmtime")
    for source in ("float32", "float64"):
        for to in INTEGERS:
            x, numbers = given(source)
            func = program(source, to, len(x), kind)
            (path,) = compile(
                func, "llvm -mtriple=wasm32-unknown-unknown -mattr=+simd128,+bulk-memory,+nontrapping-fptoint"
            ).export(tmp_path / "k.wasm")
            engine = wasmtime.Engine()
            store = wasmtime.Store(engine)
            exports = wasmtime.Instance(store, wasmtime.Module.from_file(engine, str(path)), []).exports(store)
            at = exports["tw_alloc"](store, x.nbytes)
            out = exports["tw_alloc"](store, 8 * len(x))
            exports["memory"].write(store, x.tobytes(), at)
            assert exports["f"](store, at, out) == 0
            size = to_numpy(to).itemsize * len(x)
            got = np.frombuffer(bytes(exports["memory"].read(store, out, out + size)), to)
            np.testing.assert_array_equal(got, expected(numbers, to), err_msg=f"{source} {to}")


@pytest.mark.parametrize("to", INTEGERS)
def test_the_simulated_gpu_gives_the_same(to):
    x, numbers = given("float32")
    X = te.placeholder(x.shape, "float32", name="X")
    func = te.create_prim_func([X, te.compute(x.shape, lambda i: te.cast(to, X[i]), name="Y")])
    sch = tw.Schedule(func)
    sch.bind(sch.get_loops("Y")[0], "threadIdx.x")
    out = np.zeros(len(x), to)
    tw.build(sch, "gpu-sim")(x, out)
    np.testing.assert_array_equal(out, expected(numbers, to))


def test_aarch64_converts_by_one_instruction():
    target = "llvm -mtriple=aarch64-linux-gnu -mattr=+neon"
    text = compile(program("float32", "int32", 16, "T.vectorized"), target).get_source("asm")
    assert "fcvtzs" in text and not re.search(r"\bfcm|\bbsl|\bbit\b", text)


def test_int4_takes_its_own_ends():
    from tilewright.tir.expr.intrinsics.numpy_values import saturated

    assert list(saturated(np.array([9.0, -9.0, 7.9, -8.9, math.nan]), DType("int4"))) == [7, -8, 7, -8, 0]
