"""Runs compiled kernels on buffers that touch an unreadable page. Started by test_trust.py as a process of its own:

    python guarded.py end|begin TARGET [CASE …]
    python guarded.py end|begin TARGET random FIRST COUNT

Arguments, and the scratch memory that kernels ask for, end just before an unreadable page (or begin just after one), so
an access outside kills the process; each case is named before it runs. Results are compared with the interpreter's.
Random programs (the fuzzer's, with vector, unrolled and parallel loops besides) are compiled without optimization, too.
"""

import ctypes
import faulthandler
import mmap
import sys
from contextlib import suppress
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np

from tilewright import tuner
from tilewright.codegen import Target, lower
from tilewright.codegen.llvm.emit import emit
from tilewright.codegen.llvm.jit import load, optimize_and_compile
from tilewright.codegen.runtime.arguments import c_types
from tilewright.codegen.runtime.loader import runtime_symbols
from tilewright.driver.building import request
from tilewright.schedule import Schedule, ScheduleError
from tilewright.tir.interpret import interpret
from tilewright.tir.parser import parse
from tilewright.tir.stmt import For
from tilewright.tir.walk import pre_order

PAGE = mmap.PAGESIZE
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def guarded(size: int, end: bool, align: int = 1) -> int:
    """The address of ``size`` bytes that end (or begin) at an unreadable page, up to the alignment. Never freed."""
    size = -(-size // align) * align
    body = -(-max(size, 1) // PAGE) * PAGE
    start = LIBC.mmap(None, body + 2 * PAGE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANON, -1, 0)
    assert start not in (None, ctypes.c_void_p(-1).value), "mmap failed"
    for page in (start, start + PAGE + body):
        assert LIBC.mprotect(page, PAGE, 0) == 0
    return start + PAGE + (body - size if end else 0)


def place(array: np.ndarray, end: bool) -> np.ndarray:
    """A copy of an array in guarded memory."""
    address = guarded(array.nbytes, end)
    memory = (ctypes.c_char * max(array.nbytes, 1)).from_address(address)
    copy = np.frombuffer(memory, array.dtype, array.size).reshape(array.shape)
    copy[...] = array
    return copy


def _module(path: str):
    spec = spec_from_file_location(Path(path).stem, Path(__file__).parent / path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


L = _module("test_lower.py")

GATHER = """
@T.prim_func
def main(I: T.Buffer((21,), "int32"), A: T.Buffer((5, 3), "float32"), B: T.Buffer((21, 3), "float32"),
         D: T.Buffer((21,), "float32")):
    for i in range(21):
        for j in T.vectorized(3):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[(I[vi] + 4) % 5, vj]
    for i in T.vectorized(21):
        with T.block("D"):
            vi = T.axis.spatial(21, i)
            D[vi] = A[(I[vi] + 4) % 5, 2]
"""

STRIDED = """
@T.prim_func
def main(A: T.Buffer((19, 23), "{0}"), B: T.Buffer((23, 19), "{0}"), R: T.Buffer((23,), "{0}"),
         E: T.Buffer((11,), "{0}")):
    for i in range(23):
        for j in T.vectorized(19):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vj, vi]
    for i in T.vectorized(23):
        with T.block("R"):
            vi = T.axis.spatial(23, i)
            R[vi] = A[18, 22 - vi]
    for i in T.vectorized(11):
        with T.block("E"):
            vi = T.axis.spatial(11, i)
            E[vi] = A[18, vi * 2 + 1]
"""

SPACED = """
@T.prim_func
def main(A: T.Buffer(({1} * {2} - {2} + 1,), "{0}"), B: T.Buffer(({1},), "{0}")):
    for i in T.vectorized({1}):
        with T.block("B"):
            vi = T.axis.spatial({1}, i)
            B[vi] = A[vi * {2}]
"""

PACKED = """
@T.prim_func
def main(A: T.Buffer((17, 23), "{0}"), P: T.Buffer((3, 23, {1}), "{0}")):
    for p in range(3):
        for k in range(23):
            for i in T.vectorized({1}):
                with T.block("P"):
                    vp, vk, vi = T.axis.remap("SSS", [p, k, i])
                    P[vp, vk, vi] = T.if_then_else(vp * {1} + vi < 17, A[vp * {1} + vi, vk], T.Cast("{0}", 0))
"""

TAILS = """
@T.prim_func
def main(a: T.handle, b: T.handle):
    m = T.int32()
    n = T.int32()
    A = T.match_buffer(a, (m, n), "{0}")
    B = T.match_buffer(b, (m, n), "{0}")
    for i in T.parallel(m):
        for j0 in T.serial((n + {1} - 1) // {1}):
            for j1 in T.vectorized({1}):
                with T.block("B"):
                    vi = T.axis.spatial(m, i)
                    vj = T.axis.spatial(n, j0 * {1} + j1)
                    T.where(j0 * {1} + j1 < n)
                    B[vi, vj] = T.max(A[vi, vj] + A[vi, vj], A[vi, vj])
"""

SPACED_TAILS = """
@T.prim_func
def main(a: T.handle, b: T.handle):
    m = T.int32()
    n = T.int32()
    A = T.match_buffer(a, (3, m), "{0}")
    B = T.match_buffer(b, (3, n), "{0}")
    for i in range(3):
        for j0 in T.serial((n + {1} - 1) // {1}):
            for j1 in T.vectorized({1}):
                with T.block("B"):
                    vi = T.axis.spatial(3, i)
                    vj = T.axis.spatial(n, j0 * {1} + j1)
                    T.where(j0 * {1} + j1 < n)
                    B[vi, vj] = A[vi, vj * {2}]
"""

SPACED_AND_PADDED = """
@T.prim_func
def main(A: T.Buffer((2, {2}), "{0}"), B: T.Buffer((2, {4}), "{0}")):
    for i, k in T.grid(2, ({4} + {5} - 1) // {5}):
        for j in T.vectorized({5}):
            with T.block("B"):
                vi = T.axis.spatial(2, i)
                vj = T.axis.spatial({4}, k * {5} + j)
                T.where(k * {5} + j < {4})
                B[vi, vj] = T.if_then_else(
                    vj * {1} >= {3} and vj * {1} < {2} + {3}, A[vi, vj * {1} - {3}], T.Cast("{0}", 3)
                )
"""

STREAM = """
@T.prim_func
def main(A: T.Buffer((3, {0}), "{1}"), V: T.Buffer(({0},), "{1}"), B: T.Buffer((3, {0}), "{1}")):
    for i in T.parallel(3):
        for j in T.serial({2}, annotations={{"pragma_nontemporal_store": 1, "pragma_prefetch_distance": 2}}):
            for u in T.unroll({3}):
                for v in T.vectorized({4}):
                    with T.block("B"):
                        vi = T.axis.spatial(3, i)
                        vj = T.axis.spatial({0}, j * {3} * {4} + u * {4} + v)
                        T.where(j * {3} * {4} + u * {4} + v < {0})
                        B[vi, vj] = A[vi, vj] * {5}(2) + V[vj]
"""

SPECS = (
    "matmul:M=17,N=13,K=7", "matmul:M=33,N=50,K=19", "matmul:M=1,N=37,K=16", "softmax:M=7,N=37", "layer_norm:M=5,N=29",
    "conv2d:H=9,W=9,CI=5,CO=13,kernel=3,padding=1", "relu:M=7,N=33", "transpose:M=17,N=37",
)  # fmt: skip


def cases():
    """Name, function and sizes."""
    for shape in ((17, 13, 7, 4, 1, 8, 4), (16, 16, 5, 4, 2, 8, 2), (7, 33, 3, 8, 2, 16, 4), (13, 50, 9, 6, 3, 16, 4)):
        for kind in ("serial", "parallel"):
            yield f"matmul{shape}{kind}".replace(" ", ""), parse(L.matmul_tiled(*shape, kind)), {}
    yield "row_sum", parse(L.ROW_SUM), {}
    yield "classic", parse(L.CLASSIC), {}
    yield "padded", parse(L.PADDED), {}
    wide = "for i in range(11):\n      for j in T.vectorized(13):\n"
    yield "padded_vector", parse(L.PADDED.replace("for i, j in T.grid(11, 13):\n", wide)), {}
    yield "gather", parse(GATHER), {}
    for dtype in ("float32", "float64", "int8", "int32", "float16"):
        yield f"strided_{dtype}", parse(STRIDED.format(dtype)), {}
    for dtype, lanes, distance in (
        ("float32", 16, 2), ("float32", 32, 3), ("float32", 8, 4), ("float64", 16, 2), ("int8", 64, 4), ("int16", 4, 3),
    ):  # fmt: skip
        yield f"spaced_{dtype}_{lanes}_{distance}", parse(SPACED.format(dtype, lanes, distance)), {}
    for dtype, lanes, distance in (
        ("float32", 16, 2), ("float32", 32, 3), ("float32", 8, 4), ("float64", 16, 2), ("int8", 64, 4), ("int16", 32, 3),
    ):  # fmt: skip
        for n in (1, 3, 13, 16, 17, 40, 65):
            text = SPACED_TAILS.format(dtype, lanes, distance)
            yield f"spaced_tails_{dtype}_{lanes}_{distance}_{n}", parse(text), {"n": n, "m": distance * (n - 1) + 1}
    for dtype, lanes in (("float32", 16), ("float32", 32), ("float64", 8), ("int8", 64)):
        for distance, width, before in ((2, 31, 1), (2, 56, 3), (3, 41, 2), (4, 70, 5), (2, 20, 17), (2, 3, 60)):
            count = (width + 2 * before - 1) // distance + 1
            text = SPACED_AND_PADDED.format(dtype, distance, width, before, count, lanes)
            yield f"spaced_and_padded_{dtype}_{lanes}_{distance}_{width}_{before}", parse(text), {}
    for dtype, height in (("float32", 6), ("float32", 8), ("float64", 7), ("int16", 8)):
        yield f"packed_{dtype}_{height}", parse(PACKED.format(dtype, height)), {}
    for dtype, units in (("float32", "T.float32"), ("float64", "T.float64"), ("int32", "T.int32")):
        lanes = 16 if dtype != "float64" else 8
        for n, unroll in ((640, 2), (333, 1), (77, 4)):
            for width in (lanes, lanes // 2, lanes // 4):
                trips = -(-n // (unroll * width))
                yield f"stream_{dtype}_{n}_{width}", parse(STREAM.format(n, dtype, trips, unroll, width, units)), {}
    for n in (1, 7, 16, 17, 100):
        yield f"symbolic{n}", parse(L.SYMBOLIC), {"n": n}
    for dtype, lanes in (("float32", 16), ("float64", 8), ("int8", 64), ("int16", 32), ("float16", 16), ("int64", 4)):
        for n in (1, 13, 33):
            yield f"tails_{dtype}_{n}", parse(TAILS.format(dtype, lanes)), {"m": 3, "n": n}


def default_cases(target: Target):
    """The analytic model's schedules of common operators at awkward sizes."""
    for spec in SPECS:
        func = request(spec).func
        yield spec, tuner.default_schedule(func, target).func, {}


def random_case(seed: int, length: int = 12):
    """A random program under a random chain of primitives (the fuzzer's), loops marked where that is allowed; its
    arguments and its sizes."""
    sys.path.insert(0, str(Path(__file__).parents[2]))  # the fuzzer is a part of the checkout
    from tests.fuzz.all_steps import Nothing, draw_step
    from tests.fuzz.random_programs import random_program

    program = random_program(seed)
    sch = Schedule(program.func, seed=seed)
    rng = np.random.default_rng((seed, 2))
    for _ in range(length):
        before = sch.snapshot()
        with suppress(ScheduleError, Nothing):
            draw_step(rng)[1](rng, sch)
        if any(isinstance(n, For) and n.thread_binding for n in pre_order(sch.func.body)):
            sch = before
    for block in [b.name for b in sch.get_child_blocks(sch.get_block("root"))]:
        loops = sch.get_loops(block)
        if not loops:
            continue
        what = rng.integers(4)
        with suppress(ScheduleError):
            if what < 2:
                sch.vectorize(loops[-1])
            elif what == 2:
                sch.unroll(loops[-1])
        if len(loops) > 1 and rng.random() < 0.6:
            with suppress(ScheduleError):
                sch.parallel(loops[0])
    return sch.func, program.arrays(), {var.name: value for var, value in program.sizes.items()}


def run(func, sizes, target: Target, end: bool, exact: bool, levels=(3,), arrays=None) -> None:
    """One kernel on guarded memory against the interpreter."""
    if arrays is None:
        arrays = L.spoil(func, L.inputs_of(func, sizes))
    given = [a.copy() if isinstance(a, np.ndarray) else a for a in arrays]
    interpret(func, *given)
    arrays = [a for a in arrays if isinstance(a, np.ndarray)]
    want = [a for a in given if isinstance(a, np.ndarray)]
    lowered = lower(func, target, "kernel")
    text = emit(lowered)
    for level in levels:
        got = call(text, level, lowered, arrays, sizes, target, end)
        for w, g in zip(want, got, strict=True):
            if exact:
                np.testing.assert_array_equal(w, g, err_msg=f"-O{level}")
            else:
                np.testing.assert_allclose(w, g, rtol=1e-4, atol=1e-5)


def call(text: str, level: int, lowered, arrays, sizes, target: Target, end: bool) -> list[np.ndarray]:
    """What the machine code makes of copies of ``arrays`` in guarded memory."""
    code = optimize_and_compile(text, target, level)
    blocks = []

    def alloc(size: int) -> int:
        address = guarded(size, end, 64)
        ctypes.memset(address, 0xFF, size)
        blocks.append(address)
        return address

    def free(address: int) -> None:
        blocks.remove(address)

    callbacks = [
        ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(alloc),
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(free),
    ]
    imports = runtime_symbols() | {
        name: ctypes.cast(c, ctypes.c_void_p).value for name, c in zip(("tw_alloc", "tw_free"), callbacks, strict=True)
    }
    loaded = load(code.object, ["kernel"], imports)
    got = [place(a, end) for a in arrays]
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, *c_types(lowered.params))(loaded.address("kernel"))
    pointers = iter(got)
    passed = [next(pointers).ctypes.data if p.kind == "buffer" else sizes[p.var.name] for p in lowered.params]
    assert entry(*passed) == 0
    assert not blocks, "scratch memory was not given back"
    return got


def planted(end: bool) -> None:
    """A kernel that reads one element outside: it must not survive."""
    source = f"""
define i32 @kernel(ptr %a) {{
  %p = getelementptr float, ptr %a, i64 {7 if end else -1}
  %x = load volatile float, ptr %p
  ret i32 0
}}"""
    loaded = load(optimize_and_compile(source, Target("native")).object, ["kernel"])
    data = place(np.zeros(7, "float32"), end)
    ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(loaded.address("kernel"))(data.ctypes.data)


def main(where: str, text: str, *wanted: str) -> None:
    faulthandler.enable()
    end, target = where == "end", Target(text)
    if wanted == ("planted",):
        planted(end)
        return
    if wanted[:1] == ("random",):
        first, count = map(int, wanted[1:])
        for seed in range(first, first + count):
            print(f"random {seed}", flush=True)
            func, arrays, sizes = random_case(seed)
            if "tw_cblas" not in func.script():  # what a library computes is not looked at here
                run(func, sizes, target, end, True, (0, 3), arrays)
        print("done", flush=True)
        return
    for source, exact in ((cases(), True), (default_cases(target), False)):
        for name, func, sizes in source:
            if not wanted or name in wanted:
                print(name, flush=True)
                run(func, sizes, target, end, exact)
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
