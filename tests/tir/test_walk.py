"""Walks over programs: statements alone, nodes by type, the memory that statements name, and what walks leave behind."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from tilewright.tir import For, PrimFunc, parse
from tilewright.tir.analysis.access import opaque_buffers
from tilewright.tir.analysis.scope import bare_loads
from tilewright.tir.analysis.tree import tree_of
from tilewright.tir.expr import BufferLoad, IntImm
from tilewright.tir.stmt import Block, BufferStore, IfThenElse, SeqStmt
from tilewright.tir.walk import (
    memory_in,
    nodes_around,
    nodes_by_type,
    pre_order,
    replace_buffers,
    statements,
    substitute,
    transform,
    transform_around,
)

PROGRAM = """
@T.prim_func
def main(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32")):
    C = T.alloc_buffer((16,), "int32")
    for i in range(A[0]):
        with T.block("copy"):
            v = T.axis.spatial(16, i)
            T.reads(A[v])
            T.writes(C[v])
            C[v] = A[v]
    for i in range(16):
        with T.block("twice"):
            v = T.axis.spatial(16, i)
            T.reads(C[v])
            T.writes(B[v])
            if v < 8:
                B[v] = C[v] * 2
            else:
                B[v] = C[v]
"""


@pytest.fixture
def func() -> PrimFunc:
    found = parse(PROGRAM)
    assert isinstance(found, PrimFunc)
    return found


def test_statements_come_in_program_order(func: PrimFunc) -> None:
    kinds = [type(s).__name__ for s in statements(func)]
    nest = ["For", "BlockRealize", "Block"]
    assert kinds == [
        "BlockRealize",
        "Block",
        "SeqStmt",
        *nest,
        "BufferStore",
        *nest,
        "IfThenElse",
        *["BufferStore"] * 2,
    ]


def test_nodes_by_type_have_each_node_once(func: PrimFunc) -> None:
    found = nodes_by_type(func.body)
    counts = {kind: len(found[kind]) for kind in (SeqStmt, For, Block, IfThenElse, BufferStore, BufferLoad)}
    assert counts == {SeqStmt: 1, For: 2, Block: 3, IfThenElse: 1, BufferStore: 3, BufferLoad: 4}
    load = BufferLoad(func.buffers[0], (IntImm(0),))
    assert nodes_by_type(load + load)[BufferLoad] == [load]


def test_nodes_around_others_are_those_that_hold_them(func: PrimFunc) -> None:
    asked: list[object] = []

    def wanted(n: object) -> bool:
        asked.append(n)
        return isinstance(n, BufferLoad)

    around = nodes_around(func.body, wanted)
    assert len(asked) == len(set(asked))
    below = {n for n in pre_order(func.body) if any(isinstance(m, BufferLoad) for m in pre_order(n))}
    assert around == below
    assert nodes_around(func.body, lambda n: False) == set()
    visited: list[object] = []
    assert transform_around(func.body, around, lambda n: visited.append(n)) is func.body
    assert around <= set(visited) < set(pre_order(func.body))


def test_the_memory_that_a_statement_names(func: PrimFunc) -> None:
    a, b = func.buffers
    first, second = [loop for loop in statements(func) if isinstance(loop, For)]
    (c,) = func.body.block.alloc_buffers  # type: ignore[attr-defined]
    assert memory_in(first) == {a, c}
    assert memory_in(second) == {b, c}


def test_loads_outside_of_blocks(func: PrimFunc) -> None:
    loop = next(s for s in statements(func) if isinstance(s, For))
    assert [(stmt, load.buffer) for stmt, load in bare_loads(func.body.block.body)] == [(loop, func.buffers[0])]  # type: ignore[attr-defined]


def test_opaque_buffers_of_a_statement_around_others() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32")):
    for i in range(4):
        T.evaluate(T.call_extern("int32", "f", T.address_of(A[i])))
    for i in range(4):
        B[i] = 0
""")
    assert isinstance(func, PrimFunc)
    assert opaque_buffers(func.body) == {func.buffers[0].data}
    assert [len(opaque_buffers(s)) for s in func.body.seq] == [1, 0]  # type: ignore[attr-defined]


def _substituted(func: PrimFunc) -> None:
    loop = next(s for s in statements(func) if isinstance(s, For))
    substitute(loop.body, {loop.loop_var: IntImm(0)})


def _replaced(func: PrimFunc) -> None:
    loop = next(s for s in statements(func) if isinstance(s, For))
    tree_of(func).replace({loop: loop.with_(kind="parallel")})


@pytest.mark.parametrize(
    "walk",
    [
        _substituted,
        _replaced,
        lambda f: transform(f, post=lambda n: IntImm(9) if isinstance(n, IntImm) else None),
        lambda f: replace_buffers(f, {f.buffers[0]: f.buffers[0].with_()}),
    ],
)
def test_walks_leave_nothing_for_the_garbage_collector(func: PrimFunc, walk: Callable[[PrimFunc], object]) -> None:
    walk(func)  # what is made at the first call stays
    gc.collect()
    walk(func)
    assert gc.collect() == 0
