"""WebAssembly modules: what they export, scratch memory, and what is refused."""

from fractions import Fraction

import numpy as np
import pytest

from tilewright.codegen import ExportError, Target, TargetError, compile
from tilewright.codegen.llvm.llvm_repairs import keep_offsets, write_out_fills
from tilewright.codegen.runtime.wasm_module import WasmLinkError, wasm_linker
from tilewright.tir.parser import parse

TARGET = "llvm -mtriple=wasm32-unknown-unknown -mattr=+simd128,+bulk-memory"
SCRATCH = """
@T.prim_func
def twice(A: T.Buffer((40000,), "float32"), B: T.Buffer((40000,), "float32")):
    P = T.alloc_buffer((40000,), "float32")
    for i in range(40000):
        P[i] = A[i] + T.float32(1)
    for i in range(40000):
        B[i] = P[39999 - i]
"""
needs_linker = pytest.mark.skipif(wasm_linker() is None, reason="needs wasm-ld or the package ziglang")


@needs_linker
def test_scratch_memory_grows_the_module(tmp_path):
    wasmtime = pytest.importorskip("wasmtime")
    (path,) = compile(parse(SCRATCH), TARGET).export(tmp_path / "k.wasm")
    engine = wasmtime.Engine()
    store = wasmtime.Store(engine)
    exports = wasmtime.Instance(store, wasmtime.Module.from_file(engine, str(path)), []).exports(store)
    a, memory = np.arange(40000, dtype="float32"), exports["memory"]
    at, out = exports["tw_alloc"](store, a.nbytes), exports["tw_alloc"](store, a.nbytes)
    memory.write(store, a.tobytes(), at)
    top = exports["tw_alloc"](store, 0)
    assert at % 64 == out % 64 == 0 and out >= at + a.nbytes
    assert exports["twice"](store, at, out) == 0
    got = np.frombuffer(bytes(memory.read(store, out, out + a.nbytes)), "float32")
    np.testing.assert_array_equal(got, a[::-1] + 1)
    assert exports["tw_alloc"](store, 0) == top  # the scratch memory was given back


@needs_linker
def test_a_function_that_no_module_has_is_named(tmp_path):
    text = SCRATCH.replace("P[39999 - i]", 'T.call_extern("float32", "elsewhere", P[39999 - i])')
    with pytest.raises(WasmLinkError, match="undefined symbol: elsewhere"):
        compile(parse(text), TARGET).export(tmp_path / "k.wasm")


FMA = """
@T.prim_func
def fused(A: T.Buffer((2000,), "TYPE"), B: T.Buffer((2000,), "TYPE"), C: T.Buffer((2000,), "TYPE"), D: T.Buffer((2000,), "TYPE")):
    for i in T.vectorized(2000):
        D[i] = T.fma(A[i], B[i], C[i])
"""


@needs_linker
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_multiply_adds_are_rounded_once(tmp_path, dtype):
    wasmtime = pytest.importorskip("wasmtime")
    (path,) = compile(parse(FMA.replace("TYPE", dtype)), TARGET).export(tmp_path / "k.wasm")
    engine = wasmtime.Engine()
    store = wasmtime.Store(engine)
    exports = wasmtime.Instance(store, wasmtime.Module.from_file(engine, str(path)), []).exports(store)
    rng, memory = np.random.default_rng(0), exports["memory"]
    a, b = rng.standard_normal((2, 2000)).astype(dtype)
    c = (-a * b * rng.choice([1, 1 + 1e-7, 1e-9, -3, 1e30], 2000)).astype(dtype)  # much is cancelled, or nothing
    a[:4], c[:4] = [np.inf, np.nan, 0, 1], [1, 1, -0.0, np.inf]
    b[2] = -1.0
    places = [exports["tw_alloc"](store, a.nbytes) for _ in range(4)]
    for place, array in zip(places, (a, b, c), strict=False):
        memory.write(store, array.tobytes(), place)
    assert exports["fused"](store, *places) == 0
    got = np.frombuffer(bytes(memory.read(store, places[3], places[3] + a.nbytes)), dtype)
    np.testing.assert_array_equal(got[4:], _rounded_once(a[4:], b[4:], c[4:]))
    np.testing.assert_array_equal(got[:4], [np.inf * b[0], np.nan, 0, np.inf])
    assert np.signbit(got[2])


def _rounded_once(a, b, c):
    """Return the numbers of a's type nearest to the exact sums: of what Python's fractions give, and its neighbours."""
    out = []
    for x, y, z in zip(a, b, c, strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        near = a.dtype.type(float(exact))
        around = [near, np.nextafter(near, a.dtype.type(np.inf)), np.nextafter(near, a.dtype.type(-np.inf))]
        word = f"uint{8 * a.itemsize}"
        out.append(min(around, key=lambda v: (abs(Fraction(float(v)) - exact), int(v.view(word)) & 1)))
    return np.array(out)


def test_files_of_other_machines_are_refused(tmp_path):
    with pytest.raises(ExportError, match="'k.so': wasm32-unknown-unknown makes .wasm"):
        compile(parse(SCRATCH), TARGET).export(tmp_path / "k.so")
    with pytest.raises(ExportError, match=r"'k.wasm': .* makes .so"):
        compile(parse(SCRATCH)).export(tmp_path / "k.wasm")


def test_threads_are_refused():
    text = SCRATCH.replace("in range(40000)", "in T.parallel(40000)")
    with pytest.raises(TargetError, match="twice uses threads, which the runtime offers on POSIX systems"):
        compile(parse(text), f"{TARGET} -num-cores=2")


def test_functions_of_the_mathematical_library_are_refused():
    text = SCRATCH.replace("P[39999 - i]", "T.fmod(P[39999 - i], T.float32(3))")
    with pytest.raises(TargetError, match="twice calls fmodf of the mathematical library, which a module for wasm32"):
        compile(parse(text), TARGET)


def test_there_is_a_linker(tmp_path, monkeypatch):
    monkeypatch.setattr("tilewright.codegen.runtime.wasm_module.wasm_linker", lambda: None)
    with pytest.raises(WasmLinkError, match="needs a linker, wasm-ld; install one"):
        compile(parse(SCRATCH), TARGET).export(tmp_path / "k.wasm")
    assert Target(TARGET).is_wasm and not Target("native").is_wasm


WINDOW = """
@T.prim_func
def window(A: T.Buffer((64, 30), "float32"), B: T.Buffer((64, 28), "float32"), C: T.Buffer((64, 28), "float32")):
    for i in range(62):
        for j in T.vectorized(28):
            B[i, j] = A[i, j + 1] + A[i + 1, j] * A[i + 2, j]
        for j in T.vectorized(28):
            C[i, j] = T.float32(0)
"""


def test_accesses_carry_their_offsets_and_short_fills_are_stores():
    asm = compile(parse(WINDOW), TARGET).get_source("asm")
    assert "v128.load\t116" in asm and "memory.fill" not in asm and asm.count("i32.add") < 12, asm


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (  # the address is accessed itself: it lies in the buffer, and so does what is beyond it
            "b:\n  %x = load i32, ptr %a, align 4\n  %c = getelementptr i8, ptr %a, i32 8\n",
            "b:\n  %a.first0 = getelementptr i8, ptr %a, i32 0\n  %a.still0 = freeze ptr %a.first0\n"
            "  %x = load i32, ptr %a.still0, align 4\n  %c = getelementptr nuw i8, ptr %a.still0, i32 8\n",
        ),
        (  # the first access is before the address
            "b:\n  store i32 0, ptr %a, align 4\n  %c = getelementptr i8, ptr %a, i32 -8\n  store i32 0, ptr %c, align 4\n",
            "b:\n  %a.first0 = getelementptr i8, ptr %a, i32 -8\n  %a.still0 = freeze ptr %a.first0\n"
            "  %a.here0.3 = getelementptr nuw i8, ptr %a.still0, i32 8\n  store i32 0, ptr %a.here0.3, align 4\n"
            "  %c = getelementptr nuw i8, ptr %a.still0, i32 0\n  store i32 0, ptr %c, align 4\n",
        ),
        ("b:\n  %c = getelementptr i8, ptr %a, i32 8\n", None),
        ("b:\n  store i32 0, ptr %a, align 4\nc:\n  %c = getelementptr i8, ptr %a, i32 8\n", None),
        ("b:\n  store i32 0, ptr %a, align 4\n  %c = getelementptr i8, ptr %a, i32 -8\n", None),
    ],
)
def test_offsets_are_kept_where_the_address_is_known_to_lie_in_the_buffer(before, after):
    assert keep_offsets(before) == (before if after is None else after)


def test_short_copies_are_loads_and_stores():
    call = "  tail call void @llvm.memcpy.p0.p0.i64(ptr noundef align 8 %d, ptr align 4 %s, i64 SIZE, i1 false), !x !1"
    lines = write_out_fills(call.replace("SIZE", "21")).split("\n")
    assert [line.split(",")[0].split("=")[-1].strip() for line in lines if "load" in line] == [
        "load <16 x i8>", "load <4 x i8>", "load <1 x i8>"
    ]  # fmt: skip
    assert lines[-1] == "  store <1 x i8> %fill.6, ptr %fill.9, align 1", lines
    long = call.replace("SIZE", "257")
    assert write_out_fills(long) == long
