"""An operation is one row: what a new one touches, and that every layer reads the row."""

import doctest
import re
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright import te, tir
from tilewright.codegen import compile
from tilewright.te import ops
from tilewright.tir import parse, verify
from tilewright.tir import script as T
from tilewright.tir.cost import count_flops
from tilewright.tir.expr import intrinsics
from tilewright.tir.expr.intrinsics import OPERATIONS, Operation, register_operation
from tilewright.tir.expr.intrinsics.numpy_values import in_float64
from tilewright.tir.expr.intrinsics.operation_row import floats
from tilewright.tir.interpret import interpret

ROOT = Path(tilewright.__file__).parent
LIBRARY = [p for f in ("circuits", "cli", "codegen", "driver", "gpu", "mlir", "schedule", "te", "tir", "tuner", "tuning_db") for p in (ROOT / f).rglob("*.py")]  # fmt: skip
OPERATORS = ROOT / "te" / "ops"
"""Operators on tensors are another layer: some have the name of an operation on numbers."""
OTHER_LANGUAGES = [
    ROOT / place for place in ("mlir/operation_table.py", "gpu/opencl/opencl_text.py", "gpu/wgsl/wgsl_math.py")
]
"""MLIR and OpenCL have operations of their own for some, and refuse the others by name; WGSL has neither those nor float64."""


@pytest.mark.parametrize("name", ["hypot", "log1p"])
def test_an_operation_is_named_in_three_files(name):
    files = [
        p
        for p in LIBRARY
        if re.search(rf"\b{name}\b", p.read_text()) and OPERATORS not in p.parents and p not in OTHER_LANGUAGES
    ]
    assert len(files) <= 3, files


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("target", ["native", "c"])
@pytest.mark.parametrize("name", ["hypot", "log1p"])
def test_they_are_computed_everywhere(name, target, dtype):
    row, arity = OPERATIONS[f"tir.{name}"], len(OPERATIONS[f"tir.{name}"].parameters)
    assert getattr(te, name) is getattr(T, name) is row
    xs = [te.placeholder((64,), dtype, name=f"x{n}") for n in range(arity)]
    func = te.create_prim_func([*xs, te.compute((64,), lambda i: row(*[x[i] for x in xs]), name="y")])
    assert count_flops(func) == 64
    rng = np.random.default_rng(0)
    data = [rng.uniform(0, 4, 64).astype(dtype) for _ in xs]
    exact = getattr(np, name)(*[d.astype(np.longdouble) for d in data])
    outputs = [np.full(64, np.nan, dtype) for _ in range(2)]
    interpret(func, *data, outputs[0])
    compile(func, target)(*data, outputs[1])
    for out in outputs:
        assert (np.abs(out - exact) <= 2 * np.spacing(exact.astype(dtype))).all()


CUBE = """
@T.prim_func
def main(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        B[i] = T.cube(A[i])
"""


@pytest.fixture
def cube():
    row = Operation("cube", ("x",), "x * x * x", floats, evaluate=in_float64(lambda x: x**3), flops=2)
    yield register_operation(row)
    del OPERATIONS["tir.cube"]


def test_a_registered_operation_is_a_word(cube):
    func = parse(CUBE)
    verify(func)
    assert "T.cube(A[i])" in func.script() and T.cube is cube and count_flops(func) == 8
    a, b = np.arange(4, dtype="float32"), np.zeros(4, "float32")
    interpret(func, a, b)
    np.testing.assert_array_equal(b, a**3)
    assert repr(cube) == "<operation cube(x)>"
    with pytest.raises(ValueError, match="there is an operation cube already"):
        register_operation(cube)
    with pytest.raises(tir.ParseError, match="cube takes floats of one type, not int32"):
        parse(CUBE.replace("float32", "int32"))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: te.hypot(1.0), "hypot takes 2 arguments, not 1"),
        (lambda: te.pow(1.0, z=2.0), "pow has no argument 'z' left; it takes x, y"),
        (lambda: te.pow(1.0, x=2.0), "pow has no argument 'x' left"),
        (lambda: T.reinterpret(te.exp(1.0)), "T.reinterpret takes the result's type first, or dtype="),
        (lambda: te.exp(te.const(1.0), dtype="int32"), "exp: the result is float32, not int32"),
        (lambda: te.bitwise_xor(1.0, 2.0), "bitwise_xor takes integers or bools of one type, not float32, float32"),
    ],
)
def test_arguments_that_do_not_fit(build, message):
    with pytest.raises(TypeError, match=message):
        build()


def test_named_arguments():
    assert te.pow(y=te.const(2.0), x=te.const(3.0)).script() == "T.pow(T.float32(3.0), T.float32(2.0))"
    assert te.reinterpret(dtype="int32", x=te.const(3.0)).dtype == "int32"
    with pytest.raises(ValueError, match="there is no operation 'unknown'"):
        intrinsics.operation_named("unknown")


def test_the_rows_are_complete():
    for op, row in OPERATIONS.items():
        assert op == row.op and row.meaning and row.__doc__ == f"Returns {row.meaning}."
    assert ops.log1p.__doc__.startswith("Computes the natural logarithm of 1 + x")


def test_docstrings():
    assert doctest.testmod(intrinsics).failed == 0
