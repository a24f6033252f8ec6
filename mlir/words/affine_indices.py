"""This module converts index expressions to affine expressions and back, where that is exact in both directions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir.affine import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
    AffineSymExpr,
)

from ...tir.expr import Add, DType, Expr, FloorDiv, FloorMod, IntImm, Mul, Sub, Var, const, same
from .mlir_error import MlirError


def affine_map(indices: Sequence[Expr], dims: Sequence[Var], symbols: Sequence[Var] = ()) -> AffineMap | None:
    """Returns the map of indices over variables; None where :func:`from_affine` would not give the same indices back."""
    places: dict[Var, AffineExpr] = {v: AffineExpr.dimension(n) for n, v in enumerate(dims)}
    places.update({v: AffineExpr.symbol(n) for n, v in enumerate(symbols)})
    out = []
    for index in indices:
        found = _affine(index, places)
        if found is None or not same(from_affine(found, dims, symbols, index.dtype), index):
            return None
        out.append(found)
    return AffineMap(len(dims), len(symbols), tuple(out))


def _affine(e: Expr, places: Mapping[Var, AffineExpr]) -> AffineExpr | None:
    if isinstance(e, Var):
        return places.get(e)
    if isinstance(e, IntImm):
        return AffineExpr.constant(e.value)
    if not isinstance(e, (Add, Sub, Mul)):
        return None
    a, b = _affine(e.a, places), _affine(e.b, places)
    if a is None or b is None:
        return None
    if isinstance(e, Add):
        return a + b
    if isinstance(b, AffineConstantExpr):
        return a * b if isinstance(e, Mul) else a + -b.value
    return None


def from_affine(e: AffineExpr, dims: Sequence[Expr], symbols: Sequence[Expr], dtype: DType) -> Expr:
    """Returns an affine expression over values of its dimensions and symbols."""
    if isinstance(e, AffineConstantExpr):
        return const(e.value, dtype)
    if isinstance(e, AffineDimExpr):
        return dims[e.position]
    if isinstance(e, AffineSymExpr):
        return symbols[e.position]
    assert isinstance(e, AffineBinaryOpExpr)
    a = from_affine(e.lhs, dims, symbols, dtype)
    if e.kind is AffineBinaryOpKind.Add and isinstance(e.rhs, AffineConstantExpr) and e.rhs.value < 0:
        return restored(a, -e.rhs.value, Sub)
    if e.kind is AffineBinaryOpKind.Add and isinstance(e.rhs, AffineConstantExpr):
        return restored(a, e.rhs.value, Add)
    b = from_affine(e.rhs, dims, symbols, dtype)
    if e.kind is AffineBinaryOpKind.CeilDiv:
        return FloorDiv(Add(a, Sub(b, const(1, b.dtype))), b)
    nodes = {
        AffineBinaryOpKind.Add: Add,
        AffineBinaryOpKind.Mul: Mul,
        AffineBinaryOpKind.FloorDiv: FloorDiv,
        AffineBinaryOpKind.Mod: FloorMod,
    }
    return nodes[e.kind](a, b)


def restored(a: Expr, number: int, node: type[Add] | type[Sub]) -> Expr:
    """Returns ``a + number`` or ``a - number``; ``x`` where ``a`` is ``x`` with the number taken away or added."""
    opposite = Sub if node is Add else Add
    if isinstance(a, opposite) and isinstance(a.b, IntImm) and a.b.value == number:
        return a.a
    return node(a, const(number, a.dtype))


def plain_dim(e: AffineExpr) -> int | None:
    """Returns the number of the dimension that an expression is, None for any other expression."""
    return e.position if isinstance(e, AffineDimExpr) else None


def evaluated(map_: AffineMap, dims: Sequence[Expr], symbols: Sequence[Expr], dtype: DType) -> tuple[Expr, ...]:
    """Returns the results of a map. MlirError when it takes another number of values."""
    if len(dims) != map_.num_dims or len(symbols) != map_.num_symbols:
        raise MlirError(
            f"{map_} takes {map_.num_dims} and {map_.num_symbols} values, not {len(dims)} and {len(symbols)}"
        )
    return tuple([from_affine(e, dims, symbols, dtype) for e in map_.results])
