"""Programs in the manner of TVM's tutorials on te, schedules and MetaSchedule run after ``import tilewright as tvm``."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te


def product(m=16, n=16, k=7):
    A, B = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="k")
    return A, B, te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C"), r


def test_an_addition_of_vectors():
    tgt = tvm.target.Target("llvm")
    n = te.var("n")
    A, B = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    C = te.compute(A.shape, lambda i: A[i] + B[i], name="C")
    s = te.create_schedule(C.op)
    outer, inner = s[C].split(C.op.axis[0], factor=8)
    s[C].parallel(outer)
    s[C].vectorize(inner)
    assert "T.vectorized" in str(tvm.lower(s, [A, B, C], simple_mode=True))
    fadd = tvm.build(s, [A, B, C], tgt, name="myadd")
    dev = tvm.device(tgt.kind, 0)
    a = tvm.nd.array(np.arange(17, dtype=A.dtype), dev)
    b = tvm.nd.array(np.ones(17, dtype=B.dtype), dev)
    c = tvm.nd.array(np.zeros(17, dtype=C.dtype), dev)
    fadd(a, b, c)
    tvm.testing.assert_allclose(c.numpy(), a.numpy() + b.numpy())
    with pytest.raises(AssertionError):
        tvm.testing.assert_allclose(c.numpy(), a.numpy())


def test_a_product_is_timed():
    A, B, C, k = product()
    s = te.create_schedule(C.op)
    xo, yo, xi, yi = s[C].tile(C.op.axis[0], C.op.axis[1], 8, 8)
    (kaxis,) = s[C].op.reduce_axis
    ko, ki = s[C].split(kaxis, factor=7)
    s[C].reorder(xo, yo, ko, xi, ki, yi)
    s[C].vectorize(yi)
    func = tvm.build(s, [A, B, C], target="llvm", name="mmult")
    dev = tvm.cpu()
    a = tvm.nd.array(np.random.default_rng(0).integers(-4, 5, (16, 7)).astype("float32"), dev)
    b = tvm.nd.array(np.random.default_rng(1).integers(-4, 5, (7, 16)).astype("float32"), dev)
    c = tvm.nd.array(np.zeros((16, 16), dtype="float32"), dev)
    func(a, b, c)
    tvm.testing.assert_allclose(c.numpy(), a.numpy() @ b.numpy(), rtol=1e-5)
    evaluator = func.time_evaluator(func.entry_name, dev, number=2, repeat=3)
    assert evaluator(a, b, c).mean > 0 and len(evaluator(a, b, c).results) == 3


def test_modules_that_are_attributes_can_be_imported():
    from tilewright import meta_schedule as ms
    from tilewright.meta_schedule.space_generator import ScheduleFn
    from tilewright.meta_schedule.tir_integration import tune_tir

    assert ScheduleFn is ms.space_generator.ScheduleFn and tune_tir is ms.tune_tir
    with pytest.raises(ModuleNotFoundError, match="nothing_like_it"):
        importlib.import_module("tilewright.meta_schedule.nothing_like_it")


def test_meta_schedule(tmp_path):
    from tilewright import meta_schedule as ms

    A, B, C, _ = product()
    mod = tvm.IRModule({"main": te.create_prim_func([A, B, C])})
    target = tvm.target.Target("native -num-cores=1")
    with ms.tune_tir(
        mod=mod, target=target, max_trials_global=2, num_trials_per_iter=2, work_dir=tmp_path / "log"
    ) as database:
        sch = ms.tir_integration.compile_tir(database, mod, target)
    assert sch is not None and sch.trace.insts
    lib = tvm.build(sch.mod["main"], target=target)
    a, b = np.ones((16, 7), np.float32), np.ones((7, 16), np.float32)
    c = np.zeros((16, 16), np.float32)
    lib(a, b, c)
    assert (c == 7).all()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: tvm.device("cuda"), NotImplementedError, "no device 'cuda': code runs on this machine's processor"),
        (lambda: tvm.meta_schedule.relay_integration, AttributeError, "no 'relay_integration'"),
        (
            lambda: tvm.meta_schedule.tune_tir(None, "llvm", "x", 2, strategy="evolutionary"),
            NotImplementedError,
            "tune_tir: no strategy; there are space, max_trials_per_task, num_trials_per_iter, seed",
        ),
        (
            lambda: te.decl_tensor_intrin,
            AttributeError,
            "no attribute 'decl_tensor_intrin': an instruction is a .*TensorIntrin",
        ),
        (lambda: te.hybrid, AttributeError, "no attribute 'hybrid': programs with loops .* @T.prim_func"),
        (lambda: te.plaecholder, AttributeError, "module 'tilewright.te' has no attribute 'plaecholder'"),
        (lambda: tvm.register_func, AttributeError, "register_func.*register_operation"),
        (
            lambda: te.create_schedule((c := product()[2]).op)[c].set_store_predicate,
            AttributeError,
            "a stage has no 'set_store_predicate': .*te.if_then_else",
        ),
        (lambda: tvm.relay, AttributeError, "module 'tilewright' has no attribute 'relay'"),
    ],
)
def test_what_there_is_not_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
