"""Run a te program through the interpreter and through the compiler, outputs filled with garbage first."""

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import compile
from tilewright.tir.difference import assert_structural_equal
from tilewright.tir.expr import to_numpy
from tilewright.tir.interpret import interpret
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify


def _evaluate(outputs, inputs, *arrays, shapes=None):
    single = not isinstance(outputs, (tuple, list))
    outs = [outputs] if single else list(outputs)
    func = te.create_prim_func([*inputs, *outs])
    verify(func)
    assert_structural_equal(parse(func.script()), func)
    given = [np.array(a, to_numpy(t.dtype), order="C") for a, t in zip(arrays, inputs, strict=True)]
    results = []
    for n, t in enumerate(outs):
        shape = shapes[n] if shapes else tuple(int(d) for d in t.shape)
        results.append(np.full(shape, np.nan if t.dtype.is_float and t.dtype != "bfloat16" else 77, to_numpy(t.dtype)))
    interpret(func, *given, *results, check_regions=True)
    compiled = [np.full_like(r, np.nan if r.dtype.kind == "f" else 77) for r in results]
    compile(func)(*given, *compiled)
    for got, want in zip(compiled, results, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)
    return results[0] if single else results


@pytest.fixture
def evaluate():
    """``evaluate(outputs, inputs, *arrays, shapes=None)``: the arrays that the outputs get."""
    return _evaluate


@pytest.fixture
def rng():
    return np.random.default_rng(0)
