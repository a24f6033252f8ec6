"""This module defines decompose_padding, which gives the constant part of a padding block a block of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...tir.analysis.access import opaque_buffers
from ...tir.analysis.footprint import exact_box
from ...tir.analysis.known_ranges import analyzer_at
from ...tir.analysis.tree import Tree, tree_of, unique_block_name
from ...tir.arith import Analyzer, linear_coefficients
from ...tir.arith.itermap import without_low_digits
from ...tir.expr import (
    GE,
    GT,
    LE,
    LT,
    Call,
    Expr,
    FloatImm,
    IntImm,
    IterVar,
    Range,
    Var,
    all_,
    conjuncts,
    const,
    is_const_int,
)
from ...tir.stmt import Block, BlockRealize, BufferRegion, BufferStore, For, PrimFunc, Stmt, seq
from ...tir.walk import substitute, uses_var
from ..edit.loop_nests import fresh_variables, in_loops_like
from ..errors import ScheduleError
from ..handles import BlockRV
from ..primitive import primitive
from ..require.block_preconditions import (
    check_complete,
    check_plain_path,
    innermost_own_loops,
    loops_of,
    ordered_scope,
    the_store,
)
from ..require.lookup import find_block, find_loop


@primitive
def decompose_padding(func: PrimFunc, block: str, loop: Var) -> tuple[PrimFunc, BlockRV]:
    """Split a padding block into one that writes the constant everywhere, just before ``loop``, and one for the inner
    part.

    Applies to a complete block ``B[...] = if_then_else(inside, value, constant)`` under ``loop``, where ``inside``
    bounds its axes from below and above by constants. Returns the block that writes the constant; the other one keeps
    its name, has axes over the inner part, and shorter loops (from ``loop`` inwards, those that hold nothing else) or a
    predicate.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((16,)), B: T.Buffer((20,))):
    ...     for i in range(20):
    ...         with T.block("B"):
    ...             vi = T.axis.spatial(20, i)
    ...             B[vi] = T.if_then_else(2 <= vi and vi < 18, A[vi - 2], T.float32(0))
    ... '''))
    >>> pad = sch.decompose_padding("B", sch.get_loops("B")[0])
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((16,), "float32"), B: T.Buffer((20,), "float32")):
        # with T.block("root"):
        for i in range(20):
            with T.block("B_pad_const"):
                vi = T.axis.spatial(20, i)
                T.reads()
                T.writes(B[vi])
                B[vi] = T.float32(0.0)
        for i in range(16):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                T.reads(A[vi])
                T.writes(B[vi + 2])
                B[vi + 2] = A[vi]
    """
    tree = tree_of(func)
    realize, target = find_block(tree, block), find_loop(tree, loop)
    _, inner = loops_of(tree, realize, target)
    check_complete(tree, realize)
    check_plain_path(tree, realize)
    padding = _padding(tree, realize)
    _check_others(tree, realize, target)
    name = unique_block_name(func, f"{block}_pad_const")
    own = innermost_own_loops(inner, realize)
    fill = _fill(tree, realize, padding, inner, target, name)
    changed = _inside(tree, realize, padding, own)
    top: Stmt = own[0] if own else realize
    if target is top:
        return tree.replace({target: seq(fill, changed)}), BlockRV(name)
    return tree.replace({top: changed}, {target: lambda lp: seq(fill, lp)}), BlockRV(name)


@dataclass(frozen=True, slots=True)
class _Padding:
    """``_Padding`` describes a padding block: ``value`` on ``box`` (a range per axis) where ``tests`` hold, else
    ``constant``."""

    value: Expr
    constant: Expr
    tests: list[Expr]
    box: list[Range]


def _padding(tree: Tree, realize: BlockRealize) -> _Padding:
    block, name = realize.block, realize.block.name_hint
    store = the_store(realize, block.body, _FORM)
    chosen = store.value
    if not isinstance(chosen, Call) or chosen.op != "tir.if_then_else":
        raise ScheduleError(f"block {name!r} stores {chosen}, which is not an if_then_else", where=realize, hint=_FORM)
    condition, value, constant = chosen.args
    if not isinstance(constant, (IntImm, FloatImm)):
        raise ScheduleError(f"block {name!r} pads with {constant}, which is not a constant", where=realize, hint=_FORM)
    if opaque_buffers(block):
        raise ScheduleError(
            f"block {name!r} uses pointers, so what it does is not known",
            where=realize,
            hint="do this before tensorize and other steps that bring in pointers",
        )
    analyzer = analyzer_at(tree, realize)
    ranges = {lp.loop_var: Range(lp.min, lp.extent) for lp in tree.loops_above(realize)}
    if exact_box(analyzer, realize.iter_values, ranges) is None:
        raise ScheduleError(
            f"the loops are not known to run block {name!r} over a box of its axes without holes", where=realize,
            hint="bindings must be splits and fusions of loops, each loop used by one axis",
        )  # fmt: skip
    analyzer = analyzer_at(tree, block.body)
    tests = [c for c in conjuncts(condition) if not analyzer.can_prove(c)]
    if not tests:
        raise ScheduleError(
            f"block {name!r} never pads: {condition} always holds", where=realize, hint="compute_inline it, or leave it"
        )
    box = _inner_box(realize, tests, analyzer)
    return _Padding(value, constant, tests, box)


_FORM = "its body must be B[...] = T.if_then_else(condition, value, constant)"


def _inner_box(realize: BlockRealize, tests: Sequence[Expr], analyzer: Analyzer) -> list[Range]:
    """Return the values of each axis for which the conditions hold; each condition bounds one axis by a constant."""
    axes = [iv.var for iv in realize.block.iter_vars]
    lows = {iv.var: iv.dom.min for iv in realize.block.iter_vars}
    ends = {iv.var: analyzer.simplify(iv.dom.min + iv.dom.extent) for iv in realize.block.iter_vars}
    for test in tests:
        found = _bound(test, axes)
        if found is None:
            raise ScheduleError(
                f"the condition {test} of block {realize.block.name_hint!r} does not bound one of its axes by a "
                "constant",
                where=realize,
                hint="conditions are like 3 <= v, v < 35",
            )
        axis, limit, from_below = found
        if from_below:
            if analyzer.can_prove(limit > lows[axis]):
                lows[axis] = limit
        elif analyzer.can_prove(limit < ends[axis]):
            ends[axis] = limit
    out = []
    for v in axes:
        extent = analyzer.simplify(ends[v] - lows[v])
        if not analyzer.can_prove(extent >= 1):
            raise ScheduleError(
                f"axis {v.name} of block {realize.block.name_hint!r} has nothing inside the padding",
                where=realize,
                hint="inline the block instead: all it stores is padding",
            )
        out.append(Range(lows[v], extent))
    return out


def _bound(test: Expr, axes: Sequence[Var]) -> tuple[Var, Expr, bool] | None:
    """Return (axis, limit, True) for ``limit <= axis``, or (axis, limit, False) for ``axis < limit``."""
    if not isinstance(test, (LT, LE, GT, GE)):
        return None
    line = linear_coefficients(test.a - test.b, axes)  # sum(c * axis) + rest  <op>  0
    if line is None:
        return None
    used = [(v, c) for v, c in zip(axes, line[0], strict=True) if not is_const_int(c, 0)]
    rest = line[1]
    if len(used) != 1 or not isinstance(rest, IntImm):
        return None
    (axis, factor), below = used[0], isinstance(test, (LT, LE))
    if not (is_const_int(factor, 1) or is_const_int(factor, -1)):
        return None
    k = rest.value
    if is_const_int(factor, -1):  # -axis + k < 0  is  axis > k
        below, k = not below, -k
        strict = isinstance(test, (LT, GT))
    else:
        strict = isinstance(test, (LT, GT))
    # axis + k  <op>  0
    if below:
        return axis, const(-k if strict else -k + 1, axis.dtype), False
    return axis, const(-k + 1 if strict else -k, axis.dtype), True


def _check_others(tree: Tree, realize: BlockRealize, target: For) -> None:
    """Raise ScheduleError when another block accesses the buffer where the constant is now written earlier."""
    scope = ordered_scope(tree, realize)
    buffer = realize.block.writes[0].buffer
    mine = buffer in scope.root.block.alloc_buffers
    for reader in scope.readers.get(buffer, ()):
        if not tree.is_below(reader, target) or (mine and scope.order[reader] > scope.order[realize]):
            continue
        raise ScheduleError(
            f"block {reader.block.name_hint!r} under loop {target.loop_var.name} reads {buffer.name}, which would hold "
            "the constant by then",
            where=(target, reader),
            hint="choose a loop around the padding block alone",
        )


def _fill(tree: Tree, realize: BlockRealize, padding: _Padding, inner: Sequence[For], target: For, name: str) -> Stmt:
    """Return the nest that writes the constant wherever the block ran."""
    block = realize.block
    store = block.body
    assert isinstance(store, BufferStore)
    axes: dict[Var, Expr] = {iv.var: Var(iv.var.name, iv.var.dtype) for iv in block.iter_vars}
    loops = fresh_variables(inner)
    outside = analyzer_at(tree, target)
    indices = tuple([substitute(i, axes) for i in store.indices])
    made = Block(
        tuple([IterVar(iv.dom, axes[iv.var], IterVar.SPATIAL, iv.thread_tag) for iv in block.iter_vars]),  # type: ignore[arg-type]
        (),
        tuple([substitute(r, axes) for r in block.writes]),
        name,
        BufferStore(store.buffer, padding.constant, indices),
    )
    values = tuple([outside.simplify(substitute(v, loops)) for v in realize.iter_values])
    made_there = BlockRealize(values, outside.simplify(substitute(realize.predicate, loops)), made)
    return in_loops_like(inner, loops, made_there, serial=True)


def _inside(tree: Tree, realize: BlockRealize, padding: _Padding, own: Sequence[For]) -> Stmt:
    """Return the inner part, with new axes from zero.

    The loop of an axis becomes shorter where only this block uses it; other axes get conditions.
    """
    block = realize.block
    store = block.body
    assert isinstance(store, BufferStore)
    analyzer = analyzer_at(tree, own[0] if own else realize)
    ranges = {lp.loop_var: Range(lp.min, lp.extent) for lp in own}
    moved: dict[Var, Expr] = {}
    for value, inner in zip(realize.iter_values, padding.box, strict=True):
        if isinstance(value, Var) and value in ranges and is_const_int(ranges[value].min, 0):
            once = sum(uses_var(v, value) for v in realize.iter_values) == 1
            if once and not any(uses_var(lp.min, value) or uses_var(lp.extent, value) for lp in own):
                ranges[value] = Range(const(0, value.dtype), inner.extent)
                moved[value] = value + inner.min if not is_const_int(inner.min, 0) else value
    for v, r in ranges.items():
        analyzer.bind(v, r)
    fresh: dict[Var, Expr] = {}
    axes: list[IterVar] = []
    values: list[Expr] = []
    local = Analyzer()  # knows no ranges: an axis of one value keeps its name
    for iv, value, inner in zip(block.iter_vars, realize.iter_values, padding.box, strict=True):
        var = Var(iv.var.name, iv.var.dtype)
        axes.append(IterVar(Range(const(0, var.dtype), inner.extent), var, IterVar.SPATIAL, iv.thread_tag))
        fresh[iv.var] = var if is_const_int(inner.min, 0) else var + inner.min
        values.append(value if value in moved else analyzer.simplify(value - inner.min))  # type: ignore[comparison-overlap]
    bound = dict(zip([iv.var for iv in block.iter_vars], realize.iter_values, strict=True))
    tests = [substitute(t, bound) for t in padding.tests] + conjuncts(realize.predicate)
    kept = [
        _from_left(without_low_digits(analyzer, c))
        for t in tests
        for c in conjuncts(analyzer.simplify(substitute(t, moved)))
    ]
    made = Block(
        tuple(axes),
        tuple([_tidy(r, fresh, local) for r in block.reads]),
        tuple([_tidy(r, fresh, local) for r in block.writes]),
        block.name_hint,
        BufferStore(
            store.buffer,
            local.simplify(substitute(padding.value, fresh)),
            tuple([local.simplify(substitute(i, fresh)) for i in store.indices]),
        ),
        annotations=block.annotations,
    )
    out: Stmt = BlockRealize(tuple(values), all_(*kept), made)
    for lp in reversed(own):
        out = lp.with_(min=ranges[lp.loop_var].min, extent=ranges[lp.loop_var].extent, body=out)
    return out


def _from_left(test: Expr) -> Expr:
    """Return a lower bound in the form ``3 <= x``."""
    return LE(test.b, test.a) if isinstance(test, GE) and isinstance(test.b, IntImm) else test


def _tidy(region: BufferRegion, fresh: dict[Var, Expr], analyzer: Analyzer) -> BufferRegion:
    return region.map_children(lambda e: analyzer.simplify(substitute(e, fresh)))
