"""Vectors that begin again within a row are two masked loads, where the place is known at run time alone."""

from __future__ import annotations

import pytest

from tilewright.codegen import Target
from tilewright.codegen.lower.pipeline import run_passes
from tilewright.tir.parser import parse

from .test_lower import AVX2, AVX512, check


def program(index: str, value: str = "{}", lanes: int = 16, count: int = 40, dtype: str = "float32"):
    read = value.format(f"A[i, {index}]")
    return parse(f"""
@T.prim_func
def main(s: T.Buffer((), "{dtype}"), A: T.Buffer((3, 104), "{dtype}"), B: T.Buffer((3, {lanes * count}), "{dtype}")):
    for i, q in T.grid(3, {count}):
        for v in T.vectorized({lanes}):
            B[i, q * {lanes} + v] = {read} + s[()]
""")


@pytest.mark.parametrize("target", [AVX512, AVX2])
@pytest.mark.parametrize(
    "index", ["(q * 16 + v) % 100", "(q * 16 + v) % 17 + 2", "(q * 16 + v + 5) % 100", "(q * 16 + v) % 16"]
)
def test_the_lanes_are_read_up_to_the_end_and_from_the_start(index, target):
    func = program(index)
    check(func, target)
    lowered = run_passes(func, Target.of(target)).script()
    assert "% T.Broadcast" not in lowered and ("predicate=" in lowered) == ("% 16" not in index)


@pytest.mark.parametrize("lanes", [16, 32, 64])
@pytest.mark.parametrize("dtype", ["float32", "int8", "float64"])
def test_widths_and_types(lanes, dtype):
    check(program(f"(q * {lanes} + v) % 100", lanes=lanes, dtype=dtype), AVX512)


@pytest.mark.parametrize("value", ["T.if_then_else(q * 16 + v < 501, {}, T.float32(3))", "{} * {}"])
def test_under_a_condition_and_twice(value):
    value = value.replace("{} * {}", "{0} * {0}")
    check(program("(q * 16 + v) % 100", value), AVX512)


@pytest.mark.parametrize("index", ["(q * 16 + v) % 12", "(q * 16 + 2 * v) % 100", "99 - (q * 16 + v) % 100"])
def test_what_stays(index):
    """Short periods, lanes that are apart, and lanes in the other direction are read as before."""
    func = program(index)
    check(func, AVX512)
    assert "predicate=" not in run_passes(func, Target.of(AVX512)).script()
