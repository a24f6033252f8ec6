"""What the machine code looks like: vectors, fused multiply-add, masks, no spills, no instructions the target lacks."""

from __future__ import annotations

import ctypes
import re

import numpy as np
import pytest

from tilewright.codegen.compile import compile as compile_function
from tilewright.codegen.llvm.emit import emit
from tilewright.codegen.llvm.jit import load, optimize_and_compile
from tilewright.codegen.lower import lower
from tilewright.codegen.machine.target import Target
from tilewright.codegen.runtime.arguments import c_types
from tilewright.codegen.runtime.loader import runtime_symbols
from tilewright.tir.parser import parse


def tile(rows: int, vectors: int, lanes: int, m: int = 64, n: int = 96, k: int = 64) -> str:
    """A matmul whose accumulators are a register tile; B is read in place."""
    cols = vectors * lanes
    return f"""
@T.prim_func
def main(A: T.Buffer(({m}, {k}), "float32"), B: T.Buffer(({k}, {n}), "float32"), C: T.Buffer(({m}, {n}), "float32")):
    C_local = T.alloc_buffer(({m}, {n}), scope="local")
    for i0, j0 in T.grid({-(-m // rows)}, {-(-n // cols)}):
        for kk in T.serial({k}):
            for i1 in T.unroll({rows}):
                for j1 in T.unroll({vectors}):
                    for j2 in T.vectorized({lanes}):
                        with T.block("C"):
                            vi = T.axis.spatial({m}, i0 * {rows} + i1)
                            vj = T.axis.spatial({n}, j0 * {cols} + j1 * {lanes} + j2)
                            vk = T.axis.reduce({k}, kk)
                            T.where(i0 * {rows} + i1 < {m} and j0 * {cols} + j1 * {lanes} + j2 < {n})
                            with T.init():
                                C_local[vi, vj] = T.float32(0)
                            C_local[vi, vj] = C_local[vi, vj] + A[vi, vk] * B[vk, vj]
        for i1 in T.unroll({rows}):
            for j1 in T.unroll({vectors}):
                for j2 in T.vectorized({lanes}):
                    with T.block("C_out"):
                        vi = T.axis.spatial({m}, i0 * {rows} + i1)
                        vj = T.axis.spatial({n}, j0 * {cols} + j1 * {lanes} + j2)
                        T.where(i0 * {rows} + i1 < {m} and j0 * {cols} + j1 * {lanes} + j2 < {n})
                        C[vi, vj] = C_local[vi, vj]
"""


def inner_loop(asm: str, fma: str) -> list[str]:
    """The instructions of the basic block with the most multiply-adds."""
    blocks = re.split(r"^\S+:.*$", asm, flags=re.M)
    best = max(blocks, key=lambda b: len(re.findall(fma, b)))
    return [
        line.strip() for line in best.splitlines() if line.strip() and not line.strip().startswith((".", "#", "//"))
    ]


@pytest.mark.parametrize(
    ("target", "rows", "vectors", "lanes", "fma", "stack"),
    [
        ("llvm -mcpu=x86-64-v4 -num-cores=1", 8, 3, 16, r"vfmadd\S+ps\s.*zmm", r"\(%rsp\)"),
        ("llvm -mcpu=x86-64-v3 -num-cores=1", 4, 3, 8, r"vfmadd\S+ps\s.*ymm", r"\(%rsp\)"),
        ("llvm -mtriple=aarch64-unknown-linux-gnu -mattr=+neon -num-cores=1", 4, 4, 4, r"fmla\s", r"\[sp"),
    ],
)
def test_register_tile_has_its_multiply_adds_and_no_spills(target, rows, vectors, lanes, fma, stack):
    module = compile_function(parse(tile(rows, vectors, lanes)), Target(target), "kernel")
    body = inner_loop(module.get_source("asm"), fma)
    assert len([line for line in body if re.search(fma, line)]) == rows * vectors
    assert not [line for line in body if re.search(stack, line)], "\n".join(body)
    assert "call" not in "\n".join(body)


@pytest.mark.parametrize(("cpu", "absent"), [("x86-64-v2", r"%[yz]mm|vfmadd"), ("x86-64-v3", r"%zmm|\{%k\d\}")])
def test_no_instruction_of_a_higher_level(cpu, absent):
    target = Target(f"llvm -mcpu={cpu} -num-cores=1")
    asm = compile_function(parse(tile(4, 2, 8, 17, 30, 13)), target, "kernel").get_source("asm")
    assert not re.search(absent, asm)


def test_masked_tails_use_masks():
    text = tile(4, 2, 16, 17, 50, 12)
    asm = compile_function(parse(text), Target("llvm -mcpu=x86-64-v4 -num-cores=1"), "kernel").get_source("asm")
    assert re.search(r"vmovups\s+%zmm\d+, .*\{%k\d\}", asm)
    asm = compile_function(
        parse(tile(4, 2, 8, 17, 30, 12)), Target("llvm -mcpu=x86-64-v3 -num-cores=1"), "kernel"
    ).get_source("asm")
    assert "vmaskmovps" in asm or "vpmaskmov" in asm


@pytest.mark.parametrize("level", [0, 3])
def test_optimizing_changes_nothing(level):
    """Small integers: exact whatever the order."""
    target = Target("llvm -mcpu=x86-64-v3 -num-cores=2")
    lowered = lower(
        parse(
            tile(4, 2, 8, 17, 30, 13).replace(
                "for i0, j0 in T.grid(5, 2):", "for i0 in T.parallel(5):\n      for j0 in range(2):"
            )
        ),
        target,
        "kernel",
    )
    code = optimize_and_compile(emit(lowered), target, level)
    loaded = load(code.object, ["kernel"], runtime_symbols())
    rng = np.random.default_rng(0)
    a = rng.integers(-4, 5, (17, 13)).astype("float32")
    b = rng.integers(-4, 5, (13, 30)).astype("float32")
    c = np.full((17, 30), np.nan, "float32")
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, *c_types(lowered.params))(loaded.address("kernel"))
    assert entry(a.ctypes.data, b.ctypes.data, c.ctypes.data) == 0
    np.testing.assert_array_equal(c, a @ b)


def test_symbols_and_scalars_are_parameters():
    func = parse("""
@T.prim_func
def main(a: T.handle, scale: T.float32, b: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (n, 2 * n), "float32")
    B = T.match_buffer(b, (n, 2 * n), "float32")
    for i, j in T.grid(n, 2 * n):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * scale
""")
    module = compile_function(func, Target("native"), "scaled")
    assert re.search(r"define .*i32 @scaled\(ptr [^,]*%a0, float %a1, ptr [^,]*%a2, i64 %a3\)", module.get_source("ll"))
    a = np.arange(18, dtype="float32").reshape(3, 6)
    b = np.full((3, 6), np.nan, "float32")
    module(a, 0.5, b)
    np.testing.assert_array_equal(b, a * np.float32(0.5))


def test_a_name_that_the_code_itself_calls():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((8,), "float64"), B: T.Buffer((8,), "float64")):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = T.call_extern("float64", "hypot", A[vi], A[vi])
""")
    compile_function(func, Target("native"), "lengths")
    with pytest.raises(ValueError, match="named like the library function that it calls; give it another name"):
        compile_function(func, Target("native"), "hypot")


SCRATCH = """
@T.prim_func
def main(A: T.Buffer((13, {0}), "{1}"), B: T.Buffer((13, {0}), "{1}")):
    P = T.alloc_buffer((13, {0}), "{1}")
    P[12, {0} - 1] = A[12, {0} - 1]
    for i in range(13):
        for j in T.serial({0} // 8):
            for v in T.vectorized(8):
                P[i, j * 8 + v] = A[i, j * 8 + v]
    for i in range(13):
        for j in T.serial({0} // 8):
            for v in T.vectorized(8):
                B[12 - i, j * 8 + v] = P[12 - i, j * 8 + v]
    B[12, {0} - 1] = P[12, {0} - 1]
"""


@pytest.mark.parametrize(
    ("columns", "dtype", "aligned"),
    [
        (16, "float32", 32),
        (24, "float32", 32),
        (24, "float64", 64),
        (20, "float32", 16),
        (17, "float32", 4),
        (64, "int8", 8),
    ],
)
def test_vectors_of_scratch_memory_are_aligned_where_that_is_sure(columns, dtype, aligned):
    func = parse(SCRATCH.format(columns, dtype))
    lines = emit(lower(func, "llvm -mcpu=x86-64-v4 -num-cores=1")).splitlines()
    found = [int(line.split("align ")[1].split(",")[0]) for line in lines if re.search(r"(load|store) <8 x", line)]
    size = int(np.dtype(dtype).itemsize)
    assert found == [size, aligned, aligned, size]
    a, b = np.arange(13 * columns).reshape(13, columns).astype(dtype), np.zeros((13, columns), dtype)
    compile_function(func, "native -num-cores=1")(a, b)
    np.testing.assert_array_equal(a[:, : columns // 8 * 8], b[:, : columns // 8 * 8])


def remainders(index: str, rows: int = 91) -> str:
    """A loop whose inner loops read a row that a remainder of the outer loop's variable picks."""
    return f"""
@T.prim_func
def main(A: T.Buffer((16, 7, 13), "float32"), C: T.Buffer(({rows}, 16, 13), "float32")):
    for i in T.serial({rows}):
        for j, k in T.grid(16, 13):
            C[i, j, k] = A[j, {index}, k]
"""


@pytest.mark.parametrize("index", ["i % 7", "i // 3 % 7", "(i * 2 + 1) % 7"])
@pytest.mark.parametrize("target", ["llvm -mcpu=x86-64-v3", "llvm -mtriple=riscv64-linux-gnu"])
def test_remainders_of_outer_loops_are_computed_once_and_hidden(index, target):
    text = emit(lower(parse(remainders(index)), Target(f"{target} -num-cores=1"), "main"))
    inner = text[text.index("%j") :]
    hidden = target.startswith("llvm -mcpu")
    assert text.count(" urem ") == 1
    assert text.count('call i64 asm ""') == hidden
    assert " urem " not in inner


@pytest.mark.parametrize(
    "index", ["i % 7", "i // 3 % 7", "(i * 2 + 1) % 7", "(i % 9 + i // 3) % 7", "(i % 9 % 8 + i) % 5 % 3"]
)
def test_hidden_remainders_pick_the_right_rows(index):
    A = np.arange(16 * 7 * 13, dtype=np.float32).reshape(16, 7, 13)
    C = np.full((91, 16, 13), np.nan, np.float32)
    compile_function(parse(remainders(index)))(A, C)
    np.testing.assert_array_equal(C, A[:, eval(index, {"i": np.arange(91)}), :].transpose(1, 0, 2))
