"""This module defines online_softmax, which computes attention in one kernel without its matrix of scores.

:func:`attention_in` finds attention in a function, whichever of its element-wise stages stand by themselves or are inlined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...tir.analysis.tree import Tree, blocks_below, tree_of, unique_block_name
from ...tir.arith import Analyzer
from ...tir.expr import (
    LE,
    Add,
    BufferLoad,
    Call,
    Cast,
    Div,
    Expr,
    FloatImm,
    IntImm,
    IterVar,
    Max,
    Mul,
    Range,
    Sub,
    Var,
    const,
    structural_equal,
)
from ...tir.expr.deep_recursion import with_room
from ...tir.stmt import Block, BlockRealize, Buffer, BufferRegion, BufferStore, PrimFunc, Stmt, replace_buffers
from ...tir.walk import substitute
from ..attention_kernel import AttentionShape, AttentionTiles, attention_kernel, unfit
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
    """Attention in a function. ``arrays``: query, key, value and result; ``blocks``: the names of its blocks in program order."""

    shape: AttentionShape
    arrays: tuple[Buffer, Buffer, Buffer, Buffer]
    blocks: tuple[str, ...]


class _Unlike(Exception):
    """Raised for a part of a function that is not that of attention; it says which."""


@primitive
def online_softmax(func: PrimFunc, block: str, groups: int = 2, keys: int = 128) -> tuple[PrimFunc, BlockRV]:
    """Compute attention, of which ``block`` stores the result, in one kernel on warp groups of sm_90a.

    The blocks before it compute ``softmax(q · kᵀ · scale) · v``, causal or not, of float16 or bfloat16, with sums in float32. The kernel
    keeps for each query the largest score so far and the sum of weights, and the matrix of scores exists only in tiles of ``keys`` keys in
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
            hint="it applies to te.ops.attention of float16 or bfloat16 without a mask",
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
    kernel = attention_kernel(found.shape, tiles)
    given = dict(zip(kernel.buffers, found.arrays, strict=True))
    body = replace_buffers(kernel.body, given)
    body = body.block.body if isinstance(body, BlockRealize) else body
    regions = [BufferRegion(b, tuple([Range.from_extent(n) for n in b.shape])) for b in found.arrays]
    name = unique_block_name(func, f"{block}_online")
    made = Block((), tuple(regions[:3]), tuple(regions[3:]), name, body)
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

    def attention(self, result: BlockRealize) -> AttentionStages:
        store = self._store(result)
        axes = self._at_axes(result, store)
        self.used.append(result)
        narrow = store.buffer.dtype
        total = store.value
        _need(isinstance(total, Cast) and total.dtype == narrow, "the result is no conversion of sums")
        assert isinstance(total, Cast)
        weight, value, step = self._product(self._expanded(total.value), axes)
        v, vi = _operand(value, narrow)
        exp, whole = _quotient(weight)
        _need(
            isinstance(exp, Call) and exp.op == "tir.exp" and isinstance(exp.args[0], Sub),
            "weights are no exp(score - maximum)",
        )
        score, most = exp.args[0].a, exp.args[0].b  # type: ignore[attr-defined]
        query = axes[:-1]
        _need(_same(vi, (*query[:-1], step, axes[-1])), "values are not read at a key and a feature")
        added, along = self._reduced(whole, query, Add, 0.0, "the sum of weights")
        _need(structural_equal(substitute(added, {along: step}), exp), "what divides weights is not their sum")
        largest, along = self._reduced(most, query, Max, float("-inf"), "the maximum")
        _need(
            structural_equal(substitute(largest, {along: step}), score),
            "what is subtracted from scores is not their maximum",
        )
        keys, queries = _size(v.shape[-2]), _size(store.buffer.shape[-2])
        raw, causal = _masked(score, step, query[-1], keys - queries)
        product, scale = _scaled(raw)
        left, right, feature = self._product(product, (*query, step))
        (q, qi), (k, ki) = _operand(left, narrow), _operand(right, narrow)
        if not _same(qi, (*query, feature)):
            (q, qi), (k, ki) = (k, ki), (q, qi)
        _need(
            _same(qi, (*query, feature)) and _same(ki, (*query[:-1], step, feature)),
            "scores are not of a query and a key",
        )
        arrays = (q, k, v, store.buffer)
        _need(not any(b.strides for b in arrays), "an operand has strides")
        lead = tuple([_size(n) for n in store.buffer.shape[:-2]])
        expected = ((queries, _size(q.shape[-1])), (keys, _size(q.shape[-1])), (keys, _size(store.buffer.shape[-1])))
        for b, sizes in zip(arrays[:3], expected, strict=True):
            _need(tuple([_size(n) for n in b.shape]) == (*lead, *sizes), f"the shape of {b.name} is another one")
        _need(store.buffer not in arrays[:3], f"{store.buffer.name} is an operand as well")
        first = next(n for n, r in enumerate(self.order) if r in self.used)
        late = [
            w.buffer
            for r in self.order[first : self.order.index(result)]
            for w in r.block.writes
            if w.buffer in arrays[:3]
        ]
        _need(not late, "an operand is written between its stages")
        inside = {w.buffer for r in self.used for w in r.block.writes} - {store.buffer}
        for b in inside:
            _need(
                b in self.inner and all(r in self.used for r in self.readers.get(b, ())), f"{b.name} is used elsewhere"
            )
        shape = AttentionShape(
            lead, queries, keys, _size(q.shape[-1]), _size(store.buffer.shape[-1]), str(narrow), scale, causal
        )
        return AttentionStages(shape, arrays, tuple([r.block.name_hint for r in self.order if r in self.used]))

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
        return self._expanded(substitute(term, {**dict(zip(axes, at, strict=True)), reduce[0]: axis})), axis

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


def _operand(e: Expr, narrow: str) -> tuple[Buffer, tuple[Expr, ...]]:
    """Return the array of an operand, which is widened to float32, and its indices."""
    plain = (
        isinstance(e, Cast) and e.dtype == "float32" and isinstance(e.value, BufferLoad) and e.value.predicate is None
    )
    _need(plain and e.value.dtype == narrow, f"an operand is no {narrow} that is widened")  # type: ignore[attr-defined]
    return e.value.buffer, e.value.indices  # type: ignore[attr-defined]


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


def _masked(score: Expr, key: Var, query: Var, later: int) -> tuple[Expr, bool]:
    """Return the scores without the mask of causal attention, and whether there is one."""
    if not (isinstance(score, Call) and score.op == "tir.if_then_else"):
        return score, False
    sees, value, never = score.args
    _need(isinstance(never, FloatImm) and never.value == float("-inf"), "a mask has another value than -inf")
    causal = isinstance(sees, LE) and Analyzer().can_prove_equal(
        sees.b - sees.a, query + const(later, query.dtype) - key
    )
    _need(causal, "a mask is not that of causal attention")
    return value, True


def _scaled(e: Expr) -> tuple[Expr, float]:
    """Return a product of queries and keys, and its factor."""
    if isinstance(e, Mul):
        for a, b in ((e.a, e.b), (e.b, e.a)):
            if isinstance(b, FloatImm):
                return a, b.value
    _need(isinstance(e, BufferLoad), "scores are no product of queries and keys, times a constant")
    return e, 1.0
