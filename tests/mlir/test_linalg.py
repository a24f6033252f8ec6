"""linalg on tensors: what goes out comes in structurally equal, and IREE's results are those of the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import from_mlir, te, tir, to_mlir
from tilewright.mlir import MlirError
from tilewright.tir.interpret import interpret

from .iree_table import compared
from .outside_tools import IREE, MLIR_OPT, IreeModule, verified_by_mlir_opt
from .programs import ROWS, arrays, program

pytest.importorskip("xdsl", reason="the package xdsl is not installed")
ORDERED = "is a scan axis, whose order counts"
LEFT_OUT = {
    "scatter_elements": "holds For",
    "scatter_nd": "holds For",
    "hypot": "no counterpart in MLIR",
    "cumsum": ORDERED,
    "cumprod": ORDERED,
}
"""Rows that linalg does not express, and a part of the message."""


@pytest.mark.parametrize("row", [row for row in ROWS if row not in LEFT_OUT])
def test_what_goes_out_comes_in(row):
    func = program(row)
    tir.assert_structural_equal(from_mlir(str(to_mlir(func))), func)


@pytest.mark.parametrize("row", LEFT_OUT)
def test_an_operator_that_is_left_out_says_why(row):
    with pytest.raises(MlirError, match=LEFT_OUT[row]):
        to_mlir(program(row))


def symbolic(name, make):
    n, m = te.var("n"), te.var("m")
    x = te.placeholder((n, m), name="X")
    return pytest.param(lambda: make(x, n, m), id=name)


@pytest.mark.parametrize(
    "make",
    [
        symbolic("rows", lambda x, n, m: [x, te.ops.softmax(x)]),
        symbolic("larger", lambda x, n, m: [x, te.compute((n + 1, m), lambda i, j: te.if_then_else(i < n, x[i, j], 0.0))]),
        symbolic("scalar parameter", lambda x, n, m: [n, x, te.compute((n, m), lambda i, j: x[i, j] * n)]),
        symbolic("output first", lambda x, n, m: [te.compute((n,), lambda i: x[i, 0]), x]),
        symbolic("index as data", lambda x, n, m: [x, te.compute((n, m), lambda i, j: x[i, j] + (i * 2 + j).astype("float32"))]),
    ],
)  # fmt: skip
def test_symbolic_sizes(make):
    func = te.create_prim_func(make())
    tir.assert_structural_equal(from_mlir(str(to_mlir(func))), func)


def test_a_reduction_that_begins_at_another_index_and_value():
    x = te.placeholder((7, 13), name="X")
    k = te.reduce_axis((3, 11), "k")
    b = te.placeholder((7,), name="B")
    func = te.create_prim_func(
        [x, b, te.compute((7,), lambda i: te.sum(x[i, k], axis=k, where=x[i, k] > 0, init=b[i]))]
    )
    tir.assert_structural_equal(from_mlir(str(to_mlir(func))), func)


def test_equal_names_and_rank_zero():
    a, b = te.placeholder((), name="X"), te.placeholder((), name="X")
    func = te.create_prim_func([a, b, te.compute((), lambda: a() + b(), name="X")])
    tir.assert_structural_equal(from_mlir(str(to_mlir(func))), func)


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8", "uint32", "float16", "bfloat16", "float64", "bool"])
@pytest.mark.parametrize("to", ["int8", "int32", "uint8", "uint64", "float16", "bfloat16", "float64", "bool"])
def test_conversions(dtype, to):
    x = te.placeholder((5,), dtype, name="X")
    func = te.create_prim_func([x, te.compute((5,), lambda i: x[i].astype(to))])
    tir.assert_structural_equal(from_mlir(str(to_mlir(func))), func)


DIVISIONS = {"floordiv": te.floordiv, "floormod": te.floormod, "truncdiv": te.truncdiv, "truncmod": te.truncmod}


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint8"])
@pytest.mark.parametrize("division", DIVISIONS)
@pytest.mark.parametrize("divisor", [None, 3])
def test_divisions(division, dtype, divisor):
    a, b = te.placeholder((5,), dtype, name="A"), te.placeholder((5,), dtype, name="B")
    func = te.create_prim_func([a, b, te.compute((5,), lambda i: DIVISIONS[division](a[i], b[i] if divisor is None else te.const(divisor, dtype)))])  # fmt: skip
    tir.assert_structural_equal(from_mlir(str(to_mlir(func))), func)


MATMUL = """
#map = affine_map<(d0, d1) -> (d0, d1)>
func.func @mm(%A: tensor<?x?xf32>, %B: tensor<?x?xf32>, %bias: tensor<?xf32>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = tensor.dim %A, %c0 : tensor<?x?xf32>
  %n = tensor.dim %B, %c1 : tensor<?x?xf32>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%m, %n) : tensor<?x?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %p = linalg.matmul ins(%A, %B : tensor<?x?xf32>, tensor<?x?xf32>) outs(%f : tensor<?x?xf32>) -> tensor<?x?xf32>
  %r = linalg.generic {indexing_maps = [#map, affine_map<(d0, d1) -> (d1)>, #map], iterator_types = ["parallel", "parallel"]}
      ins(%p, %bias : tensor<?x?xf32>, tensor<?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %s = arith.addf %x, %y : f32
    %t = arith.maximumf %s, %zero : f32
    linalg.yield %t : f32
  } -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}
"""


def test_a_program_from_elsewhere():
    func = from_mlir(MATMUL)
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(-4, 5, s).astype(np.float32) for s in ((7, 13), (13, 17), (17,)))
    out = np.full((7, 17), np.nan, np.float32)
    interpret(func, a, b, c, out)
    assert np.array_equal(out, np.maximum(a @ b + c, 0))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("linalg.matmul", "linalg.softmax", "linalg.softmax"),
        ("arith.maximumf", "arith.bogus", "arith.bogus"),
        ("  return", "  retur", "no valid MLIR"),
        ("(d0, d1) -> (d1)", "(d0) -> (d0)", "indexing_map"),
        ("tensor.dim %A, %c0", "tensor.dim %A, %m", "depends on itself"),
        ("-> tensor<?x?xf32> {\n  %c0", "-> tensor<?x?xi32> {\n  %c0", "MLIR|mm"),
        ("func.func @mm", "llvm.func @mm", "MLIR"),
        ("}\n", "", "no valid MLIR"),
    ],
)
def test_damaged_texts_give_one_clear_error(old, new, words):
    assert old in MATMUL
    with pytest.raises(MlirError, match=words):
        from_mlir(MATMUL.replace(old, new))


def test_every_prefix_of_a_text_is_an_error():
    text = str(to_mlir(program("softmax")))
    for end in range(0, len(text) - 4, 97):
        with pytest.raises(MlirError):
            from_mlir(text[:end])


def test_a_scheduled_function_is_refused_with_its_loop():
    sch = tir_schedule(program("matmul"))
    with pytest.raises(MlirError, match="block matmul has a predicate"):
        to_mlir(sch)


def tir_schedule(func):
    from tilewright import Schedule

    sch = Schedule(func)
    sch.split(sch.get_loops(sch.get_block("matmul"))[0], [None, 4])
    return sch


@pytest.mark.skipif(MLIR_OPT is None, reason="mlir-opt 19 or later is not installed")
def test_mlir_opt_verifies_what_goes_out():
    rows = [row for row in ROWS if row not in LEFT_OUT]
    texts = [str(next(iter(to_mlir(program(row, f"f{n}")).ops))) for n, row in enumerate(rows)]
    assert verified_by_mlir_opt("\n".join(texts)).count("func.func @") == len(rows)


@pytest.mark.skipif(not IREE, reason="iree-base-compiler and iree-base-runtime are not installed")
def test_iree_runs_what_goes_out():
    rows = ["matmul", "conv2d", "softmax", "argmax", "floor_divide of int32", "logical_and", "take", "add of uint8"]
    functions = {row: program(row, f"f{n}") for n, row in enumerate(rows)}
    module = IreeModule("\n".join(str(next(iter(to_mlir(f).ops))) for f in functions.values()))
    for row, func in functions.items():
        assert compared(func, module, arrays(func)) == "equal", row
