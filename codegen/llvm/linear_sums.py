"""Sums of 64-bit integers with constant coefficients, so that addresses share common parts.

The terms of a :class:`~tilewright.tir.arith.normal_form.linear.Linear` are names of i64 values here.
"""

from __future__ import annotations

from ...tir.arith.normal_form.linear import Linear
from .function_builder import FunctionBuilder


def product(a: Linear, b: Linear, fn: FunctionBuilder) -> Linear:
    """Return ``a * b``, an instruction unless one of them is a constant."""
    if not b.terms:
        return a.times(b.const)
    if not a.terms:
        return b.times(a.const)
    return Linear(0, {fn.pure(f"mul nsw i64 {sum_text(a, fn)}, {sum_text(b, fn)}"): 1})


def sum_text(form: Linear, fn: FunctionBuilder) -> str:
    """Return the i64 value of a sum."""
    out: str | None = None
    for name, coefficient in form.terms.items():
        term = name if coefficient == 1 else fn.pure(f"mul nsw i64 {name}, {coefficient}")
        out = term if out is None else fn.pure(f"add nsw i64 {out}, {term}")
    if out is None:
        return str(form.const)
    return out if form.const == 0 else fn.pure(f"add nsw i64 {out}, {form.const}")
