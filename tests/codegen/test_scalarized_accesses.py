"""Masked accesses without an instruction: many of them become calls of a few functions."""

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen.llvm.jit import optimize_and_compile
from tilewright.codegen.llvm.llvm_repairs import share_scalarized

AVX2 = tw.Target("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell -num-cores=1")
AVX512 = tw.Target("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512 -num-cores=1")

GATHER = (
    "  %{n} = tail call <{lanes} x {type}> @llvm.masked.gather.v{lanes}{suffix}.v{lanes}p0(<{lanes} x ptr> align 1 %p, "
    "<{lanes} x i1> {mask}, <{lanes} x {type}> poison)"
)


def gathers(count, mask="%m", type="i8", suffix="i8", lanes=64):
    lines = [GATHER.format(n=f"v{n}", mask=mask, type=type, suffix=suffix, lanes=lanes) for n in range(count)]
    return "\n".join([*lines, ""])


@pytest.mark.parametrize(
    ("text", "target", "shared"),
    [
        (gathers(16), AVX512, 0),
        (gathers(17), AVX512, 17),
        (gathers(64, "splat (i1 true)"), AVX512, 0),
        (gathers(65, "splat (i1 true)"), AVX512, 65),
        (gathers(100, type="float", suffix="f32", lanes=16), AVX2, 0),
        (gathers(100, type="half", suffix="f16", lanes=16), AVX2, 100),
    ],
)
def test_only_many_accesses_without_an_instruction_are_shared(text, target, shared):
    found = share_scalarized(text, target)
    assert found.count("call <") - found.count("  %r = call") == text.count("call <")
    assert sum("@tw.masked" in line for line in found.splitlines() if "define" not in line) == shared
    assert found.count("define internal") == (shared > 0)
    assert (found is text) == (shared == 0)


def row_sums(dtype):
    n0, n1 = te.var("n0"), te.var("n1")
    a = te.placeholder((n0, n1), dtype, name="A")
    r0, r1 = te.reduce_axis((0, n1), name="r0"), te.reduce_axis((0, n1), name="r1")
    return [a, te.compute((n0, n1), lambda i, j: te.sum(a[i, 0], axis=[r0, r1]), name="S")]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_sums_of_small_integers_are_right_and_their_code_is_short(dtype):
    built = tw.build(row_sums(dtype), target="native -num-cores=1")
    rng = np.random.default_rng(0)
    for shape in [(1, 1), (3, 5), (64, 16), (65, 33), (70, 19)]:
        given = rng.integers(0, 9, shape).astype(dtype)
        want = np.broadcast_to(given[:, :1].astype("int64") * shape[1] ** 2, shape).astype(dtype)
        np.testing.assert_array_equal(built(given), want)


def test_the_code_of_small_integers_is_not_much_longer_than_that_of_floats():
    sizes = {}
    for dtype in ("float32", "int8"):
        code = tw.build(row_sums(dtype), target=AVX512).code
        sizes[dtype] = len(optimize_and_compile(code.ir, AVX512, cache=False).object)
    assert sizes["int8"] < 4 * sizes["float32"], sizes  # 604 KB for 31 KB where each lane has a branch at each place
