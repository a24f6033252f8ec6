"""This module finds the place where the init of a reduction's block may run. It is in front of the reduction's loops.

An init runs when all reduction axes are at the start of their domain. In front of the outermost loop that reduces it
has the same effect, and it also runs when that loop has no iterations: a reduction over nothing gives its init, as in
NumPy. Lowering moves the init there; the interpreter runs it there when the reduction had no iterations.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..arith import Analyzer
from ..expr import LT, BufferLoad, Expr, IntImm, IterVar, Var, all_, conjuncts, substitute, vars_in
from ..expr.base.node import Node
from ..stmt import Block, BlockRealize, BufferStore, For, IfThenElse, LetStmt, Stmt, While, loads_and_stores
from .access_regions import access_regions


def start_in_front(realize: BlockRealize, path: Sequence[Node]) -> tuple[For, Stmt] | None:
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


def _in_scope(path: Sequence[Node]) -> Sequence[Node]:
    """Return the part of ``path`` that lies inside the innermost block of it."""
    blocks = [n for n, s in enumerate(path) if isinstance(s, (Block, BlockRealize))]
    return path[blocks[-1] + 1 :] if blocks else path


def _changing(path: Sequence[Node]) -> set[Var]:
    """Return the variables that the statements of ``path`` define: all that is in scope but sizes and parameters."""
    return {v for s in path for v in s.bound_vars()}


def _with_one_value(path: Sequence[Node]) -> set[Var]:
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
