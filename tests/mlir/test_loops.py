"""Loops over memory: what goes out comes in structurally equal, LLVM's tools run it, loops from elsewhere can be scheduled."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tilewright import Schedule, build, from_mlir, te, tir, to_mlir
from tilewright.codegen import Target, compile
from tilewright.mlir import MlirError
from tilewright.mlir.mlir_source import lowered_for_mlir
from tilewright.tir.expr import Let
from tilewright.tir.interpret import interpret
from tilewright.tir.walk import substitute, transform
from tilewright.tuner import default_schedule

from .outside_tools import MLIR_OPT, MLIR_TRANSLATE, LlvmModule
from .programs import arrays, program

pytest.importorskip("xdsl", reason="the package xdsl is not installed")
TARGET = Target("llvm -mcpu=x86-64-v3 -num-cores=2")
ROWS = [
    "matmul", "matmul of int8", "conv2d", "depthwise_conv2d", "softmax", "layer_norm", "argmax", "sum", "transpose",
    "reshape", "take", "gather_elements", "scatter_elements", "scatter_nd", "topk", "cumsum", "where", "logical_and",
    "multiply of float16", "add of bfloat16", "floor_divide of int32", "max_pool2d", "erf", "attention", "pad",
]  # fmt: skip


def scheduled(row, symbol="main"):
    return default_schedule(program(row, symbol), TARGET).func


def without_names(func):
    """The function whose named parts of expressions stand at each of their uses, as values of MLIR are read."""
    return transform(func, post=lambda n: substitute(n.body, {n.var: n.value}) if isinstance(n, Let) else None)


@pytest.mark.parametrize("row", ROWS)
def test_what_goes_out_comes_in(row):
    func = scheduled(row)
    back = from_mlir(str(to_mlir(func, "loops", target=TARGET)))
    tir.assert_structural_equal(back, without_names(lowered_for_mlir(func, TARGET)))


def by_hand():
    a, b = te.placeholder((17, 13), name="A"), te.placeholder((13, 16), name="B")
    k = te.reduce_axis((0, 13), "k")
    sch = Schedule(te.create_prim_func([a, b, te.compute((17, 16), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]))  # fmt: skip
    i, j, k = sch.get_loops(sch.get_block("C"))
    i0, i1 = sch.split(i, [None, 4])
    j0, j1 = sch.split(j, [None, 8])
    sch.reorder(i0, j0, k, i1, j1)
    sch.parallel(i0)
    sch.vectorize(j1)
    return sch


def test_a_schedule_by_hand_is_parallel_loops_over_vectors():
    text = str(to_mlir(by_hand(), "loops"))
    for word in ("scf.parallel", "scf.for", "vector.load", "vector.store", "arith.addf", "scf.if"):
        assert word in text
    tir.assert_structural_equal(from_mlir(text), lowered_for_mlir(by_hand().func, Target("native")))


def test_a_module_has_the_source_mlir(tmp_path):
    module = compile(by_hand(), "native -num-cores=1", "main")
    assert module.get_source("mlir") == str(to_mlir(by_hand(), "loops")) + "\n"
    assert module.export(tmp_path / "c.mlir")[0].read_text() == module.get_source("mlir")


def test_while_and_let_and_assert():
    func = tir.parse("""
@T.prim_func
def main(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32"), n: T.int32):
    T.func_attr({"tir.noalias": True})
    assert n >= 0, "n is negative"
    for i in range(n, n + 4):
        x: T.int32 = A[i % 8] * 2
        while B[i % 8] < x:
            B[i % 8] = B[i % 8] + 1
        with T.decl_buffer((4,), "float32") as C:
            C[0] = T.float32(1)
            if x > 3:
                B[i % 8] = T.Cast("int32", C[0])
            else:
                B[i % 8] = 7
    for j in T.parallel(8):
        B[j] = T.max(B[j], A[j])
""")
    tir.assert_structural_equal(from_mlir(str(to_mlir_loops(func))), func)


def to_mlir_loops(func):
    from tilewright.mlir.mlir_modules import loop_module

    return loop_module([func])


MATMUL = """
func.func @mm(%A: memref<7x13xf32>, %B: memref<13x17xf32>, %C: memref<7x17xf32>) {
  %zero = arith.constant 0.0 : f32
  affine.for %i = 0 to 7 {
    affine.for %j = 0 to 17 {
      affine.store %zero, %C[%i, %j] : memref<7x17xf32>
      affine.for %k = 0 to 13 {
        %a = affine.load %A[%i, %k] : memref<7x13xf32>
        %b = affine.load %B[%k, %j] : memref<13x17xf32>
        %c = affine.load %C[%i, %j] : memref<7x17xf32>
        %p = arith.mulf %a, %b : f32
        %s = arith.addf %c, %p : f32
        affine.store %s, %C[%i, %j] : memref<7x17xf32>
      }
    }
  }
  return
}
"""
CARRIED = """
func.func @mm(%A: memref<7x13xf32>, %B: memref<13x17xf32>, %C: memref<7x17xf32>) {
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c7 = arith.constant 7 : index
  %c13 = arith.constant 13 : index
  %c17 = arith.constant 17 : index
  scf.for %i = %c0 to %c7 step %c1 {
  scf.for %j = %c0 to %c17 step %c1 {
    %t = scf.for %k = %c0 to %c13 step %c1 iter_args(%acc = %zero) -> (f32) {
      %a = memref.load %A[%i, %k] : memref<7x13xf32>
      %b = memref.load %B[%k, %j] : memref<13x17xf32>
      %p = arith.mulf %a, %b : f32
      %s = arith.addf %acc, %p : f32
      scf.yield %s : f32
    }
    memref.store %t, %C[%i, %j] : memref<7x17xf32>
  }
  }
  return
}
"""


@pytest.mark.parametrize("text", [MATMUL, CARRIED], ids=["affine", "scf with a carried value"])
def test_loops_from_elsewhere(text):
    func = from_mlir(text)
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (7, 13)).astype(np.float32), rng.integers(-4, 5, (13, 17)).astype(np.float32)
    c = np.full((7, 17), np.nan, np.float32)
    interpret(func, a, b, c)
    assert np.array_equal(c, a @ b)
    c[:] = np.nan
    build(func)(a, b, c)
    assert np.array_equal(c, a @ b)


def test_loops_from_elsewhere_can_be_scheduled():
    sch = Schedule(from_mlir(MATMUL))
    block = sch.get_block("C")
    assert sch.get(block).init is not None
    i, j, k = sch.get_loops(block)
    sch.reorder(i, k, j)
    sch.vectorize(j)


SWAP = """
func.func @swap(%A: memref<8xf32>) {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %c4 step %c1 {
    %j = arith.addi %i, %c4 : index
    %a = memref.load %A[%i] : memref<8xf32>
    %b = memref.load %A[%j] : memref<8xf32>
    memref.store %b, %A[%i] : memref<8xf32>
    memref.store %a, %A[%j] : memref<8xf32>
  }
  return
}
"""


@pytest.mark.parametrize("blocks", [True, False])
def test_a_value_is_read_before_its_memory_changes(blocks):
    a = np.arange(8, dtype=np.float32)
    interpret(from_mlir(SWAP, blocks=blocks), a)
    assert a.tolist() == [4, 5, 6, 7, 0, 1, 2, 3]


def converted(source, to):
    """Floats of a type as integers, eight at a time, as a program of loops."""
    a = te.placeholder((16,), source, name="A")
    sch = Schedule(te.create_prim_func([a, te.compute((16,), lambda i: a[i].astype(to), name="B")]))
    sch.vectorize(sch.split(*sch.get_loops(sch.get_block("B")), [None, 8])[1])
    return sch.func


@pytest.mark.parametrize("to", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("source", ["float16", "float32", "float64"])
def test_floats_become_the_nearest_integer_of_the_type(source, to):
    func, ends = converted(source, to), np.iinfo(to)
    text = str(to_mlir(func, "loops", target=TARGET))
    tir.assert_structural_equal(from_mlir(text), lowered_for_mlir(func, TARGET))
    written_out = from_mlir(text.replace('tilewright.as = "Cast"', 'other = "Cast"'))
    low, high = float(ends.min), float(ends.max)
    numbers = [np.nan, np.inf, -np.inf, -0.0, 0.5, -0.5, -1.0, high, high + 1, np.nextafter(high + 1, 0), low, low - 1,
               1e30, -1e30, 126.7, -128.9]  # fmt: skip
    with np.errstate(over="ignore"):
        a = np.array(numbers).astype(source)
    want, got = np.zeros(16, to), np.zeros(16, to)
    interpret(func, a.copy(), want)
    interpret(written_out, a.copy(), got)
    assert got.tolist() == want.tolist()
    assert want[:3].tolist() == [0, ends.max, ends.min]
    assert "T.Select" in written_out.script()


@pytest.mark.parametrize("number", [2147483648.0, 16777217.0, 0.1, 1e300, float("inf")])
def test_vectors_of_constants_come_in_as_they_went_out(number):
    a = te.placeholder((8,), "float64", name="A")
    sch = Schedule(te.create_prim_func([a, te.compute((8,), lambda i: a[i] + te.const(number, "float64"), name="B")]))
    sch.vectorize(*sch.get_loops(sch.get_block("B")))
    back = from_mlir(str(to_mlir(sch.func, "loops", target=TARGET)))
    tir.assert_structural_equal(back, lowered_for_mlir(sch.func, TARGET))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("memref.store %b, %A[%i]", "memref.atomic_rmw addf %b, %A[%i]", "MLIR|atomic"),
        ("%c4 step", "%c9 step", "MLIR"),
        ("memref<8xf32>\n    memref.store %a", "memref<8xi32>\n    memref.store %a", "MLIR|swap"),
        ("  }\n  return", "  return", "MLIR"),
    ],
)
def test_damaged_texts_give_one_clear_error(old, new, words):
    assert old in SWAP
    with pytest.raises(MlirError, match=words):
        from_mlir(SWAP.replace(old, new))


def test_threads_are_refused_by_name():
    sch = Schedule(program("relu"))
    i, _ = sch.get_loops(sch.get_block("T_relu"))
    sch.bind(i, "threadIdx.x")
    with pytest.raises(MlirError, match="threadIdx.x"):
        to_mlir(sch, "loops")


@pytest.fixture(scope="module")
def by_llvm():
    if MLIR_OPT is None or MLIR_TRANSLATE is None:
        pytest.skip("mlir-opt 19 or later is not installed")
    functions = {f"f{n}": scheduled(row) for n, row in enumerate(ROWS)}
    return LlvmModule(str(to_mlir(functions, "loops", target=TARGET)))


@pytest.mark.parametrize("row", ROWS)
def test_llvm_runs_what_goes_out(row, by_llvm):
    func = program(row)
    given = arrays(func)
    want, got = [a.copy() for a in given], [a.copy() for a in given]
    interpret(func, *want)
    by_llvm(f"f{ROWS.index(row)}", *got)
    for buffer, a, b in zip(func.buffers, got, want, strict=True):
        if buffer.dtype == "bfloat16":
            a, b = ((x.astype(np.uint32) << 16).view(np.float32) for x in (a, b))
        loose = 1e-2 if buffer.dtype in ("float16", "bfloat16") else 2e-5
        np.testing.assert_allclose(a, b, rtol=loose, atol=loose / 10)


def test_a_number_as_a_parameter():
    x = te.placeholder((7,), name="X")
    n = te.var("n")
    func = te.create_prim_func([n, x, te.compute((7,), lambda i: x[i] * n)])
    text = str(to_mlir(func, "loops"))
    tir.assert_structural_equal(from_mlir(text), lowered_for_mlir(func, Target("native")))
    if MLIR_OPT and MLIR_TRANSLATE:
        a, b = np.arange(7, dtype=np.float32), np.zeros(7, np.float32)
        LlvmModule(text)("main", ctypes.c_int32(3), a, b)
        assert b.tolist() == (a * 3).tolist()
