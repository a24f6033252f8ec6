"""Finds what statements may write, and which calls leave the program."""

from __future__ import annotations

from ...tir.expr import BufferLoad, Call, Expr, Var
from ...tir.expr.base.node import Node
from ...tir.expr.intrinsics import Effect, effect_of
from ...tir.stmt import Buffer, BufferStore, Stmt, statements_in
from ...tir.walk import pre_order
from ..lowered import REGISTER_SCOPE


class Effects:
    """What statements may write, found once for each of them."""

    def __init__(self, calls_out: bool) -> None:
        self.calls_out = calls_out
        """Whether the function holds calls that may write through a pointer."""
        self._known: dict[int, tuple[Stmt, frozenset[Buffer], frozenset[Var]]] = {}

    def of(self, s: Stmt) -> tuple[frozenset[Buffer], frozenset[Var]]:
        """Return the register values and the data pointers that ``s`` may write."""
        known = self._known.get(id(s))
        if known is not None:
            return known[1], known[2]
        registers: set[Buffer] = set()
        memory: set[Var] = set()
        for child in statements_in(s):
            if type(child) is BufferStore and not self.calls_out:
                _add_target(child, registers, memory)
            else:
                r, m = self.of(child)
                registers |= r
                memory |= m
        if self.calls_out:
            for part in s.children():
                if isinstance(part, Expr):
                    memory |= _written_by_calls(part)
        if isinstance(s, BufferStore):
            _add_target(s, registers, memory)
        found = (s, frozenset(registers), frozenset(memory))
        self._known[id(s)] = found
        return found[1], found[2]


def _add_target(s: BufferStore, registers: set[Buffer], memory: set[Var]) -> None:
    if s.buffer.scope == REGISTER_SCOPE:
        registers.add(s.buffer)
    else:
        memory.add(s.buffer.data)


def _written_by_calls(e: Expr) -> set[Var]:
    """Returns the data pointers through which calls inside an expression may write."""
    out: set[Var] = set()
    for n in pre_order(e, lambda n: not (isinstance(n, Call) and effect_of(n) is Effect.READS)):
        if isinstance(n, Call) and effect_of(n) in (Effect.ADDRESS, Effect.WRITES):
            for inner in pre_order(n):
                if isinstance(inner, BufferLoad):
                    out.add(inner.buffer.data)
                elif isinstance(inner, Var) and inner.dtype == "handle":
                    out.add(inner)
    return out


def is_external_call(e: Node) -> bool:
    """Returns whether a node calls a function from outside the program."""
    return isinstance(e, Call) and e.op.startswith(("tir.call_extern", "tir.call_pure_extern"))
