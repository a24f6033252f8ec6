"""This module defines online_softmax, which computes attention in one kernel without its matrix of scores.

:func:`attention_in` finds attention in a function, whichever of its element-wise stages stand by themselves or are inlined.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...tir.analysis.tree import Tree, blocks_below, tree_of, unique_block_name
from ...tir.arith import Analyzer
from ...tir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Broadcast,
    BufferLoad,
    Call,
    Cast,
    CmpOp,
    Div,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    IterVar,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Range,
    Select,
    Sub,
    Var,
    const,
    structural_equal,
)
from ...tir.expr.deep_recursion import with_room
from ...tir.expr.intrinsics import Lanes, lanes_of_call
from ...tir.expr.intrinsics.control_and_memory import if_then_else
from ...tir.expr.node import IRNode
from ...tir.stmt import Block, BlockRealize, Buffer, BufferRegion, BufferStore, PrimFunc, Stmt
from ...tir.walk import pre_order, reads_memory, substitute, transform, uses_var, vars_in
from ..attention_kernel import PIECE, AttentionShape, AttentionTiles, attention_kernel, unfit
from ..edit.loop_nests import freeing
from ..errors import ScheduleError
from ..handles import BlockRV
from ..primitive import primitive
from ..require.block_preconditions import (
    check_plain_path,
    check_whole_domain,
    find_block,
    nest_of_its_own,
    scope_around,
)


@dataclass(frozen=True, eq=False)
class AttentionStages:
    """Attention in a function. ``arrays``: query, key, value and result; ``blocks``: the names of its blocks in program order.

    ``places``: the indices at which each array is accessed, in terms of the variables ``lead`` of batch and heads, and of a row and a
    feature, which are the last two of its ``axes``. ``score``: what a score is of ``product``, a query and a key, the variables
    ``ends``; None for products times the shape's scale.
    """

    shape: AttentionShape
    arrays: tuple[Buffer, Buffer, Buffer, Buffer]
    blocks: tuple[str, ...]
    axes: tuple[tuple[Var, ...], ...]
    places: tuple[tuple[Expr, ...], ...]
    score: Expr | None
    product: Var
    ends: tuple[Var, ...]

    def kernel(self, tiles: AttentionTiles) -> Stmt:
        """Returns the body of the kernel on the arrays."""
        kernel = attention_kernel(self.shape, tiles)
        at = dict(zip(kernel.buffers, zip(self.arrays, self.axes, self.places, strict=True), strict=False))
        given = kernel.buffers[len(self.arrays) :]

        def placed(n: Any) -> IRNode | None:
            if isinstance(n, Add) and isinstance(n.b, BufferLoad) and n.b.buffer in given:
                assert self.score is not None
                values = dict(zip((*self.ends, self.product), (*n.b.indices, n.a), strict=True))
                return in_lanes(self.score, values, n.dtype.lanes)
            if not isinstance(n, (BufferLoad, BufferStore)) or n.buffer not in at:
                return None
            array, axes, place = at[n.buffer]
            values = {v: i.astype(v.dtype) for v, i in zip(axes, n.indices, strict=True)}
            indices = tuple([substitute(i, values) for i in place])
            return BufferLoad(array, indices) if isinstance(n, BufferLoad) else BufferStore(array, n.value, indices)

        body: Stmt = transform(kernel.body, post=placed)
        return body.block.body if isinstance(body, BlockRealize) else body


class _Unlike(Exception):
    """Raised for a part of a function that is not that of attention; it says which."""


@primitive
def online_softmax(func: PrimFunc, block: str, groups: int = 2, keys: int = 128) -> tuple[PrimFunc, BlockRV]:
    """Compute attention, of which ``block`` stores the result, in one kernel on warp groups of sm_90a.

    The blocks before it compute ``softmax(q · kᵀ · scale) · v`` of float16 or bfloat16, with sums in float32. Scores may have masks: causal, read
    from memory, or any function of a product, its query and its key. Heads may share keys and values. The kernel keeps for each query the largest score so far and the sum of weights, and the matrix of scores exists only in tiles of ``keys`` keys in
    registers. ``groups``: warp groups of a block of threads, 64 queries each. Returns the block that has the kernel.

    Sums have another order, powers are those of ``exp2_approx``, and weights are rounded to the operands' type before they are divided by their
    sum. So results differ by the rounding of that type. A row with an infinite score is NaN.
    """
    tree = tree_of(func)
    realize = find_block(tree, block)
    found = attention_in(func, block)
    if isinstance(found, str):
        raise ScheduleError(
            f"block {block!r} does not store the result of attention: {found}", where=realize,
            hint="it applies to te.ops.attention of float16 or bfloat16",
        )  # fmt: skip
    tiles = AttentionTiles(groups, keys)
    why = unfit(found.shape, tiles)
    if why:
        raise ScheduleError(
            f"the kernel does not fit block {block!r}: {why}", where=realize, hint="choose other groups or keys"
        )
    stages = [find_block(tree, name) for name in found.blocks]
    scope = scope_around(tree, realize)
    for stage in stages:
        check_plain_path(tree, stage)
        reduces = stage.block.init is not None
        check_whole_domain(tree, stage, "", "do this before moving or splitting the blocks", reduces)
    body = found.kernel(tiles)
    read = (
        {n.buffer: None for n in pre_order(found.score) if isinstance(n, BufferLoad)} if found.score is not None else {}
    )
    regions = [BufferRegion(b, tuple([Range.from_extent(n) for n in b.shape])) for b in (*found.arrays, *read)]
    name = unique_block_name(func, f"{block}_online")
    made = Block((), (*regions[:3], *regions[4:]), (regions[3],), name, body)
    inner = {w.buffer for stage in stages for w in stage.block.writes} - {found.arrays[3]}
    changes: dict[Stmt, Stmt | None] = {nest_of_its_own(tree, stage): None for stage in stages[:-1]}
    changes[nest_of_its_own(tree, realize)] = BlockRealize((), const(True, "bool"), made)
    return tree.replace(changes, {scope.block: freeing(inner)}), BlockRV(name)


@with_room
def attention_in(func: PrimFunc, block: str) -> AttentionStages | str:
    """Return the attention whose result ``block`` stores, or why it is none."""
    tree = tree_of(func)
    try:
        realize = find_block(tree, block)
        return _Finding(tree, scope_around(tree, realize)).attention(realize)
    except _Unlike as e:
        return str(e)


class _Finding:
    """The search from the result back to the operands. ``stages``: each array's block, where one block has one store."""

    def __init__(self, tree: Tree, scope: BlockRealize) -> None:
        self.tree, self.scope = tree, scope
        self.inner = set(scope.block.alloc_buffers)
        self.writers: dict[Buffer, list[BlockRealize]] = {}
        self.readers: dict[Buffer, list[BlockRealize]] = {}
        self.order: list[BlockRealize] = []
        for realize in blocks_below(scope.block.body):
            self.order.append(realize)
            for region in realize.block.writes:
                self.writers.setdefault(region.buffer, []).append(realize)
            for region in realize.block.reads:
                self.readers.setdefault(region.buffer, []).append(realize)
        self.used: list[BlockRealize] = []
        self.lengths: dict[Var, int] = {}
        """The extents of reduced axes."""

    def attention(self, result: BlockRealize) -> AttentionStages:
        store = self._store(result)
        extents = {iv.var: _size(iv.dom.extent) for iv in result.block.iter_vars if iv.kind != IterVar.REDUCE}
        _need(len(extents) == len(result.block.iter_vars), "the result is a reduction")
        self.used.append(result)
        narrow = store.buffer.dtype
        total = store.value
        _need(isinstance(total, Cast) and total.dtype == narrow, "the result is no conversion of sums")
        assert isinstance(total, Cast)
        sums = self._expanded(total.value)
        axes = tuple([i for i in sums.indices if isinstance(i, Var)]) if isinstance(sums, BufferLoad) else ()
        _need(
            set(axes) == set(extents) and len(axes) == len(extents) > 1,
            "the result is no conversion of sums at its axes",
        )
        assert isinstance(sums, BufferLoad)
        _need(len(axes) == len(sums.indices), "the result is no conversion of sums at its axes")
        weight, value, step = self._product(sums, axes)
        (v, vi), weight = self._operand(value, narrow), _rounded(self._expanded(weight), narrow)
        exp, whole = _quotient(weight)
        whole, safe_sum = _at_least(whole, 1.0)
        _need(
            isinstance(exp, Call) and exp.op == "tir.exp" and isinstance(exp.args[0], Sub),
            "weights are no exp(score - maximum)",
        )
        score, most = exp.args[0].a, exp.args[0].b  # type: ignore[attr-defined]
        most, safe = _at_least(most, -_LARGEST)
        _need(safe == safe_sum, "rows that see nothing are neither 0 nor NaN")
        *lead, query, feature = axes
        added, along = self._reduced(whole, axes[:-1], Add, 0.0, "the sum of weights")
        added = self._expanded(added)
        _need(structural_equal(substitute(added, {along: step}), exp), "what divides weights is not their sum")
        largest, along = self._reduced(most, axes[:-1], Max, float("-inf"), "the maximum")
        _need(
            structural_equal(substitute(self._expanded(largest), {along: step}), score),
            "what is subtracted from scores is not their maximum",
        )
        keys, queries = self.lengths[step], extents[query]
        raw, since, until = _range_of(score, step, query)
        since = None if since is None or since <= 1 - queries else since
        until = None if until is None or until >= keys - 1 else until
        products = [load for load in _loads(raw) if self._is_sum(load)]
        _need(bool(products), "scores are of no product")
        _need(all(_same(load.indices, (*lead, query, step)) for load in products), "scores are of another product")
        _need(all(load.buffer is products[0].buffer for load in products), "scores are of several products")
        left, right, deep = self._product(products[0], (*lead, query, step))
        (q, qi), (k, ki) = self._operand(left, narrow), self._operand(right, narrow)
        if any(uses_var(i, step) for i in qi):
            (q, qi), (k, ki) = (k, ki), (q, qi)
        of = [(*lead, query, deep), (*lead, step, deep), (*lead, step, feature), (*lead, query, feature)]
        arrays, places = (q, k, v, store.buffer), (qi, ki, vi, store.indices)
        for b, place, own in zip(arrays, places, of, strict=True):
            _check_rows(b, place, own, {**extents, **self.lengths})
        _need(store.buffer not in arrays[:3], f"{store.buffer.name} is an operand as well")
        product = Var("product", "float32")
        own_score, scale = None, _scale(raw)
        if scale is None:
            scale = 1.0
            known = set(products)
            own_score = transform(raw, post=lambda n: product if n in known else None)
            _check_lanes(own_score, {*lead, query, step, product})
            if since is not None or until is not None:
                within = {**extents, **self.lengths}
                _need(all(_inside(load, within) for load in _loads(own_score)), "a mask is read under a condition")
        read = {load.buffer for load in _loads(own_score)} if own_score is not None else set()
        first = next(n for n, r in enumerate(self.order) if r in self.used)
        late = [
            w.buffer
            for r in self.order[first : self.order.index(result)]
            for w in r.block.writes
            if r not in self.used and w.buffer in (*arrays[:3], *read)
        ]
        _need(not late, "an operand is written between its stages")
        inside = {w.buffer for r in self.used for w in r.block.writes} - {store.buffer}
        for b in inside:
            _need(
                b in self.inner and all(r in self.used for r in self.readers.get(b, ())), f"{b.name} is used elsewhere"
            )
        _need(store.buffer not in read, f"{store.buffer.name} is a mask as well")
        shape = AttentionShape(
            tuple([extents[n] for n in lead]), queries, keys, self.lengths[deep], extents[feature], str(narrow), scale, since, until,
            own_score is not None, safe, not _same(store.indices, axes),
        )  # fmt: skip
        names = tuple([r.block.name_hint for r in self.order if r in self.used])
        return AttentionStages(shape, arrays, names, tuple(of), places, own_score, product, (*lead, query, step))

    def _is_sum(self, load: BufferLoad) -> bool:
        """Return whether a reduction of these stages computes an array."""
        found = self._stage(load)
        return found is not None and any(iv.kind == IterVar.REDUCE for iv in found[0].block.iter_vars)

    def _operand(self, e: Expr, narrow: str) -> tuple[Buffer, tuple[Expr, ...]]:
        """Return the array of an operand, which is widened to float32, and its indices. Copies on the way are left out."""
        while True:
            load = e.value if isinstance(e, Cast) and e.dtype == "float32" else e
            _need(isinstance(load, BufferLoad) and load.predicate is None, "an operand is no array that is widened")
            assert isinstance(load, BufferLoad)
            found = self._stage(load) if len(self.readers.get(load.buffer, ())) == 1 else None
            if found is None or any(iv.kind == IterVar.REDUCE for iv in found[0].block.iter_vars):
                break
            realize, store, axes = found
            moved = store.value.value if isinstance(store.value, Cast) else store.value
            if not isinstance(moved, BufferLoad) or moved.predicate is not None or moved.buffer.dtype != narrow:
                break
            if store.value.dtype != narrow and (load is not e or store.value.dtype != "float32"):
                break
            self.used.append(realize)
            e = substitute(store.value, dict(zip(axes, load.indices, strict=True)))
            e = e if e.dtype == "float32" else e.astype("float32")
        _need(e is not load and load.buffer.dtype == narrow, f"an operand is no {narrow} that is widened")
        return load.buffer, load.indices

    def _store(self, realize: BlockRealize) -> BufferStore:
        body = realize.block.body
        _need(isinstance(body, BufferStore), f"block {realize.block.name_hint!r} is more than one store")
        assert isinstance(body, BufferStore)
        _need(len(self.writers.get(body.buffer, ())) == 1, f"{body.buffer.name} is written by several blocks")
        for iv in realize.block.iter_vars:
            _need(isinstance(iv.dom.min, IntImm) and iv.dom.min.value == 0, "an axis does not begin at 0")
        return body

    def _at_axes(self, realize: BlockRealize, store: BufferStore) -> tuple[Var, ...]:
        """Return the axes at which a block stores all elements of an array."""
        spatial = {iv.var: iv for iv in realize.block.iter_vars if iv.kind != IterVar.REDUCE}
        axes = [i for i in store.indices if isinstance(i, Var) and i in spatial]
        fits = len(axes) == len(store.indices) == len(spatial) == len(set(axes))
        whole = fits and all(
            _size(spatial[v].dom.extent) == _size(n) for v, n in zip(axes, store.buffer.shape, strict=True)
        )
        _need(
            whole,
            f"block {realize.block.name_hint!r} does not store all elements of {store.buffer.name}, each at its axes",
        )
        return tuple(axes)

    def _stage(self, load: Expr) -> tuple[BlockRealize, BufferStore, tuple[Var, ...]] | None:
        """Return the block that computes an array, its store and its axes.

        None: no block here computes it.
        """
        if not isinstance(load, BufferLoad) or load.buffer not in self.inner or load.predicate is not None:
            return None
        writers = self.writers.get(load.buffer, [])
        _need(len(writers) == 1, f"{load.buffer.name} is not written by one block")
        store = self._store(writers[0])
        return writers[0], store, self._at_axes(writers[0], store)

    def _expanded(self, e: Expr) -> Expr:
        """Return an expression with element-wise stages in place of their arrays."""
        found = self._stage(e)
        if found is not None and not any(iv.kind == IterVar.REDUCE for iv in found[0].block.iter_vars):
            realize, store, axes = found
            if realize not in self.used:
                self.used.append(realize)
            assert isinstance(e, BufferLoad)
            return self._expanded(substitute(store.value, dict(zip(axes, e.indices, strict=True))))
        if isinstance(e, BufferLoad):
            return e
        return e.map_children(lambda c: self._expanded(c) if isinstance(c, Expr) else c)

    def _reduced(self, e: Expr, at: Sequence[Var], combine: type, start: float, what: str) -> tuple[Expr, Var]:
        """Return what a reduction at ``at`` combines, and its axis."""
        found = self._stage(e)
        _need(found is not None and isinstance(e, BufferLoad) and _same(e.indices, at), f"{what} is none of a row")
        assert found is not None
        realize, store, axes = found
        reduce = [iv.var for iv in realize.block.iter_vars if iv.kind == IterVar.REDUCE]
        init, update = realize.block.init, store.value
        starts = isinstance(init, BufferStore) and isinstance(init.value, FloatImm) and init.value.value == start
        _need(len(reduce) == 1 and starts and type(update) is combine, f"{what} is no reduction over one axis")
        first, term = update.a, update.b  # type: ignore[attr-defined]
        _need(
            isinstance(first, BufferLoad) and first.buffer is store.buffer and _same(first.indices, store.indices),
            f"{what} adds up otherwise",
        )
        if realize not in self.used:
            self.used.append(realize)
        axis = Var(reduce[0].name, reduce[0].dtype)
        self.lengths[axis] = _size(next(iv.dom.extent for iv in realize.block.iter_vars if iv.var is reduce[0]))
        return substitute(term, {**dict(zip(axes, at, strict=True)), reduce[0]: axis}), axis

    def _product(self, e: Expr, at: Sequence[Var]) -> tuple[Expr, Expr, Var]:
        """Return the factors of a sum of products at ``at``, and its axis."""
        term, axis = self._reduced(e, at, Add, 0.0, "a product")
        _need(isinstance(term, Mul), "a sum is not that of products")
        assert isinstance(term, Mul)
        return term.a, term.b, axis


def _need(holds: bool, why: str) -> None:
    if not holds:
        raise _Unlike(why)


def _size(e: Expr) -> int:
    _need(isinstance(e, IntImm), "sizes are no constants")
    return e.value  # type: ignore[attr-defined]


def _same(a: Sequence[Expr], b: Sequence[Expr]) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


_LARGEST = float(np.finfo(np.float32).max)


def _at_least(e: Expr, least: float) -> tuple[Expr, bool]:
    """Return what ``max(e, least)`` bounds, and whether there is such a bound."""
    bounded = isinstance(e, Max) and isinstance(e.b, FloatImm) and e.b.value == least
    return (e.a, True) if bounded else (e, False)  # type: ignore[attr-defined]


def _rounded(e: Expr, narrow: str) -> Expr:
    """Return weights without their rounding to the operands' type."""
    if isinstance(e, Cast) and e.dtype == "float32" and isinstance(e.value, Cast) and e.value.dtype == narrow:
        return e.value.value
    return e


def _loads(e: Expr) -> list[BufferLoad]:
    return [n for n in pre_order(e) if isinstance(n, BufferLoad)]


def _check_rows(buffer: Buffer, place: Sequence[Expr], axes: Sequence[Var], extents: Mapping[Var, int]) -> None:
    """Raise _Unlike unless the features of an array are neighbours in memory. Eight of them begin at a multiple of 16 bytes."""
    feature, known, sizes = axes[-1], set(axes), [_size(n) for n in buffer.shape]
    name = buffer.name
    _need(not buffer.strides, f"{name} has strides")
    _need(not any(reads_memory(i) for i in place), f"{name} is read at places from memory")
    _need(all(v in known for i in place for v in vars_in(i)), f"{name} is not accessed at a row and a feature alone")
    analyzer = Analyzer()
    for v in axes:
        analyzer.bind(v, Range.from_extent(extents[v]))
    start = analyzer.simplify(place[-1] - feature) if place else feature
    _need(
        not uses_var(start, feature) and not any(uses_var(i, feature) for i in place[:-1]),
        f"the features of {name} are no neighbours",
    )
    whole = sizes[-1] % PIECE == 0 and analyzer.can_prove_equal(start % PIECE, const(0, start.dtype))
    _need(whole, f"the features of {name} do not begin at multiples of 16 bytes")


_ARITHMETIC = (
    Add, Sub, Mul, Div, FloorDiv, FloorMod, Min, Max, LT, LE, GT, GE, EQ, NE, And, Or, Not, Cast, Select, BufferLoad, IntImm, FloatImm, Var, Call,
)  # fmt: skip


def _check_lanes(score: Expr, known: set[Var]) -> None:
    """Raise _Unlike unless all numbers of a tile of scores can be computed side by side."""
    for n in pre_order(score):
        _need(isinstance(n, _ARITHMETIC), f"scores are made by {type(n).__name__}")
        _need(not isinstance(n, Var) or n in known, "scores depend on something else than a query and a key")
        _need(not isinstance(n, BufferLoad) or n.predicate is None, "a mask is read under a condition")
        if isinstance(n, Call):
            chosen = n.op == "tir.if_then_else"
            _need(chosen or lanes_of_call(n) == Lanes.EACH, f"scores are made by {n.op}")
            _need(not chosen or not any(_loads(a) for a in n.args[1:]), "a mask is read under a condition")


def in_lanes(e: Expr, values: Mapping[Var, Expr], lanes: int) -> Expr:
    """Return a vector with an expression in each lane. The ``values`` of its variables are vectors or the same in all lanes."""

    def wide(n: Expr) -> Expr:
        if not any(values[v].dtype.lanes > 1 for v in vars_in(n)):
            return Broadcast(substitute(n, {v: values[v].astype(v.dtype) for v in vars_in(n)}), lanes)
        if isinstance(n, Var):
            value = values[n]
            return value if value.dtype.element == n.dtype else Cast(n.dtype.with_lanes(lanes), value)
        if isinstance(n, BufferLoad):
            return BufferLoad(n.buffer, tuple([wide(i) for i in n.indices]))
        if isinstance(n, Cast):
            return Cast(n.dtype.with_lanes(lanes), wide(n.value))
        if isinstance(n, Call):
            args = [wide(a) for a in n.args]
            return Select(*args) if n.op == "tir.if_then_else" else Call(n.op, tuple(args), n.dtype.with_lanes(lanes))
        return n.map_children(wide)

    return wide(e)


def _quotient(e: Expr) -> tuple[Expr, Expr]:
    """Return the dividend and the divisor of ``a / b`` and of ``a * (1 / b)``."""
    if isinstance(e, Div):
        return e.a, e.b
    _need(isinstance(e, Mul), "weights are not divided by their sum")
    assert isinstance(e, Mul)
    for a, b in ((e.a, e.b), (e.b, e.a)):
        if isinstance(b, Div) and isinstance(b.a, FloatImm) and b.a.value == 1.0:
            return a, b.b
    raise _Unlike("weights are not divided by their sum")


def _range_of(score: Expr, key: Var, query: Var) -> tuple[Expr, int | None, int | None]:
    """Return scores without the conditions ``query + since <= key`` and ``key <= query + until``, then since and until."""
    since: int | None = None
    until: int | None = None
    others: list[Expr] = []
    while isinstance(score, Select) or (isinstance(score, Call) and score.op == "tir.if_then_else"):
        sees, value, never = (
            (score.condition, score.true_value, score.false_value) if isinstance(score, Select) else score.args
        )
        hidden = _is_never(value)
        if not hidden and not _is_never(never):
            break
        for part in _parts(sees, hidden):
            found = _bound(part, key, query)
            if found is None:
                others.append(part)
            elif found[0] > 0:
                until = found[1] if until is None else min(until, found[1])
            else:
                since = -found[1] if since is None else max(since, -found[1])
        score = never if hidden else value
    for part in reversed(others):
        score = if_then_else(part, score, const(float("-inf"), score.dtype))
    return score, since, until


def _inside(load: BufferLoad, extents: Mapping[Var, int]) -> bool:
    """Return whether all indices of a load are proven to be inside of its array."""
    analyzer = Analyzer()
    for v, n in extents.items():
        analyzer.bind(v, Range.from_extent(n))
    return all(
        analyzer.can_prove(i >= 0) and analyzer.can_prove(i < n)
        for i, n in zip(load.indices, load.buffer.shape, strict=True)
    )


def _is_never(e: Expr) -> bool:
    return isinstance(e, FloatImm) and e.value == -math.inf


_NEGATED = ((LT, GE), (GE, LT), (LE, GT), (GT, LE), (EQ, NE), (NE, EQ))


def _parts(e: Expr, negated: bool) -> list[Expr]:
    """Return the conditions that hold together where a condition holds, or where it does not."""
    if isinstance(e, Not):
        return _parts(e.a, not negated)
    if isinstance(e, Or if negated else And):
        return [*_parts(e.a, negated), *_parts(e.b, negated)]
    if not negated:
        return [e]
    other = next((opposite for kind, opposite in _NEGATED if isinstance(e, kind)), None)
    if other is not None and isinstance(e, CmpOp) and not e.a.dtype.is_float:
        return [other(e.a, e.b)]
    return [Not(e)]


def _bound(e: Expr, key: Var, query: Var) -> tuple[int, int] | None:
    """Return sign and bound where a condition is ``sign * (key - query) <= bound``, or None."""
    if not isinstance(e, (LT, LE, GT, GE)) or not e.a.dtype.is_int:
        return None
    less, more = (e.a, e.b) if isinstance(e, (LT, LE)) else (e.b, e.a)
    for sign in (1, -1):
        apart = key - query if sign > 0 else query - key
        rest = Analyzer().simplify(more - less + apart)
        if isinstance(rest, IntImm):
            return sign, rest.value - isinstance(e, (LT, GT))
    return None


def _scale(e: Expr) -> float | None:
    """Return the factor of products that scores are; None where they are something else."""
    if isinstance(e, Mul):
        for a, b in ((e.a, e.b), (e.b, e.a)):
            if isinstance(a, BufferLoad) and isinstance(b, FloatImm) and 0 < b.value < math.inf:
                return b.value
    return 1.0 if isinstance(e, BufferLoad) else None
