"""Programs of many buffers: no recursion ends, no stack overflows, and the code grows in proportion."""

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import Target, lower
from tilewright.codegen.backend.emitter import stack_buffers
from tilewright.codegen.compile import compile as compile_function
from tilewright.codegen.llvm.emit import emit
from tilewright.tir.parser import parse
from tilewright.tir.stmt import Allocate
from tilewright.tir.walk import nodes_by_type

NATIVE = Target("native -num-cores=1")


def chain(length: int, size: int = 4096):
    """x/2 + 1, ``length`` times, each result in a buffer of its own."""
    a = te.placeholder((size,), name="A")
    x = a
    for i in range(length):
        x = te.compute((size,), lambda p, x=x: x[p] * 0.5 + 1.0, name=f"B{i}")
    return te.create_prim_func([a, x])


def test_600_buffers_of_16_kilobytes():
    """More than Python's usual recursion limit allows, and more than the stack holds."""
    a = np.linspace(0, 1, 4096, dtype="float32")
    out = np.zeros_like(a)
    compile_function(chain(600), NATIVE, "main")(a, out)
    want = a.copy()
    for _ in range(600):
        want = want * np.float32(0.5) + np.float32(1)
    np.testing.assert_allclose(out, want, rtol=1e-6)


def test_the_code_grows_in_proportion():
    """Each block of scratch memory is given back at two places, after its use and when a later one is refused."""
    sizes = [emit(lower(chain(length), NATIVE)).count("call void @tw_free(") for length in (100, 200)]
    assert 100 < sizes[0] <= 200
    assert sizes[1] - sizes[0] <= 200


def test_what_lives_on_the_stack_is_little():
    body = lower(chain(100), NATIVE).func.body
    found = stack_buffers(nodes_by_type(body)[Allocate])
    assert 0 < sum(4096 * b.dtype.bytes for b in found) <= 1 << 18


@pytest.mark.parametrize("parallel", [False, True])
def test_failures_behind_each_of_several_blocks(parallel):
    """Three blocks of scratch memory and an assertion behind each."""
    loop = "T.parallel(2)" if parallel else "range(2)"
    text = f"""
@T.prim_func
def main(A: T.Buffer((40000,)), n: T.int32, C: T.Buffer((2,))):
    for p in {loop}:
        with T.block("all"):
            vp = T.axis.spatial(2, p)
            X = T.alloc_buffer((20000,))
            Y = T.alloc_buffer((20000,))
            Z = T.alloc_buffer((20000,))
            for i in range(20000):
                X[i] = A[i] + T.float32(1)
            assert n != 1, "one"
            for i in range(20000):
                Y[i] = X[19999 - i] + T.float32(1)
            assert n != 2, "two"
            for i in range(20000):
                Z[i] = Y[19999 - i] + X[i]
            assert n != 3, "three"
            C[vp] = Z[7] + Y[8] + X[9]
"""
    run = compile_function(parse(text), NATIVE, "main")
    a, c = np.arange(40000, dtype="float32"), np.zeros(2, "float32")
    for n, message in [(1, "one"), (2, "two"), (3, "three")] * 3:
        with pytest.raises(Exception, match=message):
            run(a, n, c)
    run(a, 0, c)
    assert c.tolist() == [20020.0, 20020.0]
