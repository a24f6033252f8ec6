"""Lets blocks with the annotation ``atomic_update`` add to their results atomically, from threads of all blocks."""

from __future__ import annotations

from ....tir.analysis.reduction_updates import find_reducer, updates_of
from ....tir.annotations import ATOMIC
from ....tir.expr import BufferLoad, Call
from ....tir.expr.base.node import Node
from ....tir.expr.intrinsics.atomic_operations import ATOMIC_TYPES
from ....tir.stmt import Block, Evaluate, IfThenElse, PrimFunc, Stmt
from ....tir.walk import blocks_of, transform_statements
from .thread_axes import GpuError


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

    def post(n: Node) -> Node | None:
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
