"""Carries what one iteration of a loop stores, and the next one loads, in registers."""

from __future__ import annotations

from collections.abc import Sequence

from ...tir.arith import Analyzer
from ...tir.expr import (
    LT,
    NE,
    BinaryOp,
    Broadcast,
    BufferLoad,
    Call,
    Expr,
    IntImm,
    Ramp,
    Select,
    Shuffle,
    Var,
    const,
    is_const_int,
    reads_memory,
    structural_equal,
)
from ...tir.expr.node import IRNode
from ...tir.stmt import Allocate, Buffer, BufferStore, For, IfThenElse, PrimFunc, Stmt, children_of, seq
from ...tir.walk import fresh_copy, pre_order, substitute, transform, uses_var
from ..lowered import REGISTER_SCOPE
from .lanes import keeps_lanes
from .scoped_transform import ScopedTransform


def carry_recurrences(func: PrimFunc) -> PrimFunc:
    """Keep the last element of a recurrence in a register.

    Before::

        for t in range(1, 100):
            s[i, t] = s[i, t - 1] + x[i, t]

    After::

        carried[()] = s[i, 0]
        for t in range(1, 100):
            carried[()] = carried[()] + x[i, t]
            s[i, t] = carried[()]

    It applies to serial loops of a known number of iterations that hold nothing but stores, of which all to one array
    differ from iteration to iteration in one index, the loop's variable, in functions whose arrays do not overlap. What is
    stored to memory and loaded again costs three times the latency of the addition.

    Vectors under a mask are carried as well, where the mask is the same in all steps.

    Where the first step is told apart by a condition, as it is along an axis that may be empty, it comes before the loop.
    Before::

        for t in range(n):
            s[i, t] = T.if_then_else(t < 1, x[i, 0], s[i, t - 1] + x[i, t])

    After::

        if 0 < n:
            s[i, 0] = x[i, 0]
            carried[()] = s[i, 0]
            for t in range(1, n): ...

    Where a step is a vector that begins with the last lane of the one before, the register holds that lane, and waits for
    one combination in each step. Before::

        for t in range(61):
            s[16 * t + 1:16 * t + 17] = T.Broadcast(s[16 * t], 16) + sums(x, t)

    After::

        carried[()] = s[0]
        for t in range(61):
            terms[()] = sums(x, t)
            s[16 * t + 1:16 * t + 17] = T.Broadcast(carried[()], 16) + terms[()]
            carried[()] = carried[()] + T.Shuffle([terms[()]], [15])
    """
    return ScopedTransform({For: _carried}).function(func) if func.attrs.get("tir.noalias") else func


def _carried(loop: For, scope: ScopedTransform) -> Stmt | None:
    if loop.kind != "serial":
        return None
    lanes = _last_lane_carried(loop, scope)
    if lanes is not None:
        return lanes
    known = isinstance(loop.extent, IntImm) and loop.extent.value > 0
    if known and isinstance(loop.min, IntImm) and loop.min.value > 0:  # there is a step before the first one
        return _with_registers(loop, scope)
    if not is_const_int(loop.min, 0) or not any(_is_first_step(n, loop.loop_var) for n in pre_order(loop.body)):
        return None
    one = const(1, loop.loop_var.dtype)
    later = loop.with_(min=one, extent=loop.extent - one, body=_at_step(loop, first=False))
    rest = _last_lane_carried(later, scope, after_first=True) or _with_registers(later, scope)
    if rest is None:
        return None
    start = substitute(_at_step(loop, first=True), {loop.loop_var: loop.min})
    return IfThenElse(loop.extent > 0, seq(fresh_copy(scope.analyzer.simplify(start)), rest))


def _is_first_step(n: IRNode, var: Var) -> bool:
    """Returns whether a node tells the step 0 of a loop from the others."""
    return (
        isinstance(n, Call) and n.op == "tir.if_then_else" and isinstance(n.args[0], LT) and n.args[0].a is var
        and is_const_int(n.args[0].b, 1)
    )  # fmt: skip


def _at_step(loop: For, *, first: bool) -> Stmt:
    """Returns the body of a loop in its first step, or in all others."""

    def chosen(n: IRNode) -> IRNode | None:
        return n.args[1 if first else 2] if isinstance(n, Call) and _is_first_step(n, loop.loop_var) else None

    made: Stmt = transform(loop.body, post=chosen)
    return made


def _with_registers(loop: For, scope: ScopedTransform) -> Stmt | None:
    """Returns a loop whose step before the first one exists, with registers for what one step hands to the next."""
    parts = children_of(loop.body)
    stores = [s for s in parts if isinstance(s, BufferStore)]
    if len(stores) != len(parts):
        return None
    if any(isinstance(n, Call) and n.op.startswith("tir.call") for n in pre_order(loop.body)):
        return None
    held: list[tuple[BufferStore, tuple[Expr, ...], Buffer]] = []
    for store in stores:
        same = [s for s in stores if s.buffer.data is store.buffer.data]
        one = all(s.buffer is store.buffer for s in same) and _is_same_mask_in_all_steps(store, loop.loop_var)
        apart = all(s is store or _are_apart(s.indices, store.indices, scope.analyzer) for s in same)
        if one and apart and _are_at_step(same, loop.loop_var):
            before = _of_step_before(store.indices, loop.loop_var, scope.analyzer)
            if _loads(loop.body, store, before):
                name = f"{store.buffer.name}_carried"
                held.append((store, before, Buffer(name, (), store.value.dtype, REGISTER_SCOPE)))
    if not held:
        return None
    registers = {store: register for store, _, register in held}

    def carried(user: BufferStore, later: Sequence[BufferStore]) -> Expr:
        """Returns the value of a store with registers for what they hold until one of the ``later`` stores."""
        own = keeps_lanes(user.value)

        def post(n: IRNode) -> IRNode | None:
            if isinstance(n, BufferLoad):
                for store, before, register in held:
                    if any(store is s for s in later) and _is_load_of(n, store, before):
                        value, mask = BufferLoad(register, ()), n.predicate
                        if mask is None or (own and _is_same_mask(mask, user.predicate)):
                            return value
                        return Select(mask, value, const(0, value.dtype))
            return None

        made: Expr = transform(user.value, post=post)
        return made

    body: list[Stmt] = []
    for place, store in enumerate(stores):
        value = carried(store, stores[place:])
        if store in registers:
            body += [BufferStore(registers[store], value, ()), store.with_(value=BufferLoad(registers[store], ()))]
        else:
            body.append(store.with_(value=value))
    first = {loop.loop_var: loop.min}
    starts = []
    for store, before, register in held:
        start = tuple([scope.analyzer.simplify(substitute(i, first)) for i in before])
        starts.append(BufferStore(register, BufferLoad(store.buffer, start, store.predicate), ()))
    made: Stmt = seq(*starts, loop.with_(body=seq(*body)))
    for register in registers.values():
        made = Allocate(register, made)
    return made


def _last_lane_carried(loop: For, scope: ScopedTransform, *, after_first: bool = False) -> Stmt | None:
    """Returns a loop with a register for the last lane of each vector, with which the next one begins.

    ``after_first``: the step before the first one was taken, so that its last lane is there even if no other step is.
    """
    store, analyzer = loop.body, scope.analyzer
    if not (isinstance(store, BufferStore) and store.predicate is None and isinstance(store.value, BinaryOp)):
        return None
    old = store.value.a.value if isinstance(store.value.a, Broadcast) else None
    along = [d for d, i in enumerate(store.indices) if isinstance(i, Ramp)]
    if (
        not isinstance(old, BufferLoad)
        or old.buffer is not store.buffer
        or old.predicate is not None
        or len(along) != 1
    ):
        return None
    if sum(isinstance(n, BufferLoad) and n.buffer.data is store.buffer.data for n in pre_order(store.value)) != 1:
        return None
    if not after_first and not analyzer.can_prove(loop.extent > 0):
        return None
    ends = tuple([i.base + i.stride * (i.lanes - 1) if isinstance(i, Ramp) else i for i in store.indices])
    before = _of_step_before(ends, loop.loop_var, analyzer)
    if not all(analyzer.can_prove_equal(a, b) for a, b in zip(old.indices, before, strict=True)):
        return None
    combine, lanes = type(store.value), store.value.dtype.lanes
    carried = Buffer(f"{store.buffer.name}_carried", (), old.dtype, REGISTER_SCOPE)
    terms = Buffer(f"{store.buffer.name}_terms", (), store.value.dtype, REGISTER_SCOPE)
    first = tuple([analyzer.simplify(substitute(i, {loop.loop_var: loop.min})) for i in old.indices])
    held = BufferLoad(carried, ())
    body = seq(
        BufferStore(terms, store.value.b, ()),
        store.with_(value=combine(Broadcast(held, lanes), BufferLoad(terms, ()))),
        BufferStore(carried, combine(held, Shuffle((BufferLoad(terms, ()),), (lanes - 1,))), ()),
    )
    start = BufferStore(carried, BufferLoad(store.buffer, first), ())
    return Allocate(carried, seq(start, loop.with_(body=Allocate(terms, body))))


def _are_at_step(stores: Sequence[BufferStore], var: Var) -> bool:
    """Returns whether there is a dimension in which every store is at the loop's variable, which no other index uses."""
    return any(
        all(
            s.indices[d] is var and not any(uses_var(i, var) for n, i in enumerate(s.indices) if n != d) for s in stores
        )
        for d in range(stores[0].buffer.ndim)
    )


def _are_apart(a: Sequence[Expr], b: Sequence[Expr], analyzer: Analyzer) -> bool:
    """Returns whether two stores of one iteration write no element in common."""

    def differ(i: Expr, j: Expr) -> bool:
        if isinstance(i, Ramp) and isinstance(j, Ramp) and is_const_int(i.stride, 1) and is_const_int(j.stride, 1):
            return analyzer.can_prove(i.base + i.lanes <= j.base) or analyzer.can_prove(j.base + j.lanes <= i.base)
        return i.dtype.lanes == j.dtype.lanes == 1 and analyzer.can_prove(NE(i, j))

    return any(map(differ, a, b))


def _of_step_before(indices: Sequence[Expr], var: Var, analyzer: Analyzer) -> tuple[Expr, ...]:
    """Returns the indices of the iteration before; those without the variable stay as they are written."""
    return tuple([analyzer.simplify(substitute(i, {var: var - 1})) if uses_var(i, var) else i for i in indices])


def _loads(body: Stmt, store: BufferStore, before: Sequence[Expr]) -> bool:
    """Returns whether a body loads what a store wrote in the step before, and its array by one name."""
    found = [n for n in pre_order(body) if isinstance(n, BufferLoad) and n.buffer.data is store.buffer.data]
    return any(_is_load_of(n, store, before) for n in found) and all(n.buffer is store.buffer for n in found)


def _is_load_of(load: BufferLoad, store: BufferStore, before: Sequence[Expr]) -> bool:
    """Returns whether a load reads the lanes that a store wrote in the step before, at the indices ``before``."""
    return (
        load.buffer is store.buffer and _equal(load.indices, before) and _is_same_mask(load.predicate, store.predicate)
    )


def _is_same_mask_in_all_steps(store: BufferStore, var: Var) -> bool:
    """Returns whether a store writes the same lanes in all steps of a loop."""
    mask = store.predicate
    return mask is None or not (uses_var(mask, var) or reads_memory(mask))


def _is_same_mask(a: Expr | None, b: Expr | None) -> bool:
    return a is b or (a is not None and b is not None and structural_equal(a, b))


def _equal(a: Sequence[Expr], b: Sequence[Expr]) -> bool:
    return len(a) == len(b) and all(map(structural_equal, a, b))
