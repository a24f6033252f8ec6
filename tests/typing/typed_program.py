"""A typed program of a user, which is checked by mypy --strict; ``reveal`` comments say what it must know."""

from __future__ import annotations

import numpy as np

import tilewright as tw
from tilewright import te

M, N, K = 13, 17, 7
A: te.Tensor = te.placeholder((M, K), name="A")
B = te.placeholder((K, N), dtype="float32", name="B")
k = te.reduce_axis((0, K), name="k")
C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
D = te.compute((M, N), lambda i, j: te.max(C[i, j] + 1.0, 0.0), name="D")
reveal_type(C)  # Tensor
reveal_type(A[0, 0] * 2.0)  # Expr
reveal_type(C.shape)  # tuple[Expr, ...]
func = te.create_prim_func([A, B, D])
reveal_type(func)  # PrimFunc
sch = tw.Schedule(func)
block = sch.get_block("C")
reveal_type(block)  # BlockRV
i, j, kk = sch.get_loops(block)
outer, inner = sch.split(i, factors=[None, 4])
reveal_type(outer)  # Var
sch.reorder(outer, j, kk, inner)
reveal_type(sch.fuse(outer, j))  # Var
reveal_type(sch.cache_read(block, 0, "local"))  # BlockRV
reveal_type(sch.decompose_reduction(block, kk))  # BlockRV
sch.vectorize(inner)
sch.unroll(kk)
reveal_type(sch.mod["main"])  # PrimFunc
reveal_type(sch.trace)  # Trace
module = tw.build(sch, "native -num-cores=1", name="kernel")
reveal_type(module)  # Module
module(np.ones((M, K), np.float32), np.ones((K, N), np.float32), np.empty((M, N), np.float32))
result = tw.tune([A, B, D], "native", trials=2)
reveal_type(result)  # TuneResult
reveal_type(result.best_seconds)  # float
reveal_type(tw.bench([A, B, D], "native", rounds=1).rows)  # list[BenchRow]
reveal_type(module.time_evaluator(number=3)(np.ones(3)).median)  # float
