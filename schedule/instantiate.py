"""This module copies a function's body with new variables and buffers, and index arithmetic of a chosen type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..tir.arithmetic import make_binary
from ..tir.buffer import Buffer, BufferRegion, MatchBufferRegion
from ..tir.constants import cast, const
from ..tir.dtype import DType
from ..tir.expr import BinaryOp, Broadcast, BufferLoad, Call, Cast, CmpOp, Expr, IntImm, Let, Ramp, Var
from ..tir.function import PrimFunc
from ..tir.ranges import IterVar, Range
from ..tir.stmt import Allocate, AttrStmt, Block, BlockRealize, BufferStore, For, LetStmt
from ..tir.walk import pre_order


def instantiate(
    func: PrimFunc, index_type: str, scopes: Sequence[str] | None = None
) -> tuple[tuple[Buffer, ...], Block]:
    """Return new buffers for the parameters of ``func`` (in these ``scopes``, when given), and its root block in terms
    of them.

    Loops, axes, sizes and indices have the type ``index_type``; computed values keep their types.
    """
    copier = _Copier(index_type)
    where = [b.scope for b in func.buffers] if scopes is None else scopes
    buffers = tuple([copier.buffer(b, scope) for b, scope in zip(func.buffers, where, strict=True)])
    assert isinstance(func.body, BlockRealize)
    return buffers, copier.block(func.body.block)


def index_as(e: Expr, dtype: str, env: dict[Var, Expr]) -> Expr:
    """Return an index expression with variables replaced, computed in ``dtype``."""
    if isinstance(e, Var):
        return cast(dtype, env.get(e, e))
    if isinstance(e, IntImm):
        return const(e.value, dtype)
    if isinstance(e, Ramp):
        return Ramp(index_as(e.base, dtype, env), index_as(e.stride, dtype, env), e.lanes)
    if isinstance(e, Broadcast):
        return Broadcast(index_as(e.value, dtype, env), e.lanes)
    if isinstance(e, BinaryOp) and not isinstance(e, CmpOp) and e.dtype.is_int:
        return make_binary(type(e), index_as(e.a, dtype, env), index_as(e.b, dtype, env))
    if isinstance(e, Cast) and e.dtype.is_int:
        return index_as(e.value, dtype, env)
    return cast(dtype, e)


class _Copier:
    def __init__(self, index_type: str) -> None:
        self.type = index_type
        self.vars: dict[Var, Expr] = {}
        self.buffers: dict[Buffer, Buffer] = {}

    # -- definitions -------------------------------------------------------------------------------------------------

    def define(self, var: Var, dtype: str | None = None) -> Var:
        """Return a new variable for one that is defined here, of the index type unless another type is given."""
        new = Var(var.name, self.type if dtype is None else dtype)
        self.vars[var] = new
        return new

    def buffer(self, b: Buffer, scope: str | None = None) -> Buffer:
        """Return the copy of a buffer; it is made at the first call."""
        known = self.buffers.get(b)
        if known is not None:
            return known
        for e in (*b.shape, *b.strides, b.elem_offset):
            for n in pre_order(e):
                if isinstance(n, Var) and n not in self.vars:
                    self.define(n)
        data = self.vars.get(b.data)
        new = b.with_(
            shape=self.indices(b.shape),
            scope=b.scope if scope is None else scope,
            strides=self.indices(b.strides),
            elem_offset=self.index(b.elem_offset),
            **({} if data is None else {"data": data}),
        )
        self.vars[b.data] = new.data
        self.buffers[b] = new
        return new

    def axis(self, iv: IterVar) -> IterVar:
        dom = self.range(iv.dom)
        return IterVar(dom, self.define(iv.var), iv.kind, iv.thread_tag)

    # -- expressions -------------------------------------------------------------------------------------------------

    def index(self, e: Expr) -> Expr:
        """Return the copy of an index expression, in the index type."""
        loads = any(isinstance(n, (BufferLoad, Call)) for n in pre_order(e))
        if not e.dtype.is_int or loads:
            return cast(DType(self.type).with_lanes(e.dtype.lanes), self.value(e))
        return index_as(e, self.type, self.vars)

    def indices(self, items: Any) -> tuple[Expr, ...]:
        return tuple([self.index(e) for e in items])

    def range(self, r: Range) -> Range:
        return Range(self.index(r.min), self.index(r.extent))

    def region(self, r: BufferRegion) -> BufferRegion:
        return BufferRegion(self.buffer(r.buffer), tuple([self.range(x) for x in r.region]))

    def value(self, e: Any) -> Any:
        """Return the copy of a computed expression, which keeps its type."""
        if isinstance(e, Var):
            new = self.vars.get(e, e)
            return new if new.dtype == e.dtype else Cast(e.dtype, new)
        if isinstance(e, BufferLoad):
            predicate = None if e.predicate is None else self.value(e.predicate)
            return BufferLoad(self.buffer(e.buffer), self.indices(e.indices), predicate)
        if isinstance(e, Let):
            value = self.value(e.value)
            return Let(self.define(e.var, value.dtype), value, self.value(e.body))
        if isinstance(e, Call):
            return Call(e.op, tuple([self.argument(a) for a in e.args]), e.dtype)
        return e.map_children(self.value)

    def argument(self, e: Expr) -> Expr:
        """Return the copy of an argument of a call; offsets and sizes among these have the index type."""
        counts = e.dtype.is_int and any(isinstance(n, Var) and n in self.vars for n in pre_order(e))
        if counts and not any(isinstance(n, (BufferLoad, Call, Let)) for n in pre_order(e)):
            return self.index(e)
        return self.value(e)  # type: ignore[no-any-return]

    # -- statements --------------------------------------------------------------------------------------------------

    def stmt(self, s: Any) -> Any:
        if isinstance(s, Expr):
            return self.value(s)
        if isinstance(s, For):
            lo, extent = self.index(s.min), self.index(s.extent)
            var = self.define(s.loop_var)
            return s.with_(loop_var=var, min=lo, extent=extent, body=self.stmt(s.body))
        if isinstance(s, BlockRealize):
            values, predicate = self.indices(s.iter_values), self.value(s.predicate)
            return BlockRealize(values, predicate, self.block(s.block))
        if isinstance(s, BufferStore):
            value, indices = self.value(s.value), self.indices(s.indices)
            predicate = None if s.predicate is None else self.value(s.predicate)
            return BufferStore(self.buffer(s.buffer), value, indices, predicate)
        if isinstance(s, LetStmt):
            value = self.value(s.value)
            return LetStmt(self.define(s.var, value.dtype), value, self.stmt(s.body))
        if isinstance(s, Allocate):
            return Allocate(self.buffer(s.buffer), self.stmt(s.body), s.annotations)
        if isinstance(s, AttrStmt) and isinstance(s.node, IterVar):
            return AttrStmt(self.axis(s.node), s.attr_key, self.value(s.value), self.stmt(s.body))
        return s.map_children(self.stmt)

    def block(self, b: Block) -> Block:
        """Return the copy of a block; its declarations are copied before its body."""
        axes = tuple([self.axis(iv) for iv in b.iter_vars])
        allocs = tuple([self.buffer(x) for x in b.alloc_buffers])
        matches = []
        for m in b.match_buffers:
            source = self.region(m.source)
            matches.append(MatchBufferRegion(self.buffer(m.buffer), source))
        return b.with_(
            iter_vars=axes,
            reads=tuple([self.region(r) for r in b.reads]),
            writes=tuple([self.region(r) for r in b.writes]),
            init=None if b.init is None else self.stmt(b.init),
            body=self.stmt(b.body),
            alloc_buffers=allocs,
            match_buffers=tuple(matches),
        )
