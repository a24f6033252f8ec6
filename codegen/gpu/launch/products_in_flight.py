"""Products of warp groups that go on beside the threads until the next step of a pipeline waits for them."""

from __future__ import annotations

from ....tir.expr import Call, IntImm, const
from ....tir.expr.base.node import Node
from ....tir.stmt import AttrStmt, BufferStore, For, IfThenElse, SeqStmt, Stmt, seq
from ....tir.walk import statements, transform
from .thread_axes import GpuError

WAIT = "tir.wgmma_wait"


def has_products(s: Stmt) -> bool:
    """Returns whether a statement waits for products."""
    return any(_waits(n) for n in statements(s))


def _waits(s: Node) -> bool:
    return isinstance(s, BufferStore) and isinstance(s.value, Call) and s.value.op == WAIT


def in_flight(s: Stmt) -> Stmt:
    """Returns ``s``, whose waits leave the last group of products to the next one."""

    def post(n: Node) -> Node | None:
        if not isinstance(n, Call) or n.op != WAIT or not (isinstance(n.args[1], IntImm) and n.args[1].value == 0):
            return None
        return Call(WAIT, (n.args[0], const(1, n.args[1].dtype)), n.dtype)

    return transform(s, post=post)


def last_waits(s: Stmt) -> Stmt:
    """Returns the waits of ``s`` alone, for all products.

    GpuError for other statements than products under loops and conditions.
    """
    if isinstance(s, SeqStmt):
        return seq(*[last_waits(child) for child in s.seq if has_products(child)])
    if isinstance(s, (For, AttrStmt)):
        return s.with_(body=last_waits(s.body))
    if isinstance(s, IfThenElse) and s.else_case is None:
        return s.with_(then_case=last_waits(s.then_case))
    if not _waits(s):
        raise GpuError(f"products in a {type(s).__name__} cannot go on during the next step of a pipeline")
    return s
