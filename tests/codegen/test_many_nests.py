"""Functions of many loop nests: each nest is a function of its own, so that LLVM's time stays in proportion."""

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import Target, compile, lower
from tilewright.codegen.llvm.emit import emit
from tilewright.tir import parse
from tilewright.tir.interpret import interpret

TARGET = Target("native -num-cores=1")


def stages(count, size=5, n=None):
    """A chain of sums along rows and running means, which cannot be one loop."""
    rows = size if n is None else n
    a = x = te.placeholder((rows, size), name="a")
    for k in range(count):
        r = te.reduce_axis((0, size), name=f"r{k}")
        mean = te.compute((rows,), lambda i, x=x, r=r: te.sum(x[i, r], axis=r), name=f"m{k}")
        x = te.compute((rows, size), lambda i, j, x=x, m=mean: x[i, size - 1 - j] - m[i] * 0.25, name=f"x{k}")
    return te.create_prim_func([a, x])


def expected(a, count):
    for _ in range(count):
        a = a[:, ::-1] - a.sum(1, keepdims=True) * np.float32(0.25)
    return a


@pytest.mark.parametrize("count", [10, 30])
def test_each_of_many_nests_is_a_function(count):
    func = stages(count)
    text = emit(lower(func, TARGET))
    assert text.count("noinline") == (2 * count if 2 * count >= 48 else 0)
    a, out = np.random.default_rng(0).random((5, 5), "float32"), np.zeros((5, 5), "float32")
    compile(func, TARGET)(a, out)
    np.testing.assert_allclose(out, expected(a, count), rtol=1e-4)
    again = np.zeros_like(out)
    interpret(func, a, again)
    np.testing.assert_allclose(out, again, rtol=1e-5)


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_nests_of_symbolic_sizes_take_the_sizes(rows):
    func = stages(30, n=te.size_var("n"))
    assert "noinline" in emit(lower(func, TARGET))
    a, out = np.random.default_rng(0).random((rows, 5), "float32"), np.zeros((rows, 5), "float32")
    compile(func, TARGET)(a, out)
    np.testing.assert_allclose(out, expected(a, 30), rtol=1e-4)


def test_a_failure_in_a_nest_ends_the_function():
    nests = "\n".join(
        f"    for i{k} in range(8):\n"
        f"        with T.Assert(at[i{k}] < {8 + k}, 'index {k} is too large'):\n"
        f"            out[i{k}] = out[i{k}] + 1.0"
        for k in range(60)
    )
    func = parse(
        "@T.prim_func\n"
        "def main(at: T.Buffer((8,), 'int32'), out: T.Buffer((8,), 'float32')):\n"
        f"    T.func_attr({{'tir.noalias': True}})\n{nests}\n"
    )
    assert emit(lower(func, TARGET)).count("_nest60") > 0
    run, out = compile(func, TARGET), np.zeros(8, "float32")
    run(np.arange(8, dtype="int32"), out)
    np.testing.assert_array_equal(out, 60)
    with pytest.raises(Exception, match="index 0 is too large"):
        run(np.full(8, 8, "int32"), out)
    np.testing.assert_array_equal(out, 60)
