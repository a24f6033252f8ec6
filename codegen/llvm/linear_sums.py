"""Sums of 64-bit integers with constant coefficients, so that addresses share common parts."""

from __future__ import annotations

from .function_builder import FunctionBuilder


class Linear:
    """A sum ``const + sum(coefficient * operand)``; operands are names of i64 values."""

    __slots__ = ("const", "terms")

    def __init__(self, const: int = 0, terms: dict[str, int] | None = None) -> None:
        self.const = const
        self.terms = terms if terms is not None else {}

    def plus(self, other: Linear, factor: int = 1) -> Linear:
        """Return ``self + factor * other``."""
        terms = dict(self.terms)
        for name, coefficient in other.terms.items():
            total = terms.get(name, 0) + factor * coefficient
            if total:
                terms[name] = total
            else:
                terms.pop(name, None)
        return Linear(self.const + factor * other.const, terms)

    def times(self, factor: int) -> Linear:
        """Return ``factor * self``."""
        if factor == 0:
            return Linear()
        return Linear(self.const * factor, {n: c * factor for n, c in self.terms.items()})

    def product(self, other: Linear, fn: FunctionBuilder) -> Linear:
        """Return ``self * other``, an instruction unless one of them is a constant."""
        if not other.terms:
            return self.times(other.const)
        if not self.terms:
            return other.times(self.const)
        return Linear(0, {fn.pure(f"mul nsw i64 {self.text(fn)}, {other.text(fn)}"): 1})

    def text(self, fn: FunctionBuilder) -> str:
        """Return the i64 value."""
        out: str | None = None
        for name, coefficient in self.terms.items():
            term = name if coefficient == 1 else fn.pure(f"mul nsw i64 {name}, {coefficient}")
            out = term if out is None else fn.pure(f"add nsw i64 {out}, {term}")
        if out is None:
            return str(self.const)
        return out if self.const == 0 else fn.pure(f"add nsw i64 {out}, {self.const}")
