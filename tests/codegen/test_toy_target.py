"""The target of docs/guides/toy-target.md works, is small, and says what every node asks of it."""

import re
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright.codegen import Backend, ExportError, Target, lower, register_backend
from tilewright.codegen.late_tables import BACKENDS
from tilewright.tir.parser import parse

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "toy-target.md"
ONE_CORE = Target("llvm -mcpu=x86-64-v2 -num-cores=1")


@pytest.fixture(scope="module")
def toy():
    """The table's entry that the page's first example makes."""
    source = re.search(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)[1]
    assert len(source.splitlines()) <= 150
    exec(compile(source, str(PAGE), "exec"), {})  # noqa: S102
    yield BACKENDS["toy"]
    del BACKENDS["toy"]


def test_the_text_of_a_function(toy):
    func = parse("""
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        if i % 4 < 3:
            B[i] = T.exp(A[i // 2]) + T.max(A[i], T.float32(0))
""")
    expected = """main(A, B):
  for i in 0 .. 0 + 8:
    t1 = lt((i & 3), 3, int64)
    if t1:
      t2 = load(A[(i >> 1)], float32)
      t3 = expf(t2, float32)
      t4 = load(A[i], float32)
      t5 = max(t4, 0.0, float32)
      t6 = add(t3, t5, float32)
      store(B[i], t6, float32)
"""
    lowered = lower(func, ONE_CORE, "main")
    assert toy.emit([lowered.of(func, ONE_CORE)]) == expected


def test_parallel_loops_masks_registers_and_assertions(toy):
    a, b = tw.te.placeholder((35, 17), name="A"), tw.te.placeholder((17, 50), name="B")
    k = tw.te.reduce_axis((0, 17), name="k")
    c = tw.te.compute((35, 50), lambda i, j: tw.te.sum(a[i, k] * b[k, j], axis=k), name="C")
    sch = tw.Schedule(tw.te.create_prim_func([a, b, c]))
    i, j, _ = sch.get_loops("C")
    _, inner = sch.split(j, [None, 8])
    sch.parallel(i)
    sch.reorder(sch.get_loops("C")[-1], inner)
    sch.vectorize(inner)
    text = toy.emit([lower(sch, Target("llvm -mcpu=x86-64-v4 -num-cores=2"))])
    assert "parallel i" in text and "where" in text and re.search(r"t\d+ = splat\(t\d+, float32, 8\)", text)


def test_a_module_has_the_source_and_exports_it(toy, tmp_path):
    x = tw.te.placeholder((5,), name="x")
    module = tw.build([x, tw.te.compute((5,), lambda i: x[i] + 1.0, name="y")], target="native -num-cores=1")
    out = np.empty(5, "float32")
    module(np.arange(5, dtype="float32"), out)
    assert out.tolist() == [1, 2, 3, 4, 5]
    (path,) = module.export(tmp_path / "x.toy")
    assert path.read_text() == module.get_source("toy")
    with pytest.raises(ExportError, match=r"one of .o, .so, .s, .ll, .c, .*\.toy"):
        module.export(tmp_path / "x.cu")


def test_what_the_target_does_not_have_is_named(toy):
    func = parse("""
@T.prim_func
def main(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
    for i in range(8):
        B[i] = T.popcount(A[i])
""")
    with pytest.raises(ValueError, match="no toy form for the call tir.popcount of int32"):
        toy.emit([lower(func, ONE_CORE)])


def test_a_name_or_suffix_is_taken_once(toy):
    with pytest.raises(ValueError, match="there is a back end c with the suffix .c already"):
        register_backend(Backend("other", ".c", toy.emit))
