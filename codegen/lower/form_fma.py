"""Fuses multiplications with additions where the target has the instruction."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from ...tir.expr import Add, BufferLoad, Call, Expr, FloatImm, Mul, Sub, const, value_key
from ...tir.expr.node import IRNode
from ...tir.stmt import BufferStore, For, PrimFunc
from ...tir.walk import distinct, pre_order, transform
from ..machine.target import Target
from .loop_annotations import HORIZONTAL


def form_fma(func: PrimFunc, target: Target) -> PrimFunc:
    """Replace ``a * b + c`` of float32 and float64 by ``fma(a, b, c)``, which is rounded once.

    Before::

        C[0] = C[0] + A[0] * B[0]

    After::

        C[0] = T.fma(A[0], B[0], C[0])

    A product that a statement uses at several places has one value at all of them, so it is rounded: ``p - p`` of
    ``p = a * b`` is 0, and ``p - floor(p)`` is not negative. Sums along the lanes of a vector stay sums, whose terms are computed
    side by side.
    """
    if not target.has_fma:
        return func
    shared = _used_repeatedly(func) | _added_along_lanes(func)

    def fused(product: Expr, addend: Expr) -> Expr | None:
        if isinstance(product, Mul) and product not in shared:
            return Call("tir.fma", (product.a, product.b, addend), addend.dtype)
        return None

    def post(n: IRNode) -> IRNode | None:
        if isinstance(n, (Add, Sub)) and n.dtype.is_float and n.dtype.bits in (32, 64):
            if isinstance(n, Add):
                left = fused(n.b, n.a)
                return left if left is not None else fused(n.a, n.b)
            if isinstance(n.b, Mul) and n.b not in shared:
                return Call("tir.fma", (_negated(n.b.a), n.b.b, n.a), n.dtype)
            if isinstance(n.a, Mul) and n.a not in shared:
                return Call("tir.fma", (n.a.a, n.a.b, _negated(n.b)), n.dtype)
        return None

    return transform(func, post=post)


def _added_along_lanes(func: PrimFunc) -> set[IRNode]:
    """Returns the products that horizontal sums and running sums add to what they have stored."""
    loops = [n for n in distinct(func.body) if isinstance(n, For) and HORIZONTAL in n.annotations]
    found: set[IRNode] = set()
    for store in {n for loop in loops for n in pre_order(loop.body) if isinstance(n, BufferStore)}:
        for n in pre_order(store.value):
            if isinstance(n, (Add, Sub)) and any(
                isinstance(e, BufferLoad) and e.buffer is store.buffer for e in (n.a, n.b)
            ):
                found |= {e for e in (n.a, n.b) if isinstance(e, Mul)}
    return found


def _used_repeatedly(func: PrimFunc) -> set[IRNode]:
    """Returns the products of floats that a statement uses at more than one place, as the nodes that they are."""
    out: set[IRNode] = set()
    for store in distinct(func.body):
        if isinstance(store, BufferStore) and store.value.dtype.is_float and _has_several(store.value):
            out |= _repeated(store.value)
    return out


def _has_several(value: Expr) -> bool:
    """Returns whether a value has a product at more than one place."""
    places = (n for n in pre_order(value) if type(n) is Mul)
    return next(places, None) is not None and next(places, None) is not None


def _repeated(value: Expr) -> set[IRNode]:
    numbers: dict[Hashable, int] = {}
    known: dict[IRNode, int] = {}
    uses: dict[int, int] = {}
    products: dict[int, set[IRNode]] = {}

    def number(e: Any) -> Any:
        """Returns a number that equal expressions share, and counts the uses by different ones."""
        if not isinstance(e, Expr):
            return e
        if e in known:
            return known[e]
        key = value_key(e, number)
        if key not in numbers:
            numbers[key] = len(numbers)
            for child in e.children():
                if not isinstance(child, Expr):
                    continue
                one = number(child)  # the key of a call with an effect does not number its operands
                if isinstance(child, Mul) and child.dtype.is_float:
                    uses[one] = uses.get(one, 0) + 1
        known[e] = numbers[key]
        if isinstance(e, Mul):
            products.setdefault(known[e], set()).add(e)
        return known[e]

    number(value)
    return {node for n, nodes in products.items() if uses.get(n, 0) > 1 for node in nodes}


def _negated(e: Expr) -> Expr:
    """Returns ``-e``, exact for every value and sign of zero."""
    if isinstance(e, FloatImm):
        return FloatImm(-e.value, e.dtype)
    return Mul(e, const(-1.0, e.dtype))
