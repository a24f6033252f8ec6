"""Maps each mathematical function to its vector code: branch-free, for any number of lanes, with a stated error.

=================================  ==========================  =======================
function                           float32                     float64
=================================  ==========================  =======================
exp exp2 exp10 log                 1.1 ULP (1.5 without FMA)   1.2 ULP
log2 log10 log1p expm1             1.5 ULP (2 without FMA)     2 ULP
tanh sigmoid                       1.5 ULP (2 without FMA)     1.5 ULP
erf                                0.8 ULP (1 without FMA)     1.6 ULP (1.8)
1 + erf(x), 1 - erf(x)             see normal
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

from ...tir.dtype import bits_of, is_float, lanes_of, with_lanes
from ...tir.expr import Call, Cast, Expr
from . import arc, exp, hypot_fmod, log, normal, pow, sigmoid, trig
from .math_builder import MathBuilder

Expansion = Callable[..., Expr]


def _rsqrt(m: MathBuilder, x: Expr) -> Expr:
    return m.f(1.0) / m.call("sqrt", x)


# expansions written for both types
_OWN: dict[str, Expansion] = {
    "exp": exp.exp,
    "exp2": exp.exp2,
    "exp10": exp.exp10,
    "expm1": exp.expm1,
    "log": log.log,
    "log2": log.log2,
    "log10": log.log10,
    "log1p": log.log1p,
    "tanh": sigmoid.tanh,
    "sigmoid": sigmoid.sigmoid,
    "erf": sigmoid.erf,
    "erf_plus_one": normal.erf_plus_one,
    "gelu": normal.gelu,
    "twice_normal": normal.twice_normal,
    "rsqrt": _rsqrt,
    "sin": trig.sin,
    "cos": trig.cos,
    "tan": trig.tan,
}
# expansions written for float64, in which float32 is computed
_DOUBLE: dict[str, Expansion] = {
    "sinh": exp.sinh,
    "cosh": exp.cosh,
    "asin": arc.asin,
    "acos": arc.acos,
    "atan": arc.atan,
    "atan2": arc.atan2,
    "asinh": log.asinh,
    "acosh": log.acosh,
    "atanh": log.atanh,
}
# expansions for float32 values held in float64, and for float64
_SINGLE: dict[str, Expansion] = {
    "pow": pow.pow_float32,
    "hypot": hypot_fmod.hypot_float32,
    "fmod": hypot_fmod.fmod_float32,
}
_FLOAT64: dict[str, Expansion] = {
    "pow": pow.pow_float64,
    "hypot": hypot_fmod.hypot,
    "fmod": hypot_fmod.fmod,
}
# for float64 the C library is called where the target has no fused operations
_NEEDS_FUSED = ("sin", "cos", "tan", "fmod")

EXPANDED = frozenset(f"tir.{name}" for name in (*_OWN, *_DOUBLE, *_SINGLE))
"""The calls that :func:`expand` knows."""


def expand(call: Call, fused: bool = True, scales: bool = False) -> Expr | None:
    """Returns the expansion of ``tir.exp(x)`` and similar calls, or None for calls that stay as they are.

    ``fused``: the target has fused multiply-add; ``scales``: instructions for ``tir.times_exp2`` and
    ``tir.round_rest``.
    """
    name = call.op.removeprefix("tir.")
    if call.op not in EXPANDED or not is_float(call.dtype):
        return None
    bits = bits_of(call.dtype)
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
