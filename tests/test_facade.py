"""The names that others build on, and how soon they are there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import tilewright


def run(code):
    """Run a program in an interpreter of its own; its output."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        cwd=os.path.dirname(os.path.abspath(__file__)),
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


NAMES = {
    "tilewright": "te tir build tune bench workload Schedule ScheduleError Target Database IRModule PrimFunc __version__",
    "tilewright.te": "placeholder compute reduce_axis sum max min prod any all comm_reducer var if_then_else select "
    "create_prim_func create_schedule",
    "tilewright.te.ops": "matmul dense conv2d softmax layer_norm",
    "tilewright.tir": "PrimFunc IRModule Buffer Var For Block structural_equal assert_structural_equal parse verify "
    "interpret",
    "tilewright.tir.script": "prim_func Buffer match_buffer grid serial block sblock axis reads writes ir_module",
    "tilewright.schedule": "Schedule ScheduleError Trace",
    "tilewright.codegen": "lower Module Target compile",
    "tilewright.tuner": "tune Space ScheduleRule CostModel Runner SearchStrategy",
    "tilewright.tuning_db": "Database TuningRecord",
}


@pytest.mark.parametrize("module", NAMES)
def test_the_promised_names_are_there(module):
    __import__(module)
    found = sys.modules[module]
    assert [name for name in NAMES[module].split() if not hasattr(found, name)] == []


def test_importing_loads_nothing_heavy():
    out = run("""
        import sys
        import tilewright
        heavy = {"numpy", "llvmlite", "xgboost", "sqlite_utils", "rich", "click", "scipy"}
        print(sorted(heavy & sys.modules.keys()), [m for m in sys.modules if m.startswith("tilewright")])
    """)
    assert out.strip() == "[] ['tilewright']"


def test_building_needs_neither_xgboost_nor_the_database():
    out = run("""
        import sys
        import tilewright as tw
        import numpy as np
        f = tw.build("add:M=7,N=13")
        x = np.ones((7, 13), np.float32); y = np.empty_like(x)
        f(x, x, y)
        print(int(y.sum()), sorted({"xgboost", "sqlite_utils", "rich", "click"} & sys.modules.keys()))
    """)
    assert out.strip() == "182 []"


def test_a_model_that_was_built_before_is_started_without_compiling(tmp_path):
    onnx = pytest.importorskip("onnx", reason="needs the extra onnx")
    helper = onnx.helper
    weight = onnx.numpy_helper.from_array(np.ones((8, 4), np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    ends = [helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", [3, 8]), ("y", [3, 4]))]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], [weight])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "net.onnx"
    )
    code = f"""
        import os, sys
        os.environ["TILEWRIGHT_CACHE_DIR"] = {str(tmp_path)!r}
        import numpy as np
        import tilewright as tw
        from tilewright.codegen.llvm import jit
        compiled, whole = [], jit._Build.__init__
        jit._Build.__init__ = lambda self, *given: (compiled.append(given), whole(self, *given))[1]
        f = tw.build({str(tmp_path / "net.onnx")!r}, "native -num-cores=1")
        print(int(f(np.ones((3, 8), np.float32)).sum()), len(compiled) > 0, "onnx.reference" in sys.modules)
    """
    assert run(code).split() == ["96", "True", "False"]
    assert run(code).split() == ["96", "False", "False"]


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'tilewright' has no attribute 'biuld'"):
        tilewright.biuld  # noqa: B018
    assert set(tilewright.__all__) <= set(dir(tilewright))
    assert list(tilewright.__all__) == sorted(tilewright.__all__)


def test_tvms_classic_program_runs_as_it_stands():
    import tilewright as tvm
    from tilewright import te

    M, N, K = 256, 128, 64
    A = te.placeholder((M, K), name="A", dtype="float32")
    B = te.placeholder((K, N), name="B", dtype="float32")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    xo, xi = s[C].split(s[C].op.axis[0], factor=32)
    yo, yi = s[C].split(s[C].op.axis[1], factor=32)
    ko, ki = s[C].split(k, factor=4)
    s[C].reorder(xo, yo, ko, xi, yi, ki)
    s[C].vectorize(yi)
    s[C].unroll(ki)
    target = "llvm -mcpu=skylake -mattr=+avx2,+fma"
    func = tvm.build(s, [A, B, C], target=target, name="matmul")
    text = func.get_source("ll")
    assert "@matmul" in text and re.search(r"<\d+ x float>", text) and "llvm.fma" in text
    assert "vfmadd" in func.get_source("asm") and "ymm" in func.get_source("asm")
    if not func.target.missing_here():
        rng = np.random.default_rng(0)
        a = rng.integers(-4, 5, (M, K)).astype(np.float32)
        b = rng.integers(-4, 5, (K, N)).astype(np.float32)
        c = np.full((M, N), np.nan, np.float32)
        func(a, b, c)
        np.testing.assert_array_equal(c, a @ b)
