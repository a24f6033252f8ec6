"""Replaces calls of mathematical functions by vector code: branch-free, for any number of lanes, with a stated error.

=================================  ==========================  =======================
function                           float32                     float64
=================================  ==========================  =======================
exp exp2 exp10 log                 1.1 ULP (1.5 without FMA)   1.2 ULP
log2 log10 log1p expm1             1.5 ULP (2 without FMA)     2 ULP
tanh sigmoid                       1.5 ULP (2 without FMA)     1.5 ULP
erf                                0.8 ULP (1 without FMA)     1.6 ULP (1.8)
1 + erf(x), 1 - erf(x)             see math_normal
gelu, as a product with erf        2 ULP                       1.9 ULP (2.2 without FMA)
rsqrt                              1.5 ULP: 1 / sqrt(x)        1.5 ULP
sin cos; tan                       0.9 ULP; 1.2 ULP            0.9 ULP; 1.1 ULP
hypot; fmod                        0.51 ULP; exact             1.2 ULP; exact
asin acos atan atan2 sinh cosh     0.51 ULP, in float64        2 ULP
asinh acosh atanh                  0.51 ULP, in float64        2 ULP
pow                                0.51 ULP, in float64        1 ULP
=================================  ==========================  =======================

float32: the largest errors over all values, rounded up; float64: over dense samples (docs/math.md has the figures,
benchmarks/math_errors.py measures them). Without FMA, sin, cos, tan and fmod of float64 are the C library's.

Infinities, NaN, signed zeros, denormals and overflow are as in C. sqrt, floor, ceil, round, trunc, fabs, copysign, fma
and the tests for NaN stay: machines have them. float16 and bfloat16 go through float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...tir.dtype import bits_of, is_float, lanes_of, with_lanes
from ...tir.expr import Call, Cast, Expr
from ...tir.fixed_point import FIXED_POINT, fixed_point_steps
from ...tir.function import PrimFunc
from ...tir.walk import distinct, transform
from ..target import Target
from . import math_arc, math_exp, math_hypot_fmod, math_log, math_normal, math_pow, math_sigmoid, math_trig
from .math_builder import MathBuilder
from .math_normal import named_sums

Expansion = Callable[..., Expr]


def _rsqrt(m: MathBuilder, x: Expr) -> Expr:
    return m.f(1.0) / m.call("sqrt", x)


# expansions written for both types
_OWN: dict[str, Expansion] = {
    "exp": math_exp.exp,
    "exp2": math_exp.exp2,
    "exp10": math_exp.exp10,
    "expm1": math_exp.expm1,
    "log": math_log.log,
    "log2": math_log.log2,
    "log10": math_log.log10,
    "log1p": math_log.log1p,
    "tanh": math_sigmoid.tanh,
    "sigmoid": math_sigmoid.sigmoid,
    "erf": math_sigmoid.erf,
    "erf_plus_one": math_normal.erf_plus_one,
    "gelu": math_normal.gelu,
    "twice_normal": math_normal.twice_normal,
    "rsqrt": _rsqrt,
    "sin": math_trig.sin,
    "cos": math_trig.cos,
    "tan": math_trig.tan,
}
# expansions written for float64, in which float32 is computed
_DOUBLE: dict[str, Expansion] = {
    "sinh": math_exp.sinh,
    "cosh": math_exp.cosh,
    "asin": math_arc.asin,
    "acos": math_arc.acos,
    "atan": math_arc.atan,
    "atan2": math_arc.atan2,
    "asinh": math_log.asinh,
    "acosh": math_log.acosh,
    "atanh": math_log.atanh,
}
# expansions for float32 values held in float64, and for float64
_SINGLE: dict[str, Expansion] = {
    "pow": math_pow.pow_float32,
    "hypot": math_hypot_fmod.hypot_float32,
    "fmod": math_hypot_fmod.fmod_float32,
}
_FLOAT64: dict[str, Expansion] = {
    "pow": math_pow.pow_float64,
    "hypot": math_hypot_fmod.hypot,
    "fmod": math_hypot_fmod.fmod,
}
# for float64 the C library is called where the target has no fused operations
_NEEDS_FUSED = ("sin", "cos", "tan", "fmod")


def expand(call: Call, fused: bool = True, scales: bool = False) -> Expr | None:
    """Returns the expansion of ``tir.exp(x)`` and similar calls, or None for calls that stay as they are.

    ``fused``: the target has fused multiply-add; ``scales``: instructions for ``tir.times_exp2`` and
    ``tir.round_rest``.
    """
    name = call.op.removeprefix("tir.")
    if not call.op.startswith("tir.") or not is_float(call.dtype):
        return None
    bits = bits_of(call.dtype)
    if name not in _OWN and name not in _DOUBLE and name not in _SINGLE:
        return None
    if bits == 16:
        wide = with_lanes("float32", lanes_of(call.dtype))
        inner = Call(call.op, tuple([Cast(wide, a) for a in call.args]), wide)
        expanded = expand(inner, fused, scales)
        return Cast(call.dtype, inner if expanded is None else expanded)
    double = with_lanes("float64", lanes_of(call.dtype))
    if bits == 64:
        if name in _NEEDS_FUSED and not fused:
            return None
        return _written(
            MathBuilder(double, fused, scales), _OWN.get(name) or _DOUBLE.get(name) or _FLOAT64[name], call.args
        )
    if name in _OWN:
        return _written(MathBuilder(call.dtype, fused, scales), _OWN[name], call.args)
    rule = _DOUBLE.get(name) or _SINGLE[name]
    wide_args = tuple([Cast(double, a) for a in call.args])
    return Cast(call.dtype, _written(MathBuilder(double, fused, scales), rule, wide_args))


def _written(m: MathBuilder, rule: Expansion, args: tuple[Expr, ...]) -> Expr:
    return m.finish(rule(m, *[m.name(a) for a in args]))


def lower_math(func: PrimFunc, target: Target | None = None) -> PrimFunc:
    """Expand every mathematical call of ``func``.

    Before::

        B[i] = T.tanh(A[i])

    After (float32, the coefficients shortened)::

        B[i] = T.Let(T.Select(9.2 <= T.fabs(t0), T.copysign(1, t0), t4), where={t0: A[i], …})
    """
    fused = True if target is None else target.has_fma
    scales = target is not None and target.has("avx512dq")

    def post(n: Any) -> Expr | None:
        if not isinstance(n, Call):
            return None
        return fixed_point_steps(n) if n.op in FIXED_POINT else expand(n, fused, scales)

    if any(isinstance(n, Call) and n.op == "tir.erf" for n in distinct(func.body)):
        func = transform(func, post=named_sums)
    return transform(func, post=post)  # type: ignore[no-any-return]
