"""Emits statements: what each type of node asks of a target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...tir.expr import IntImm
from ...tir.stmt import stmt as S
from ..lowered import REGISTER_SCOPE
from .emitter import Emitter
from .storage import constant_elements


def _sequence(em: Emitter, s: S.SeqStmt) -> None:
    for child in s.seq:
        em.stmt(child)


def _attribute(em: Emitter, s: S.AttrStmt) -> None:
    em.stmt(s.body)


def _evaluate(em: Emitter, s: S.Evaluate) -> None:
    if not isinstance(s.value, IntImm):
        em.evaluated(em.value(s.value))


def _let(em: Emitter, s: S.LetStmt) -> None:
    em.define(s.var, s.value)
    em.stmt(s.body)


def _store(em: Emitter, s: S.BufferStore) -> None:
    value = em.value(s.value)
    if s.buffer.scope == REGISTER_SCOPE:
        em.set_register(s.buffer, value)
        return
    lanes = max([i.dtype.lanes for i in s.indices], default=1)
    if lanes > 1 and s.value.dtype.lanes == 1:
        value = em.splat(value, s.value.dtype, lanes)
    em.store(
        s.buffer, s.indices, value, s.buffer.dtype if lanes == 1 else s.buffer.dtype.with_lanes(lanes), s.predicate
    )


def _allocate(em: Emitter, s: S.Allocate) -> None:
    buffer = s.buffer
    if buffer.scope == REGISTER_SCOPE:
        em.registers[buffer] = em.new_register(buffer)
        em.stmt(s.body)
        del em.registers[buffer]
        return
    size = constant_elements(buffer)
    if buffer in em.unit.on_stack:
        em.bases[buffer.data] = em.stack_memory(buffer, max(size or 0, 1) * buffer.dtype.lanes)
        em.stmt(s.body)
        return
    pointer = em.bases[buffer.data] = em.scratch_memory(buffer, size)
    em.scratch.append(pointer)
    em.stmt(s.body)
    em.scratch.pop()
    em.free(pointer)


def _loop(em: Emitter, s: S.For) -> None:
    if s.kind == "parallel" and not em.in_parallel and em.target.num_cores > 1:
        if not (isinstance(s.extent, IntImm) and s.extent.value <= 1):
            em.parallel_loop(s)
            return
    em.serial_loop(s)


def _assertion(em: Emitter, s: S.AssertStmt) -> None:
    em.assertion(em.value(s.condition), s, em.unit.assertions[id(s)])
    em.stmt(s.body)


STATEMENTS: dict[type, Callable[[Any, Any], None]] = {
    S.Allocate: _allocate,
    S.AssertStmt: _assertion,
    S.AttrStmt: _attribute,
    S.BufferStore: _store,
    S.Evaluate: _evaluate,
    S.For: _loop,
    S.IfThenElse: lambda em, s: em.branch(s),
    S.LetStmt: _let,
    S.SeqStmt: _sequence,
    S.While: lambda em, s: em.while_loop(s),
}
"""The usual emitters by the type of statement."""
