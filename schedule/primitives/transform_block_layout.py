"""This module defines transform_block_layout, which runs a block over other axes."""

from __future__ import annotations

from typing import Any

from ...tir.analysis.known_ranges import sized_analyzer
from ...tir.analysis.tree import symbols_of, tree_of
from ...tir.arith import Analyzer
from ...tir.expr import BufferLoad, IterVar, Range, Var, const
from ...tir.stmt import BlockRealize, BufferRegion, BufferStore, MatchBufferRegion, PrimFunc
from ...tir.walk import pre_order, substitute, transform
from ..edit.loop_nests import nest
from ..errors import ScheduleError
from ..index_map import IndexMap, simplify_unless_constant
from ..primitive import primitive
from ..primitive_arguments import prepared_map
from ..require.block_preconditions import (
    check_box,
    check_from_zero,
    check_plain_path,
    has_trivial_bindings,
    nest_of_its_own,
)
from ..require.lookup import find_block


@primitive(prepare=prepared_map)
def transform_block_layout(func: PrimFunc, block: str, index_map: Any) -> PrimFunc:
    """Run a block over new axes, to which ``index_map`` maps the old ones, in new loops.

    Applies to a block alone in its loop nest, with its axes bound to the loops one to one, in order. The map must take
    the domain to a box, different points to different points; no new axis may mix spatial and reduce axes.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((8, 8)), B: T.Buffer((8, 8))):
    ...     for i, j in T.grid(8, 8):
    ...         with T.block("B"):
    ...             vi, vj = T.axis.remap("SS", [i, j])
    ...             B[vi, vj] = A[vi, vj] * T.float32(2)
    ... '''))
    >>> sch.transform_block_layout("B", lambda i, j: (j // 4, i, j % 4))
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
        # with T.block("root"):
        for ax0, ax1, ax2 in T.grid(2, 8, 4):
            with T.block("B"):
                v0, v1, v2 = T.axis.remap("SSS", [ax0, ax1, ax2])
                T.reads(A[v1, v0 * 4 + v2])
                T.writes(B[v1, v0 * 4 + v2])
                B[v1, v0 * 4 + v2] = A[v1, v0 * 4 + v2] * T.float32(2.0)
    """
    tree = tree_of(func)
    realize = find_block(tree, block)
    check_plain_path(tree, realize)
    old = realize.block
    mapping = IndexMap.of(index_map, len(old.iter_vars), symbols_of(func))
    top = nest_of_its_own(tree, realize)
    if not has_trivial_bindings(tree, realize):
        raise ScheduleError(
            f"the axes of block {block!r} are not each on a loop of its own, in order: its bindings are "
            f"[{', '.join(map(str, realize.iter_values))}]",
            where=realize,
            hint="transform it before splitting, fusing or reordering its loops, or reindex it first",
        )
    if any(iv.kind not in (IterVar.SPATIAL, IterVar.REDUCE) for iv in old.iter_vars):
        raise ScheduleError(
            f"block {block!r} has axes that are neither spatial nor reduce",
            where=realize,
            hint="do this for blocks with spatial and reduce axes",
        )
    check_from_zero(realize, old.iter_vars)
    check_box(tree, realize)
    analyzer = sized_analyzer(func)
    extents = [iv.dom.extent for iv in old.iter_vars]
    shape = mapping.map_shape(extents, analyzer)
    places = [Var(f"v{i}", e.dtype) for i, e in enumerate(shape)]
    for v, e in zip(places, shape, strict=True):
        analyzer.learn_nonempty(e)
        analyzer.bind(v, Range.from_extent(e))
    back, tests = mapping.inverse(extents, places, analyzer)
    kinds = _new_kinds(realize, mapping)
    if tests:
        raise ScheduleError(
            f"the index map {mapping} does not fit the domain of block {block!r}: it leaves places that no point goes to",
            where=realize,
            hint=f"it would need {' and '.join(map(str, tests))}; split the loops instead",
        )
    there = {iv.var: e for iv, e in zip(old.iter_vars, back, strict=True)}
    loops = [(Var(f"ax{i}", e.dtype), e) for i, e in enumerate(shape)]

    def region(r: BufferRegion) -> BufferRegion:
        return r.map_children(lambda e: simplify_unless_constant(analyzer, substitute(e, there)))

    new = old.with_(
        iter_vars=tuple([IterVar(Range.from_extent(e), v, k) for v, e, k in zip(places, shape, kinds, strict=True)]),
        reads=tuple([region(r) for r in old.reads]),
        writes=tuple([region(r) for r in old.writes]),
        match_buffers=tuple([MatchBufferRegion(m.buffer, region(m.source)) for m in old.match_buffers]),
        body=_tidy(substitute(old.body, there), analyzer),
        init=None if old.init is None else _tidy(substitute(old.init, there), analyzer),
    )
    return tree.replace({top: nest(loops, BlockRealize(tuple([v for v, _ in loops]), const(True, "bool"), new))})


def _new_kinds(realize: BlockRealize, mapping: IndexMap) -> list[str]:
    kind_of = {v: iv.kind for v, iv in zip(mapping.initial_indices, realize.block.iter_vars, strict=True)}
    out = []
    for e in mapping.final_indices:
        kinds = {kind_of[n] for n in pre_order(e) if isinstance(n, Var) and n in kind_of}
        if len(kinds) > 1:
            raise ScheduleError(
                f"the new axis {e} mixes spatial and reduce axes", where=realize, hint="fuse axes of one kind only"
            )
        out.append(kinds.pop() if kinds else IterVar.SPATIAL)
    return out


def _tidy(stmt: Any, analyzer: Analyzer) -> Any:
    """Return a body with simplified indices."""

    def post(n: Any) -> Any:
        if isinstance(n, BufferLoad):
            return BufferLoad(n.buffer, tuple([simplify_unless_constant(analyzer, i) for i in n.indices]), n.predicate)
        if isinstance(n, BufferStore):
            indices = tuple([simplify_unless_constant(analyzer, i) for i in n.indices])
            return BufferStore(n.buffer, n.value, indices, n.predicate)
        return None

    return transform(stmt, post=post)
