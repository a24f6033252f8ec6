"""Every lowering pass keeps what a function computes: the interpreter runs the function before and after each."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import tir
from tilewright.codegen.compile import compile as compile_function
from tilewright.codegen.lower import PASSES, lower
from tilewright.codegen.machine.target import Target
from tilewright.tir.expr import to_numpy
from tilewright.tir.interpret import interpret
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify
from tilewright.tir.walk import pre_order

AVX512 = "llvm -mcpu=x86-64-v4 -num-cores=1"
AVX2 = "llvm -mcpu=x86-64-v3 -num-cores=2"
ARM = "llvm -mtriple=aarch64-unknown-linux-gnu -mattr=+neon -num-cores=1"


def inputs_of(func: tir.PrimFunc, sizes: dict[str, int], seed: int = 0) -> list[np.ndarray]:
    """Small integers for each buffer, so that float sums are exact."""
    rng = np.random.default_rng(seed)
    out = []
    for buffer in func.buffers:
        shape = [e.value if isinstance(e, tir.IntImm) else sizes[e.name] for e in buffer.shape]
        dtype = to_numpy(buffer.dtype)
        low = 0 if dtype.kind in "ub" else -4
        if buffer.dtype == "bfloat16":  # small integers, as the upper halves of their float32 bits
            values = rng.integers(-4, 5, shape).astype("float32")
            out.append((values.view("uint32") >> 16).astype("uint16"))
        else:
            out.append(rng.integers(low, 5, shape).astype(dtype))
    return out


def spoil(func: tir.PrimFunc, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Copies, the outputs among them filled with NaN (or a pattern)."""
    from tilewright.codegen.lowered import written_data

    written = written_data(func)
    out = []
    for buffer, array in zip(func.buffers, arrays, strict=True):
        copy = array.copy()
        if buffer.data in written and "inout" not in buffer.name:
            copy.fill(np.nan if copy.dtype.kind == "f" else 77)
        out.append(copy)
    return out


def check(func: tir.PrimFunc, target: str, sizes: dict[str, int] | None = None, *, run: bool = True) -> tir.PrimFunc:
    """Interpret before and after each pass that changes something, run the machine code, and compare all of it."""
    arrays = inputs_of(func, sizes or {})
    want = spoil(func, arrays)
    interpret(func, *want)
    t = Target(target)
    now = func
    for p in PASSES:
        before, now = now, p.run(now, t)
        if now is before:
            continue
        verify(now)
        got = spoil(func, arrays)
        interpret(now, *got)
        for w, g in zip(want, got, strict=True):
            np.testing.assert_array_equal(w, g, err_msg=f"after {p.name}\n{now}")
    if run and not t.missing_here():
        got = spoil(func, arrays)
        compile_function(func, t, "kernel")(*got)
        for w, g in zip(want, got, strict=True):
            np.testing.assert_array_equal(w, g, err_msg=f"machine code of\n{now}")
    return now


def matmul_tiled(m: int, n: int, k: int, rows: int, vectors: int, lanes: int, unroll: int, kind: str) -> str:
    """A matmul with a register tile, a packed operand, and tiles that need not divide."""
    cols = vectors * lanes
    outer = f"for i0, j0 in T.grid({-(-m // rows)}, {-(-n // cols)}):"
    i0, j0 = "i0", "j0"
    if kind == "parallel":
        outer = f"for f in T.parallel({-(-m // rows) * -(-n // cols)}):"
        i0, j0 = f"(f // {-(-n // cols)})", f"(f % {-(-n // cols)})"
    return f"""
@T.prim_func
def main(A: T.Buffer(({m}, {k}), "float32"), B: T.Buffer(({k}, {n}), "float32"), C: T.Buffer(({m}, {n}), "float32")):
    C_local = T.alloc_buffer(({m}, {n}), scope="local")
    B_p = T.alloc_buffer(({-(-n // cols)}, {k}, {cols}))
    for p, kk in T.grid({-(-n // cols)}, {k}):
        for q in T.vectorized({cols}):
            with T.block("pack"):
                vp, vk, vq = T.axis.remap("SSS", [p, kk, q])
                T.where(p * {cols} + q < {n})
                B_p[vp, vk, vq] = B[vk, vp * {cols} + vq]
    {outer}
        for kk in T.serial({k}, annotations={{"pragma_unroll_factor": {unroll}}}):
            for i1 in T.unroll({rows}):
                for j1 in T.unroll({vectors}):
                    for j2 in T.vectorized({lanes}):
                        with T.block("C"):
                            vi = T.axis.spatial({m}, {i0} * {rows} + i1)
                            vj = T.axis.spatial({n}, {j0} * {cols} + j1 * {lanes} + j2)
                            vk = T.axis.reduce({k}, kk)
                            T.where({i0} * {rows} + i1 < {m} and {j0} * {cols} + j1 * {lanes} + j2 < {n})
                            with T.init():
                                C_local[vi, vj] = T.float32(0)
                            C_local[vi, vj] = C_local[vi, vj] + A[vi, vk] * B_p[vj // {cols}, vk, vj % {cols}]
        for i1 in T.unroll({rows}):
            for j1 in T.unroll({vectors}):
                for j2 in T.vectorized({lanes}):
                    with T.block("C_out"):
                        vi = T.axis.spatial({m}, {i0} * {rows} + i1)
                        vj = T.axis.spatial({n}, {j0} * {cols} + j1 * {lanes} + j2)
                        T.where({i0} * {rows} + i1 < {m} and {j0} * {cols} + j1 * {lanes} + j2 < {n})
                        C[vi, vj] = C_local[vi, vj]
"""


@pytest.mark.parametrize("kind", ["serial", "parallel"])
@pytest.mark.parametrize(
    ("m", "n", "k", "rows", "vectors", "lanes", "unroll"),
    [
        (17, 13, 7, 4, 1, 8, 4),
        (16, 16, 5, 4, 2, 8, 2),
        (7, 33, 3, 8, 2, 16, 4),
        (1, 1, 1, 2, 1, 4, 1),
        (13, 50, 9, 6, 3, 16, 4),
    ],
)
def test_matmul_with_register_tile(m, n, k, rows, vectors, lanes, unroll, kind):
    func = parse(matmul_tiled(m, n, k, rows, vectors, lanes, unroll, kind))
    for target in (AVX512, AVX2):
        lowered = check(func, target)
        text = str(lowered)
        assert "C_local" not in text or 'scope="register"' in text


def test_register_tile_is_ssa_and_tails_are_masked():
    func = parse(matmul_tiled(17, 50, 12, 4, 2, 16, 4, "serial"))
    module = compile_function(func, Target(AVX512), "kernel")
    ll = module.get_source("ll")
    assert "phi <16 x float>" in ll and "llvm.fma.v16f32" in ll and "llvm.masked.store" in ll
    text = str(lower(func, AVX512).func)
    main_loop = text[text.index("for kk_o") :]
    assert "if " not in main_loop.split("C.vstore")[0]


ROW_SUM = """
@T.prim_func
def main(A: T.Buffer((13, 37), "float32"), S: T.Buffer((13,), "float32")):
    P = T.alloc_buffer((13, 8), scope="local")
    for i in T.parallel(13):
        for k0 in T.serial(5):
            for l in T.vectorized(8):
                with T.block("P"):
                    vl = T.axis.spatial(8, l)
                    vi = T.axis.spatial(13, i)
                    vk = T.axis.reduce(5, k0)
                    T.where(k0 * 8 + l < 37)
                    with T.init():
                        P[vi, vl] = T.float32(0)
                    P[vi, vl] = P[vi, vl] + A[vi, vk * 8 + vl]
        for l in T.serial(8, annotations={"tir.horizontal_reduce": 1}):
            with T.block("S"):
                vi, vl = T.axis.remap("SR", [i, l])
                with T.init():
                    S[vi] = T.float32(0)
                S[vi] = S[vi] + P[vi, vl]
"""


def test_row_sum_ends_in_one_horizontal_step():
    lowered = check(parse(ROW_SUM), AVX512)
    assert "vector_reduce_add" in str(lowered)


CLASSIC = """
@T.prim_func
def main(A: T.Buffer((16, 8), "float32"), B: T.Buffer((8, 32), "float32"), C: T.Buffer((16, 32), "float32")):
    for xo, ko, xi in T.grid(4, 2, 4):
        for yi in T.vectorized(32):
            for ki in T.unroll(4):
                with T.block("C"):
                    vi = T.axis.spatial(16, xo * 4 + xi)
                    vj = T.axis.spatial(32, yi)
                    vk = T.axis.reduce(8, ko * 4 + ki)
                    with T.init():
                        C[vi, vj] = T.float32(0)
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""


@pytest.mark.parametrize("target", [AVX512, AVX2, ARM])
def test_a_loop_inside_a_vector_loop(target):
    check(parse(CLASSIC), target)


SYMBOLIC = """
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for i0 in T.parallel((n + 15) // 16):
        for i1 in T.vectorized(16):
            with T.block("B"):
                vi = T.axis.spatial(n, i0 * 16 + i1)
                T.where(i0 * 16 + i1 < n)
                B[vi] = T.max(A[vi] * T.float32(2), T.float32(0))
"""


@pytest.mark.parametrize("n", [1, 7, 16, 17, 100])
def test_symbolic_size_with_masked_tail(n):
    for target in (AVX512, AVX2):
        check(parse(SYMBOLIC), target, {"n": n})


PADDED = """
@T.prim_func
def main(X: T.Buffer((9, 11), "float32"), Y: T.Buffer((9, 11), "float32")):
    P = T.alloc_buffer((11, 13))
    for i, j in T.grid(11, 13):
        with T.block("pad"):
            vi, vj = T.axis.remap("SS", [i, j])
            P[vi, vj] = T.if_then_else(1 <= vi and vi < 10 and 1 <= vj and vj < 12, X[vi - 1, vj - 1], T.float32(0))
    for i in range(9):
        for j in T.vectorized(11):
            for di, dj in T.grid(3, 3):
                with T.block("Y"):
                    vi, vj, vdi, vdj = T.axis.remap("SSRR", [i, j, di, dj])
                    with T.init():
                        Y[vi, vj] = T.float32(0)
                    Y[vi, vj] = Y[vi, vj] + P[vi + vdi, vj + vdj]
"""


def test_padding_reads_nothing_outside():
    for target in (AVX512, AVX2):
        check(parse(PADDED), target)
        check(
            parse(
                PADDED.replace(
                    "for i, j in T.grid(11, 13):\n", "for i in range(11):\n      for j in T.vectorized(13):\n"
                )
            ),
            target,
        )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "uint8", "int32", "int64"])
def test_elementwise_in_each_dtype(dtype):
    text = f"""
@T.prim_func
def main(A: T.Buffer((37,), "{dtype}"), B: T.Buffer((37,), "{dtype}"), C: T.Buffer((37,), "{dtype}")):
    for i in T.vectorized(37):
        with T.block("C"):
            vi = T.axis.spatial(37, i)
            C[vi] = T.max(A[vi] * B[vi] + A[vi], B[vi])
"""
    for target in (AVX512, AVX2):
        check(parse(text), target)


def test_bools_and_selects():
    text = """
@T.prim_func
def main(A: T.Buffer((21,), "int32"), M: T.Buffer((21,), "bool"), C: T.Buffer((21,), "int32")):
    for i in T.vectorized(21):
        with T.block("M"):
            vi = T.axis.spatial(21, i)
            M[vi] = A[vi] > 0 and A[vi] < 3
    for i in T.vectorized(21):
        with T.block("C"):
            vi = T.axis.spatial(21, i)
            C[vi] = T.Select(M[vi], A[vi] // 2, A[vi] % 3) + vi
"""
    for target in (AVX512, AVX2):
        check(parse(text), target)


def test_transposed_and_strided_accesses():
    text = """
@T.prim_func
def main(A: T.Buffer((19, 23), "float32"), B: T.Buffer((23, 19), "float32"), R: T.Buffer((23,), "float32")):
    for i in range(23):
        for j in T.vectorized(19):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vj, vi]
    for i in T.vectorized(23):
        with T.block("R"):
            vi = T.axis.spatial(23, i)
            R[vi] = A[0, 22 - vi]
"""
    for target in (AVX512, AVX2):
        check(parse(text), target)


def test_scratch_that_addresses_itself_stays_where_it_is_allocated():
    """Indices that read the buffer they index are neither moved out of its allocation nor taken for bounds."""
    check(
        parse("""
@T.prim_func
def main(A: T.Buffer((3, 7), "int32"), B: T.Buffer((3,), "int32")):
    S = T.alloc_buffer((3, 7), "int32")
    for i in range(3):
        for j in range(7):
            with T.block("S"):
                vi, vj = T.axis.remap("SS", [i, j])
                S[vi, vj] = T.min(T.max(A[vi, vj], 0), 6)
        with T.block("B"):
            vi = T.axis.spatial(3, i)
            T.reads(S[vi, 0:7])
            T.writes(B[vi])
            B[vi] = T.if_then_else(S[vi, S[vi, 1] % 7] % 3 == 1, S[vi, S[vi, S[vi, 2]] // 2], T.Select(S[vi, 0] % 2 == 1, 1, 2))
"""),
        AVX512,
    )


def test_scratch_that_a_condition_of_a_block_reads_is_allocated_around_it():
    check(
        parse("""
@T.prim_func
def main(A: T.Buffer((7,), "int32"), B: T.Buffer((7,), "int32")):
    S = T.alloc_buffer((7,), "int32")
    for i in range(7):
        with T.block("B_init"):
            vi = T.axis.spatial(7, i)
            B[vi] = 5
        for k in range(1):
            with T.block("S"):
                vi = T.axis.spatial(7, i + k)
                S[vi] = A[vi] * 3
        with T.block("B"):
            vi = T.axis.spatial(7, i)
            T.where(S[i] > 2)
            B[vi] = A[vi]
"""),
        AVX512,
    )


def test_copies_of_an_unrolled_loop_bind_their_own_variables():
    func = parse("""
@T.prim_func
def main(X: T.Buffer((1,), "float32"), Y: T.Buffer((4,), "float32")):
    for i in T.unroll(4):
        with T.block("Y"):
            v = T.axis.spatial(4, i)
            Y[v] = T.exp(X[0])
""")
    lowered = lower(func, "llvm -mcpu=x86-64-v3", check=True)
    bound = [n.var for n in pre_order(lowered.func.body) if isinstance(n, tir.Let)]
    assert len(bound) >= 4 and len(set(bound)) == len(bound)


def test_a_vector_loop_around_another_is_not_repeated():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((16, 7, 8), "float64"), B: T.Buffer((16, 7, 8), "float64")):
    for i in T.vectorized(16):
        for j in T.vectorized(7):
            for k in T.vectorized(8):
                with T.block("B"):
                    vi, vj, vk = T.axis.remap("SSS", [i, j, k])
                    B[vi, vj, vk] = A[vi, vj, vk] + T.float64(1)
""")
    lowered = lower(func, Target("llvm -mcpu=x86-64-v2 -num-cores=1"))
    assert sum(isinstance(n, tir.BufferStore) for n in pre_order(lowered.func.body)) == 1
    a, b = np.arange(16 * 7 * 8, dtype="float64").reshape(16, 7, 8), np.zeros((16, 7, 8))
    compile_function(func, "native -num-cores=1")(a, b)
    assert (b == a + 1).all()


def test_reads_in_a_loop_that_never_runs_do_not_place_a_buffer():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((2, 11)), C: T.Buffer((17, 0))):
    B = T.alloc_buffer((2, 11))
    for i, j in T.grid(2, 11):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj]
    for f in range(0):
        with T.block("C"):
            vi = T.axis.spatial(17, f // 0)
            vj = T.axis.spatial(0, f % 0)
            T.reads(B[0:2, 0:11])
            T.writes(C[vi, vj])
            C[vi, vj] = B[vi % 2, vi % 11] + B[vi // 9, vi // 2]
""")
    lowered = lower(func, Target("native -num-cores=1"))
    stores = [n for n in pre_order(lowered.func.body) if isinstance(n, tir.BufferStore)]
    assert all([int(e) for e in store.buffer.shape] == [2, 11] for store in stores)
    compile_function(func, "native -num-cores=1")(np.ones((2, 11), "float32"), np.ones((17, 0), "float32"))
