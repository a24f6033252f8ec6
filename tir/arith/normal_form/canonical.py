"""This module converts expressions to normal forms and back.

Scalars of type int32 and int64 become polynomials (:meth:`Canonical.poly`); everything else is simplified as a tree by
the analyzer's rules. :meth:`Canonical.simp` is the entry; results are kept per node until a new fact
is learned.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from ...expr import (
    INDEX_TYPES,
    Add,
    BinaryOp,
    Call,
    Cast,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mul,
    Select,
    StringImm,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
    logical_not,
    make_binary,
    match_types,
    max_value,
    same,
    value_key,
)
from ...expr.traversal import reads_memory, substitute, uses_var
from .facts import Facts
from .floor_division import floordiv, floormod, join_splits, minimum
from .interval import Interval, interval_of
from .polynomial import ONE, Poly, add, const_of, constant, mul, poly_key, scale


class Canonical(Facts):
    """Converts index expressions to polynomials and back."""

    def __init__(self) -> None:
        super().__init__()
        self._poly_memo: dict[Expr, Poly] = {}
        self._simp_memo: dict[Any, Any] = {}

    def simp(self, e: Any) -> Any:
        """Return ``e`` simplified; the same object when nothing changes."""
        if type(e) in _CONSTANTS:
            return e
        if e in self._simp_memo:
            return self._simp_memo[e]
        if isinstance(e, Expr) and (dtype := e.dtype) in INDEX_TYPES:
            new = self.to_expr(self.poly(e), dtype)
            out = e if new is e or new.dtype != dtype or same(new, e) else new
        else:
            out = self.simp_tree(e)
        self._simp_memo[e] = out
        return out

    def simp_tree(self, e: Any) -> Any:
        """Return ``e`` simplified, for everything that is not index arithmetic."""
        raise NotImplementedError

    def poly(self, e: Expr) -> Poly:
        """Return the normal form of an int32 or int64 scalar."""
        if type(e) is IntImm:
            return {ONE: e.value} if e.value else {}
        if e in self._poly_memo:
            return self._poly_memo[e]
        p = _CONVERT[type(e)](self, e) if type(e) in _CONVERT else self._opaque(e)
        self._poly_memo[e] = p
        return p

    def poly_given(self, condition: Expr, e: Expr) -> Poly:
        """Return the normal form of ``e`` where ``condition`` holds."""
        return self.poly(e)

    def var_poly(self, e: Var) -> Poly:
        """Return the normal form of a variable; a constant when it has only one possible value."""
        a = self.var_atom(e)
        lo, hi = self.atom_bound(a)
        if lo is not None and lo == hi:
            return constant(lo)
        return {(a,): 1}

    def _add(self, e: Add) -> Poly:
        p, q = self.poly(e.a), self.poly(e.b)
        return join_splits(self, add(p, q)) if any(p) or any(q) else self._folded(e, p, q)

    def _sub(self, e: Sub) -> Poly:
        p, q = self.poly(e.a), self.poly(e.b)
        return join_splits(self, add(p, q, -1)) if any(p) or any(q) else self._folded(e, p, q)

    def _mul(self, e: Mul) -> Poly:
        p, q = self.poly(e.a), self.poly(e.b)
        return mul(p, q) if any(p) or any(q) else self._folded(e, p, q)

    def _folded(self, e: BinaryOp, p: Poly, q: Poly) -> Poly:
        """Return the result for two constants, which wraps around if they are data."""
        made = make_binary(type(e), *[IntImm(c.get(ONE, 0), e.dtype) for c in (p, q)])
        assert isinstance(made, IntImm)
        return constant(made.value)

    def _operands(self, e: BinaryOp) -> tuple[Poly, Poly] | None:
        """Return both normal forms when the machine's values are the mathematical ones, else None."""
        p, q = self.poly(e.a), self.poly(e.b)
        return (p, q) if self.exact(p, e.dtype) and self.exact(q, e.dtype) else None

    def _division(self, e: FloorDiv | FloorMod) -> Poly:
        pair = self._operands(e)
        if pair is None or not self._divides(*pair, e.dtype):
            return self._opaque(e)
        compute = floordiv if type(e) is FloorDiv else floormod
        return join_splits(self, compute(self, pair[0], pair[1], e.dtype))

    def _divides(self, p: Poly, q: Poly, dtype: str) -> bool:
        """Return whether the rules of division hold for p // q.

        They do when q is not zero (data may be zero, an index never is) and, for a negative constant q, when -p and -q
        fit the type as well.
        """
        c = const_of(q)
        if c is None:
            return not self.data(q) or (self.bound(q)[0] or 0) > 0
        return c > 0 or (c < 0 and -c <= max_value(dtype) and self.exact(scale(p, -1), dtype))

    def _trunc(self, e: TruncDiv | TruncMod) -> Poly:
        pair = self._operands(e)
        if pair is None or const_of(pair[1]) == 0:
            return self._opaque(e)
        p, q = pair
        lo = self.bound(q)[0]
        if lo is not None and lo > 0 and self.nonneg(p):  # both kinds of rounding give the same
            return (floordiv if type(e) is TruncDiv else floormod)(self, p, q, e.dtype)
        a, b = const_of(p), const_of(q)
        if a is not None and b is not None:
            quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            value = quotient if type(e) is TruncDiv else a - quotient * b
            return constant(value)
        return self._opaque(e, "truncdiv" if type(e) is TruncDiv else "truncmod", pair)

    def _extreme(self, e: Min | Max) -> Poly:
        pair = self._operands(e)
        if pair is None:
            return self._opaque(e)
        return minimum(self, pair[0], pair[1], e.dtype, "min" if type(e) is Min else "max")

    def _choice(self, e: Expr, condition: Expr, a: Expr, b: Expr, lazy: bool) -> Poly:
        condition = self.simp(condition)
        if isinstance(condition, IntImm):
            return self.poly(a if condition.value else b)
        if lazy:
            p, q = self.poly_given(condition, a), self.poly_given(logical_not(condition), b)
        else:
            p, q = self.poly(a), self.poly(b)
        if p == q:
            return p
        make: Callable[[], Expr]
        sa, sb = match_types(self.to_expr(p, e.dtype), self.to_expr(q, e.dtype))
        if lazy:
            make = lambda: Call("tir.if_then_else", (condition, sa, sb), sa.dtype)  # noqa: E731
        else:
            make = lambda: Select(condition, sa, sb)  # noqa: E731
        key = ("choice", lazy, self.key(condition), poly_key(p), poly_key(q), e.dtype)
        data = self.data(p) or self.data(q) or reads_memory(condition)
        return self.intern(key, "choice", (p, q), e.dtype, make, data, condition)

    def _select(self, e: Select) -> Poly:
        return self._choice(e, e.condition, e.true_value, e.false_value, False)

    def _call(self, e: Call) -> Poly:
        if e.op == "tir.if_then_else":
            return self._choice(e, e.args[0], e.args[1], e.args[2], True)
        if e.op == "tir.likely":
            return self.poly(e.args[0])
        return self._opaque(e)

    def _cast(self, e: Cast) -> Poly:
        if e.value.dtype not in INDEX_TYPES:
            return self._opaque(e)
        p = self.poly(e.value)
        k = const_of(p)
        if k is not None and Interval(k, k).fits(e.dtype):
            return constant(k)
        if self.fits(p, e):
            return p
        value = self.simp(e.value)
        dtype = e.dtype
        fits = dtype == "int64" or not self.data(p)
        key = ("cast", dtype, poly_key(p))
        return self.intern(key, "cast" if fits else "opaque", (p,) if fits else (), dtype, lambda: Cast(dtype, value),
                           self.data(p))  # fmt: skip

    def keeps_value(self, e: Cast) -> bool:
        """Return whether ``e`` converts an index from one width to the other and keeps its value."""
        return e.dtype in INDEX_TYPES and e.value.dtype in INDEX_TYPES and self.fits(self.poly(e.value), e)

    def fits(self, p: Poly, e: Cast) -> bool:
        """Return whether the conversion ``e`` from one width of indices to the other keeps the value p."""
        if not self.exact(p, e.value.dtype):
            return False
        return self.bound(p).fits(e.dtype) or (e.dtype == "int64" and not self.data(p))

    def _let(self, e: Let) -> Poly:
        value = self.simp(e.value)
        if isinstance(value, (IntImm, Var)) or not uses_var(e.body, e.var):
            return self.poly(substitute(e.body, {e.var: value}))
        return self._opaque(e)

    def _opaque(self, e: Expr, kind: str = "opaque", operands: tuple[Any, ...] = ()) -> Poly:
        """Return an atom for ``e``, with the operands simplified; of some kinds its bounds follow from ``operands``."""
        new = self.simp_tree(e)
        if new.dtype in INDEX_TYPES and type(new) is not type(e):
            return self.poly(new)
        bound = operands
        if isinstance(new, Cast) and new.value.dtype.is_int and new.dtype.lanes == 1:
            values = interval_of(new.value.dtype)
            if values.fits(new.dtype):
                bound = (values,)
        # The key is made of the keys of the operands, because the key of ``new`` itself would be computed here.
        key = value_key(new, self.key)
        return self.intern(key, kind, bound, e.dtype, lambda: new, True, new)

    def key(self, e: Any) -> Hashable:
        """Return a key that is equal for equal expressions. ``e`` must be simplified.

        Variables are compared by identity; calls with side effects and unknown nodes are equal only to themselves.
        """
        if type(e) in _POLY_TYPES and e.dtype in INDEX_TYPES:
            return (e.dtype, poly_key(self.poly(e)))
        return value_key(e, self.key)


_CONVERT: dict[type, Callable[[Any, Any], Poly]] = {
    Var: Canonical.var_poly,
    Add: Canonical._add,
    Sub: Canonical._sub,
    Mul: Canonical._mul,
    FloorDiv: Canonical._division,
    FloorMod: Canonical._division,
    TruncDiv: Canonical._trunc,
    TruncMod: Canonical._trunc,
    Min: Canonical._extreme,
    Max: Canonical._extreme,
    Select: Canonical._select,
    Call: Canonical._call,
    Cast: Canonical._cast,
    Let: Canonical._let,
}
_CONSTANTS = frozenset((IntImm, FloatImm, StringImm))
_POLY_TYPES = frozenset((Var, Add, Sub, Mul, FloorDiv, FloorMod, Min, Max))
