"""The mathematical functions as vector code of additions, products and bit operations.

Functions are written with :class:`MathBuilder`; each file says which calls it expands, and :func:`expand` maps a call to its
code: branch-free, for any number of lanes, with a stated error.

docs/reference/math.md has the largest errors: of float32 over all values, of float64 over dense samples (benchmarks/math_errors.py
measures them). Infinities, NaN, signed zeros, denormals and overflow are as in C. Square roots, roundings to whole
numbers, absolute values, copies of signs, fused operations and the tests for NaN stay: machines have them. float16 and
bfloat16 go through float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...tir.expr import Call, Cast, DType, Expr
from . import exp_log, normal, trig
from .math_builder import MathBuilder
from .normal import named_sums

__all__ = ["EXPANDED", "MathBuilder", "expand", "named_sums"]

_EXPANSIONS = {
    f"tir.{name}": expansion for module in (exp_log, normal, trig) for name, expansion in module.EXPANSIONS.items()
}
EXPANDED = frozenset(_EXPANSIONS)
"""The calls that :func:`expand` knows."""


def expand(call: Call, fused: bool = True, scales: bool = False) -> Expr | None:
    """Returns the expansion of ``tir.exp(x)`` and similar calls, or None for calls that stay as they are.

    ``fused``: the target has fused multiply-add; ``scales``: instructions for ``tir.times_exp2`` and
    ``tir.round_rest``.
    """
    expansion = _EXPANSIONS.get(call.op)
    if expansion is None or not call.dtype.is_float:
        return None
    bits, lanes = call.dtype.bits, call.dtype.lanes
    if bits == 16:
        wide = DType("float32").with_lanes(lanes)
        inner = Call(call.op, tuple([Cast(wide, a) for a in call.args]), wide)
        expanded = expand(inner, fused, scales)
        return Cast(call.dtype, inner if expanded is None else expanded)
    if bits == 64 and expansion.needs_fused and not fused:
        return None
    if bits == 64 or expansion.of_float32 is None:
        return _written(MathBuilder(call.dtype, fused, scales), expansion.rule, call.args)
    double = DType("float64").with_lanes(lanes)
    wide_args = [Cast(double, a) for a in call.args]
    return Cast(call.dtype, _written(MathBuilder(double, fused, scales), expansion.of_float32, wide_args))


def _written(m: MathBuilder, rule: Callable[..., Expr], args: Sequence[Expr]) -> Expr:
    return m.finish(rule(m, *[m.name(a) for a in args]))
