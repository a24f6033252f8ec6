"""Adds to results atomically from threads of all blocks, and two neighbouring numbers of 16 bits at once."""

from __future__ import annotations

from ...tir.analysis.reductions import find_reducer, updates_of
from ...tir.annotations import ATOMIC
from ...tir.arith.normal_form.forms import Linear, collect
from ...tir.expr import BufferLoad, Call, Expr, IntImm, Var, const, vars_in
from ...tir.expr.intrinsics.control_and_memory import ATOMIC_TYPES, PAIR_TYPES
from ...tir.expr.node import IRNode
from ...tir.stmt import Block, Evaluate, For, IfThenElse, PrimFunc, Stmt
from ...tir.walk import blocks_of, substitute, transform_statements
from .launch_form import GpuError


def update_atomically(func: PrimFunc) -> PrimFunc:
    """Return ``func`` with atomic additions in annotated blocks.

    Before::

        for k in T.thread_binding(64, thread="blockIdx.x"):
            with T.block("B"):
                T.block_attr({"atomic_update": 1})
                B[vi] = B[vi] + P[vk, vi]

    After::

        for k in T.thread_binding(64, thread="blockIdx.x"):
            with T.block("B"):
                T.evaluate(T.atomic_add(T.address_of(B[vi]), P[vk, vi]))

    GpuError for an annotated block that still has its init (``decompose_reduction`` puts it in front), or that does something else than
    adding to one element of a type that is added atomically.
    """
    if not any(ATOMIC in realize.block.annotations for realize in blocks_of(func.body)):
        return func

    def post(n: IRNode) -> IRNode | None:
        if not isinstance(n, Block) or ATOMIC not in n.annotations:
            return None
        notes = {key: value for key, value in n.annotations.items() if key != ATOMIC}
        return n.with_(body=_added(n), annotations=notes)

    return transform_statements(func, post)


def _added(block: Block) -> Stmt:
    """Returns the body of a block with its addition as an operation."""

    def refused(why: str) -> GpuError:
        return GpuError(f"block {block.name_hint!r} cannot update its result atomically: {why}")

    if block.init is not None:
        raise refused("it has its init; decompose_reduction in front of the loop over blocks takes it out")
    found = updates_of(block.body)
    if isinstance(found, str) or len(found.stores) != 1:
        raise refused(found if isinstance(found, str) else "it has several results")
    (store,) = found.stores
    place = BufferLoad(store.buffer, store.indices)
    reducer = find_reducer(None, [place], [store.value])
    if reducer is None or reducer[0].name != "sum":
        raise refused("it does not add")
    if store.buffer.dtype not in ATOMIC_TYPES:
        raise refused(f"{store.buffer.dtype} is not added atomically; {', '.join(ATOMIC_TYPES)} are")
    if store.buffer.scope != "global":
        raise refused(f"{store.buffer.name} is in {store.buffer.scope} memory, and blocks share global memory")
    out: Stmt = Evaluate(Call("tir.atomic_add", (Call("tir.address_of", (place,), "handle"), reducer[1][0]), "void"))
    for condition in reversed(found.conditions):
        out = IfThenElse(condition, out)
    return out


# Adds two neighbouring numbers of 16 bits by one atomic instruction, where a vector loop adds them one by one.


def pair_atomics(func: PrimFunc) -> PrimFunc:
    """Return ``func`` with atomic additions of pairs in vector loops.

    Before (``B`` is float16)::

        for j in T.vectorized(4):
            T.atomic_add(T.address_of(B[i * 4 + j]), A[j])

    After::

        for j in range(2):
            T.atomic_add_pair(T.address_of(B[i * 4 + j * 2]), A[j * 2], A[j * 2 + 1])
    """

    def post(n: IRNode) -> Stmt | None:
        if not isinstance(n, For) or n.kind != "vectorized" or not isinstance(n.extent, IntImm) or n.extent.value % 2:
            return None
        call = n.body.value if isinstance(n.body, Evaluate) else None
        if not isinstance(call, Call) or call.op != "tir.atomic_add" or call.args[1].dtype not in PAIR_TYPES:
            return None
        place = call.args[0].args[0]  # type: ignore[attr-defined]
        if not isinstance(n.min, IntImm) or n.min.value or not _are_neighbours(place, n.loop_var):
            return None
        var = n.loop_var
        first, second = [{var: var * const(2, var.dtype) + k} for k in (0, 1)]
        values = [substitute(call.args[1], where) for where in (first, second)]
        added = Call("tir.atomic_add_pair", (substitute(call.args[0], first), *values), "void")
        return For(var, n.min, const(n.extent.value // 2, n.extent.dtype), "serial", Evaluate(added))

    return transform_statements(func, post)


def _are_neighbours(place: BufferLoad, lane: Var) -> bool:
    """Returns whether elements lie side by side from an even one on, lane by lane."""
    total = Linear()
    for index, stride in zip(place.indices, place.buffer.element_strides(), strict=True):
        form = collect(index, _term)
        if form is None or not isinstance(stride, IntImm):
            return False
        total = total.plus(form.times(stride.value))
    within = {t: c for t, c in total.terms.items() if lane in vars_in(t)}
    others = [total.const, *[c for t, c in total.terms.items() if t is not lane]]
    return within == {lane: 1} and not any(c % 2 for c in others)


def _term(e: Expr) -> Linear:
    return Linear(0, {e: 1})
