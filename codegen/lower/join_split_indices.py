"""Vectors along several dimensions at once: accesses of a fused loop that walks memory in order become contiguous."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...tir.expr import BufferLoad, Call, Expr, FloorDiv, FloorMod, IntImm, Var, const
from ...tir.expr.node import IRNode
from ...tir.stmt import Buffer, BufferStore, For, IfThenElse, LetStmt, PrimFunc, Stmt
from ...tir.walk import all_nodes, distinct, substitute, transform, uses_var
from .scoped_transform import ScopedTransform


def join_split_indices(func: PrimFunc) -> PrimFunc:
    """View a buffer with neighbouring dimensions joined into one, where a vectorized loop goes through them in order.

    Before (``A`` has 5 rows of 3)::

        for v in T.vectorized(15):
            ... A[v // 3, v % 3] ...

    After::

        for v in T.vectorized(15):
            ... A_flat[v] ...

    Applies to buffers without strides, where no quotient of the loop's variable is left in the joined index. The dimensions
    may be symbolic where indices have 64 bits, or the joined index is the number that the outermost index divides, so that no
    number is longer than before, and the loop is around one store: texts declare such a view where it is used, and it is one view in one place only.
    """
    views: dict[tuple[Buffer, int, int], Buffer] = {}
    given = set(func.buffers)
    named: dict[Var, Expr] = {}

    def written_out(e: Expr) -> Expr:
        """Returns an index with quotients in place of their names."""
        if not named:
            named.update(
                {n.var: n.value for n in distinct(func.body) if isinstance(n, LetStmt) and not _reads(n.value)}
            )
        while any(n in named for n in all_nodes(e) if type(n) is Var):
            e = substitute(e, named)
        return e

    def joined(loop: For, scope: ScopedTransform) -> For | None:
        if loop.kind != "vectorized":
            return None
        for key in [k for k, view in views.items() if k[0] not in given or not _is_constant(view)]:
            del views[key]  # scratch memory, and views of symbolic sizes: each loop gets its own
        scope.know(loop)
        simplify, alone = scope.analyzer.simplify, _is_one_store(loop.body)

        def post(n: IRNode) -> IRNode | None:
            if type(n) is not BufferLoad and type(n) is not BufferStore:
                return None
            found = _joined(n.buffer, n.indices, loop.loop_var, simplify)
            if found is None and any(_has_quotient(i, loop.loop_var) for i in n.indices):
                found = _joined(n.buffer, tuple(map(written_out, n.indices)), loop.loop_var, simplify)
            if found is None:
                return None
            first, last, index = found
            if not (alone or all(isinstance(extent, IntImm) for extent in n.buffer.shape[first : last + 1])):
                return None
            view = views.get((n.buffer, first, last))
            if view is None:
                view = views[n.buffer, first, last] = _view(n.buffer, first, last)
            indices = (*n.indices[:first], index, *n.indices[last + 1 :])
            if isinstance(n, BufferLoad):
                return BufferLoad(view, indices, n.predicate)
            return BufferStore(view, n.value, indices, n.predicate)

        body = transform(loop.body, post=post)
        return loop if body is loop.body else loop.with_(body=body)

    return ScopedTransform({For: joined}).function(func)


def _is_one_store(s: Stmt) -> bool:
    """Returns whether a statement is one store, perhaps under conditions."""
    while isinstance(s, IfThenElse) and s.else_case is None:
        s = s.then_case
    return isinstance(s, BufferStore)


def joined_access(
    access: BufferLoad | BufferStore, var: Var, simplify: Callable[[Expr], Expr]
) -> BufferLoad | BufferStore | None:
    """Returns an access to a view in which the dimensions that quotients of ``var`` go through are one, or None."""
    found = _joined(access.buffer, access.indices, var, simplify)
    if found is None or not all(isinstance(e, IntImm) for e in access.buffer.shape[found[0] : found[1] + 1]):
        return None
    first, last, index = found
    indices = (*access.indices[:first], index, *access.indices[last + 1 :])
    view = _view(access.buffer, first, last)
    if isinstance(access, BufferLoad):
        return BufferLoad(view, indices, access.predicate)
    return BufferStore(view, access.value, indices, access.predicate)


def is_one_stretch(access: BufferLoad | BufferStore, var: Var, simplify: Callable[[Expr], Expr]) -> bool:
    """Returns whether dimensions that quotients of ``var`` go through can be one, in which no quotient is left."""
    return _joined(access.buffer, access.indices, var, simplify) is not None


def _joined(
    buffer: Buffer, indices: tuple[Expr, ...], var: Var, simplify: Callable[[Expr], Expr]
) -> tuple[int, int, Expr] | None:
    """Returns the first and the last dimension to join and the joined index, or None when joining does not help."""
    split = [d for d, index in enumerate(indices) if _has_quotient(index, var)]
    if len(split) < 2 or buffer.strides or buffer.axis_separators or buffer.scope != "global":
        return None
    for last in range(split[-1], len(indices)):  # the lanes may stay within a row of the last ones
        total = _joined_index(buffer.shape[split[0] : last + 1], indices[split[0] : last + 1], simplify)
        if total is not None and not _has_quotient(total, var):
            return split[0], last, total
    return None


def _joined_index(extents: Sequence[Expr], indices: Sequence[Expr], simplify: Callable[[Expr], Expr]) -> Expr | None:
    """Returns the index into the one dimension that ``extents`` become; None where it is not known to be short."""
    outer = total = indices[0]
    long = outer.dtype.bits == 64  # places in memory are such numbers
    if not all(isinstance(extent, IntImm) for extent in extents[1:]):
        whole = _digits_of(indices, extents[1:], simplify)
        if whole is not None or not long:
            return whole
    for extent, index in zip(extents[1:], indices[1:], strict=True):
        total = total * extent.astype(total.dtype) + index
    total = simplify(total)
    if long or isinstance(extents[0], IntImm) or (isinstance(outer, FloorDiv) and _is_zero(simplify(outer.a - total))):
        return total
    return None


def _digits_of(indices: Sequence[Expr], extents: Sequence[Expr], simplify: Callable[[Expr], Expr]) -> Expr | None:
    """Returns the number whose digits ``indices`` are, where all but the first stay below ``extents``; None where they are not."""
    outer = indices[0]
    if not isinstance(outer, FloorDiv):
        return None
    whole, weight = outer.a, const(1, outer.dtype)
    for index, extent in zip(reversed(indices[1:]), reversed(extents), strict=True):
        above = simplify(weight * extent.astype(outer.dtype))
        if not _is_zero(simplify(index - whole % above // weight)):
            return None
        weight = above
    return whole if _is_zero(simplify(outer - whole // weight)) else None


def _is_zero(e: Expr) -> bool:
    return isinstance(e, IntImm) and e.value == 0


def _reads(e: Expr) -> bool:
    return any(isinstance(n, (BufferLoad, Call)) for n in all_nodes(e))


def _has_quotient(e: Expr, var: Var) -> bool:
    return any([uses_var(n, var) for n in all_nodes(e) if type(n) is FloorDiv or type(n) is FloorMod])


def _is_constant(buffer: Buffer) -> bool:
    return all(isinstance(extent, IntImm) for extent in buffer.shape)


def _view(buffer: Buffer, first: int, last: int) -> Buffer:
    """Returns a buffer of the same memory with dimensions ``first`` to ``last`` as one."""
    size: Expr = buffer.shape[first]
    for extent in buffer.shape[first + 1 : last + 1]:
        if isinstance(size, IntImm) and isinstance(extent, IntImm):
            size = const(size.value * extent.value, size.dtype)
        else:
            size = size * extent.astype(size.dtype)
    shape = (*buffer.shape[:first], size, *buffer.shape[last + 1 :])
    return buffer.with_(name=f"{buffer.name}_flat", shape=shape, data=buffer.data)
