"""Lanes a few elements apart are picked out of whole vectors; farther ones are gathered."""

import numpy as np
import pytest

from tilewright.codegen import Target, compile, lower
from tilewright.codegen.llvm.emit import emit
from tilewright.tir.parser import parse

TARGETS = {name: Target(f"llvm -mcpu={name} -num-cores=1") for name in ("x86-64-v2", "x86-64-v3", "x86-64-v4")}


def program(lanes, distance, dtype="float32", rows=3, first=1):
    """``B[i, j] = A[i, first + distance * j]``; the last row of A ends with the last element that is read."""
    width = first + distance * (lanes - 1) + 1
    return parse(f"""
@T.prim_func
def main(A: T.Buffer(({rows}, {width}), "{dtype}"), B: T.Buffer(({rows}, {lanes}), "{dtype}")):
    for i in range({rows}):
        for j in T.vectorized({lanes}):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj * {distance} + {first}]
""")


@pytest.mark.parametrize(
    ("lanes", "distance", "dtype", "target", "loads", "gathers"),
    [
        (16, 2, "float32", "x86-64-v4", 2, 0),
        (16, 3, "float32", "x86-64-v4", 3, 0),
        (16, 4, "float32", "x86-64-v4", 4, 0),
        (16, 5, "float32", "x86-64-v4", 0, 1),
        (32, 2, "float32", "x86-64-v4", 4, 0),
        (4, 3, "float32", "x86-64-v4", 3, 0),
        (2, 2, "float32", "x86-64-v4", 1, 0),
        (13, 2, "float32", "x86-64-v4", 0, 0),
        (8, 2, "float64", "x86-64-v4", 2, 0),
        (64, 4, "int8", "x86-64-v4", 4, 0),
        (16, 2, "int16", "x86-64-v3", 2, 0),
        (16, 3, "float32", "x86-64-v3", 6, 0),
        (8, 2, "int32", "x86-64-v2", 4, 0),
    ],
)
def test_lanes_a_few_elements_apart_are_picked_out_of_vectors(lanes, distance, dtype, target, loads, gathers):
    func = program(lanes, distance, dtype)
    text = emit(lower(func, TARGETS[target]))
    assert (text.count("= load <"), text.count("@llvm.masked.gather") > 0) == (loads, gathers > 0)
    a = np.arange(3 * func.buffers[0].shape[1].value).astype(dtype).reshape(3, -1)
    b = np.zeros((3, lanes), dtype)
    if not TARGETS[target].missing_here():
        compile(func, TARGETS[target])(a, b)
        np.testing.assert_array_equal(b, a[:, 1::distance])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("distance", [2, 3, 4])
@pytest.mark.parametrize(("lanes", "active"), [(64, 48), (64, 33), (32, 17), (16, 13), (16, 1), (8, 7)])
def test_lanes_at_the_end_of_a_row_are_picked_out_of_vectors_too(lanes, active, distance, target):
    """Nothing beyond the last lane is read: A ends there."""
    text = program(active, distance).script()
    func = parse(
        text.replace(f"T.vectorized({active})", f"T.vectorized({lanes})").replace(
            "T.reads", f"T.where(j < {active})\n                T.reads"
        )
    )
    assert "masked.gather" not in emit(lower(func, TARGETS[target]))
    a = np.arange(3 * func.buffers[0].shape[1].value).astype("float32").reshape(3, -1)
    b = np.full((3, active), np.nan, "float32")
    if not TARGETS[target].missing_here():
        compile(func, TARGETS[target])(a, b)
        np.testing.assert_array_equal(b, a[:, 1::distance])


@pytest.mark.parametrize("distance", [2, 3, 4])
def test_the_code_for_a_vector_of_spaced_lanes_is_short(distance):
    """An instruction for each vector and for each but one to join them."""
    module = compile(program(16, distance), TARGETS["x86-64-v4"])
    row = [line for line in module.get_source("asm").splitlines() if "vpermt2ps" in line or "vpermi2ps" in line]
    assert 0 < len(row) <= 3 * (distance - 1) and "vinsertps" not in module.get_source("asm")
