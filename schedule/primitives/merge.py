"""This module defines merge, which combines consecutive loops into one."""

from __future__ import annotations

from collections.abc import Sequence

from ...tir.analysis.dependence import accessed_boxes_below, conflicts
from ...tir.analysis.known_ranges import analyzer_at
from ...tir.analysis.tree import Tree, tree_of
from ...tir.expr import Expr, Var, const
from ...tir.stmt import For, PrimFunc, SeqStmt, Stmt, seq
from ...tir.walk import substitute
from ..errors import ScheduleError, bad_argument, require
from ..primitive import primitive
from ..require.lookup import find_loop, scope_around
from ..require.loop_preconditions import check_at_zero, check_plain


@primitive
def merge(func: PrimFunc, *loops: Var) -> tuple[PrimFunc, Var]:
    """Run the bodies of consecutive loops, one after the other, in one loop; returns its variable.

    Loops of the nests between the given loops and the place where the nests meet are merged as well. The nests directly
    follow each other; their loops start at 0, have the same extents, hold nothing but each other, and have neither
    annotations nor thread bindings. No iteration of a later loop may access an element that a different iteration of an
    earlier one writes, or write one that it accesses.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((8,)), B: T.Buffer((8,)), C: T.Buffer((8,))):
    ...     for i in range(8):
    ...         with T.block("B"):
    ...             vi = T.axis.spatial(8, i)
    ...             B[vi] = A[vi] * T.float32(2)
    ...     for i in range(8):
    ...         with T.block("C"):
    ...             vi = T.axis.spatial(8, i)
    ...             C[vi] = B[vi] + T.float32(1)
    ... '''))
    >>> i = sch.merge(sch.get_loops("B")[0], sch.get_loops("C")[0])
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        # with T.block("root"):
        for i_m in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i_m)
                T.reads(A[vi])
                T.writes(B[vi])
                B[vi] = A[vi] * T.float32(2.0)
            with T.block("C"):
                vi = T.axis.spatial(8, i_m)
                T.reads(B[vi])
                T.writes(C[vi])
                C[vi] = B[vi] + T.float32(1.0)
    """
    tree = tree_of(func)
    targets = [find_loop(tree, v) for v in loops]
    if len(targets) < 2 or len(set(targets)) < len(targets):
        raise bad_argument("merge takes two loops or more, all different", where=targets, hint="name each loop once")
    meet, nests = _nests(tree, targets)
    nests.sort(key=lambda nest: meet.seq.index(nest[0]))
    _check_nests(tree, meet, nests)
    new_vars = [Var(f"{lp.loop_var.name}_m", lp.loop_var.dtype) for lp in nests[0]]
    bodies: list[Stmt] = []
    for nest in nests:
        change: dict[Var, Expr] = {
            lp.loop_var: v.astype(lp.loop_var.dtype) for lp, v in zip(nest, new_vars, strict=True)
        }
        bodies.append(substitute(nest[-1].body, change))
    chain: list[For] = []
    new: Stmt = seq(*bodies)
    first_vars = {lp.loop_var: v for lp, v in zip(nests[0], new_vars, strict=True)}
    for var, lp in zip(reversed(new_vars), reversed(nests[0]), strict=True):
        new = For(var, const(0, var.dtype), substitute(lp.extent, first_vars), "serial", new)
        chain.insert(0, new)
    _check_order(tree, nests, bodies, chain)
    first = meet.seq.index(nests[0][0])
    out = seq(*meet.seq[:first], new, *meet.seq[first + len(nests) :])
    return tree.replace({meet: out}), new_vars[-1]


def _nests(tree: Tree, targets: Sequence[For]) -> tuple[SeqStmt, list[list[For]]]:
    """Return the sequence where the nests meet, and for each loop the loops from there down to it."""
    paths = [tree.path(lp) for lp in targets]
    depth = 0
    while all(depth < len(p) for p in paths) and all(p[depth] is paths[0][depth] for p in paths):
        depth += 1
    meet = paths[0][depth - 1]
    scopes = {scope_around(tree, lp) for lp in targets}
    if not isinstance(meet, SeqStmt) or len(scopes) > 1:
        raise ScheduleError(
            f"the loops {_names(targets)} are not in one scope, one after the other", where=targets,
            hint="merge joins loops that stand side by side",
        )  # fmt: skip
    nests: list[list[For]] = []
    for path in paths:
        nest = [s for s in path[depth:] if isinstance(s, For)]
        for outer, inner in zip(path[depth:], path[depth + 1 :], strict=False):
            if not isinstance(outer, For) or outer.body is not inner:
                raise ScheduleError(
                    f"loop {nest[-1].loop_var.name} does not stand alone in the loops around it", where=path[depth:],
                    hint="up to where the loops meet, each holds the next and nothing else",
                )  # fmt: skip
        nests.append(nest)
    return meet, nests


def _names(loops: Sequence[For]) -> str:
    return ", ".join(lp.loop_var.name for lp in loops)


def _check_nests(tree: Tree, meet: SeqStmt, nests: Sequence[Sequence[For]]) -> None:
    first = meet.seq.index(nests[0][0])
    for number, nest in enumerate(nests):
        if meet.seq[first + number] is not nest[0]:
            raise ScheduleError(
                f"something stands between loop {nests[0][0].loop_var.name} and loop {nest[0].loop_var.name}",
                where=(nests[0][0], nest[0]),
                hint="name the loops in between as well, or move what is there",
            )
        if len(nest) != len(nests[0]):
            raise ScheduleError(
                f"loop {nests[0][-1].loop_var.name} is {len(nests[0])} loops deep, loop {nest[-1].loop_var.name} "
                f"{len(nest)}",
                where=(nests[0][-1], nest[-1]),
                hint="choose loops of the same depth",
            )
        analyzer = analyzer_at(tree, nest[0])
        for lp, other in zip(nest, nests[0], strict=True):
            check_plain(lp, "merge")
            check_at_zero(lp, analyzer)
            extent = substitute(lp.extent, {a.loop_var: b.loop_var for a, b in zip(nest, nests[0], strict=True)})
            if not analyzer.can_prove_equal(extent, other.extent):
                raise ScheduleError(
                    f"loop {other.loop_var.name} has {other.extent} iterations, loop {lp.loop_var.name} {lp.extent}",
                    where=(other, lp),
                    hint="only loops of the same extent merge",
                )


def _check_order(tree: Tree, nests: Sequence[Sequence[For]], bodies: Sequence[Stmt], chain: Sequence[For]) -> None:
    """Raise ScheduleError when different iterations of different loops may access one element that either writes.

    The order of such iterations would change.
    """
    touches = [require(accessed_boxes_below(body)) for body in bodies]
    origin = {t: number for number, found in enumerate(touches) for t in found}
    together = [t for found in touches for t in found]
    if any(t.realize is None for t in together):
        raise ScheduleError(
            f"the loops {_names([nest[-1] for nest in nests])} hold loads or stores outside blocks",
            where=[nest[-1] for nest in nests],
            hint="blocks say what they touch; put the statements into some",
        )
    for conflict in conflicts(analyzer_at(tree, nests[0][0]), chain, together):
        a, b = origin[conflict.store], origin[conflict.other]
        if a != b:
            first, second = nests[min(a, b)][-1], nests[max(a, b)][-1]
            raise ScheduleError(
                f"different iterations of loop {first.loop_var.name} and loop {second.loop_var.name} may share elements "
                f"of buffer {conflict.store.buffer.name}: {conflict.text()}",
                where=[first, second, *[t.realize for t in (conflict.store, conflict.other) if t.realize is not None]],
                hint="each iteration may only use what the same iteration of the earlier loop made",
            )
