"""transform_layout and transform_block_layout: store a buffer's elements, or run a block's axes, in another order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...tir.arith import Analyzer, bind_sizes
from ...tir.buffer import Buffer, BufferRegion
from ...tir.expr import GE, LT, Add, BufferLoad, Expr, IntImm, IterVar, Mul, Not, Range, Var, const, convert
from ...tir.function import PrimFunc
from ...tir.op import all_, if_then_else
from ...tir.regions import access_regions
from ...tir.stmt import Block, BlockRealize, BufferStore, For, Stmt, seq
from ...tir.walk import pre_order, replace_buffers, substitute, transform
from ..analysis import (
    all_of,
    check_plain_path,
    conjuncts,
    opaque_buffers,
    region_of,
    scope_of,
    why_not_complete,
)
from ..errors import ScheduleError
from ..handles import BlockRV
from ..index_map import IndexMap
from ..primitive import primitive
from ..regions import covers_domain
from ..tree import Tree, tree_of, unique_block_name
from ._moving import nest, rebuild
from .cache import pick_buffer

__all__ = ["set_scope", "transform_block_layout", "transform_layout"]


def _as_text(index_map: Any, ndim: int | None) -> str:
    if isinstance(index_map, str):
        return index_map
    if not isinstance(index_map, IndexMap):
        if not callable(index_map):
            raise TypeError(f"an index map is a function, its text or an IndexMap, not {type(index_map).__name__}")
        index_map = IndexMap.from_func(index_map, ndim)
    return index_map.as_text()


def _block_name(block: Any) -> str:
    return block.name if isinstance(block, BlockRV) else str(block)


def _rank(func: PrimFunc, block: Any, buffer: Any) -> int | None:
    """The rank of the buffer that is named, when it is found: for maps that take ``*indices``."""
    found = tree_of(func).blocks.get(_block_name(block))
    if not found:
        return None
    if buffer is None:
        return len(found[0].block.iter_vars)
    try:
        return _named_buffer(found[0], _plain(buffer)).ndim
    except ScheduleError:
        return None


def _plain(buffer: Any) -> Any:
    """A buffer argument as a trace can hold it: its name, or ["read", 0]."""
    if isinstance(buffer, Buffer):
        return buffer.name
    return list(buffer) if isinstance(buffer, tuple) else buffer


def _named_buffer(realize: BlockRealize, buffer: Any) -> Buffer:
    if isinstance(buffer, (list, tuple)) and len(buffer) == 2 and buffer[0] in ("read", "write"):
        return pick_buffer(realize, buffer[1], buffer[0])
    if isinstance(buffer, int):
        return pick_buffer(realize, buffer, "write")
    if isinstance(buffer, str):
        for kind, regions in (("write", realize.block.writes), ("read", realize.block.reads)):
            if any(r.buffer.name == buffer for r in regions):
                return pick_buffer(realize, buffer, kind)
    raise ScheduleError(
        f"block {realize.block.name_hint!r} has no buffer {buffer!r}",
        where=realize,
        hint='say ("read", 0), ("write", 0), or a name of '
        + ", ".join(repr(r.buffer.name) for r in (*realize.block.reads, *realize.block.writes)),
    )


def _prepare_layout(func: PrimFunc, block: Any, buffer: Any, index_map: Any, **_: Any) -> dict[str, Any]:
    return {"buffer": _plain(buffer), "index_map": _as_text(index_map, _rank(func, block, buffer))}


def _prepare_block_layout(func: PrimFunc, block: Any, index_map: Any, **_: Any) -> dict[str, Any]:
    return {"index_map": _as_text(index_map, _rank(func, block, None))}


def _sized_analyzer(func: PrimFunc) -> Analyzer:
    analyzer = Analyzer()
    bind_sizes(analyzer, func.buffer_map.values())
    return analyzer


@primitive(prepare=_prepare_layout)
def transform_layout(
    func: PrimFunc,
    block: str,
    buffer: Any,
    index_map: Any,
    pad_value: Any = None,
    *,
    assume_injective_transform: bool = False,
) -> PrimFunc:
    """Store the elements of a buffer at the places that ``index_map`` gives, wherever it is accessed.

    Before ``sch.transform_layout("B", ("write", 0), lambda i, j: (i // 16, j, i % 16))``, and after::

        B = T.alloc_buffer((128, 64))                    B = T.alloc_buffer((8, 64, 16))
        for i, j in T.grid(128, 64):                     for i, j in T.grid(128, 64):
            with T.block("B"):                               with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])              vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * 2.0                      B[vi // 16, vj, vi % 16] = A[vi, vj] * 2.0

    ``buffer`` is ``("read", i)`` or ``("write", i)`` of the block, a buffer or its name; ``index_map`` a function from
    old indices to a tuple of new ones (an :class:`IndexMap` or its text too).

    When the shape does not fit the map (100 rows in tiles of 16), the new buffer is larger, and what is stored in the
    padding is not defined, and not read, unless ``pad_value`` is given. Then the block that fills the buffer runs over
    the padding as well, storing ``T.if_then_else(<padding>, pad_value, <value>)``, when it stores each element once in
    a nest of its own; else a block named ``<block>_pad_<buffer>`` behind it fills the padding.

    A buffer that is a parameter changes the function's signature: the caller has to pass the new layout.
    ``assume_injective_transform`` takes on trust that no two elements go to one place, where that is not found out.
    """
    tree = tree_of(func)
    realize = tree.block(block)
    old = _named_buffer(realize, buffer)
    mapping = IndexMap.from_text(index_map) if isinstance(index_map, str) else index_map
    if not isinstance(mapping, IndexMap):
        mapping = IndexMap.from_func(mapping, old.ndim)
    root = _home(tree, realize, old)
    if old.data in opaque_buffers(func.body):
        raise ScheduleError(
            f"buffer {old.name} is accessed through a pointer or a match_buffer, which needs its layout", where=realize
        )
    if old.strides:
        raise ScheduleError(f"buffer {old.name} has strides of its own", where=realize)
    analyzer = _sized_analyzer(func)
    shape = mapping.map_shape(old.shape, analyzer)
    places = [Var(f"v{i}", e.dtype) for i, e in enumerate(shape)]
    for v, e in zip(places, shape, strict=True):
        analyzer.bind(v, Range.from_extent(e))
    back: tuple[Expr, ...] | None = None
    tests: list[Expr] = []
    try:
        back, tests = mapping.inverse(old.shape, places, analyzer)
    except ScheduleError:
        if not assume_injective_transform or pad_value is not None:
            raise
    new = Buffer(old.name, shape, old.dtype, old.scope, data_alignment=old.data_alignment)
    if pad_value is not None and tests:
        func = _pad(func, realize, old, new, back, tests, places, pad_value, root)  # type: ignore[arg-type]
    return _rewrite(func, old, new, mapping)


def _home(tree: Tree, realize: BlockRealize, buffer: Buffer) -> Block | None:
    """The block that allocates the buffer; None for a parameter."""
    if any(b is buffer for b in tree.func.buffer_map.values()):
        return None
    for up in (realize.block, *tree.above(realize)):
        if isinstance(up, Block) and any(b is buffer for b in up.alloc_buffers):
            return up
    raise ScheduleError(f"buffer {buffer.name} is neither allocated here nor a parameter", where=realize)


def _rewrite(func: PrimFunc, old: Buffer, new: Buffer, mapping: IndexMap) -> PrimFunc:
    """All accesses to ``old`` as accesses to ``new``; those to ``new`` stay as they are."""
    sizes = _sized_analyzer(func)
    stack: list[Analyzer] = [sizes]

    def walk(n: Any) -> Any:
        if isinstance(n, Block):
            stack.append(Analyzer())
            bind_sizes(stack[-1], func.buffer_map.values())
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
            return BufferLoad(new, mapping.map_indices(out.indices, stack[-1]), out.predicate)
        if isinstance(n, BufferStore) and n.buffer is old:
            return BufferStore(new, out.value, mapping.map_indices(out.indices, stack[-1]), out.predicate)
        return out

    body = walk(func.body)
    buffers = {p: new if b is old else b for p, b in func.buffer_map.items()}
    return PrimFunc(func.params, body, buffers, func.attrs)


# -- padding ------------------------------------------------------------------------------------------------------------------


def _pad(
    func: PrimFunc,
    realize: BlockRealize,
    old: Buffer,
    new: Buffer,
    back: tuple[Expr, ...],
    tests: Sequence[Expr],
    places: Sequence[Var],
    pad_value: Any,
    root: Block | None,
) -> PrimFunc:
    """The function with the padding of ``new`` written by the block that fills ``old``, or by a block behind it."""
    tree = tree_of(func)
    scope = scope_of(tree, realize)
    writers = scope.writers.get(old, [])
    if root is None and not writers:
        raise ScheduleError(
            f"{old.name} is an input: what its padding holds is up to the caller",
            where=realize,
            hint="leave pad_value out, or cache_read it first and transform the copy",
        )
    if len(writers) != 1:
        raise ScheduleError(
            f"{old.name} is written by {len(writers)} blocks, so no one of them can fill its padding", where=writers
        )
    writer = writers[0]
    value = convert(pad_value, old.dtype) if isinstance(pad_value, (int, float)) else pad_value
    if not isinstance(value, Expr) or value.dtype != old.dtype:
        raise ScheduleError(f"pad_value {pad_value!r} is no {old.dtype} constant")
    filled = _fill_in_place(tree, writer, old, new, back, tests, places, value)
    if filled is not None:
        return filled
    name = unique_block_name(func, f"{writer.block.name_hint}_pad_{old.name}")
    axes = [IterVar(Range.from_extent(e), v) for v, e in zip(places, new.shape, strict=True)]
    loops = [(Var(f"ax{i}", e.dtype), e) for i, e in enumerate(new.shape)]
    at = {v: loop for v, (loop, _) in zip(places, loops, strict=True)}
    point = tuple([Range(v, const(1, v.dtype)) for v in places])
    block = Block(tuple(axes), (), (BufferRegion(new, point),), name, BufferStore(new, value, tuple(places)))
    pad = nest(loops, BlockRealize(tuple(at.values()), substitute(_padding(tests), at), block))
    top: Stmt = writer
    for up in tree.above(writer):
        if isinstance(up, Block):
            break
        top = up if isinstance(up, For) else top
    return rebuild(tree, {}, {top: lambda s: seq(s, pad)})


def _padding(tests: Sequence[Expr]) -> Expr:
    """Where the padding is, given the conditions for not being there; a split's tail as ``outer == n and m <= inner``."""
    if len(tests) == 1:
        tail = _split_tail(tests[0])
        if tail is not None:
            return tail
    return Not(all_(*tests)) if len(tests) > 1 else _negated(tests[0])


def _negated(test: Expr) -> Expr:
    if isinstance(test, LT):
        return GE(test.a, test.b)
    if isinstance(test, GE):
        return LT(test.a, test.b)
    return Not(test)


def _split_tail(test: Expr) -> Expr | None:
    if not (isinstance(test, LT) and isinstance(test.b, IntImm) and isinstance(test.a, Add)):
        return None
    outer, inner = test.a.a, test.a.b
    if not (
        isinstance(outer, Mul) and isinstance(outer.b, IntImm) and isinstance(outer.a, Var) and isinstance(inner, Var)
    ):
        return None
    whole, rest = divmod(test.b.value, outer.b.value)
    return all_(outer.a.equal(whole), inner >= rest) if rest else None


def _fill_in_place(
    tree: Tree,
    writer: BlockRealize,
    old: Buffer,
    new: Buffer,
    back: tuple[Expr, ...],
    tests: Sequence[Expr],
    places: Sequence[Var],
    value: Expr,
) -> PrimFunc | None:
    """The writer over the places of ``new`` in a new nest; None when it does not store each element once, alone."""
    block = writer.block
    body = block.body
    if not isinstance(body, BufferStore) or block.init is not None or len(block.writes) != 1:
        return None
    axes = [iv.var for iv in block.iter_vars]
    if len(axes) != old.ndim or any(i is not v for i, v in zip(body.indices, axes, strict=True)):
        return None
    if why_not_complete(scope_of(tree, writer), block) is not None or not covers_domain(tree, writer, once=True):
        return None
    top = _own_nest(tree, writer)
    if top is None or any(lp.kind != "serial" or lp.annotations for lp in tree.loops_above(writer)):
        return None
    analyzer = Analyzer()
    for v, e in zip(places, new.shape, strict=True):
        analyzer.bind(v, Range.from_extent(e))
    there = {v: e for v, e in zip(axes, back, strict=True)}
    inside = _simplified(substitute(body.value, there), analyzer)
    new_body = BufferStore(new, if_then_else(_padding(tests), value, inside), tuple(places))
    reads, writes = access_regions(new_body)
    new_block = block.with_(
        iter_vars=tuple([IterVar(Range.from_extent(e), v) for v, e in zip(places, new.shape, strict=True)]),
        reads=reads,
        writes=writes,
        body=new_body,
    )
    loops = [(Var(f"ax{i}", e.dtype), e) for i, e in enumerate(new.shape)]
    stage = nest(loops, BlockRealize(tuple([v for v, _ in loops]), const(True, "bool"), new_block))
    return tree.replace({top: stage})


def _own_nest(tree: Tree, realize: BlockRealize) -> Stmt | None:
    """The outermost loop over the block when all loops up to its scope hold nothing else; else None."""
    here: Stmt = realize
    own = 0
    for up in tree.above(realize):
        if not isinstance(up, For):
            break
        here, own = up, own + 1
    return here if own == len(tree.loops_above(realize)) else None


def _simplified(node: Any, analyzer: Analyzer) -> Any:
    """``node`` with the indices of its loads simplified."""

    def post(n: Any) -> Any:
        if isinstance(n, BufferLoad):
            return BufferLoad(n.buffer, tuple([analyzer.simplify(i) for i in n.indices]), n.predicate)
        return None

    return transform(node, post=post)


# -- blocks -------------------------------------------------------------------------------------------------------------------


@primitive(prepare=_prepare_block_layout)
def transform_block_layout(func: PrimFunc, block: str, index_map: Any) -> PrimFunc:
    """Run a block over new axes, to which ``index_map`` sends the old ones, in loops made anew.

    Before ``sch.transform_block_layout("B", lambda i, j: (j // 16, i, j % 16))``, and after::

        for i, j in T.grid(64, 128):                     for ax0, ax1, ax2 in T.grid(8, 64, 16):
            with T.block("B"):                               with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])              v0, v1, v2 = T.axis.remap("SSS", [ax0, ax1, ax2])
                B[vi, vj] = A[vi, vj] * 2.0                      B[v1, v0 * 16 + v2] = A[v1, v0 * 16 + v2] * 2.0

    Where the domain does not fit the map (100 columns in tiles of 16), a predicate leaves out what is too much.

    Applies to a block alone in its loop nest that runs once on each point of its axes, and to maps that can be
    inverted; no new axis may mix spatial and reduce axes, and a map of reduce axes has to fit.
    """
    tree = tree_of(func)
    realize = tree.block(block)
    check_plain_path(tree, realize)
    old = realize.block
    mapping = IndexMap.from_text(index_map) if isinstance(index_map, str) else index_map
    if not isinstance(mapping, IndexMap):
        mapping = IndexMap.from_func(mapping, len(old.iter_vars))
    top = _own_nest(tree, realize)
    if top is None or not covers_domain(tree, realize, once=True):
        raise ScheduleError(
            f"block {block!r} is not alone in a loop nest of its own that runs once on each point of its axes",
            where=realize,
            hint="transform it before splitting its loops unevenly or moving other blocks in",
        )
    if any(iv.kind not in (IterVar.SPATIAL, IterVar.REDUCE) for iv in old.iter_vars):
        raise ScheduleError(f"block {block!r} has axes that are neither spatial nor reduce", where=realize)
    if any(not (isinstance(iv.dom.min, IntImm) and iv.dom.min.value == 0) for iv in old.iter_vars):
        raise ScheduleError(f"block {block!r} has axes that do not start at 0", where=realize)
    analyzer = _sized_analyzer(func)
    extents = [iv.dom.extent for iv in old.iter_vars]
    shape = mapping.map_shape(extents, analyzer)
    places = [Var(f"v{i}", e.dtype) for i, e in enumerate(shape)]
    for v, e in zip(places, shape, strict=True):
        analyzer.bind(v, Range.from_extent(e))
    back, tests = mapping.inverse(extents, places, analyzer)
    kinds = _new_kinds(realize, mapping)
    if IterVar.REDUCE in kinds and tests:
        raise ScheduleError(
            f"the index map {mapping} does not fit the domain of block {block!r}, a reduction", where=realize,
            hint=f"it would need {' and '.join(map(str, tests))}",
        )  # fmt: skip
    there = {iv.var: e for iv, e in zip(old.iter_vars, back, strict=True)}
    loops = [(Var(f"ax{i}", e.dtype), e) for i, e in enumerate(shape)]
    at = {v: loop for v, (loop, _) in zip(places, loops, strict=True)}

    def region(r: BufferRegion) -> BufferRegion:
        return substitute(r, there).map(analyzer.simplify)  # type: ignore[no-any-return]

    new = old.with_(
        iter_vars=tuple([IterVar(Range.from_extent(e), v, k) for v, e, k in zip(places, shape, kinds, strict=True)]),
        reads=tuple([region(r) for r in old.reads]),
        writes=tuple([region(r) for r in old.writes]),
        body=_tidy(substitute(old.body, there), analyzer),
        init=None if old.init is None else _tidy(substitute(old.init, there), analyzer),
    )
    predicate = substitute(all_of([c for t in tests for c in conjuncts(t)]), at)
    return tree.replace({top: nest(loops, BlockRealize(tuple([v for v, _ in loops]), predicate, new))})


def _new_kinds(realize: BlockRealize, mapping: IndexMap) -> list[str]:
    kind_of = {v: iv.kind for v, iv in zip(mapping.initial_indices, realize.block.iter_vars, strict=True)}
    out = []
    for e in mapping.final_indices:
        kinds = {kind_of[n] for n in pre_order(e) if isinstance(n, Var)}
        if len(kinds) > 1:
            raise ScheduleError(f"the new axis {e} mixes spatial and reduce axes", where=realize)
        out.append(kinds.pop() if kinds else IterVar.SPATIAL)
    return out


def _tidy(stmt: Any, analyzer: Analyzer) -> Any:
    """A body with its indices simplified."""

    def post(n: Any) -> Any:
        if isinstance(n, BufferLoad):
            return BufferLoad(n.buffer, tuple([analyzer.simplify(i) for i in n.indices]), n.predicate)
        if isinstance(n, BufferStore):
            return BufferStore(n.buffer, n.value, tuple([analyzer.simplify(i) for i in n.indices]), n.predicate)
        return None

    return transform(stmt, post=post)


@primitive
def set_scope(func: PrimFunc, block: str, buffer_index: int | str, storage_scope: str) -> PrimFunc:
    """Put a buffer that ``block`` writes into another storage scope (``global``, ``local``, ``shared`` …).

    Before ``sch.set_scope("B", 0, "local")``, and after::

        B = T.alloc_buffer((128, 128))                   B = T.alloc_buffer((128, 128), scope="local")

    Applies to buffers that the function allocates.
    """
    tree = tree_of(func)
    realize = tree.block(block)
    buffer = pick_buffer(realize, buffer_index, "write")
    if _home(tree, realize, buffer) is None:
        raise ScheduleError(
            f"buffer {buffer.name} is a parameter, whose scope is the caller's", where=realize,
            hint="use cache_write and set the scope of the copy",
        )  # fmt: skip
    if buffer.scope == storage_scope:
        return func
    return replace_buffers(func, {buffer: buffer.with_(scope=storage_scope)})  # type: ignore[no-any-return]
