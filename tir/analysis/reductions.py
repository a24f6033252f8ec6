"""This module finds the updates of a reduction, the reducer that they apply, and where the init may run.

An init runs when all reduction axes are at the start of their domain. In front of the outermost loop that reduces it
has the same effect, and it also runs when that loop has no iterations: a reduction over nothing gives its init, as in
NumPy. Lowering moves the init there (:func:`start_in_front`); the interpreter runs it there when the reduction had no
iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

from ..arith import Analyzer
from ..expr import LT, BufferLoad, Expr, IntImm, IterVar, Var, all_, conjuncts, structural_equal, substitute, vars_in
from ..expr.node import IRNode
from ..expr.reducers import REDUCERS, Reducer, Values
from ..stmt import (
    Block,
    BlockRealize,
    Buffer,
    BufferStore,
    For,
    IfThenElse,
    LetStmt,
    Stmt,
    While,
    children_of,
    loads_and_stores,
)
from .regions import access_regions


@dataclass(frozen=True, slots=True, eq=False)
class Updates:
    """``Updates`` are the ``stores`` of a body, and the ``conditions`` under which they happen.

    All stored values are computed before the first store. Variables of let statements are replaced by their values.
    """

    stores: tuple[BufferStore, ...]
    conditions: tuple[Expr, ...]


def updates_of(stmt: Stmt) -> Updates | str:
    """Return the stores of a body, or the reason why they do not happen at once.

    The body is one store or a sequence of stores, under let statements and conditions without an else.
    """
    lets: dict[Var, Expr] = {}
    conditions: list[Expr] = []
    while isinstance(stmt, LetStmt) or (isinstance(stmt, IfThenElse) and stmt.else_case is None):
        if isinstance(stmt, LetStmt):
            lets[stmt.var] = substitute(stmt.value, lets)
            stmt = stmt.body
        else:
            conditions.append(substitute(stmt.condition, lets))
            stmt = stmt.then_case
    written: set[Buffer] = set()
    stores: list[BufferStore] = []
    for store in children_of(stmt):
        if not isinstance(store, BufferStore) or store.predicate is not None:
            return "it holds more than plain stores"
        if store.buffer in written:
            return f"it stores to {store.buffer.name} twice"
        late = next(
            (a.buffer for e in (store.value, *store.indices) for a in loads_and_stores(e) if a.buffer in written), None
        )
        if late is not None:  # a let statement around the stores would have read it earlier
            return f"its store to {store.buffer.name} reads {late.name} after the store to {late.name}"
        written.add(store.buffer)
        stores.append(substitute(store, lets) if lets else store)
    return Updates(tuple(stores), tuple(conditions))


def find_reducer(
    identity: Sequence[Expr] | None, left: Sequence[Expr], updates: Sequence[Expr]
) -> tuple[Reducer, Values] | None:
    """Return the reducer with ``updates == combine(left, right)``, and that ``right``.

    The reducer starts from ``identity``, or from any value when that is None. The values of a tuple may come in any
    order; the returned reducer takes them in this order.
    """
    for reducer in REDUCERS:
        if reducer.arity != len(updates):
            continue
        for order in permutations(range(reducer.arity)):
            ordered = reducer if order == tuple(range(reducer.arity)) else _in_order(reducer, order)
            right = _right_side(ordered, left, updates)
            if right is not None and (identity is None or ordered.starts(tuple(identity))):
                return ordered, right
    return None


def _in_order(reducer: Reducer, order: Sequence[int]) -> Reducer:
    """Return the reducer over tuples whose value ``n`` is value ``order[n]`` of ``reducer``."""
    back = [order.index(n) for n in range(len(order))]

    def own(values: Values) -> Values:
        return tuple([values[n] for n in back])

    def combine(x: Values, y: Values) -> Values:
        found = reducer.combine(own(x), own(y))
        return tuple([found[n] for n in order])

    return replace(reducer, combine=combine, starts=lambda values: reducer.starts(own(values)))


def _right_side(reducer: Reducer, left: Sequence[Expr], updates: Sequence[Expr]) -> Values | None:
    """Return the values with which ``updates`` combine ``left``; None when the updates have another form."""
    holes = tuple([Var(f"rhs_{i}", e.dtype) for i, e in enumerate(left)])
    sides = [reducer.combine(tuple(left), holes)]
    if reducer.arity == 1 and reducer.either_way:
        sides.append(reducer.combine(holes, tuple(left)))
    for pattern in sides:
        found: dict[Var, Expr] = {}
        if all(_match(p, e, set(holes), found) for p, e in zip(pattern, updates, strict=True)) and len(found) == len(
            holes
        ):
            return tuple([found[h] for h in holes])
    return None


def _match(pattern: Expr, e: Expr, holes: set[Var], found: dict[Var, Expr]) -> bool:
    if isinstance(pattern, Var) and pattern in holes:
        if pattern in found:
            return structural_equal(found[pattern], e)
        found[pattern] = e
        return bool(pattern.dtype == e.dtype)
    if not any(n in holes for n in _leaves(pattern)):
        return structural_equal(pattern, e)
    if type(pattern) is not type(e):
        return False
    mine, theirs = list(pattern.children()), list(e.children())
    return len(mine) == len(theirs) and all(_match(p, c, holes, found) for p, c in zip(mine, theirs, strict=True))  # type: ignore[arg-type]


def _leaves(e: Any) -> Any:
    below = list(e.children())
    if not below:
        yield e
    for child in below:
        yield from _leaves(child)


def start_in_front(realize: BlockRealize, path: Sequence[IRNode]) -> tuple[For, Stmt] | None:
    """Return the outermost loop that reduces, and a statement that replaces the init of ``realize`` in front of it.

    ``path`` holds the statements around ``realize``, outermost first. The result is None when no loop of its scope
    reduces, and when the init has to stay in the block: a loop binds spatial and reduction axes, or computes what the
    init reads; a condition on the reduction also depends on what is fixed in front of it, such as spatial axes and outer
    loops; a condition or let stands between the loops; or it is not known that the block has any element.
    """
    block = realize.block
    assert block.init is not None
    around, path = path, _in_scope(path)
    loops = [n for n in path if isinstance(n, For)]
    spatial = [(iv, v) for iv, v in zip(block.iter_vars, realize.iter_values, strict=True) if iv.kind != IterVar.REDUCE]
    reduce = [(iv, v) for iv, v in zip(block.iter_vars, realize.iter_values, strict=True) if iv.kind == IterVar.REDUCE]
    spatial_vars: set[Var] = set().union(*(vars_in(v) for _, v in spatial)) if spatial else set()
    reduce_vars: set[Var] = set().union(*(vars_in(v) for _, v in reduce)) if reduce else set()
    outermost = next((n for n, loop in enumerate(loops) if loop.loop_var in reduce_vars), None)
    if outermost is None or _made_inside(block, loops[outermost]):
        return None
    inner = loops[outermost:]
    dropped = {loop.loop_var for loop in inner if loop.loop_var not in spatial_vars}
    copied = [loop for loop in inner if loop.loop_var in spatial_vars]
    mixed = spatial_vars & reduce_vars & {loop.loop_var for loop in inner}
    if mixed or any((vars_in(loop.min) | vars_in(loop.extent)) & dropped for loop in copied):
        return None
    fixed = (_changing(around) | spatial_vars) - dropped - _with_one_value(around)
    guards = []
    for term in conjuncts(realize.predicate):
        used = vars_in(term)
        if used & dropped and used & fixed and not _ends_domain(term, reduce):
            return None
        if not used & dropped:
            guards.append(term)
    between = path[list(path).index(inner[0]) :]
    if any(isinstance(n, (IfThenElse, LetStmt, While)) for n in between):
        return None
    for iv, value in spatial:  # a spatial axis may have no iterations, and its loop may be one that reduces
        size = iv.dom.extent
        if size.value < 1 if isinstance(size, IntImm) else not vars_in(value):
            return None
    fresh = {loop.loop_var: Var(loop.loop_var.name, loop.loop_var.dtype) for loop in copied}
    axes = {iv.var: Var(iv.var.name, iv.var.dtype) for iv, _ in spatial}
    init = substitute(block.init, axes)
    block_init = Block(
        tuple([IterVar(iv.dom, axes[iv.var], iv.kind) for iv, _ in spatial]),
        access_regions(init)[0],
        tuple([substitute(w, axes) for w in block.writes]),
        f"{block.name}_init",
        init,
    )
    stmt: Stmt = BlockRealize(
        tuple([substitute(v, fresh) for _, v in spatial]), all_(*[substitute(g, fresh) for g in guards]), block_init
    )
    for loop in reversed(copied):
        kind = "serial" if loop.kind == "parallel" else loop.kind
        stmt = For(
            fresh[loop.loop_var], substitute(loop.min, fresh), substitute(loop.extent, fresh), kind, stmt,
            loop.thread_binding,
        )  # fmt: skip
    return inner[0], stmt


def _in_scope(path: Sequence[IRNode]) -> Sequence[IRNode]:
    """Return the part of ``path`` that lies inside the innermost block of it."""
    blocks = [n for n, s in enumerate(path) if isinstance(s, (Block, BlockRealize))]
    return path[blocks[-1] + 1 :] if blocks else path


def _changing(path: Sequence[IRNode]) -> set[Var]:
    """Return the variables that the statements of ``path`` define: all that is in scope but sizes and parameters."""
    return {v for s in path for v in s.bound_vars()}


def _with_one_value(path: Sequence[IRNode]) -> set[Var]:
    """Return the variables of the loops of ``path`` that have one iteration: no condition depends on them."""
    return {n.loop_var for n in path if isinstance(n, For) and isinstance(n.extent, IntImm) and n.extent.value == 1}


def _ends_domain(term: Expr, reduce: Sequence[tuple[IterVar, Expr]]) -> bool:
    """Return whether ``term`` only keeps a reduction axis in its domain, which may depend on spatial axes."""
    if not isinstance(term, LT):
        return False
    analyzer = Analyzer()
    return any(
        analyzer.can_prove_equal(term.b - term.a, iv.dom.min + iv.dom.extent - value)
        for iv, value in reduce
        if value.dtype == term.a.dtype
    )


def _made_inside(block: Block, loop: For) -> bool:
    """Return whether the init of ``block`` uses what the loop or the block itself computes or allocates."""
    assert block.init is not None
    loaded = {a.buffer for a in loads_and_stores(block.init) if isinstance(a, BufferLoad)}
    own = {*block.alloc_buffers, *[m.buffer for m in block.match_buffers]}
    if any(a.buffer in own for a in loads_and_stores(block.init)):
        return True
    stored = {a.buffer for a in loads_and_stores(block.init) if isinstance(a, BufferStore)}
    return any(isinstance(a, BufferStore) and a.buffer in loaded - stored for a in loads_and_stores(loop))
