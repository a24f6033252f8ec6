"""Arithmetic on whole tiles, number by number, as arithmetic on the numbers that one thread holds.

Vectors of as many numbers as a tile have the same expressions as vectors of a thread: sums, products, choices, conversions. The leaves of
such an expression are tiles (buffers, results of operations on whole tiles), scalars that are the same in all numbers (``T.Broadcast``),
and numbers of elements (``T.Ramp``). Memory may be read at such numbers: each thread reads the elements for its own. :func:`elementwise` tells leaves from arithmetic, so that the simulated GPU evaluates it on arrays and
PTX has it once for each register.
"""

from __future__ import annotations

from ...tir.expr import Broadcast, BufferLoad, Call, Cast, Expr, FloatImm, IntImm, Let, Ramp, Var
from ...tir.expr.intrinsics import Lanes, lanes_of_call
from .launch_form import threads_of_scope


def elementwise(e: Expr) -> tuple[dict[Var, Expr], Expr]:
    """Returns the leaves of arithmetic on tiles by variables for one number of each, and the arithmetic on these."""
    leaves: dict[Var, Expr] = {}
    named: dict[Expr, Var] = {}
    inner: dict[Var, Var] = {}

    def one(n: Expr) -> Expr:
        if n.dtype.lanes == 1:
            return n
        if isinstance(n, Var):
            return inner[n] if n in inner else leaf(n)
        if isinstance(n, Let):
            inner[n.var] = Var(n.var.name, n.var.dtype.element)
            value = one(n.value)
            return Let(inner[n.var], value, one(n.body))
        if isinstance(n, Broadcast) and isinstance(n.value, (IntImm, FloatImm)):
            return n.value
        if is_leaf(n):
            return leaf(n)
        if isinstance(n, BufferLoad):
            return BufferLoad(n.buffer, tuple([one(i) for i in n.indices]))
        if isinstance(n, Cast):
            return Cast(n.dtype.element, one(n.value))
        if isinstance(n, Call):
            return Call(n.op, tuple([one(a) for a in n.args]), n.dtype.element)
        made = n.map_children(one)  # type: ignore[arg-type]
        assert isinstance(made, Expr)
        return made

    def leaf(n: Expr) -> Var:
        if n not in named:
            named[n] = Var("number", n.dtype.element)
            leaves[named[n]] = n
        return named[n]

    return leaves, one(e)


def is_leaf(e: Expr) -> bool:
    """Returns whether a vector is no arithmetic on others.

    It is a tile in registers, a scalar in all lanes, numbers of lanes, or the result of an operation on whole tiles.
    """
    if isinstance(e, Call):
        return lanes_of_call(e) in (Lanes.NEVER, Lanes.IN_ORDER)
    if isinstance(e, BufferLoad):
        return threads_of_scope(e.buffer.scope) > 0
    return isinstance(e, (Broadcast, Ramp, Var))
