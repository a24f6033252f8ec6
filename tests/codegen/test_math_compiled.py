"""The mathematical functions as machine code: vectors with rare lanes, the C form, targets with and without fusion."""

import math
import re

import numpy as np
import pytest

from tilewright.codegen import Target, compile, lower
from tilewright.codegen.c import emit_c
from tilewright.codegen.llvm import emit
from tilewright.schedule import Schedule
from tilewright.te import compute, create_prim_func, placeholder
from tilewright.tir import PrimFunc
from tilewright.tir.expr.intrinsics import operation_named
from tilewright.tir.expr.intrinsics.number_operations import round_rest, times_exp2
from tilewright.tir.interpret import interpret

ROUNDING = {"float32": 2.0**-23, "float64": 2.0**-51}


def function(name: str, dtype: str, count: int, lanes: int) -> PrimFunc:
    x = placeholder((count,), dtype, name="x")
    y = compute((count,), lambda i: operation_named(name)(x[i]), name="y")
    sch = Schedule(create_prim_func([x, y]))
    (loop,) = sch.get_loops("y")
    if lanes > 1:
        sch.vectorize(sch.split(loop, [None, lanes])[1])
    return sch.func


def inputs(dtype: str, count: int) -> np.ndarray:
    """Moderate values with a few huge ones, infinities and NaN between them."""
    x = np.random.default_rng(1).uniform(-50, 50, count)
    x[3::11], x[5::31], x[7::29], x[9::37] = 3e9, -1e30, math.inf, math.nan
    x[0] = -0.0
    return x.astype(dtype)


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["sin", "cos", "tan", "tanh", "sigmoid"])
@pytest.mark.parametrize(("count", "lanes"), [(7, 1), (13, 4), (160, 8), (77, 16)])
def test_rare_lanes(name: str, dtype: str, target: str, count: int, lanes: int) -> None:
    f = compile(function(name, dtype, count, lanes), Target(f"llvm -mcpu={target} -num-cores=1"), "kernel")
    x = inputs(dtype, count)
    y = np.full(count, 7, dtype)
    f(x, y)
    with np.errstate(all="ignore"):
        wide = x.astype(np.longdouble)
        want = 1 / (1 + np.exp(-wide)) if name == "sigmoid" else getattr(np, name)(wide)
    np.testing.assert_allclose(y, want.astype(dtype), rtol=ROUNDING[dtype], atol=0)
    assert np.signbit(y[0]) == np.signbit(want[0])


def test_the_far_side_is_a_function_of_its_own() -> None:
    lowered = lower(function("sin", "float64", 64, 8), Target("llvm -mcpu=x86-64-v3 -num-cores=1"))
    text = emit(lowered)
    assert "if_then_else(T.likely(" in lowered.func.script()
    kernel, *rare = text.split("\ndefine ")[1:]
    assert len(rare) == 1 and "noinline cold" in rare[0], text
    assert "ashr" in rare[0] and "ashr" not in kernel  # picking bits of 2/pi
    assert kernel.count("call <8 x double> @rare_") >= 1
    assert "llvm.vector.reduce.and.v8i1" in text


def test_the_c_form_chooses_too() -> None:
    lowered = lower(function("cos", "float64", 16, 4), Target("llvm -mcpu=x86-64-v3 -num-cores=1"))
    assert re.search(r"tw_every_i8x4\(tw_m\) \? tw_usual : ", emit_c([lowered]))


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="needs a long double of 64 bits or more as reference")
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_huge_arguments_of_float64(name: str) -> None:
    rng = np.random.default_rng(6)
    x = rng.choice([-1, 1], 1000) * np.exp2(rng.uniform(30, 1023.9, 1000))
    x[:4] = 2.0**30, 2.0**30 + 2.0**-22, 2.0**1023, np.finfo(np.float64).max
    x[4] = 6381956970095103 * 2.0**797  # of all, the one nearest to a multiple of pi/2 (Muller, "Elementary Functions")
    y = np.empty(1000)
    compile(function(name, "float64", 1000, 8), Target("llvm -mcpu=x86-64-v3 -num-cores=1"), "kernel")(x, y)
    want = getattr(np, name)(x.astype(np.longdouble))
    assert (np.abs(y - want) / np.spacing(np.abs(want.astype(np.float64)))).max() <= 1.25


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("lanes", [1, 3, 4, 13, 16, 32])
def test_times_exp2(dtype: str, lanes: int) -> None:
    """x * 2**floor(n) rounded once: by instruction, by the C library, in the interpreter, in any number of lanes."""
    count = 5 * lanes + 7
    x, n, y = (placeholder((count,), dtype, name=s) for s in "xny")
    y = compute((count,), lambda i: times_exp2(x[i], n[i]), name="y")
    sch = Schedule(create_prim_func([x, n, y]))
    if lanes > 1:
        sch.vectorize(sch.split(sch.get_loops("y")[0], [None, lanes])[1])
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal(count).astype(dtype), rng.uniform(-1100, 1100, count).astype(dtype)
    b[::3] /= 8  # some in the range of float32
    a[:7], b[:7] = [0, -1, 1e-40, math.inf, 1, math.nan, 1], [5, -149.5, 130, -3, math.nan, 1, 127.9]
    with np.errstate(all="ignore"):
        want = np.ldexp(a, np.floor(np.nan_to_num(b)).astype(int))
    want[4] = math.nan
    out = np.full(count, 7, dtype)
    interpret(sch.func, a, b, out)
    np.testing.assert_array_equal(out, want)
    for target in ("native", "llvm -mcpu=x86-64-v3"):
        out[:] = 7
        compile(sch.func, Target(f"{target} -num-cores=1"), "kernel")(a, b, out)
        np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("lanes", [1, 3, 16, 32])
def test_round_rest(dtype: str, lanes: int) -> None:
    count = 5 * lanes + 7
    x = placeholder((count,), dtype, name="x")
    y = compute((count,), lambda i: round_rest(x[i]), name="y")
    sch = Schedule(create_prim_func([x, y]))
    if lanes > 1:
        sch.vectorize(sch.split(sch.get_loops("y")[0], [None, lanes])[1])
    a = np.random.default_rng(2).uniform(-99, 99, count).astype(dtype)
    a[:7] = [0.5, 1.5, -2.5, math.inf, -math.inf, math.nan, 3e30]
    want = np.where(np.isinf(a), 0, a - np.rint(np.where(np.isinf(a), 0, a))).astype(dtype)
    targets = [Target(f"{mcpu} -num-cores=1") for mcpu in ("native", "llvm -mcpu=x86-64-v3")]
    for run in (lambda *args: interpret(sch.func, *args), *[compile(sch.func, t, "kernel") for t in targets]):
        out = np.full(count, 7, dtype)
        run(a, out)
        np.testing.assert_array_equal(out, want)


def test_exp_takes_the_instruction_where_there_is_one() -> None:
    f = function("exp", "float32", 64, 16)
    for mcpu, word in (("x86-64-v4", "vscalefps"), ("x86-64-v3", "vpslld")):
        asm = compile(f, Target(f"llvm -mcpu={mcpu} -num-cores=1"), "kernel").get_source("asm")
        assert word in asm
