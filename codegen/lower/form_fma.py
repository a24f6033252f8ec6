"""Fuses multiplications with additions where the target has the instruction."""

from __future__ import annotations

from ...tir.expr import Add, Call, Expr, FloatImm, Mul, Sub, const
from ...tir.expr.node import Node
from ...tir.stmt import PrimFunc
from ...tir.walk import transform
from ..machine.target import Target


def form_fma(func: PrimFunc, target: Target) -> PrimFunc:
    """Replace ``a * b + c`` of float32 and float64 by ``fma(a, b, c)``, which is rounded once.

    Before::

        C[0] = C[0] + A[0] * B[0]

    After::

        C[0] = T.fma(A[0], B[0], C[0])
    """
    if not target.has_fma:
        return func

    def fused(product: Expr, addend: Expr) -> Expr | None:
        if isinstance(product, Mul):
            return Call("tir.fma", (product.a, product.b, addend), addend.dtype)
        return None

    def post(n: Node) -> Node | None:
        if isinstance(n, (Add, Sub)) and n.dtype.is_float and n.dtype.bits in (32, 64):
            if isinstance(n, Add):
                left = fused(n.b, n.a)
                return left if left is not None else fused(n.a, n.b)
            if isinstance(n.b, Mul):
                return Call("tir.fma", (_negated(n.b.a), n.b.b, n.a), n.dtype)
            if isinstance(n.a, Mul):
                return Call("tir.fma", (n.a.a, n.a.b, _negated(n.b)), n.dtype)
        return None

    return transform(func, post=post)


def _negated(e: Expr) -> Expr:
    """Returns ``-e``, exact for every value and sign of zero."""
    if isinstance(e, FloatImm):
        return FloatImm(-e.value, e.dtype)
    return Mul(e, const(-1.0, e.dtype))
