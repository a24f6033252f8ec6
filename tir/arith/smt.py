"""This module proves conditions with a solver for integer arithmetic (z3) where the analyzer's rules cannot.

Only this module imports z3, an optional package. Inside :func:`solving` a condition that an :class:`Analyzer` cannot
prove is passed to the solver: all that is known (ranges, conditions, the definitions of quotients and remainders)
together with the negated condition. If no values of the variables satisfy them, the condition is proved. The effort is
limited by a count of steps rather than by time, so that an answer is the same on every machine.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ..expr import EQ, GE, GT, LE, LT, NE, And, CmpOp, Expr, IntImm, Not, Or
from .normal_form.forms import Poly, const_of

if TYPE_CHECKING:
    from .analyzer import Analyzer

STEPS = 400_000
"""The limit of work for one question: z3's ``rlimit``, about a tenth of a second."""

_LOCK = threading.Lock()  # only one thread at a time may use z3's objects
_INT_TYPES = ("int32", "int64")
_ON: ContextVar[bool] = ContextVar("solver", default=False)


@contextmanager
def solving(on: bool = True) -> Iterator[None]:
    """Let the analyzer ask the solver inside the ``with``. ImportError when it is not installed."""
    if on:
        _z3()
    token = _ON.set(on)
    try:
        yield
    finally:
        _ON.reset(token)


def is_solving() -> bool:
    """Return whether the analyzer may ask the solver. Stored proofs must be kept apart for the two cases."""
    return _ON.get()


def solver_proves(analyzer: Analyzer, condition: Expr) -> bool:
    """Return whether the solver is on and proves that ``condition`` is never false."""
    return _ON.get() and proves(analyzer, condition)


def _z3() -> Any:
    try:
        import z3  # type: ignore
    except ImportError as e:
        raise ImportError("proofs by a solver need z3: pip install 'tilewright[smt]'") from e
    return z3


def proves(analyzer: Analyzer, condition: Expr) -> bool:
    """Return whether the solver proves that ``condition`` is never false."""
    with _LOCK:
        z3 = _z3()
        question = _Question(analyzer, z3)
        claim = question.condition(condition)
        if claim is None:
            return False
        question.add_facts()
        solver = z3.Solver()
        solver.set("rlimit", STEPS)
        solver.add(*question.known, z3.Not(claim))
        return bool(solver.check() == z3.unsat)


class _Question:
    """Converts the analyzer's atoms to the solver's integers, and adds what is known about those in a question."""

    def __init__(self, analyzer: Analyzer, z3: Any) -> None:
        self.an = analyzer
        self.z3 = z3
        self.values: dict[int, Any] = {}
        self.known: list[Any] = []

    def condition(self, e: Expr) -> Any:
        """Return the condition for the solver; None when it is not about integers only."""
        z3 = self.z3
        if isinstance(e, IntImm):
            return z3.BoolVal(bool(e.value))
        if isinstance(e, Not):
            inner = self.condition(e.a)
            return None if inner is None else z3.Not(inner)
        if isinstance(e, (And, Or)):
            a, b = self.condition(e.a), self.condition(e.b)
            if a is None or b is None:
                return None
            return z3.And(a, b) if isinstance(e, And) else z3.Or(a, b)
        if not isinstance(e, CmpOp) or e.a.dtype not in _INT_TYPES:
            return None
        p, q = self.an.poly(e.a), self.an.poly(e.b)
        if not (self.an.exact(p, e.a.dtype) and self.an.exact(q, e.b.dtype)):
            return None  # values from memory may wrap
        a, b = self.poly(p), self.poly(q)
        t = type(e)
        if t is EQ or t is NE:
            return a == b if t is EQ else a != b
        if t is LT or t is LE:
            return a < b if t is LT else a <= b
        return a > b if t is GT else a >= b if t is GE else None

    def poly(self, p: Poly) -> Any:
        out = self.z3.IntVal(0)
        for m, c in p.items():
            term = self.z3.IntVal(c)
            for a in m:
                term = term * self.atom(a)
            out = out + term
        return out

    def atom(self, a: int) -> Any:
        value = self.values.get(a)
        if value is None:
            value = self.values[a] = self.z3.Int(f"a{a}")
            self._define(a, value)
        return value

    def _define(self, a: int, value: Any) -> None:
        z3, atom, know = self.z3, self.an.atoms[a], self.known.append
        lo, hi = self.an.atom_bound(a)
        if lo is not None:
            know(value >= lo)
        if hi is not None:
            know(value <= hi)
        lo_end, hi_end = self.an.ends_of(a)
        if lo_end is not None:
            know(self.poly(lo_end) <= value)
        if hi_end is not None:
            know(value <= self.poly(hi_end))
        if atom.data:
            return
        if atom.kind == "split":
            inner, lower, upper = atom.args
            dividend = self.poly(inner) if upper is None else self.poly(inner) % upper
            know(value == (dividend / lower if lower != 1 else dividend))
        elif atom.kind in ("div", "mod"):
            dividend, divisor = map(self.poly, atom.args)
            rest = z3.Int(f"r{a}")
            quotient, remainder = (value, rest) if atom.kind == "div" else (rest, value)
            floor = z3.If(
                divisor > 0, z3.And(0 <= remainder, remainder < divisor), z3.And(divisor < remainder, remainder <= 0)
            )
            know(z3.Implies(divisor != 0, z3.And(dividend == divisor * quotient + remainder, floor)))
        elif atom.kind in ("min", "max"):
            x, y = map(self.poly, atom.args)
            know(value == (z3.If(x <= y, x, y) if atom.kind == "min" else z3.If(x >= y, x, y)))
        elif atom.kind == "choice":
            x, y = self.poly(atom.args[0]), self.poly(atom.args[1])
            know(z3.Or(value == x, value == y))

    def add_facts(self) -> None:
        """Add the conditions that hold."""
        for fact in self.an.facts():
            if const_of(fact) is None:
                self.known.append(self.poly(fact) <= 0)
