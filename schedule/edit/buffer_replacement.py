"""This module replaces buffers together with the match_buffers that name parts of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...tir.expr import BufferLoad, Expr
from ...tir.expr.base.node_methods import map_tuple
from ...tir.stmt import Block, Buffer, BufferRegion, BufferStore, PrimFunc, Stmt
from ...tir.walk import replace_buffers, statements, transform


def matched_buffers(
    node: PrimFunc | Stmt, buffers: Mapping[Buffer, Buffer], change: Callable[[Buffer], Buffer]
) -> dict[Buffer, Buffer]:
    """Return ``buffers`` extended by each match_buffer below ``node`` of one of them, with its ``change``.

    Match_buffers of match_buffers are included.
    """
    out = dict(buffers)
    for n in statements(node):
        if isinstance(n, Block):
            for m in n.match_buffers:
                if m.source.buffer in out:
                    out[m.buffer] = change(m.buffer)
    return out


def renewed_buffers(node: Any, buffers: Mapping[Buffer, Buffer], change: Callable[[Buffer], Buffer]) -> Any:
    """Return ``node`` with ``buffers`` replaced, and their match_buffers changed by ``change``."""
    return replace_buffers(node, matched_buffers(node, buffers, change))


def changed_buffer(func: PrimFunc, buffer: Buffer, change: Callable[[Buffer], Buffer]) -> PrimFunc:
    """Return the function with a buffer and its match_buffers changed."""
    names = matched_buffers(func, {buffer: change(buffer)}, change)
    parameters = {p: names.get(b, b) for p, b in func.buffer_map.items()}
    return PrimFunc(func.params, replace_buffers(func.body, names), parameters, func.attrs)


def separated(func: PrimFunc, buffer: Buffer, separators: tuple[int, ...]) -> PrimFunc:
    """Return the function with other axis separators of a buffer.

    The dimensions of a match_buffer are the last ones of the buffer.
    """
    ndim = buffer.ndim
    return changed_buffer(
        func, buffer, lambda b: b.with_(axis_separators=tuple([max(0, s - (ndim - b.ndim)) for s in separators]))
    )


def moved_accesses(
    node: Any,
    old: Buffer,
    new: Buffer,
    there: Callable[[tuple[Expr, ...]], tuple[Expr, ...]],
    region: Callable[[BufferRegion], BufferRegion] | None = None,
) -> Any:
    """Return ``node`` with each load and store of ``old`` made from ``new``, at the indices that ``there`` returns.

    With ``region``, the regions of ``old`` that blocks declare are replaced by its results.
    """

    def renewed(r: BufferRegion) -> BufferRegion:
        return region(r) if r.buffer is old and region is not None else r

    def post(n: Any) -> Any:
        if isinstance(n, BufferLoad) and n.buffer is old:
            return BufferLoad(new, there(n.indices), n.predicate)
        if isinstance(n, BufferStore) and n.buffer is old:
            return BufferStore(new, n.value, there(n.indices), n.predicate)
        if isinstance(n, Block) and region is not None:
            reads, writes = map_tuple(n.reads, renewed), map_tuple(n.writes, renewed)
            if reads is not n.reads or writes is not n.writes:
                return n.with_(reads=reads, writes=writes)
        return None

    return transform(node, post=post)
