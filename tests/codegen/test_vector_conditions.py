"""Conditions that read memory, inside vector loops: each is read once, before anything that it decides."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import Target, compile, lower
from tilewright.schedule import Schedule
from tilewright.tir.expr import BufferLoad
from tilewright.tir.interpret import interpret
from tilewright.tir.parser import parse
from tilewright.tir.walk import all_nodes

TARGETS = ["native -num-cores=1", "llvm -mcpu=x86-64 -num-cores=1", "llvm -mcpu=x86-64-v3 -num-cores=1"]

CHANGED = """
@T.prim_func
def main(A: T.Buffer((SIZE,)), B: T.Buffer((SIZE,)), S: T.Buffer((1,), "int32")):
    for i in range(SIZE):
        with T.block("S"):
            v = T.axis.spatial(SIZE, i)
            T.reads(A[v], B[v], S[0])
            T.writes(A[v], B[v])
            if CONDITION:
                A[v] = A[v] - T.float32(10)
                B[v] = T.float32(5)
            else:
                A[v] = T.float32(3)
                B[v] = A[v] + B[v]
"""
CONDITIONS = {
    "A[v] > T.float32(0)": lambda a, b, s: a > 0,
    "A[v] > T.float32(0) and B[v] < T.float32(0.5)": lambda a, b, s: (a > 0) & (b < 0.5),
    "v < 9 and A[v] > T.float32(0)": lambda a, b, s: (np.arange(len(a)) < 9) & (a > 0),
    "S[0] > 0 and A[v] > T.float32(0)": lambda a, b, s: (s[0] > 0) & (a > 0),
    "A[v] > T.float32(0) or (v > 2 and B[v] < T.float32(0.5))": lambda a, b, s: (a > 0) | ((np.arange(len(a)) > 2) & (b < 0.5)),
}  # fmt: skip


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("size", [16, 13, 5])
@pytest.mark.parametrize("target", [*TARGETS, "c"])
def test_a_branch_may_write_what_its_condition_reads(condition, size, target, through_c):
    """Both branches, and all their stores, go by the condition as it was before them."""
    sch = Schedule(parse(CHANGED.replace("SIZE", str(size)).replace("CONDITION", condition)))
    sch.vectorize(sch.get_loops("S")[0])
    r = np.random.default_rng(size)
    a, b, s = r.standard_normal(size).astype("float32"), r.random(size).astype("float32"), np.array([1], "int32")
    holds = CONDITIONS[condition](a, b, s)
    wanted_a = np.where(holds, a - np.float32(10), np.float32(3))
    wanted_b = np.where(holds, np.float32(5), np.float32(3) + b)
    (through_c(sch.func) if target == "c" else compile(sch, Target(target)))(a, b, s)
    np.testing.assert_array_equal(a, wanted_a)
    np.testing.assert_array_equal(b, wanted_b)


def nested(depth: int, kind: str):
    """A function whose condition asks ``depth`` elements one after another, each only where those before leave it open."""
    A = te.placeholder((17, 32), "int32", name="A")

    def held(i, n):
        here = A[i, n] > 3 + n
        if n == depth:
            return here
        other = A[i, n + 1] > A[i, te.max(A[i, n] % 32, 0)]
        if kind == "connectives":
            inner = te.all(here, held(i, n + 1))
            return te.any(inner, other) if n % 2 else te.all(te.any(here, other), held(i, n + 1))
        return te.if_then_else(here, other, held(i, n + 1))

    B = te.compute((17,), lambda i: te.cast("int32", held(i, 0)), name="B")
    return te.create_prim_func([A, B])


@pytest.mark.parametrize("kind", ["connectives", "choices"])
@pytest.mark.parametrize("depth", [3, 12])
def test_conditions_after_conditions_are_lowered_once(kind, depth):
    """Masks named nothing, so that each condition repeated all before it: minutes of lowering for ten of them."""
    func = nested(depth, kind)
    sch = Schedule(func)
    sch.vectorize(sch.get_loops("B")[0])
    lowered = lower(sch.func, Target(TARGETS[0]))
    assert sum(1 for _ in all_nodes(lowered.func.body)) < 1000 + 1000 * depth
    a = np.random.default_rng(depth).integers(0, 40, (17, 32)).astype("int32")
    wanted, made = np.zeros((2, 17), "int32")
    interpret(func, a, wanted)
    compile(sch, Target(TARGETS[0]))(a, made)
    np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize("step", [1, 2, 3, -1])
@pytest.mark.parametrize("target", TARGETS)
def test_what_a_condition_has_read_is_read_in_the_same_lanes(step, target):
    """The number of elements is that of the call: each element that the condition reads stands behind one mask alone."""
    n = te.size_var("n")
    A = te.placeholder((abs(step) * n,), name="A")
    at = (lambda i: n - 1 - i) if step < 0 else (lambda i: step * i)
    B = te.compute((n,), lambda i: te.if_then_else(A[at(i)] > 0, A[at(i)] * 2.0, -1.0), name="B")
    sch = Schedule(te.create_prim_func([A, B]))
    outer, inner = sch.split(sch.get_loops("B")[0], [None, 16])
    sch.vectorize(inner)
    lowered = lower(sch.func, Target(target))
    masks = {n.predicate for n in all_nodes(lowered.func.body) if isinstance(n, BufferLoad) and n.predicate is not None}
    assert all(not any(isinstance(n, BufferLoad) for n in all_nodes(mask)) for mask in masks)
    built = compile(sch, Target(target))
    for size in (1, 5, 16, 37):
        a = np.random.default_rng(size).standard_normal(abs(step) * size).astype("float32")
        b = np.zeros(size, "float32")
        built(a, b)
        read = a[::step][:size]
        np.testing.assert_array_equal(b, np.where(read > 0, read * 2, np.float32(-1)))
