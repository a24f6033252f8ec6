"""This module defines transform_layout and transform_block_layout.

The first stores a buffer's elements in another order, the second runs a block over other axes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...tir.analysis.known_ranges import sized_analyzer
from ...tir.analysis.region_cover import covers_domain
from ...tir.analysis.regions import access_regions, redeclared
from ...tir.analysis.scope import BlockScope, region_of
from ...tir.analysis.tree import Tree, symbols_of, tree_of, unique_block_name
from ...tir.arith import Analyzer
from ...tir.expr import (
    GE,
    LE,
    LT,
    Add,
    BufferLoad,
    Call,
    Expr,
    IntImm,
    IterVar,
    Mul,
    Not,
    Or,
    Range,
    Var,
    all_,
    any_,
    const,
    is_const_int,
    max_value,
    shape_text,
    structural_equal,
)
from ...tir.expr.intrinsics.control_and_memory import if_then_else
from ...tir.stmt import (
    Block,
    BlockRealize,
    Buffer,
    BufferRegion,
    BufferStore,
    Evaluate,
    For,
    MatchBufferRegion,
    PrimFunc,
    Stmt,
    below_assertions,
    seq,
)
from ...tir.walk import memory_in, pre_order, substitute, transform, uses_var
from ..edit.buffers import home_of, named_buffer, separated
from ..edit.loop_nests import element_block, in_loops, in_own_loops, nest, point
from ..errors import ScheduleError, bad_argument
from ..index_map import IndexMap, simplify_unless_constant
from ..primitive import as_recorded, block_name, prepared_map, primitive
from ..require.block_preconditions import (
    check_box,
    check_from_zero,
    check_no_pointers,
    check_plain_path,
    find_block,
    has_trivial_bindings,
    nest_of_its_own,
    own_nest,
    root_of,
)


def _rank(func: PrimFunc, block: Any, buffer: Any) -> int:
    """Return the rank of the named buffer, for maps that take ``*indices``."""
    realize = find_block(tree_of(func), block_name(block))
    if buffer is None:
        return len(realize.block.iter_vars)
    return named_buffer(realize, buffer).ndim


def _prepare_layout(func: PrimFunc, block: Any, buffer: Any, index_map: Any, **rest: Any) -> dict[str, Any]:
    out = {"index_map": as_recorded(func, index_map, _rank(func, block, buffer))}
    if callable(rest.get("pad_value")) or isinstance(rest.get("pad_value"), (IndexMap, list)):
        final = IndexMap.of(out["index_map"], None, symbols_of(func)).final_indices
        out["pad_value"] = as_recorded(func, rest["pad_value"], len(final))
    return out


@primitive(prepare=_prepare_layout)
def transform_layout(
    func: PrimFunc,
    block: str,
    buffer: Any,
    index_map: Any,
    pad_value: Any = None,
    *,
    assume_injective_transform: bool = False,
    leave_padding: bool = False,
) -> PrimFunc:
    """Store the elements of a buffer at the places that ``index_map`` gives, in all accesses.

    ``buffer`` is ``("read", i)`` or ``("write", i)`` of the block, a buffer or its name. ``index_map`` is a function
    from old indices to a tuple of new ones (or an :class:`IndexMap`, or its text). It may use sizes and scalar
    parameters of the function; its divisors must be known to be at least 1 where the buffer has elements, as its own
    sizes are.

    When the shape does not fit the map (100 rows in tiles of 16), the new buffer is larger; ``pad_value``, a constant
    or a function of the new indices, gives the value of its padding. A block that stores one element in each iteration
    of a nest of its own then runs over the padding as well, and stores
    ``T.if_then_else(<padding>, pad_value, <value>)``. Otherwise a new block ``<block>_pad_<buffer>`` after it fills the
    padding. For a buffer that the function only reads, a block with a ``T.assume`` states the value of the padding.
    With ``leave_padding`` the padding is neither written nor read.

    When the buffer is a parameter, the function's signature changes: the caller has to pass the new layout.
    ``assume_injective_transform`` without ``pad_value`` is trusted, as in TVM, that no two elements share a place and
    that divisors are at least 1: the caller may then not pass 0 for what divides. Padding is then
    neither written nor read.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((8, 8)), C: T.Buffer((8, 8))):
    ...     B = T.alloc_buffer((8, 8))
    ...     for i, j in T.grid(8, 8):
    ...         with T.block("B"):
    ...             vi, vj = T.axis.remap("SS", [i, j])
    ...             B[vi, vj] = A[vi, vj] * T.float32(2)
    ...     for i, j in T.grid(8, 8):
    ...         with T.block("C"):
    ...             vi, vj = T.axis.remap("SS", [i, j])
    ...             C[vi, vj] = B[vi, vj] + T.float32(1)
    ... '''))
    >>> sch.transform_layout("B", ("write", 0), lambda i, j: (i // 4, j, i % 4))
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
        # with T.block("root"):
        B = T.alloc_buffer((2, 8, 4))
        for i, j in T.grid(8, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(A[vi, vj])
                T.writes(B[vi // 4, vj, vi % 4])
                B[vi // 4, vj, vi % 4] = A[vi, vj] * T.float32(2.0)
        for i, j in T.grid(8, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(B[vi // 4, vj, vi % 4])
                T.writes(C[vi, vj])
                C[vi, vj] = B[vi // 4, vj, vi % 4] + T.float32(1.0)
    """
    tree = tree_of(func)
    realize = find_block(tree, block)
    old = named_buffer(realize, buffer)
    mapping = IndexMap.of(index_map, old.ndim, symbols_of(func))
    root = home_of(tree, realize, old)
    if all(a is b for a, b in zip(mapping.initial_indices, mapping.final_indices, strict=False)) and (
        len(mapping.initial_indices) == len(mapping.final_indices) == old.ndim
    ):
        return separated(func, old, mapping.axis_separators)
    check_no_pointers(func.body, [old], "which needs its layout", realize)
    if old.strides:
        raise ScheduleError(
            f"buffer {old.name} has strides of its own",
            where=realize,
            hint="cache_read or cache_write it, and change the copy",
        )
    analyzer = sized_analyzer(func)
    trusted = assume_injective_transform and pad_value is None
    for size in mapping.divisors() if trusted else ():
        if isinstance(size, Var):
            analyzer.bind(size, (1, max_value(size.dtype)))
    shape = mapping.map_shape(old.shape, analyzer)
    places = [Var(f"v{i}", e.dtype) for i, e in enumerate(shape)]
    for v, e in zip(places, shape, strict=True):
        analyzer.learn_nonempty(e)
        analyzer.bind(v, Range.from_extent(e))
    back, tests = ((), []) if trusted else mapping.inverse(old.shape, places, analyzer)
    new = old.with_(shape=shape, axis_separators=mapping.axis_separators)
    if tests and pad_value is None and not leave_padding:
        raise ScheduleError(
            f"the index map {mapping} sends buffer {old.name} of shape ({shape_text(old.shape)}) to the larger "
            f"shape ({shape_text(shape)}), and it is not said what the padding holds",
            where=realize,
            hint="give pad_value, or leave_padding=True when nothing reads it",
        )
    if pad_value is not None:
        pad_value = pad_of(func, old, places, pad_value)
    if pad_value is not None and tests:
        func = fill_padding(func, realize, Padding(old, new, back, tests, places, pad_value), root)
    return _rewrite(func, old, new, mapping, fits=not tests)


def _rewrite(func: PrimFunc, old: Buffer, new: Buffer, mapping: IndexMap, fits: bool) -> PrimFunc:
    """Return the function with all accesses to ``old`` replaced by accesses to ``new``; those to ``new`` stay."""
    stack: list[Analyzer] = [sized_analyzer(func)]

    def walk(n: Any) -> Any:
        if isinstance(n, Stmt) and old not in memory_in(n):
            return n
        if isinstance(n, Block):
            stack.append(sized_analyzer(func))
            for iv in n.iter_vars:
                stack[-1].bind(iv.var, iv.dom)
            out = n.map_children(walk)
            stack.pop()
            touched = any(r.buffer is old for r in (*n.reads, *n.writes))
            if any(b is old for b in n.alloc_buffers):
                out = out.with_(alloc_buffers=tuple([new if b is old else b for b in n.alloc_buffers]))
            if touched:
                reads, writes = access_regions(out.body, out.init)
                whole = new.full_region()

                def renewed(rs: Sequence[BufferRegion], found: Sequence[BufferRegion]) -> tuple[BufferRegion, ...]:
                    return tuple([(region_of(found, new) or whole) if r.buffer is old else r for r in rs])

                everything = (*reads, *writes)  # a reduction's own output is found among its writes alone
                out = out.with_(reads=renewed(out.reads, everything), writes=renewed(out.writes, writes))
            return out
        if isinstance(n, For):
            stack[-1].bind(n.loop_var, Range(n.min, n.extent))
            return n.map_children(walk)
        out = n.map_children(walk)
        if isinstance(n, BufferLoad) and n.buffer is old:
            return BufferLoad(new, there(out.indices), out.predicate)
        if isinstance(n, BufferStore) and n.buffer is old:
            return BufferStore(new, out.value, there(out.indices), out.predicate)
        return out

    def there(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Return where they go: simplified with the ranges of the axes when the map fits the shape, without them
        else."""
        if not fits:
            return mapping.map_indices(indices)
        with stack[-1].nonempty(*old.shape):  # an element is accessed
            return mapping.map_indices(indices, stack[-1], keep_constants=False)

    body = walk(func.body)
    buffers = {p: new if b is old else b for p, b in func.buffer_map.items()}
    return PrimFunc(func.params, body, buffers, func.attrs)


@dataclass(frozen=True, slots=True, eq=False)
class Padding:
    """A ``Padding`` describes the places of the buffer ``new`` to which no element of ``old`` goes, and their ``value``.

    ``places`` are variables for the indices of ``new``, ``back`` the indices of ``old`` in terms of these, and
    ``tests`` the conditions under which these exist.
    """

    old: Buffer
    new: Buffer
    back: tuple[Expr, ...]
    tests: Sequence[Expr]
    places: Sequence[Var]
    value: Expr

    @property
    def condition(self) -> Expr:
        """Return the condition for being in the padding.

        After a split it is expressed by the outer and the inner index: ``outer == n and m <= inner``.
        """
        extents = dict(zip(self.places, self.new.shape, strict=True))
        parts = [_split_tail(test, extents) if isinstance(test, LT) else _split_head(test) for test in self.tests]
        if len(parts) == 2 and isinstance(self.tests[0], LE) and isinstance(self.tests[1], LT) and None in parts:
            return Not(all_(*self.tests))  # both ends of one axis
        return any_(*[_negated(t) if part is None else part for t, part in zip(self.tests, parts, strict=True)])

    def axes(self, places: Sequence[Var]) -> list[IterVar]:
        """Return axes over the indices of ``new``."""
        return [IterVar(Range.from_extent(e), v) for v, e in zip(places, self.new.shape, strict=True)]


def fill_padding(func: PrimFunc, realize: BlockRealize, padding: Padding, root: Block | None) -> PrimFunc:
    """Return the function with the padding of a new buffer written. The block that fills the old one writes it, or a
    block after it.

    The filling block is one of those directly in ``root``, where the old buffer is allocated, or of the function when
    ``root`` is None.
    """
    old, new = padding.old, padding.new
    tree = tree_of(func)
    home = next(b for b in tree.path(realize) if isinstance(b, BlockRealize) and (root is None or b.block is root))
    writers = BlockScope(home).writers.get(old, [])
    if root is None and not writers:
        return _assume(tree, padding)
    if not writers:
        raise ScheduleError(
            f"no block inside block {home.block.name_hint!r}, which allocates {old.name}, writes it",
            where=home,
            hint="give no pad_value and leave_padding=True",
        )
    filled = [_filled(tree, w, padding) for w in writers]
    if None not in filled:
        return tree.replace(dict(f for f in filled if f is not None))
    if len(writers) != 1:
        raise ScheduleError(
            f"{old.name} is written by {len(writers)} blocks, so no one of them can fill its padding",
            where=writers,
            hint="give no pad_value and leave_padding=True, or merge the writers first",
        )
    writer = writers[0]
    name = unique_block_name(func, f"{writer.block.name_hint}_pad_{old.name}")
    store = BufferStore(new, padding.value, tuple(padding.places))
    pad = in_own_loops(element_block(name, padding.axes(padding.places), store, reads=()), padding.condition)
    top: Stmt = writer
    for up in tree.above(writer):
        if isinstance(up, Block):
            break
        top = up if isinstance(up, For) else top
    return tree.replace({}, {top: lambda s: seq(s, pad)})


def _negated(test: Expr) -> Expr:
    if isinstance(test, LT):
        return LE(test.b, test.a)
    if isinstance(test, GE):
        return LT(test.a, test.b)
    if isinstance(test, LE):
        return LT(test.b, test.a)
    return Not(test)


def _digits(e: Expr) -> tuple[Var, int, Expr] | None:
    """Return (outer, c, inner) when ``e`` is ``outer * c + inner``."""
    if not isinstance(e, Add):
        return None
    terms: list[Expr] = []
    rest: Expr = e
    while isinstance(rest, Add):
        terms.insert(0, rest.b)
        rest = rest.a
    outer, inner = rest, terms[0]
    for term in terms[1:]:
        inner = inner + term
    if not (isinstance(outer, Mul) and isinstance(outer.b, IntImm) and isinstance(outer.a, Var)):
        return None
    if not all(isinstance(t, Var) or (isinstance(t, Mul) and isinstance(t.a, Var)) for t in terms):
        return None
    return outer.a, outer.b.value, inner


def _split_tail(test: Expr, extents: Mapping[Var, Expr]) -> Expr | None:
    """Return the negation of ``outer * c + inner < n`` when it holds only in the last iteration of ``outer``, else
    None.

    That is so when the extent of ``outer`` is n / c, rounded up.
    """
    if not isinstance(test, LT) or not isinstance(test.b, IntImm):
        return None
    found = _digits(test.a)
    if found is None:
        return None
    outer, c, inner = found
    whole, left = divmod(test.b.value, c)
    if not left or not is_const_int(extents.get(outer), whole + 1):
        return None
    last = left == c - 1 and isinstance(inner, Var)
    return all_(outer.equal(whole), inner.equal(left) if last else LE(const(left, inner.dtype), inner))


def _split_head(test: Expr) -> Expr | None:
    """Return the negation of ``n <= outer * c + inner`` with n < c. It holds only in the first iteration of
    ``outer``."""
    if not isinstance(test, LE) or not isinstance(test.a, IntImm):
        return None
    found = _digits(test.b)
    if found is None or not 0 < test.a.value < found[1]:
        return None
    outer, _, inner = found
    return all_(outer.equal(0), LT(inner, test.a))


def pad_of(func: PrimFunc, buffer: Buffer, places: Sequence[Var], pad_value: Any) -> Expr:
    """Return the value of the padding at ``places``; ScheduleError unless it has the buffer's data type."""
    kind = buffer.dtype.kind
    value = pad_value
    if isinstance(value, (str, list)):
        found = IndexMap.of(value, len(places), symbols_of(func)).map_indices(places)
        value = found[0] if len(found) == 1 else value
    elif isinstance(value, float) and kind in ("float", "bfloat"):
        value = const(value, buffer.dtype)
    elif isinstance(value, int) and kind in ("int", "uint", "bool"):
        value = const(value, buffer.dtype)
    if not isinstance(value, Expr) or value.dtype != buffer.dtype:
        raise bad_argument(
            f"pad_value {pad_value!r} is not of type {buffer.dtype}, which buffer {buffer.name} holds",
            hint="write 0.0 for floats and 0 for integers",
        )
    return value


def _assume(tree: Tree, padding: Padding) -> PrimFunc:
    """Return a block that states what the caller has put into the padding of an input. It stands at the start of the
    function."""
    old, new, places = padding.old, padding.new, padding.places
    holds = Or(Not(padding.condition), BufferLoad(new, tuple(places)).equal(padding.value))
    says = Call("tir.assume", (holds,), "bool")
    name = unique_block_name(tree.func, f"buffer_{old.name}_assumptions")
    block = Block(tuple(padding.axes(places)), (point(new, places),), (), name, Evaluate(says))
    stage = in_own_loops(block)
    body = below_assertions(root_of(tree).block.body)
    return tree.replace({}, {body: lambda s: seq(stage, s)})


def _fills_alone(tree: Tree, writer: BlockRealize, old: Buffer) -> bool:
    """Return whether a block stores each element of ``old`` in one iteration of a plain nest that holds nothing else."""
    block, ndim = writer.block, old.ndim
    first = block.iter_vars[:ndim]
    if len(block.writes) != 1 or len(first) != ndim:
        return False
    for store in (block.body, *(() if block.init is None else (block.init,))):
        if not isinstance(store, BufferStore) or store.predicate is not None:
            return False
        if any(i is not iv.var for i, iv in zip(store.indices, first, strict=True)):
            return False
    whole = all(
        iv.kind == IterVar.SPATIAL and is_const_int(iv.dom.min, 0) and structural_equal(iv.dom.extent, e)
        for iv, e in zip(first, old.shape, strict=True)
    )
    if not whole or own_nest(tree, writer) is None or not has_trivial_bindings(tree, writer):
        return False
    loops = tree.loops_above(writer)
    plain = all(lp.kind == "serial" and not lp.annotations for lp in loops)
    outer = {lp.loop_var for lp in loops[:ndim]}
    if any(uses_var(e, outer.__contains__) for lp in loops[ndim:] for e in (lp.min, lp.extent)):
        return False  # the padding has no iterations of inner loops
    return plain and is_const_int(writer.predicate, 1) and covers_domain(tree, writer, once=True)


def _filled(tree: Tree, writer: BlockRealize, padding: Padding) -> tuple[Stmt, Stmt] | None:
    """Return the nest of a writer, and the one over the indices of the new buffer.

    The result is None unless the block stores one element in each iteration of a nest that holds nothing else.
    """
    old, new, block = padding.old, padding.new, writer.block
    top = own_nest(tree, writer)
    if top is None or not _fills_alone(tree, writer, old):
        return None
    axes = [iv.var for iv in block.iter_vars[: old.ndim]]
    at = [Var(v.name, v.dtype) for v in padding.places]
    fresh: dict[Var, Expr] = dict(zip(padding.places, at, strict=True))
    there = {v: substitute(e, fresh) for v, e in zip(axes, padding.back, strict=True)}
    condition, value = substitute(padding.condition, fresh), substitute(padding.value, fresh)

    def own(load: Any) -> Any:
        if isinstance(load, BufferLoad) and load.buffer is old:
            same = all(i is v for i, v in zip(load.indices, axes, strict=True))
            return BufferLoad(new, tuple(at)) if same else None
        return None

    def padded(n: Stmt) -> Stmt:
        assert isinstance(n, BufferStore)
        inside = substitute(transform(n.value, post=own), there)
        return BufferStore(new, if_then_else(condition, value, inside), tuple(at))

    new_block = block.with_(
        iter_vars=(*padding.axes(at), *block.iter_vars[old.ndim :]),
        reads=tuple([substitute(r, there) for r in block.reads]),
        writes=(),
        body=padded(block.body),
        init=None if block.init is None else padded(block.init),
    )
    inner = tree.loops_above(writer)[old.ndim :]
    loops = [(Var(f"ax{i}", e.dtype), e) for i, e in enumerate(new.shape)]
    values = (*[v for v, _ in loops], *[lp.loop_var for lp in inner])
    realize = BlockRealize(values, const(True, "bool"), redeclared(new_block))
    return top, nest(loops, in_loops(inner, realize))


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
