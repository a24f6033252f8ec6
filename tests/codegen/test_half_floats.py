"""Compiled arithmetic on float16 and bfloat16 rounds each operation, as the interpreter does."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.codegen.compile import compile as compile_function
from tilewright.codegen.lower import lower
from tilewright.tir.expr import Cast, to_numpy
from tilewright.tir.expr.dtype import float_bits, round_float
from tilewright.tir.interpret import interpret
from tilewright.tir.parser import parse
from tilewright.tir.walk import pre_order

TARGETS = ("native -num-cores=1", "llvm -mcpu=x86-64 -num-cores=1")
EXPRESSIONS = {
    "product_widened": ('T.Cast("float32", A[v] * A[v])', "float32"),
    "sum_of_products": ("A[v] * B[v] + A[v]", "{h}"),
    "difference_of_products": ("A[v] - B[v] * A[v] - B[v] * B[v]", "{h}"),
    "quotient": ("A[v] / B[v] - B[v]", "{h}"),
    "constant": ("A[v] * T.{h}(0.1) + T.{h}(0.3)", "{h}"),
    "constant_widened": ('T.Cast("float64", T.{h}(0.1)) + T.Cast("float64", A[v])', "float64"),
    "root": ("T.sqrt(T.fabs(A[v])) * B[v]", "{h}"),
    "compared": ("T.Select(A[v] * B[v] > A[v] + B[v], A[v] * B[v], B[v] - A[v]) + A[v]", "{h}"),
    "largest": ("T.max(A[v] * B[v], A[v] + B[v]) * A[v]", "{h}"),
    "whole": ("T.floor(A[v] * B[v]) + B[v]", "{h}"),
    "guarded": ("T.if_then_else(A[v] * B[v] < T.{h}(1), A[v] * B[v], A[v]) * B[v]", "{h}"),
    "fused": ("T.fma(A[v], B[v], A[v]) + B[v]", "{h}"),
    "named": ("x * A[v] + x", "{h}"),
    "bits": ('T.reinterpret("uint16", A[v] * B[v])', "uint16"),
    "from_bits": ('T.reinterpret("{h}", U[v]) * A[v]', "{h}"),
    "narrowed_twice": ('T.Cast("{o}", A[v] * B[v]) * T.Cast("{o}", B[v])', "{o}"),
    "narrowed": ('T.Cast("{h}", F[v]) * A[v] + T.Cast("{h}", F[v])', "{h}"),
}


def program(text: str, result: str, half: str, kind: str = "T.vectorized"):
    """A function of 67 elements: ``text`` in place of the value, ``{h}`` for the type, ``{o}`` for the other one, ``x``
    for a product with a name."""
    other = {"float16": "bfloat16", "bfloat16": "float16"}[half]
    text, result = text.format(h=half, o=other), result.format(h=half, o=other)
    name = f"x: T.{half} = A[v] * B[v]" if "x" in text.replace("max", "") else "T.evaluate(0)"
    params = f'A: T.Buffer((67,), "{half}"), B: T.Buffer((67,), "{half}"), U: T.Buffer((67,), "uint16")'
    return parse(f"""
@T.prim_func
def main({params}, F: T.Buffer((67,), "float32"), C: T.Buffer((67,), "{result}")):
    for i in {kind}(67):
        with T.block("C"):
            v = T.axis.spatial(67, i)
            {name}
            C[v] = {text}
""")


def arrays_of(func, seed: int = 0) -> list[np.ndarray]:
    """Random numbers of the size of one, as memory holds them, and NaN in the result."""
    rng, out = np.random.default_rng(seed), []
    for buffer in func.buffers:
        values = rng.normal(size=67).astype("float32")
        if buffer.dtype == "bfloat16" or buffer.dtype == "uint16":
            out.append((values.view("uint32") >> 16).astype("uint16"))
        else:
            out.append(values.astype(to_numpy(buffer.dtype)))
    out[-1][...] = np.nan if out[-1].dtype.kind == "f" else 0x7FC1
    return out


@pytest.mark.parametrize("name", EXPRESSIONS)
@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_each_operation_rounds(name, half):
    for kind, target in (("T.vectorized", TARGETS[0]), ("range", TARGETS[1])):
        func = program(*EXPRESSIONS[name], half, kind)
        want, got = arrays_of(func), arrays_of(func)
        interpret(func, *want)
        compile_function(func, target)(*got)
        np.testing.assert_array_equal(want[-1], got[-1])


@pytest.mark.parametrize(
    "text, conversions",
    [
        ("A[v]", 0),
        ("A[v] * B[v]", 3),  # two loads, one store
        ("T.max(A[v] * B[v], A[v])", 3),
        ("T.Select(F[v] > T.float32(0), A[v] * B[v], A[v] + B[v])", 3),
        ("A[v] * B[v] + A[v]", 5),  # and the product is rounded
        ("T.max(A[v], B[v]) * B[v]", 3),
        ("(-A[v]) * T.{h}(2)", 2),
    ],
)
def test_nothing_is_rounded_that_is_chosen_or_rounded_already(text, conversions):
    func = lower(program(text, "float16", "float16", "range"), TARGETS[0]).func
    assert len({str(n) for n in pre_order(func) if isinstance(n, Cast)}) == conversions


@pytest.mark.parametrize(
    "value, dtype, bits",
    [
        (1.0, "bfloat16", 0x3F80),
        (0.1, "bfloat16", 0x3DCD),
        (float("-inf"), "bfloat16", 0xFF80),
        (3.4e38, "bfloat16", 0x7F80),
        (0.1, "float16", 0x2E66),
        (1e6, "float16", 0x7C00),
        (0.1, "float32", 0x3DCCCCCD),
        (1e300, "float32", 0x7F800000),
        (-0.0, "float64", 1 << 63),
    ],
)
def test_bits_of_constants(value, dtype, bits):
    assert float_bits(value, dtype) == bits
    assert float_bits(round_float(value, dtype), dtype) == bits


def test_a_fused_product_and_sum_rounds_once():
    """1 + 2**-11 + 2**-24 lies above the middle of two halves; rounded to float32 first, it lies in the middle."""
    func = parse("""
@T.prim_func
def f(A: T.Buffer((3,), "float16"), B: T.Buffer((1,), "float16")):
    B[0] = T.fma(A[0], A[1], A[2])
""")
    a, b = np.array([683 / 1024, 1.5, 2.0**-24], np.float16), np.zeros(1, np.float16)
    for target in ("native -num-cores=1", "llvm -mcpu=x86-64-v3 -num-cores=1"):
        compile_function(func, target, cache=False)(a, b)
        assert b[0] == 1 + 2.0**-10
