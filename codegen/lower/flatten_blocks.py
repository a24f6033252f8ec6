"""Removes blocks, which leaves loops, conditions, stores and allocations.

The init of a reduction becomes statements of its own; assumptions go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...tir.analysis.reductions import start_in_front
from ...tir.arith import Analyzer
from ...tir.expr import BufferLoad, Call, Expr, IntImm, IterVar, Range, Var, conjuncts, op
from ...tir.expr.node import IRNode
from ...tir.stmt import (
    Allocate,
    AttrStmt,
    Block,
    BlockRealize,
    Buffer,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    PrimFunc,
    SeqStmt,
    Stmt,
    seq,
)
from ...tir.walk import substitute, transform, transform_statements
from .compact_buffers import allocation_places
from .scoped_transform import ScopedTransform

_NOTHING = Evaluate(IntImm(0))


def drop_assumptions(func: PrimFunc) -> PrimFunc:
    """Return the function without its assumptions, or the very same function when it has none."""

    def post(n: IRNode) -> IRNode | None:
        if isinstance(n, Evaluate) and isinstance(n.value, Call) and n.value.op == "tir.assume":
            return _NOTHING
        if isinstance(n, For) and n.body is _NOTHING:
            return _NOTHING
        if isinstance(n, BlockRealize) and n.block.iter_vars and n.block.body is _NOTHING and n.block.init is None:
            return _NOTHING
        if isinstance(n, SeqStmt) and any(s is _NOTHING for s in n.seq):
            kept: list[Stmt] = [s for s in n.seq if s is not _NOTHING]
            return seq(*kept) if kept else _NOTHING
        return None

    return func.with_body(transform_statements(func.body, post))


def place_init(func: PrimFunc) -> PrimFunc:
    """Move each block's init in front of the outermost loop that it reduces over.

    Before::

        for i, j, k in T.grid(4, 4, 4):
            with T.block("C"):
                ...
                with T.init(): C[vi, vj] = 0
                C[vi, vj] = C[vi, vj] + A[vi, vk]

    After::

        for i, j in T.grid(4, 4):
            with T.block("C_init"): C[vi, vj] = 0
            for k in range(4):
                with T.block("C"): C[vi, vj] = C[vi, vj] + A[vi, vk]

    Where a loop carries spatial and reduction axes at once, or computes values that the init reads, the init stays in
    place under a condition instead.
    """
    in_front: dict[Stmt, list[Stmt]] = {}

    def block(realize: BlockRealize, scope: ScopedTransform) -> BlockRealize | None:
        init = realize.block.init
        if init is None:
            return None
        here: list[Stmt] = []
        found = start_in_front(realize, scope.path)
        if found is not None:
            in_front.setdefault(found[0], []).append(found[1])
        else:  # the init stays here, under a condition where one is needed
            starts = [iv.var.equal(iv.dom.min) for iv in realize.block.iter_vars if iv.kind == IterVar.REDUCE]
            here.append(IfThenElse(op.all_(*starts), init) if starts else init)
        new = scope.below(realize)
        return new.with_(block=new.block.with_(init=None, body=seq(*here, new.block.body)))

    def loop(s: For, scope: ScopedTransform) -> Stmt:
        new = scope.below(s)
        return seq(*in_front[s], new) if s in in_front else new

    return ScopedTransform({BlockRealize: block, For: loop}).function(func)


Layout = tuple[tuple[Expr, ...], Expr]
"""The strides of a matched buffer in memory, and its first element."""


def flatten_blocks(func: PrimFunc) -> PrimFunc:
    """Replace block axes by their values, predicates by conditions, and place every allocation.

    Before::

        Y = T.alloc_buffer((128,))
        for i in range(128):
            with T.block("Y"):
                vi = T.axis.spatial(128, i)
                T.where(i < 100)
                Y[vi] = ...

    After (``Y`` stands around the statement that holds all its uses)::

        for i in range(128):
            if i < 100:
                Y[i] = ...
    """
    return func.with_body(_Flattening(func).visit(func.body, {}))


class _Flattening:
    """The rewriting of one function. ``layouts``: those of matched buffers in the memory of their sources."""

    def __init__(self, func: PrimFunc) -> None:
        self.places = allocation_places(func)
        self.layouts: dict[Buffer, Layout] = {}

    def visit(self, node: Stmt, env: Mapping[Var, Expr]) -> Stmt:
        """Return ``node`` without blocks, with the values of block axes substituted."""
        if isinstance(node, BlockRealize):
            return self.block(node, env)
        if isinstance(node, For):
            return node.map_children(lambda c: self.inside(node, c, env) if c is node.body else substitute(c, env))
        below = node.map_children(lambda c: self.visit(c, env) if isinstance(c, Stmt) else substitute(c, env))
        return self.allocated(node, below)

    def inside(self, node: Stmt, body: Stmt, env: Mapping[Var, Expr]) -> Stmt:
        return self.allocated(node, self.visit(body, env))

    def allocated(self, node: Stmt, stmt: Stmt) -> Stmt:
        """Return ``stmt`` inside the allocations that stand at ``node``."""
        for found in reversed(self.places.get(node, ())):
            stmt = Allocate(found.buffer, stmt, found.annotations)
        return stmt

    def block(self, node: BlockRealize, env: Mapping[Var, Expr]) -> Stmt:
        """Return the body of a block under its predicate and its pragmas."""
        block = node.block
        values = [substitute(v, env) for v in node.iter_values]
        inner = {**env, **{iv.var: v for iv, v in zip(block.iter_vars, values, strict=True)}}
        for m in block.match_buffers:  # a matched buffer has the memory layout of its source
            source = m.source.buffer
            steps, offset = self.layouts.get(source) or (source.element_strides(), source.elem_offset)
            for r, step in zip(m.source.region, steps, strict=True):
                offset = offset + substitute(r.min, inner) * step
            self.layouts[m.buffer] = (steps[len(source.shape) - len(m.buffer.shape) :], offset)
        body = self.inside(node, block.body, inner)
        if block.match_buffers:
            body = _resolve_matches(block, body, inner, self.layouts)
        for key, value in block.annotations.items():
            if key.startswith("pragma_"):
                body = AttrStmt(block.name, key, _constant(value, key, block), body)
        for term in reversed([substitute(t, env) for t in conjuncts(node.predicate)]):
            body = IfThenElse(term, body)
        return body


def _constant(value: Any, key: str, block: Block) -> Expr:
    """Returns the value of a pragma of a block as an expression."""
    if not isinstance(value, (bool, int, float, str, Expr)):
        raise ValueError(f"{key} of block {block.name!r} is {value!r}; a pragma of a block is a number or a text")
    return value if isinstance(value, Expr) else Analyzer().simplify(value)


def _resolve_matches(block: Block, body: Stmt, env: Mapping[Var, Expr], layouts: Mapping[Buffer, Layout]) -> Stmt:
    """Replaces accesses of matched buffers by accesses of the region's buffer. Pointers, strides and offsets become
    those of the region."""
    sources: dict[Buffer, tuple[Buffer, tuple[Range, ...]]] = {}
    symbols: dict[Var, Expr] = {}
    for m in block.match_buffers:
        region = substitute(m.source, env)
        source = region.buffer
        sources[m.buffer] = (source, region.region)
        lead = len(region.region) - len(m.buffer.shape)
        strides, offset = layouts[m.buffer]
        known = [(m.buffer.elem_offset, offset), (m.buffer.data, source.data)]
        known += zip(m.buffer.shape, [r.extent for r in region.region[lead:]], strict=True)
        if m.buffer.strides:
            known += zip(m.buffer.strides, strides, strict=True)
        for symbol, value in known:
            if isinstance(symbol, Var):
                symbols[symbol] = value if value.dtype == symbol.dtype else value.astype(symbol.dtype)

    def indices(buffer: Buffer, index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        _, ranges = sources[buffer]
        lead = len(ranges) - len(index)
        return tuple([r.min if d < lead else r.min + index[d - lead] for d, r in enumerate(ranges)])

    def post(n: IRNode) -> IRNode | None:
        if isinstance(n, BufferLoad) and n.buffer in sources:
            return BufferLoad(sources[n.buffer][0], indices(n.buffer, n.indices), n.predicate)
        if isinstance(n, BufferStore) and n.buffer in sources:
            return BufferStore(sources[n.buffer][0], n.value, indices(n.buffer, n.indices), n.predicate)
        return None

    return substitute(transform(body, post=post), symbols)
