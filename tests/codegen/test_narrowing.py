"""Conversions to narrower types whose last vector is not full: nothing past the end of the array is written."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import Target, compile
from tilewright.codegen.llvm.llvm_repairs import split_single_lane_stores
from tilewright.schedule import Schedule

NATIVE = "native -num-cores=1"
NARROWING = [("int64", "int32"), ("int64", "int16"), ("int64", "int8"), ("int32", "int16"), ("uint32", "uint8"),
             ("int16", "int8"), ("float64", "float32"), ("float32", "float16"), ("float32", "bfloat16"),
             ("float64", "int8")]  # fmt: skip
STORED = {"bfloat16": "uint16"}


def converted(source, to, n, symbolic=False):
    """B = A converted, vectorized."""
    size = te.var("n") if symbolic else n
    A = te.placeholder((size,), source, name="A")
    B = te.compute((size,), lambda i: te.cast(to, A[i]), name="B")
    sch = Schedule(te.create_prim_func([A, B]))
    sch.vectorize(sch.get_loops("B")[0])
    return sch


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("source, to", NARROWING)
def test_nothing_past_the_end(source, to, symbolic):
    sizes = (1, 7, 9, 13, 16, 17, 33, 65)
    whole = compile(converted(source, to, None, True), NATIVE, cache=False) if symbolic else None
    for m in sizes:
        f = whole or compile(converted(source, to, m), NATIVE, cache=False)
        x = np.arange(m).astype(source)
        memory = np.full(m + 64, 77, STORED.get(to, to))
        f(x, memory[:m])
        want = (x.view("uint32") >> 16).astype("uint16") if to == "bfloat16" else x.astype(to)
        np.testing.assert_array_equal(memory[:m], want)
        np.testing.assert_array_equal(memory[m:], 77)


def test_a_mask_that_llvm_finds_out():
    """n is 17 behind the comparison, which only LLVM's passes make use of."""
    from tilewright.tir.parser import parse

    func = parse("""
@T.prim_func
def main(A: T.Buffer((64,), "int64"), B: T.Buffer((64,), "int8"), n: T.int32):
    T.func_attr({"tir.noalias": True})
    if n == 17:
        for i in T.vectorized(24):
            if i < n:
                B[i] = T.Cast("int8", A[i])
""")
    x, y = np.arange(64), np.full(64, 77, "int8")
    compile(func, NATIVE, cache=False)(x, y, 17)
    np.testing.assert_array_equal(y, np.where(x < 17, x, 77))


@pytest.mark.parametrize("place", ["%p", "getelementptr (i8, ptr @g, i64 5)"])
def test_only_masks_of_one_lane(place):
    call = f"  call void @llvm.masked.store.v2i8.p0(<2 x i8> %v, ptr align 1 {place}, <2 x i1> <i1 MASK>)"
    for mask in ("true, i1 true", "false, i1 false"):
        text = call.replace("MASK", mask)
        assert split_single_lane_stores(text) == text
    assert "masked" not in split_single_lane_stores(call.replace("MASK", "true, i1 false"))


def test_the_machine_code_of_one_lane():
    asm = compile(converted("int64", "int8", 17), Target("llvm -mcpu=x86-64-v4 -num-cores=1")).get_source("asm")
    assert "movb\t%al, 16(%rsi)" in asm and "movq\t%rax, 16(%rsi)" not in asm
