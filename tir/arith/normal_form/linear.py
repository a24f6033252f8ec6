"""This module defines linear forms: a constant and a sum of terms with integer coefficients.

What a term is, the caller says: a variable, the key of an expression, the name of a value. :func:`collect` reads the
form of an expression, and :func:`difference` compares two expressions by their forms alone, without an analyzer.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...expr import Add, Expr, IntImm, Mul, Sub, value_key


def add_terms(p: Mapping[Any, int], q: Mapping[Any, int], k: int = 1) -> dict[Any, int]:
    """Return the coefficients of ``p + k * q``, without those that are zero."""
    out = dict(p)
    add_into(out, q, k)
    return out


def add_into(out: dict[Any, int], q: Mapping[Any, int], k: int) -> None:
    """Add ``k * q`` to the coefficients ``out``; those that become zero are removed."""
    for term, coefficient in q.items():
        total = k * coefficient
        if term in out:
            total += out[term]
        if total:
            out[term] = total
        elif term in out:
            del out[term]


@dataclass(frozen=True, slots=True)
class Linear:
    """Represents ``const + sum(coefficient * term)``; no coefficient is zero."""

    const: int = 0
    terms: Mapping[Any, int] = field(default_factory=dict)

    def plus(self, other: Linear, factor: int = 1) -> Linear:
        """Return ``self + factor * other``."""
        return Linear(self.const + factor * other.const, add_terms(self.terms, other.terms, factor))

    def times(self, factor: int) -> Linear:
        """Return ``factor * self``."""
        if factor == 1:
            return self
        return Linear(self.const * factor, {t: c * factor for t, c in self.terms.items()} if factor else {})


def collect(e: Expr, leaf: Callable[[Expr], Linear | None]) -> Linear | None:
    """Return the form of sums, differences and products with constants; ``leaf`` gives that of any other expression.

    The result is None where ``leaf`` gives None.

    >>> i, j = Var("i"), Var("j")
    >>> form = collect((i - j) * 4 + 3 + j, lambda e: Linear(0, {e: 1}))
    >>> form.const, list(form.terms.values())
    (3, [4, -3])
    """
    terms: dict[Any, int] = {}
    const = _gather(e, 1, leaf, terms)
    return None if const is None else Linear(const, terms)


def _gather(e: Any, factor: int, leaf: Callable[[Expr], Linear | None], terms: dict[Any, int]) -> int | None:
    """Add the terms of ``factor * e`` to ``terms``; return its constant, or None where ``leaf`` gives None."""
    kind = type(e)
    if kind is IntImm:
        return factor * e.value
    if kind is Add or kind is Sub:
        a = _gather(e.a, factor, leaf, terms)
        b = None if a is None else _gather(e.b, factor if kind is Add else -factor, leaf, terms)
        return None if a is None or b is None else a + b
    if kind is Mul and type(e.b) is IntImm:
        return _gather(e.a, factor * e.b.value, leaf, terms)
    form = _product(e, leaf) if kind is Mul else leaf(e)
    if form is None:
        return None
    add_into(terms, form.terms, factor)
    return factor * form.const


def _product(e: Mul, leaf: Callable[[Expr], Linear | None]) -> Linear | None:
    a, b = collect(e.a, leaf), collect(e.b, leaf)
    if a is None or b is None:
        return None
    if b.terms:
        a, b = b, a
    return leaf(e) if b.terms else a.times(b.const)


def difference(a: Expr, b: Expr) -> int | None:
    """Return ``a - b`` where the sums differ by a constant alone, else None."""
    if a is b:
        return 0
    left, right = _form(a), _form(b)
    return left.const - right.const if left.terms == right.terms else None


def _form(e: Expr) -> Linear:
    """Return the linear form over keys that are equal for expressions of equal structure."""
    found = collect(e, lambda n: Linear(0, {expression_key(n): 1}))
    assert found is not None
    return found


def expression_key(e: Any) -> Hashable:
    """Return a key that is equal for expressions of equal structure; sums may differ in the order of their terms."""
    if isinstance(e, (Add, Sub)):
        form = _form(e)
        return (frozenset(form.terms.items()), form.const)
    return value_key(e, expression_key)
