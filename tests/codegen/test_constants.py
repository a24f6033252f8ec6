"""Constants of every type, in scalars and vectors, and conversions of constants reach the machine as the interpreter sees them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tilewright.codegen.compile import compile as compile_function
from tilewright.tir.expr import DType, max_value, min_value, to_numpy
from tilewright.tir.interpret import interpret
from tilewright.tir.parser import parse

INTEGERS = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
TYPES = (*INTEGERS, "float16", "bfloat16", "float32", "float64")
TARGETS = ("native -num-cores=1", "llvm -mcpu=x86-64 -num-cores=1")


def values_of(dtype: str) -> list[float]:
    """Ends of the type's range, what it rounds, and what is no number."""
    if dtype == "bool":
        return [0, 1]
    if DType(dtype).is_int:
        return [0, 1, min_value(dtype), max_value(dtype)]
    return [0.0, -0.0, 0.1, -1.5, math.inf, -math.inf, math.nan, 1e5, 3e38]


def literal(value: float, dtype: str) -> str:
    """A constant as the script writes it."""
    if dtype == "bool":
        return str(bool(value))
    return f"T.{dtype}({value!r})" if math.isfinite(value) else f'T.{dtype}("{value}")'


def agree(texts: list[str], dtype: str, target: str) -> None:
    """Thirteen elements of each expression, compiled and interpreted."""
    body = "".join(
        f"    for i in {'T.vectorized' if n % 2 else 'range'}(13):\n        B{n}[i] = {text}\n"
        for n, text in enumerate(texts)
    )
    params = "".join(f'B{n}: T.Buffer((13,), "{dtype}"), ' for n in range(len(texts)))
    func = parse(f'@T.prim_func\ndef f({params}A: T.Buffer((13,), "int32")):\n{body}')
    want = [np.full(13, 77, to_numpy(dtype)) for _ in texts] + [np.arange(13, dtype="int32")]
    got = [a.copy() for a in want]
    interpret(func, *want)
    compile_function(func, target)(*got)
    for text, a, b in zip(texts, want, got, strict=False):
        if dtype == "bfloat16":
            a, b = ((x.astype("uint32") << 16).view("float32") for x in (a, b))
        np.testing.assert_array_equal(a, b, err_msg=text)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("target", TARGETS)
def test_constants_of_each_type(dtype, target):
    texts, one = [], literal(values_of(dtype)[1], dtype)
    for value in values_of(dtype):
        text = literal(value, dtype)
        texts.append([text, text, f"T.if_then_else(A[i] < 5, {text}, {one})", f"T.Select(i < 5, {one}, {text})"])
    for some in texts:
        agree(some, dtype, target)


@pytest.mark.parametrize("dtype", TYPES)
def test_conversions_of_constants_to_each_type(dtype):
    one = literal(values_of(dtype)[1], dtype)
    for source in TYPES:
        texts = []
        for value in values_of(source):
            fits = DType(dtype).is_float or dtype == "bool" or not DType(source).is_float
            if fits or (abs(value) < 100 and (value >= 0 or dtype.startswith("int"))):
                texts.append(f'T.if_then_else(i < 5, T.Cast("{dtype}", {literal(value, source)}), {one})')
        agree(texts, dtype, TARGETS[0])


def test_a_constant_cast_twice_in_a_masked_vector():
    text = 'T.if_then_else(i < 9, T.Cast("float64", T.Cast("int32", U[0])), T.float64(1))'
    for value in ("U[0]", "T.uint64(3)"):
        func = parse(f"""
@T.prim_func
def f(U: T.Buffer((1,), "uint64"), B: T.Buffer((16,), "float64")):
    for i in T.vectorized(16):
        B[i] = {text.replace("U[0]", value)}
""")
        b = np.full(16, np.nan)
        compile_function(func, TARGETS[0])(np.array([3], "uint64"), b)
        assert b.tolist() == [3.0] * 9 + [1.0] * 7


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "bool"])
@pytest.mark.parametrize("size", [1, 7, 13, 16, 17, 33])
def test_padding_beyond_one_vector(dtype, size):
    """A guard that holds for a prefix leaves constants alone in the vectors behind it."""
    func = parse(f"""
@T.prim_func
def f(A: T.Buffer(({size},), "{dtype}"), B: T.Buffer((65,), "{dtype}")):
    for i in T.vectorized(65):
        B[i] = T.if_then_else(i < {size}, A[i], T.Cast("{dtype}", 0))
""")
    a = np.ones(size, to_numpy(dtype))
    b = np.full(65, 77, to_numpy(dtype))
    compile_function(func, TARGETS[0])(a, b)
    assert b.tolist() == [1] * size + [0] * (65 - size)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int16", "uint8"])
def test_transposes_of_narrow_types(dtype):
    func = parse(f"""
@T.prim_func
def f(A: T.Buffer((7, 5), "{dtype}"), B: T.Buffer((5, 7), "{dtype}")):
    for i in range(5):
        for j in T.vectorized(7):
            B[i, j] = A[j, i]
""")
    a = np.arange(35).reshape(7, 5).astype(to_numpy(dtype))
    b = np.full((5, 7), 77, to_numpy(dtype))
    compile_function(func, TARGETS[0])(a, b)
    np.testing.assert_array_equal(b, a.T)
