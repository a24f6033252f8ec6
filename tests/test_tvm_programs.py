"""Programs in the manner of TVM's tutorials, with its full module names: te, TensorIR, MetaSchedule."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import tilewright as tvm
import tilewright.testing
import tilewright.topi
from tilewright import te
from tilewright.ir.module import IRModule
from tilewright.script import ir as I
from tilewright.script import tir as T
from tilewright.script.parser import tir as same_words

F32 = "float32"


def values(*shape):
    return np.random.default_rng(0).integers(-3, 4, shape).astype(F32)


def test_full_names_are_the_same_modules():
    assert same_words is T and tvm.script.tir is T
    assert tilewright.testing is tvm.testing and tvm.ir.module.IRModule is IRModule is tvm.IRModule
    assert tvm.testing.__spec__.name == tvm.testing.__name__ == "tilewright.tvm_names.testing"


def test_a_product_with_a_packed_operand():
    M = N = 32
    K, bn = 7, 16
    target = tvm.target.Target(target="llvm", host="llvm")
    dev = tvm.device(target.kind.name, 0)
    k = te.reduce_axis((0, K), "k")
    A, B = te.placeholder((M, K), name="A"), te.placeholder((K, N), name="B")
    packed = te.compute((N / bn, K, bn), lambda big, k, little: B[k, big * bn + little], name="packed")
    C = te.compute(
        (M, N),
        lambda m, n: te.sum(A[m, k] * packed[tvm.tir.indexdiv(n, bn), k, tvm.tir.indexmod(n, bn)], axis=k),
        name="C",
    )
    s = te.create_schedule(C.op)
    CC = s.cache_write(C, "global")
    mo, no, mi, ni = s[C].tile(C.op.axis[0], C.op.axis[1], bn, bn)
    s[CC].compute_at(s[C], no)
    mc, nc = s[CC].op.axis
    (kaxis,) = s[CC].op.reduce_axis
    ko, ki = s[CC].split(kaxis, factor=4)
    s[CC].reorder(ko, mc, ki, nc)
    s[CC].vectorize(nc)
    s[CC].unroll(ki)
    s[C].parallel(mo)
    big, _, little = s[packed].op.axis
    s[packed].vectorize(little)
    s[packed].parallel(big)
    func = tvm.build(s, [A, B, C], target=target, name="mmult")
    a, b = tvm.nd.array(values(M, K), dev), tvm.nd.array(values(K, N), dev)
    c = tvm.nd.array(np.zeros((M, N), dtype=F32), dev)
    func(a, b, c)
    tvm.testing.assert_allclose(c.numpy(), np.dot(a.numpy(), b.numpy()), rtol=1e-5)


def test_a_reduction_in_two_steps():
    n, m = te.var("n"), te.var("m")
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    B = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    ko, ki = s[B].split(B.op.reduce_axis[0], factor=16)
    s.rfactor(B, ki)
    assert "rf" in str(tvm.lower(s, [A, B], simple_mode=True))
    fsum = tvm.build(s, [A, B], "llvm")
    a, b = tvm.nd.array(values(13, 17), tvm.cpu(0)), tvm.nd.empty((13,), F32, tvm.cpu(0))
    fsum(a, b)
    tvm.testing.assert_allclose(b.numpy(), a.numpy().sum(axis=1))


def test_a_recurrence():
    m, n = te.var("m"), te.var("n")
    X, state = te.placeholder((m, n), name="X"), te.placeholder((m, n))
    first = te.compute((1, n), lambda _, i: X[0, i])
    update = te.compute((m, n), lambda t, i: state[t - 1, i] + X[t, i])
    result = tvm.te.scan(first, update, state, inputs=[X])
    fscan = tvm.build(te.create_schedule(result.op), [X, result], "llvm", name="myscan")
    x, y = tvm.nd.array(values(7, 10)), tvm.nd.array(np.zeros((7, 10), dtype=result.dtype))
    fscan(x, y)
    tvm.testing.assert_allclose(y.numpy(), np.cumsum(x.numpy(), axis=0))


def test_a_reducer_of_tuples():
    def better(x, y):
        return tvm.tir.Select(x[1] >= y[1], x[0], y[0]), tvm.tir.Select(x[1] >= y[1], x[1], y[1])

    m, n = te.var("m"), te.var("n")
    argmax = te.comm_reducer(better, lambda t0, t1: (tvm.tir.const(-1, t0), tvm.te.min_value(t1)), name="argmax")
    index, value = te.placeholder((m, n), "int32", "index"), te.placeholder((m, n), "int32", "value")
    k = te.reduce_axis((0, n), "k")
    T0, T1 = te.compute((m,), lambda i: argmax((index[i, k], value[i, k]), axis=k), name="T")
    f = tvm.build(te.create_schedule(T0.op), [index, value, T0, T1], "llvm")
    row = np.array([[3, 9, 4]], "int32")
    best, at = np.zeros(1, "int32"), np.zeros(1, "int32")
    f(np.array([[0, 1, 2]], "int32"), row, at, best)
    assert (at[0], best[0]) == (1, 9)


def test_tensor_ir_from_the_first_lesson():
    @tvm.script.ir_module
    class MyModule:
        @T.prim_func
        def main(a: T.handle, b: T.handle):
            T.func_attr({"global_symbol": "main", "tir.noalias": True})
            A = T.match_buffer(a, (8,), dtype="float32")
            B = T.match_buffer(b, (8,), dtype="float32")
            for i in range(8):
                with T.block("B"):
                    vi = T.axis.spatial(8, i)
                    B[vi] = A[vi] + 1.0

    assert isinstance(MyModule, tvm.IRModule) and isinstance(MyModule["main"], tvm.tir.PrimFunc)
    sch = tvm.tir.Schedule(MyModule)
    (i,) = sch.get_loops(sch.get_block("B"))
    i_0, i_1, i_2 = sch.split(i, factors=[2, 2, 2])
    sch.reorder(i_0, i_2, i_1)
    mod = tvm.build(sch.mod, target="llvm")
    a, b = tvm.nd.array(np.arange(8).astype(F32)), tvm.nd.array(np.zeros(8, F32))
    mod(a, b)
    assert b.numpy().tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert mod.time_evaluator("main", tvm.cpu(), number=1)(a, b).mean > 0


def test_tensor_ir_with_two_blocks_and_a_name():
    @I.ir_module
    class MyModule:
        @T.prim_func
        def mm_relu(A: T.Buffer((16, 16), F32), B: T.Buffer((16, 16), F32), C: T.Buffer((16, 16), F32)):
            T.func_attr({"global_symbol": "mm_relu", "tir.noalias": True})
            Y = T.alloc_buffer((16, 16), dtype="float32")
            for i, j, k in T.grid(16, 16, 16):
                with T.block("Y"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    with T.init():
                        Y[vi, vj] = T.float32(0)
                    Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
            for i, j in T.grid(16, 16):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = T.max(Y[vi, vj], T.float32(0))

    sch = tvm.tir.Schedule(MyModule)
    block = sch.get_block("Y", func_name="mm_relu")
    i, j, k = sch.get_loops(block)
    j0, j1 = sch.split(j, factors=[None, 4])
    sch.reorder(j0, k, j1)
    sch.reverse_compute_at(sch.get_block("C", "mm_relu"), j0)
    sch.decompose_reduction(block, k)
    f = tvm.compile(sch.mod, target="llvm")["mm_relu"]
    a, b, c = tvm.runtime.tensor(values(16, 16)), tvm.runtime.tensor(values(16, 16)), tvm.runtime.empty((16, 16), F32)
    f(a, b, c)
    assert (c.numpy() == np.maximum(a.numpy() @ b.numpy(), 0)).all()


def test_walks_over_a_program():
    A = te.placeholder((32,), name="A")
    B = te.compute((32,), lambda i: A[i] + 1.0, name="B")
    func = tvm.lower(te.create_schedule(B.op), [A, B])["main"]
    loops = []
    tvm.tir.stmt_functor.post_order_visit(
        func.body, lambda node: loops.append(node) if isinstance(node, tvm.tir.For) else None
    )

    def vectorized(loop):
        return tvm.tir.For(loop.loop_var, loop.min, loop.extent, "vectorized", loop.body)

    made = func.with_body(tvm.tir.stmt_functor.ir_transform(func.body, None, vectorized, ["tir.For"]))
    assert len(loops) == 1 and "T.vectorized(32)" in made.script()


def test_a_space_of_a_schedule_function(tmp_path):
    from tilewright import meta_schedule as ms

    def schedule(sch):
        block = sch.get_block("C", "main")
        i, j, k = sch.get_loops(block=block)
        j_0, j_1 = sch.split(loop=j, factors=sch.sample_perfect_tile(loop=j, n=2))
        sch.reorder(i, j_0, k, j_1)
        sch.decompose_reduction(block, k)
        return sch

    A, B, k = te.placeholder((8, 8), name="A"), te.placeholder((8, 8), name="B"), te.reduce_axis((0, 8), "k")
    C = te.compute((8, 8), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    mod = IRModule({"main": te.create_prim_func([A, B, C])})
    database = ms.tune_tir(
        mod=mod, target="native --num-cores=1", max_trials_global=2, num_trials_per_iter=2,
        space=ms.space_generator.ScheduleFn(schedule), work_dir=tmp_path / "tuned",
    )  # fmt: skip
    sch = ms.tir_integration.compile_tir(database, mod, "native --num-cores=1")
    names = [inst.name for inst in sch.trace.insts]
    assert "reorder" in [name.lower() for name in names] and "T.init" not in sch.mod["main"].script()


def test_operators_under_topis_names():
    A = te.placeholder((4, 5), name="A")
    total = tvm.topi.sum(tvm.topi.broadcast_add(tvm.topi.nn.relu(A), A), axis=1)
    a = values(4, 5)
    assert (tvm.build([A, total], "llvm")(a) == (np.maximum(a, 0) + a).sum(axis=1)).all()


def test_a_library_is_saved_and_called(tmp_path):
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1.0, name="B")
    f = tvm.build(te.create_schedule(B.op), [A, B], "llvm", name="plus_one")
    f.save(tmp_path / "plus_one.o")
    f.export_library(tmp_path / "plus_one.so")
    a, b = values(8), np.zeros(8, F32)
    library = ctypes.CDLL(str(tmp_path / "plus_one.so"))
    assert library.plus_one(a.ctypes.data_as(ctypes.c_void_p), b.ctypes.data_as(ctypes.c_void_p)) == 0
    assert (b == a + 1).all()


def from_import(name):
    exec(f"from tilewright import {name}", {})


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: from_import("relay"), ImportError, "there is no tilewright.relay: models come in by tilewright.from_onnx"),
        (lambda: from_import("auto_scheduler"), ImportError, "there is no tilewright.auto_scheduler: .*tilewright.tune"),
        (lambda: from_import("nosuch"), ImportError, "cannot import name 'nosuch'"),
        (lambda: tvm.contrib, AttributeError, "no attribute 'contrib': module.export"),
        (lambda: tvm.transform.PassContext(), AttributeError, "no attribute 'transform': lowering takes no configuration"),
        (lambda: tvm.tir.transform.Simplify(), AttributeError, "no attribute 'transform': the passes are those of"),
        (lambda: tvm.tir.nosuch, AttributeError, "module 'tilewright.tir' has no attribute 'nosuch'"),
        (lambda: tvm.topi.nosuch, AttributeError, "topi has no 'nosuch' here; tilewright.te.ops lists"),
        (lambda: tvm.runtime.load_module("x.so"), OSError, "there is no file 'x.so'"),
        (lambda: tvm.target.Target("llvm").__enter__(), NotImplementedError, "pass target= to build"),
        (lambda: tvm.tir.stmt_functor.ir_transform(None, len, None), NotImplementedError, "nothing is called before"),
        (
            lambda: tvm.meta_schedule.tune_tir(None, "llvm", "x", 2, space="cuda"),
            NotImplementedError,
            "no space 'cuda'; there is ms.space_generator.ScheduleFn",
        ),
    ],
)  # fmt: skip
def test_what_there_is_not_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
