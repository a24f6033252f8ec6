"""Compiled kernels stay inside their buffers, at every level of optimization, on every level of the instruction set."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import threading
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

from tilewright.codegen.compile import compile as compile_function
from tilewright.codegen.llvm.emit import emit
from tilewright.codegen.llvm.jit import load, optimize_and_compile
from tilewright.codegen.lower import lower
from tilewright.codegen.lower.compact_buffers import compact_buffers
from tilewright.codegen.lowered import LoweredFunc
from tilewright.codegen.machine.target import Target
from tilewright.codegen.runtime.loader import runtime_symbols
from tilewright.tir.interpret import interpret
from tilewright.tir.parser import parse
from tilewright.tir.stmt import Allocate
from tilewright.tir.walk import pre_order

GUARDED = Path(__file__).with_name("guarded.py")
LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the guarded pages are made through Linux's mmap")


def guarded(*args: str) -> subprocess.CompletedProcess[str]:
    """The outcome of guarded.py."""
    return subprocess.run([sys.executable, str(GUARDED), *args], capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def cases():
    spec = spec_from_file_location("guarded", GUARDED)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def here(cpu: str) -> Target:
    """The target of a level on two threads; skips where this machine cannot run it."""
    target = Target(f"llvm -mcpu={cpu} -num-cores=2")
    if target.missing_here():
        pytest.skip(f"this machine has no {cpu}")
    return target


@pytest.mark.parametrize(("cpu", "where"), [*((cpu, "end") for cpu in LEVELS), ("x86-64-v3", "begin")])
def test_buffers_at_unreadable_pages(cpu, where):
    done = guarded(where, str(here(cpu)))
    assert done.returncode == 0 and done.stdout.endswith("done\n"), f"{done.stdout[-300:]}\n{done.stderr[-3000:]}"


@pytest.mark.parametrize("cpu", LEVELS)
def test_random_programs_with_and_without_optimization(cpu):
    done = guarded("end", str(here(cpu)), "random", "0", "25")
    assert done.returncode == 0 and done.stdout.endswith("done\n"), f"{done.stdout[-300:]}\n{done.stderr[-3000:]}"


@pytest.mark.parametrize("where", ["end", "begin"])
def test_an_access_outside_is_caught(where):
    done = guarded(where, "native", "planted")
    assert done.returncode < 0 and "Segmentation fault" in done.stderr


_MNEMONIC = r"^\s+(?:rep\s+)?([a-z][a-z0-9]*)"
_ABOVE_V2 = {"movbe", "mulx", "shlx", "shrx", "sarx", "rorx", "pdep", "pext", "andn", "bextr", "blsi", "blsmsk", "blsr",
             "bzhi", "lzcnt", "tzcnt"}  # fmt: skip


def too_new(asm: str, cpu: str) -> list[str]:
    """The lines with instructions or registers that a level does not have."""
    out = []
    for line in asm.splitlines():
        found = re.match(_MNEMONIC, line)
        if found is None:
            continue
        name = found[1]
        above_v3 = re.search(r"%zmm|%k[0-7]|%[xy]mm(1[6-9]|2\d|3[01])", line)
        above_v2 = (name.startswith("v") and name not in ("verr", "verw")) or name.rstrip("lqw") in _ABOVE_V2
        above_v2 = above_v2 or "%ymm" in line
        if above_v3 or (cpu == "x86-64-v2" and above_v2):
            out.append(line.strip())
    return out


@pytest.mark.parametrize("cpu", LEVELS[:2])
def test_no_instruction_of_a_higher_level(cases, cpu):
    target = Target(f"llvm -mcpu={cpu} -num-cores=2")
    for name, func, _ in cases.cases():
        asm = compile_function(func, target, "kernel").get_source("asm")
        assert too_new(asm, cpu) == [], f"{name} for {cpu}"
    wide = compile_function(parse(cases.L.ROW_SUM), Target("llvm -mcpu=x86-64-v4"), "kernel").get_source("asm")
    assert too_new(wide, "x86-64-v2")


def cast(a: str, b: str, n: int):
    """B = A as another type, eight at a time."""
    return parse(f"""
@T.prim_func
def main(A: T.Buffer(({n},), "{a}"), B: T.Buffer(({n},), "{b}")):
    for i0 in range({n // 8}):
        for i1 in T.vectorized(8):
            B[i0 * 8 + i1] = T.Cast("{b}", A[i0 * 8 + i1])
""")


def same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Whether numbers are the same, the sign of zero included; a NaN is a NaN."""
    return (a.view(f"u{a.itemsize}") == b.view(f"u{b.itemsize}")) | (np.isnan(a) & np.isnan(b))


@pytest.mark.parametrize("cpu", LEVELS)
def test_float16_at_every_level(cpu):
    """Every float16 widened; float32 and float64 near every rounding boundary narrowed, as NumPy does it."""
    target = here(cpu)
    halves = np.arange(65536, dtype="uint16").view("float16")
    for wide in ("float32", "float64"):
        out = np.full(65536, 7, wide)
        compile_function(cast("float16", wide, 65536), target, "kernel")(halves, out)
        with np.errstate(all="ignore"):
            assert same(out, halves.astype(wide)).all()
    with np.errstate(all="ignore"):
        exact = halves.astype("float64")
        middles = (exact + np.nextafter(halves, np.float16(np.inf)).astype("float64")) / 2
        near = np.concatenate([exact, middles, middles * (1 + 2.0**-50), middles * (1 - 2.0**-50)])
        near = np.concatenate([near, [65519.0, 65519.999, 65520.0, 65521.0, 1e300, -1e300, 2.0**-25, 2.0**-26]])
        for wide in ("float32", "float64"):
            source = near.astype(wide)
            out = np.full(len(source), 7, "float16")
            compile_function(cast(wide, "float16", len(source)), target, "kernel")(source, out)
            wrong = ~same(out, source.astype("float16"))
            assert not wrong.any(), (source[wrong][:5], out[wrong][:5])


def test_a_window_that_moves_keeps_its_width():
    """Found by the random programs: the two ends of a window were both taken for the smaller one."""
    func = parse("""
@T.prim_func
def main(A: T.Buffer((7, 8), "float32"), B: T.Buffer((7, 7), "float32")):
    for f in T.parallel(49):
        W = T.decl_buffer((7, 8))
        for j in range(2):
            W[f // 7, f % 7 + j] = A[f // 7, f % 7 + j] * T.float32(2)
        B[f // 7, f % 7] = W[f // 7, f % 7 + 1] - W[f // 7, f % 7]
""")
    after = compact_buffers(func)
    (window,) = [n.buffer for n in pre_order(after) if isinstance(n, Allocate)]
    assert [int(e) for e in window.shape] == [1, 2]
    a = np.arange(56, dtype="float32").reshape(7, 8) ** 2
    b = np.full((7, 7), np.nan, "float32")
    interpret(after, a, b)
    np.testing.assert_array_equal(b, 2 * np.diff(a))


def test_a_buffer_of_tiles_shrinks_where_intrinsics_access_it():
    """Their indices are vectors: all lanes count, and no more than these."""
    func = parse("""
@T.prim_func
def main(A: T.Buffer((7, 64), "float32"), B: T.Buffer((7, 64), "float32")):
    for i, j in T.grid(7, 4):
        W = T.decl_buffer((7, 64))
        for q in range(2):
            W[i, T.Broadcast((j * 2 + q) * 8, 8) + T.Ramp(0, 1, 8)] = A.vload([i, (j * 2 + q) * 8], "float32x8")
        B[i, T.Ramp(j * 16, 1, 16)] = W[i, T.Broadcast(j * 8, 16) * T.Broadcast(2, 16) + T.Ramp(15, -1, 16)]
""")
    after = compact_buffers(func)
    (tile,) = [n.buffer for n in pre_order(after) if isinstance(n, Allocate)]
    assert [int(e) for e in tile.shape] == [1, 16]
    a = np.arange(7 * 64, dtype="float32").reshape(7, 64)
    b = np.full((7, 64), np.nan, "float32")
    interpret(after, a, b)
    np.testing.assert_array_equal(b, a.reshape(7, 4, 16)[:, :, ::-1].reshape(7, 64))


def test_scratch_of_vectors():
    """Elements that are vectors lie side by side, on the stack and in the runtime's memory."""
    for rows in (7, 2000):
        func = parse(f"""
@T.prim_func
def main(A: T.Buffer(({rows}, 8), "float32"), B: T.Buffer(({rows}, 8), "float32"), n: T.int32):
    S = T.alloc_buffer(({rows},), "float32x8")
    for i in range({rows}):
        for j in T.serial(n):
            S[i] = A.vload([i, T.Ramp(0, 1, 8)]) * T.Broadcast(T.float32(2), 8)
    for i in range({rows}):
        B.vstore([i, T.Ramp(0, 1, 8)], S[i] + S[{rows - 1} - i])
""")
        a = np.arange(rows * 8, dtype="float32").reshape(rows, 8)
        b = np.full_like(a, np.nan)
        compile_function(func, Target("native"), "kernel")(a, b, 1)
        np.testing.assert_array_equal(b, 2 * a + 2 * a[::-1])


CHECKED = """
@T.prim_func
def main(A: T.Buffer((8,), "int32"), n: T.int32):
    if T.bool(False):
        assert n > 100, "never asked"
        A[0] = 1
    W = T.decl_buffer((20000,), "int32")
    W[0] = 0
    for i in T.parallel(8):
        assert n != i, "the row of that number"
        A[i] = i
    assert n > 20, "too small"
    A[0] = W[0] + 7
"""


@pytest.mark.parametrize("cores", [1, 2])
def test_assertions_keep_their_numbers_and_scratch_is_given_back(cores):
    """A branch that is known, a parallel loop, and what is allocated around both."""
    target = Target(f"native -num-cores={cores}")
    lowered = LoweredFunc.of(parse(CHECKED), target, "kernel")  # as it is: the passes would take the dead branch away
    live: list[int] = []
    symbols = runtime_symbols()
    alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(symbols["tw_alloc"])
    free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(symbols["tw_free"])

    def counted(size: int) -> int:
        live.append(alloc(size))
        return live[-1]

    def released(address: int) -> None:
        live.remove(address)
        free(address)

    hooks = [
        ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(counted),
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(released),
    ]
    symbols |= {n: ctypes.cast(h, ctypes.c_void_p).value for n, h in zip(("tw_alloc", "tw_free"), hooks, strict=True)}
    loaded = load(optimize_and_compile(emit(lowered), target).object, ["kernel"], symbols)
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32)(loaded.address("kernel"))
    a = np.zeros(8, "int32")
    assert [entry(a.ctypes.data, n) for n in (5, 12, 40)] == [2, 3, 0]
    assert not live
    assert a.tolist() == [7, 1, 2, 3, 4, 5, 6, 7]
    module = compile_function(parse(CHECKED), target, "kernel")
    with pytest.raises(RuntimeError, match="kernel: the row of that number"):
        module(a, 5)
    with pytest.raises(RuntimeError, match="kernel: too small"):
        module(a, 12)


def test_no_scratch_memory_inside_a_parallel_loop():
    """The function says so; it does not write through a null pointer."""
    func = parse("""
@T.prim_func
def main(A: T.Buffer((8, 20000), "float32"), B: T.Buffer((8, 20000), "float32")):
    for i in T.parallel(8):
        W = T.decl_buffer((20000,))
        for j in range(20000):
            W[j] = A[i, j] + T.float32(1)
        for j in range(20000):
            B[i, j] = W[19999 - j]
""")
    target = Target("native -num-cores=2")
    lowered = lower(func, target, "kernel")
    asked = threading.Semaphore(2)  # the third block is refused
    symbols = runtime_symbols()
    real = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(symbols["tw_alloc"])
    alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(
        lambda size: real(size) if asked.acquire(blocking=False) else None
    )
    symbols["tw_alloc"] = ctypes.cast(alloc, ctypes.c_void_p).value
    loaded = load(optimize_and_compile(emit(lowered), target).object, ["kernel"], symbols)
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(loaded.address("kernel"))
    a = np.zeros((8, 20000), "float32")
    b = np.zeros_like(a)
    assert entry(a.ctypes.data, b.ctypes.data) == -1
    assert 1 <= b.max(axis=1).sum() <= 2
    module = compile_function(func, target, "kernel")
    module(a, b)
    assert (b == 1).all()
