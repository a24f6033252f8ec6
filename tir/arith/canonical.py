"""From expressions to normal forms and back.

Scalars of type int32 and int64 become polynomials (:meth:`Canonical.poly`); everything else is simplified as a tree by
the rules of :mod:`.rules`. :meth:`Canonical.simp` is the one entry; results are remembered per node until something
new becomes known.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from math import gcd
from typing import Any

from ..dtype import is_float, is_int, lanes_of, max_value, min_value
from ..expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    BinaryOp,
    Broadcast,
    BufferLoad,
    Call,
    Cast,
    CmpOp,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mul,
    Not,
    Ramp,
    Select,
    Shuffle,
    StringImm,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
    const,
)
from ..walk import substitute, uses_var
from .division import Division
from .terms import ONE, Poly, add, const_of, mul, poly_key, scale

__all__ = ["INDEX_TYPES", "Canonical", "is_pure_call", "negate", "opposite", "same"]

INDEX_TYPES = frozenset(("int32", "int64"))
_OPPOSITE: dict[type, type[CmpOp]] = {LT: GE, GE: LT, LE: GT, GT: LE, EQ: NE, NE: EQ}
_IMPURE = ("tir.call_", "tir.prefetch", "tir.ret", "tir.address_of", "tir.tvm_access_ptr", "tir.tvm_")


def is_pure_call(call: Call) -> bool:
    """Whether two calls with equal arguments have equal values and no effect."""
    return call.op.startswith("tir.") and not call.op.startswith(_IMPURE)


def same(a: Any, b: Any) -> bool:
    """Whether two expressions have the same shape, variables by identity."""
    if a is b:
        return True
    t = type(a)
    if t is not type(b):
        return False
    if isinstance(a, BinaryOp):
        return same(a.a, b.a) and same(a.b, b.b)
    if t is IntImm:
        return bool(a.value == b.value and a.dtype == b.dtype)
    if t is FloatImm:
        return repr(a.value) == repr(b.value) and a.dtype == b.dtype
    if t is Cast:
        return a.dtype == b.dtype and same(a.value, b.value)
    if t is BufferLoad:
        if a.buffer is not b.buffer or len(a.indices) != len(b.indices):
            return False
        if (
            (a.predicate is None) != (b.predicate is None)
            or a.predicate is not None
            and not same(a.predicate, b.predicate)
        ):
            return False
        return all(same(x, y) for x, y in zip(a.indices, b.indices, strict=True))
    if t is Call:
        if a.op != b.op or a.dtype != b.dtype or len(a.args) != len(b.args) or not is_pure_call(a):
            return False
        return all(same(x, y) for x, y in zip(a.args, b.args, strict=True))
    if t is Select:
        return (
            same(a.condition, b.condition) and same(a.true_value, b.true_value) and same(a.false_value, b.false_value)
        )
    if t is Not:
        return same(a.a, b.a)
    if t is Ramp:
        return a.lanes == b.lanes and same(a.base, b.base) and same(a.stride, b.stride)
    if t is Broadcast:
        return a.lanes == b.lanes and same(a.value, b.value)
    if t is StringImm:
        return bool(a.value == b.value)
    return False


def negate(e: Expr) -> Expr | None:
    """The opposite of a comparison of integers (not a < b is b <= a, which NaN breaks for floats)."""
    if isinstance(e, CmpOp) and not is_float(e.a.dtype):
        return _OPPOSITE[type(e)](e.a, e.b)
    if isinstance(e, Not):
        return e.a
    return const(not e.value, "bool") if isinstance(e, IntImm) else None


def opposite(e: Expr) -> Expr:
    """What holds when ``e`` does not."""
    simple = negate(e)
    return Not(e) if simple is None else simple


class Canonical(Division):
    """The conversion of index expressions to polynomials."""

    def __init__(self) -> None:
        super().__init__()
        self._poly_memo: dict[int, tuple[Expr, Poly]] = {}
        self._simp_memo: dict[int, tuple[Expr, Expr]] = {}

    def simp(self, e: Any) -> Any:
        """``e`` simplified; the very same object when there is nothing to do."""
        t = type(e)
        if t is IntImm or t is FloatImm or t is StringImm:
            return e
        known = self._simp_memo.get(id(e))
        if known is not None:
            return known[1]
        if isinstance(e, Expr) and e.dtype in INDEX_TYPES:
            new = self.to_expr(self.poly(e), e.dtype)
            out = e if same(new, e) else new
        else:
            out = self.simp_tree(e)
        self._simp_memo[id(e)] = (e, out)
        return out

    def simp_tree(self, e: Any) -> Any:
        """``simp`` for whatever is not index arithmetic."""
        raise NotImplementedError

    def poly(self, e: Expr) -> Poly:
        """The normal form of an int32 or int64 scalar."""
        if type(e) is IntImm:
            return {ONE: e.value} if e.value else {}
        known = self._poly_memo.get(id(e))
        if known is not None:
            return known[1]
        convert = _CONVERT.get(type(e))
        p = self._opaque(e) if convert is None else convert(self, e)
        self._poly_memo[id(e)] = (e, p)
        return p

    def poly_given(self, condition: Expr, e: Expr) -> Poly:
        """The normal form where ``condition`` holds."""
        return self.poly(e)

    def var_poly(self, e: Var) -> Poly:
        """A variable; the constant when only one value is left."""
        p = self.intern(("var", id(e)), "var", (), e.dtype, lambda: e)
        ((a,),) = p
        lo, hi = self.atom_bound(a)
        if lo is not None and lo == hi:
            return {ONE: lo} if lo else {}
        return p

    def _add(self, e: Add) -> Poly:
        return self.join_splits(add(self.poly(e.a), self.poly(e.b)))

    def _sub(self, e: Sub) -> Poly:
        return self.join_splits(add(self.poly(e.a), self.poly(e.b), -1))

    def _mul(self, e: Mul) -> Poly:
        return mul(self.poly(e.a), self.poly(e.b))

    def _operands(self, e: BinaryOp) -> tuple[Poly, Poly] | None:
        """Both normal forms when the machine's values are the mathematical ones, else None."""
        p, q = self.poly(e.a), self.poly(e.b)
        return (p, q) if self.exact(p, e.dtype) and self.exact(q, e.dtype) else None

    def _division(self, e: FloorDiv | FloorMod) -> Poly:
        pair = self._operands(e)
        if pair is None or const_of(pair[1]) == 0:
            return self._opaque(e)
        compute = self.floordiv if type(e) is FloorDiv else self.floormod
        return self.join_splits(compute(pair[0], pair[1], e.dtype))

    def _trunc(self, e: TruncDiv | TruncMod) -> Poly:
        pair = self._operands(e)
        if pair is None or const_of(pair[1]) == 0:
            return self._opaque(e)
        p, q = pair
        lo = self.bound(q)[0]
        if lo is not None and lo > 0 and self.nonneg(p):  # both roundings agree
            return (self.floordiv if type(e) is TruncDiv else self.floormod)(p, q, e.dtype)
        a, b = const_of(p), const_of(q)
        if a is not None and b is not None:
            quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            value = quotient if type(e) is TruncDiv else a - quotient * b
            return {ONE: value} if value else {}
        return self._opaque(e)

    def _extreme(self, e: Min | Max) -> Poly:
        pair = self._operands(e)
        if pair is None:
            return self._opaque(e)
        return self.minimum(pair[0], pair[1], e.dtype, "min" if type(e) is Min else "max")

    def _choice(self, e: Expr, condition: Expr, a: Expr, b: Expr, lazy: bool) -> Poly:
        condition = self.simp(condition)
        if isinstance(condition, IntImm):
            return self.poly(a if condition.value else b)
        if lazy:
            p, q = self.poly_given(condition, a), self.poly_given(opposite(condition), b)
        else:
            p, q = self.poly(a), self.poly(b)
        if p == q:
            return p
        make: Callable[[], Expr]
        sa, sb = self.to_expr(p, e.dtype), self.to_expr(q, e.dtype)
        if lazy:
            make = lambda: Call("tir.if_then_else", (condition, sa, sb), e.dtype)  # noqa: E731
        else:
            make = lambda: Select(condition, sa, sb)  # noqa: E731
        key = ("choice", lazy, self.key(condition), poly_key(p), poly_key(q), e.dtype)
        return self.intern(key, "choice", (p, q), e.dtype, make, self.data(p) or self.data(q), condition)

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
        if k is not None and min_value(e.dtype) <= k <= max_value(e.dtype):
            return {ONE: k} if k else {}
        value = self.simp(e.value)
        dtype = e.dtype
        fits = dtype == "int64" or not self.data(p)
        key = ("cast", dtype, poly_key(p))
        return self.intern(key, "cast" if fits else "opaque", (p,) if fits else (), dtype, lambda: Cast(dtype, value),
                           self.data(p))  # fmt: skip

    def _let(self, e: Let) -> Poly:
        value = self.simp(e.value)
        if isinstance(value, (IntImm, Var)) or not uses_var(e.body, e.var):
            return self.poly(substitute(e.body, {e.var: value}))
        return self._opaque(e)

    def _opaque(self, e: Expr) -> Poly:
        """An atom of its own, what is below simplified."""
        new = self.simp_tree(e)
        if new.dtype in INDEX_TYPES and type(new) is not type(e):
            return self.poly(new)
        bound: tuple[Any, ...] = ()
        if isinstance(new, Cast) and is_int(new.value.dtype) and lanes_of(new.dtype) == 1:
            lo, hi = min_value(new.value.dtype), max_value(new.value.dtype)
            if min_value(new.dtype) <= lo and hi <= max_value(new.dtype):
                bound = ((lo, hi),)
        # The key is made of the operands': asking for the key of ``new`` itself would lead back here.
        key = (type(new).__name__, self.key(new.a), self.key(new.b)) if isinstance(new, BinaryOp) else self.key(new)
        return self.intern(key, "opaque", bound, e.dtype, lambda: new, True, new)

    def key(self, e: Any) -> Hashable:
        """Equal for expressions of equal value: variables by identity, impure calls and unknown nodes only equal to
        themselves. ``e`` is simplified already."""
        t = type(e)
        if t is IntImm:
            return ("int", e.value, e.dtype)
        if t is FloatImm:
            return ("float", repr(e.value), e.dtype)
        if t is Var:
            self._keep.append(e)
            return ("var", id(e))
        if t in _POLY_TYPES and e.dtype in INDEX_TYPES:
            return (e.dtype, poly_key(self.poly(e)))
        if isinstance(e, BinaryOp):
            return (t.__name__, self.key(e.a), self.key(e.b))
        if t is Cast:
            return ("Cast", e.dtype, self.key(e.value))
        if t is Not:
            return ("Not", self.key(e.a))
        if t is Select:
            return ("Select", self.key(e.condition), self.key(e.true_value), self.key(e.false_value))
        if t is Ramp:
            return ("Ramp", self.key(e.base), self.key(e.stride), e.lanes)
        if t is Broadcast:
            return ("Broadcast", self.key(e.value), e.lanes)
        if t is Shuffle:
            return ("Shuffle", tuple([self.key(v) for v in e.vectors]), e.indices)
        if t is StringImm:
            return ("str", e.value)
        if t is Call and is_pure_call(e):
            return (e.op, e.dtype, tuple([self.key(a) for a in e.args]))
        if t is BufferLoad:
            self._keep.append(e.buffer)
            guard = None if e.predicate is None else self.key(e.predicate)
            return ("load", id(e.buffer), tuple([self.key(i) for i in e.indices]), guard)
        self._keep.append(e)
        return ("node", id(e))

    def compare(self, e: CmpOp) -> Expr:
        """A comparison of int32 or int64 scalars: decided if it can be, else with common terms and factors removed."""
        t = type(e)
        p, q = self.poly(e.a), self.poly(e.b)
        dtype = e.a.dtype
        if not (self.exact(p, dtype) and self.exact(q, dtype)):
            if p == q:
                return IntImm(int(t in (EQ, LE, GE)), "bool")
            a, b = self.simp(e.a), self.simp(e.b)
            return e if a is e.a and b is e.b else t(a, b)
        if t is GT or t is GE:  # a > b is b < a; the sides are turned back at the end
            decided = self._decide(LT if t is GT else LE, q, p)
        else:
            decided = self._decide(t, p, q)
        if decided is not None:
            return IntImm(int(decided), "bool")
        left, right = self._balance(t, p, q)
        a, b = self.to_expr(left, dtype), self.to_expr(right, dtype)
        return e if same(a, e.a) and same(b, e.b) else t(a, b)

    def _decide(self, t: type, p: Poly, q: Poly) -> bool | None:
        diff = self.join_splits(add(p, q, -1))
        lo, hi = self.bound(diff)
        if t is EQ or t is NE:
            if lo is not None and lo == hi:
                return (lo == 0) is (t is EQ)
            if lo is not None and lo > 0 or hi is not None and hi < 0 or _no_root(diff):
                return t is NE
            if self.at_most_zero(add(diff, {ONE: 1})) or self.at_most_zero(add(scale(diff, -1), {ONE: 1})):
                return t is NE
            if self.at_most_zero(diff) and self.at_most_zero(scale(diff, -1)):
                return t is EQ
            return None
        strict = {ONE: 1} if t is LT else {}
        if self.at_most_zero(add(diff, strict)):
            return True
        refuted = {ONE: 1} if t is LE else {}  # not (p < q) is q - p <= 0
        return False if self.at_most_zero(add(scale(diff, -1), refuted)) else None

    @staticmethod
    def _balance(t: type, p: Poly, q: Poly) -> tuple[Poly, Poly]:
        """The sides of ``p t q`` without common terms and common factors, the constant on one side."""
        common = [m for m in p if m in q]
        kp, kq = p.get(ONE, 0), q.get(ONE, 0)
        if common and any(m for m in common):
            diff = add(p, q, -1)
            left = {m: c for m, c in diff.items() if m and c > 0}
            right = {m: -c for m, c in diff.items() if m and c < 0}
            constant = diff.get(ONE, 0)
        elif kp and len(p) > 1:
            left, right = {m: c for m, c in p.items() if m}, {m: c for m, c in q.items() if m}
            constant = kp - kq
            common = [ONE]
        elif kp and kq:
            return p, q
        else:
            left, right = {m: c for m, c in p.items() if m}, {m: c for m, c in q.items() if m}
            constant = kp - kq
            if not left:  # c < x keeps its sides
                g = _gcd(right)
                return ({ONE: constant} if constant else {}, right) if g == 1 else (p, q)
        g = _gcd({**left, **{(*m, -1): c for m, c in right.items()}})
        if g > 1:
            if t in (EQ, NE):
                if constant % g:
                    g = 1
                scaled = constant // g
            elif t is LT:  # g*x + k < 0 is x + floor(k / g) < 0
                scaled = constant // g
            elif t is LE:  # g*x + k <= 0 is x + ceil(k / g) <= 0
                scaled = -(-constant // g)
            elif t is GT:
                scaled = -(-constant // g)
            else:
                scaled = constant // g
            left = {m: c // g for m, c in left.items()}
            right = {m: c // g for m, c in right.items()}
            constant = scaled
        elif not common:
            return p, q
        if constant:
            if right and not left:
                left[ONE] = constant
            else:
                right[ONE] = -constant
        return left, right


def _gcd(p: Poly) -> int:
    return gcd(*[abs(c) for m, c in p.items() if m]) if p else 1


def _no_root(p: Poly) -> bool:
    """Whether ``p == 0`` is impossible because the coefficients' common factor does not divide the constant."""
    g = _gcd(p)
    return g > 1 and p.get(ONE, 0) % g != 0


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
_POLY_TYPES = frozenset((Var, Add, Sub, Mul, FloorDiv, FloorMod, Min, Max))
