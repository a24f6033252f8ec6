"""The passes of lowering: what they share knows what stands around a statement, and a pass left out would change nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright.codegen import Target
from tilewright.codegen.lower import PASSES, run_passes
from tilewright.codegen.lower.pipeline import HALF, INIT, MASK, contents
from tilewright.codegen.lower.scoped_transform import ScopedTransform
from tilewright.tir.expr import Call, FloorDiv, Select
from tilewright.tir.parser import parse
from tilewright.tir.stmt import Allocate, BufferStore, For, IfThenElse

AVX512 = Target("llvm -mcpu=x86-64-v4 -num-cores=1")

PROGRAMS = {
    "copy": """
@T.prim_func
def main(A: T.Buffer((17,), "float32"), B: T.Buffer((17,), "float32")):
    for i in range(17):
        B[i] = A[i]
""",
    "sum": """
@T.prim_func
def main(A: T.Buffer((13, 7), "float32"), B: T.Buffer((13,), "float32")):
    S = T.alloc_buffer((13,), scope="local")
    for i, k in T.grid(13, 7):
        with T.block("S"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                S[vi] = T.float32(0)
            S[vi] = S[vi] + A[vi, vk] * T.float32(2)
    for i in T.vectorized(13):
        with T.block("B"):
            vi = T.axis.spatial(13, i)
            B[vi] = S[vi]
""",
    "tile": """
@T.prim_func
def main(A: T.Buffer((50,), "float16"), B: T.Buffer((50,), "float16")):
    for f in T.serial(7, annotations={"pragma_unroll_factor": 2}):
        for v in T.vectorized(8):
            with T.block("B"):
                vi = T.axis.spatial(50, f * 8 + v)
                T.where(f * 8 + v < 50)
                B[vi] = T.exp(A[vi])
""",
    "marks": """
@T.prim_func
def main(A: T.Buffer((64, 16), "float32"), B: T.Buffer((64, 16), "float32")):
    for i in T.serial(64, annotations={"pragma_nontemporal_store": 1, "pragma_prefetch_distance": 4}):
        for j in T.vectorized(16):
            B[i, j] = T.if_then_else(i < 60, A[i, j], T.float32(0))
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_pass_that_is_left_out_would_have_changed_nothing(name):
    func = parse(PROGRAMS[name])
    every = [replace(p, wants=frozenset()) for p in PASSES]
    assert run_passes(func, AVX512).script() == run_passes(func, AVX512, every).script()


def test_only_the_passes_that_are_wanted_run():
    ran = []

    def watched(p):
        return replace(p, run=lambda func, target: ran.append(p.name) or p.run(func, target))

    run_passes(parse(PROGRAMS["copy"]), AVX512, [watched(p) for p in PASSES])
    always = [
        "unify_indices",
        "flatten_blocks",
        "check_accesses",
        "remove_unit_loops",
        "simplify",
        "remove_known_unit_loops",
    ]
    assert ran == always


def test_contents():
    assert {INIT, Allocate, "vectorized"} <= contents(parse(PROGRAMS["sum"]))
    tile = contents(parse(PROGRAMS["tile"]))
    assert {HALF, IfThenElse, "tir.exp", "pragma_unroll_factor"} <= tile
    assert not tile & {INIT, MASK, Select, FloorDiv, "tir.if_then_else"}
    assert {Call, "tir.if_then_else", "pragma_nontemporal_store"} <= contents(parse(PROGRAMS["marks"]))


NEST = """
@T.prim_func
def main(A: T.Buffer((64,), "int32"), n: T.int32):
    for i in range(8):
        t: T.int32 = i * 2
        for j in range(4):
            if t + j < n:
                A[i] = j
            else:
                A[i] = t
"""


def test_a_scoped_transform_knows_what_stands_around():
    func = parse(NEST)
    n = func.params[1]
    seen = []

    def store(s, scope):
        i, j = (loop.loop_var for loop in scope.loops)
        limit = scope.analyzer.can_prove(i * 2 + j < n), scope.analyzer.can_prove(i * 2 + j >= n)
        seen.append((len(scope.loops), [str(g) for g in scope.guards], limit, scope.analyzer.can_prove(i + j < 11)))

    assert ScopedTransform({BufferStore: store}).function(func) is func
    assert seen == [
        (2, ["t + j < n"], (True, False), True),
        (2, ["t + j >= n"], (False, True), True),
    ]


def test_results_of_rules_before_are_not_walked_and_of_rules_after_hold_what_is_inside():
    func = parse(NEST)
    before, after = [], []
    ScopedTransform({For: lambda s, _: before.append(s.loop_var.name) or s}).function(func)
    ScopedTransform(after={For: lambda s, scope: after.append((s.loop_var.name, len(scope.loops)))}).function(func)
    assert before == ["i"] and after == [("j", 1), ("i", 0)]
