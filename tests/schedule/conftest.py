"""Programs to schedule, and the oracle: a scheduled function computes what the plain one does."""

import numpy as np
import pytest

from tilewright import te
from tilewright.schedule import Schedule, Trace
from tilewright.tir import assert_structural_equal, parse, verify
from tilewright.tir.expr import to_numpy
from tilewright.tir.interpret import interpret


def _arrays(func, sizes, seed=0):
    """An array per buffer, small whole numbers, so that float sums are exact in any order."""
    rng = np.random.default_rng(seed)
    out = []
    for buffer in func.buffers:
        shape = [sizes[e.name] if hasattr(e, "name") else e.value for e in buffer.shape]
        out.append(rng.integers(-4, 5, size=shape).astype(to_numpy(buffer.dtype)))
    return out


def _outputs(before, after, sizes, seed=0):
    results = []
    for func in (before, after):
        arrays = _arrays(func, sizes, seed)
        written = {r.buffer for b in _blocks(func.body) for r in b.writes}
        for buffer, array in zip(func.buffers, arrays, strict=True):
            if buffer in written:
                array[...] = np.nan if array.dtype.kind == "f" else 77
        interpret(func, *arrays, check_regions=True)
        results.append(arrays)
    return results


def _blocks(node):
    from tilewright.tir import Block
    from tilewright.tir.walk import pre_order

    return [n for n in pre_order(node) if isinstance(n, Block)]


@pytest.fixture
def agree():
    """``agree(before, after, **sizes)``: both functions give exactly the same arrays."""

    def check(before, after, **sizes):
        verify(after)
        for a, b in zip(*_outputs(before, after, sizes), strict=True):
            np.testing.assert_array_equal(a, b)

    return check


@pytest.fixture
def replays():
    """``replays(sch, func)``: the trace, through JSON and as Python text, gives the same function again."""

    def check(sch, func):
        again = Schedule(func)
        Trace.from_json(sch.trace.dumps()).apply_to_schedule(again)
        assert_structural_equal(again.func, sch.func)
        pasted = Schedule(func)
        exec(sch.trace.as_python(), {"sch": pasted})
        assert_structural_equal(pasted.func, sch.func)

    return check


@pytest.fixture
def same():
    """``same(func, text)``: the function is the one that the text describes."""

    def check(func, text):
        expected = parse(text)
        # the name of the function and its attributes are not what these tests are about
        assert_structural_equal(func.with_body(func.body), _with_attrs(expected, func.attrs))

    return check


def _with_attrs(func, attrs):
    from tilewright.tir import PrimFunc

    return PrimFunc(func.params, func.body, func.buffer_map, attrs)


@pytest.fixture
def matmul():
    """``matmul(M, N, K)``: block C, loops i, j, k."""

    def make(m=13, n=17, k=7):
        A = te.placeholder((m, k), name="A")
        B = te.placeholder((k, n), name="B")
        r = te.reduce_axis((0, k), name="k")
        C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
        return te.create_prim_func([A, B, C])

    return make


@pytest.fixture
def chain():
    """``chain(m, n)``: B = A * 2, then C = B + 1, with B in between."""

    def make(m=13, n=17):
        A = te.placeholder((m, n), name="A")
        B = te.compute((m, n), lambda i, j: A[i, j] * 2.0, name="B")
        C = te.compute((m, n), lambda i, j: B[i, j] + 1.0, name="C")
        return te.create_prim_func([A, C])

    return make
