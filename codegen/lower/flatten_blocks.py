"""Removes blocks, which leaves loops, conditions, stores, and allocations around the innermost statement with all their
uses."""

from __future__ import annotations

from collections.abc import Mapping

from ...tir.annotations import ALIGN
from ...tir.arith import Analyzer, conjuncts
from ...tir.buffer import Buffer
from ...tir.expr import BufferLoad, Expr, Var
from ...tir.function import PrimFunc
from ...tir.node import Node
from ...tir.ranges import IterVar, Range
from ...tir.stmt import Allocate, AttrStmt, Block, BlockRealize, BufferStore, For, IfThenElse, LetStmt, Stmt, While
from ...tir.walk import pre_order, substitute, transform, vars_in
from .stride_alignment import alignments_of

_NO_BARRIER = 1 << 30
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
    places = _place_allocations(func)
    layouts: dict[Buffer, Layout] = {}
    wishes = _alignments(func)

    def wrap(node: Node, stmt: Stmt) -> Stmt:
        for buffer in reversed(places.get(id(node), ())):
            stmt = Allocate(buffer, stmt, {ALIGN: wishes[buffer]} if buffer in wishes else {})
        return stmt

    def visit(node: Node, env: dict[Var, Expr]) -> Stmt:
        if isinstance(node, BlockRealize):
            block = node.block
            values = [substitute(v, env) for v in node.iter_values]
            inner = {**env, **{iv.var: v for iv, v in zip(block.iter_vars, values, strict=True)}}
            for m in block.match_buffers:  # a matched buffer has the memory layout of its source
                source = m.source.buffer
                steps, offset = layouts.get(source) or (source.element_strides(), source.elem_offset)
                for r, step in zip(m.source.region, steps, strict=True):
                    offset = offset + substitute(r.min, inner) * step
                layouts[m.buffer] = (steps[len(source.shape) - len(m.buffer.shape) :], offset)
            body = wrap(node, visit(block.body, inner))
            if block.match_buffers:
                body = _resolve_matches(block, body, inner, layouts)
            for key, value in block.annotations.items():
                if key.startswith("pragma_"):
                    body = AttrStmt(
                        block.name, key, value if isinstance(value, Expr) else Analyzer().simplify(value), body
                    )
            terms = [substitute(t, env) for t in conjuncts(node.predicate)]
            for term in reversed(terms):
                body = IfThenElse(term, body)
            return body
        if isinstance(node, For):
            body = wrap(node, visit(node.body, env))
            return node.with_(min=substitute(node.min, env), extent=substitute(node.extent, env), body=body)
        if isinstance(node, BufferStore):
            return substitute(node, env)  # type: ignore[no-any-return]
        if isinstance(node, LetStmt):
            return wrap(node, LetStmt(node.var, substitute(node.value, env), visit(node.body, env)))
        new = node.map_children(lambda c: visit(c, env) if isinstance(c, Stmt) else substitute(c, env))
        return wrap(node, new)  # type: ignore[arg-type]

    return func.with_body(visit(func.body, {}))


def _alignments(func: PrimFunc) -> dict[Buffer, list[tuple[int, int, int]]]:
    """Returns the requests of blocks concerning the strides of the buffers that they write."""
    out: dict[Buffer, list[tuple[int, int, int]]] = {}
    for n in pre_order(func, lambda n: not isinstance(n, Expr)):
        if isinstance(n, Block) and ALIGN in n.annotations:
            for buffer, found in alignments_of(n).items():
                out.setdefault(buffer, []).extend(found)
    return out


def _place_allocations(func: PrimFunc) -> Mapping[int, list[Buffer]]:
    """Returns, for every buffer of ``alloc_buffers``, the id of the innermost statement that holds all its accesses.

    An access in a block that reduces counts as an access at the outermost loop of the reduction, because the partial
    result must be kept between iterations. An access below a ``while`` counts as an access at that loop, because an
    iteration may read what the one before left in memory; buffers that belong to a block in the loop are not concerned.
    """
    allocated = [
        b for n in pre_order(func, lambda n: not isinstance(n, Expr)) if isinstance(n, Block) for b in n.alloc_buffers
    ]
    wanted = set(allocated)
    pointers = {b.data: b for b in allocated}
    common: dict[Buffer, tuple[Node, ...]] = {}
    aliases: dict[Buffer, Buffer] = {}
    homes: dict[Buffer, int] = {}  # the depth of the blocks that allocate

    def record(buffer: Buffer, path: tuple[Node, ...]) -> None:
        buffer = aliases.get(buffer, buffer)
        if buffer not in wanted:
            return
        depth = homes.get(buffer, 0)
        path = path[: next((n for n in range(depth, len(path)) if isinstance(path[n], While)), len(path))]
        if buffer not in common:
            common[buffer] = path
            return
        old = common[buffer]
        n = 0
        while n < min(len(old), len(path)) and old[n] is path[n]:
            n += 1
        common[buffer] = old[:n]

    def visit(node: Node, path: tuple[Node, ...], barrier: int) -> None:
        """``path`` holds the statements from the root; ``barrier`` says how many of them may enclose the allocation of
        a written buffer."""
        if isinstance(node, BlockRealize):
            carried: set[Var] = set()
            for iv, value in zip(node.block.iter_vars, node.iter_values, strict=True):
                if iv.kind != IterVar.SPATIAL:
                    carried |= vars_in(value)
            for n, above in enumerate(path):
                if isinstance(above, For) and above.loop_var in carried:
                    barrier = min(barrier, n)
            for m in node.block.match_buffers:
                aliases[m.buffer] = aliases.get(m.source.buffer, m.source.buffer)
                record(m.source.buffer, path[:barrier])
            matched = [e for m in node.block.match_buffers for r in m.source.region for e in (r.min, r.extent)]
            for e in (*node.iter_values, node.predicate, *matched):
                visit(e, path, barrier)
            homes.update(dict.fromkeys(node.block.alloc_buffers, len(path)))
            path = (*path, node)
            for part in (node.block.init, node.block.body):
                if part is not None:
                    visit(part, path, barrier)
            return
        if isinstance(node, BufferStore):
            record(node.buffer, path[:barrier])
        elif isinstance(node, BufferLoad):
            record(node.buffer, path)
        elif isinstance(node, Var) and node in pointers:
            record(pointers[node], path[:barrier])
        elif isinstance(node, Stmt):
            path = (*path, node)
        for child in node.children():
            visit(child, path, barrier)

    visit(func.body, (), _NO_BARRIER)
    places: dict[int, list[Buffer]] = {}
    for buffer in allocated:
        path = common.get(buffer, ())
        if buffer in common:
            places.setdefault(id(path[-1]) if path else id(func.body), []).append(buffer)
    return places


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

    def post(n: Node) -> Node | None:
        if isinstance(n, BufferLoad) and n.buffer in sources:
            return BufferLoad(sources[n.buffer][0], indices(n.buffer, n.indices), n.predicate)
        if isinstance(n, BufferStore) and n.buffer in sources:
            return BufferStore(sources[n.buffer][0], n.value, indices(n.buffer, n.indices), n.predicate)
        return None

    return substitute(transform(body, post=post), symbols)  # type: ignore[no-any-return]
