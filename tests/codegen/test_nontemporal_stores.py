"""Stores past the caches and prefetches: where annotations put them, and that nothing else changes."""

from __future__ import annotations

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen.compile import compile as compile_function
from tilewright.codegen.llvm.emit import emit
from tilewright.codegen.lower import PASSES, lower
from tilewright.codegen.machine.target import Target
from tilewright.schedule import Schedule
from tilewright.tir.interpret import interpret
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

AVX512 = Target("llvm -mcpu=x86-64-v4 -num-cores=1")
AVX2 = Target("llvm -mcpu=x86-64-v3 -num-cores=2")
SSE = Target("llvm -mcpu=x86-64-v2 -num-cores=2")


def module(name: str):
    spec = spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


STREAM = module("guarded").STREAM


def at(array: np.ndarray, behind: int) -> np.ndarray:
    """A copy that starts ``behind`` bytes after a multiple of 64."""
    room = np.zeros(array.nbytes + 128, np.uint8)
    start = -room.ctypes.data % 64 + behind
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@pytest.mark.parametrize("n", [77, 333, 640])
@pytest.mark.parametrize(("target", "width"), [(AVX512, 16), (AVX512, 8), (AVX2, 8), (SSE, 4)])
def test_every_alignment(target, width, n):
    """Each pass and the machine code compute the same wherever the output starts."""
    unroll = 2 if n == 640 else 1
    func = parse(STREAM.format(n, "float32", -(-n // (unroll * width)), unroll, width, "T.float32"))
    rng = np.random.default_rng(n)
    a = rng.integers(-4, 5, (3, n)).astype("float32")
    v = rng.integers(-4, 5, n).astype("float32")
    want = np.full((3, n), np.nan, "float32")
    interpret(func, a, v, want)
    steps = [func]
    for p in PASSES:
        steps.append(p.run(steps[-1], target))
        verify(steps[-1])
    kernel = None if target.missing_here() else compile_function(func, target, "kernel")
    for behind in (0, 4, 16, 60):
        for step in steps[-8:] if behind in (4, 16) else steps[-1:]:
            out = at(np.full((3, n), np.nan, "float32"), behind)
            interpret(step, a, v, out)
            np.testing.assert_array_equal(out, want)
        if kernel is not None:
            out = at(np.full((3, n), np.nan, "float32"), behind)
            kernel(a, v, out)
            np.testing.assert_array_equal(out, want)


def scheduled(what: str, rows: int = 4, columns: int = 4096):
    """relu(a * b) with the annotation on a block, on the vector loop or on the loop around it."""
    a, b = te.placeholder((rows, columns), name="A"), te.placeholder((rows, columns), name="B")
    c = te.compute((rows, columns), lambda i, j: te.max(a[i, j] * b[i, j], 0.0), name="C")
    sch = Schedule(te.create_prim_func([a, b, c]))
    i, j = sch.get_loops("C")
    outer, inner = sch.split(j, [None, 16])
    sch.parallel(i)
    sch.vectorize(inner)
    sch.annotate({"block": "C", "vector": inner, "loop": outer, "rows": i}[what], "pragma_nontemporal_store", 1)
    return sch


@pytest.mark.parametrize("what", ["block", "vector", "loop", "rows"])
def test_block_or_loop(what):
    made = compile_function(scheduled(what), AVX512, "kernel")
    asm = made.get_source("asm")
    assert len(re.findall(r"vmovntps\s+%zmm", asm)) >= 1 and asm.count("sfence") == 1
    two = compile_function(scheduled(what), AVX2, "kernel").get_source("asm")
    region = two[two.index("kernel_region1_body:") :]
    assert "vmovntps" in region and "sfence" in region  # every thread waits for its own stores
    assert "sfence" not in two[: two.index("kernel_region1_body:")].split("kernel:")[-1]


def test_nothing_without_the_annotation_or_with_zero():
    for value in (None, 0):
        sch = scheduled("block")
        sch.unannotate("C", "pragma_nontemporal_store")
        if value is not None:
            sch.annotate("C", "pragma_nontemporal_store", value)
        asm = compile_function(sch, AVX512, "kernel").get_source("asm")
        assert "movnt" not in asm and "sfence" not in asm


def test_other_machines_have_no_fence():
    arm = Target("llvm -mtriple=aarch64-unknown-linux-gnu -mattr=+neon -num-cores=1")
    asm = compile_function(scheduled("block"), arm, "kernel").get_source("asm")
    assert "stnp" in asm and "sfence" not in asm


@pytest.mark.parametrize(
    "body",
    [
        "B[i * 16 + v] = A[i * 16 + v + 1] + B[i * 16 + v + 16]",  # reads what it writes
        "B[v * 64 + i] = A[i * 16 + v]",  # with gaps
        "B[i * 16 + v] = A[i * 17 + v]",  # not a function of the element's number
        "B[i * 16 + v] = A[v]",
    ],
)
def test_what_cannot_be_shifted_keeps_plain_stores(body):
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer((2000,), "float32"), B: T.Buffer((1041,), "float32")):
    for i in T.serial(64, annotations={{"pragma_nontemporal_store": 1}}):
        for v in T.vectorized(16):
            {body}
""")
    lowered = lower(func, AVX512)
    assert "misaligned" not in str(lowered.func)
    assert "movnt" not in compile_function(func, AVX512, "kernel").get_source("asm")


def test_scratch_memory_is_aligned_without_shifting():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((64, 1024), "float32"), B: T.Buffer((1024, 64), "float32")):
    W = T.alloc_buffer((64, 1024), "float32")
    for i in range(64):
        for j in T.serial(64, annotations={"pragma_nontemporal_store": 1}):
            for v in T.vectorized(16):
                with T.block("W"):
                    vi = T.axis.spatial(64, i)
                    vj = T.axis.spatial(1024, j * 16 + v)
                    W[vi, vj] = A[vi, vj] + T.float32(1)
    for j, i in T.grid(1024, 64):
        with T.block("B"):
            vj, vi = T.axis.remap("SS", [j, i])
            B[vj, vi] = W[vi, vj]
""")
    lowered = lower(func, Target("native -num-cores=1"), "kernel")
    assert "misaligned" not in str(lowered.func) and "!nontemporal" in emit(lowered)
    a = np.random.default_rng(0).random((64, 1024)).astype("float32")
    b = np.full((1024, 64), np.nan, "float32")
    compile_function(func, Target("native -num-cores=1"), "kernel")(a, b)
    np.testing.assert_array_equal(b, (a + 1).T)


def tiled(annotation) -> str:
    return f"""
@T.prim_func
def main(A: T.Buffer((4, 64), "float32"), B: T.Buffer((64, 32), "float32"), C: T.Buffer((4, 32), "float32")):
    W = T.alloc_buffer((4, 32), scope="local")
    for k in T.serial(64, annotations={annotation}):
        for i in T.unroll(4):
            for j in T.unroll(2):
                for v in T.vectorized(16):
                    with T.block("W"):
                        vi = T.axis.spatial(4, i)
                        vj = T.axis.spatial(32, j * 16 + v)
                        vk = T.axis.reduce(64, k)
                        with T.init():
                            W[vi, vj] = T.float32(0)
                        W[vi, vj] = W[vi, vj] + A[vi, vk] * B[vk, vj]
    for i in T.unroll(4):
        for j in T.unroll(2):
            for v in T.vectorized(16):
                with T.block("C"):
                    vi = T.axis.spatial(4, i)
                    vj = T.axis.spatial(32, j * 16 + v)
                    C[vi, vj] = W[vi, vj]
"""


@pytest.mark.parametrize(
    ("annotation", "prefetches"),
    [
        ({"pragma_prefetch_distance": 8}, ["B[k + 8, 0]", "B[k + 8, 16]"]),
        ({"pragma_prefetch_distance": {"A": 16}}, [f"A[{i}, k + 16]" for i in range(4)]),
        ({"pragma_prefetch_distance": {"A": 16, "B": 2}}, None),
        ({"pragma_prefetch_distance": 0}, []),
        ({"pragma_prefetch_distance": 8, "pragma_unroll_factor": 4}, None),
    ],
)
def test_prefetches(annotation, prefetches):
    func = parse(tiled(annotation))
    lowered = lower(func, AVX512, "kernel")
    text = str(lowered.func)
    found = re.findall(r'T.call\("tir.prefetch", T.address_of\((.*?\])\), 0, 3', text)
    if prefetches is not None:
        assert sorted(found) == sorted(prefetches)
    elif "pragma_unroll_factor" in annotation:  # two trips of four ahead
        assert len(found) == 8 and "B[k_o * 4 + 8, 0]" in found
    else:
        assert len(found) == 6
    assert [p.writes for p in lowered.params] == [False, False, True]
    asm = compile_function(func, AVX512, "kernel").get_source("asm")
    assert asm.count("prefetcht0") == len(found)
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (4, 64)).astype("float32"), rng.integers(-4, 5, (64, 32)).astype("float32")
    for run in (lambda *x: interpret(lowered.func, *x), compile_function(func, Target("native"), "kernel")):
        c = np.full((4, 32), np.nan, "float32")
        run(a, b, c)
        np.testing.assert_array_equal(c, a @ b)


def test_lookups_are_not_prefetched():
    """The place of the element is itself in memory: finding it out could read outside."""
    func = parse("""
@T.prim_func
def main(I: T.Buffer((64,), "int32"), A: T.Buffer((64, 16), "float32"), C: T.Buffer((64, 16), "float32")):
    for i in T.serial(64, annotations={"pragma_prefetch_distance": 4}):
        for v in T.vectorized(16):
            C[i, v] = A[I[i], v]
""")
    assert "prefetch(" not in str(lower(func, AVX512).func)
