"""This module reads PyTorch's expressions of symbolic sizes, which are SymPy's, as expressions of this library.

Sizes are integers. What becomes of them may be a float, such as the ``x.shape[-1] ** -0.5`` of attention: it is computed in
float64, as Python does, and is a scalar that kernels compute from the sizes of a call.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from ...tir.expr import Expr, cast, const, convert, max_, min_, pre_order, truncdiv
from ...tir.expr.intrinsics import number_operations as floats
from .torch_package import TorchError


@dataclass(frozen=True)
class Ratio:
    """The quotient of two integers, of which the second is positive: what Python divides in floats and may round down again."""

    top: Any
    under: Any

    def as_float(self) -> Expr:
        """Returns the quotient in float64."""
        whole = _as_float(self.top)
        return whole if isinstance(self.under, int) and self.under == 1 else whole / _as_float(self.under)

    def times(self, factor: float) -> Ratio | None:
        """Returns the product with a float that is a short fraction exactly, such as 1.5; None for others."""
        top, under = factor.as_integer_ratio()
        return Ratio(self.top * top, self.under * under) if max(abs(top), under) <= _LONGEST else None


_LONGEST = 1 << 20
"""The largest numerator and denominator of a factor that integers are multiplied with."""


def _as_float(e: Any) -> Expr:
    if isinstance(e, Ratio):
        return e.as_float()
    return cast("float64", convert(e)) if isinstance(e, (Expr, int)) else const(e, "float64")


def _is_integer(e: Any) -> bool:
    return isinstance(e, int) or (isinstance(e, Expr) and not e.dtype.is_float)


def _folded(combine: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def function(*args: Any) -> Any:
        return reduce(combine, args if all(map(_is_integer, args)) else map(_as_float, args))

    return function


def _product(*args: Any) -> Any:
    if len(args) == 2 and isinstance(args[0], float) and isinstance(args[1], Ratio):
        found = args[1].times(args[0])
        if found is not None:
            return found
    return _folded(operator.mul)(*args)


def _in_floats(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: function(*map(_as_float, args))


def _as_integer(function: Callable[[Expr], Expr], of_ratio: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    def rounded(e: Any) -> Any:
        if isinstance(e, Ratio):
            return of_ratio(convert(e.top), convert(e.under))
        return e if _is_integer(e) else cast("int64", function(_as_float(e)))

    return rounded


def _of_integers(function: Callable[[Any, Any], Any], name: str) -> Callable[[Any, Any], Any]:
    def checked(a: Any, b: Any) -> Any:
        if _is_integer(a) and _is_integer(b):
            return function(a, b)
        raise TorchError(
            f"{name} of floats that are computed from sizes is not supported; shapes= can give sizes as numbers"
        )

    return checked


_quotient, _rest = _of_integers(operator.floordiv, "//"), _of_integers(operator.mod, "%")
_down = _as_integer(floats.floor, operator.floordiv)
_up = _as_integer(floats.ceil, lambda a, b: -(-a // b))
_to_zero = _as_integer(floats.trunc, truncdiv)


def _nearest(e: Any) -> Any:
    return e if _is_integer(e) else cast("int64", floats.nearbyint(_as_float(e)))


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(exponent, int) and exponent > 0 and _is_integer(base):
        return reduce(operator.mul, [base] * exponent)
    if isinstance(exponent, float) and exponent in (0.5, -0.5):
        return floats.sqrt(_as_float(base)) if exponent > 0 else const(1.0, "float64") / floats.sqrt(_as_float(base))
    return floats.pow_(_as_float(base), _as_float(exponent))


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "Add": _folded(operator.add), "Mul": _product, "Min": _folded(min_), "Max": _folded(max_),
    "FloorDiv": _quotient, "CleanDiv": _quotient, "Mod": _rest, "PythonMod": _rest,
    "IntTrueDiv": Ratio, "FloatTrueDiv": _in_floats(operator.truediv),
    "Pow": _power, "FloatPow": _power, "PowByNatural": _power, "Identity": lambda e: e, "ToFloat": lambda e: Ratio(e, 1),
    "Abs": lambda e: max_(e, -e) if _is_integer(e) else floats.abs_(_as_float(e)),
    "TruncToFloat": _in_floats(floats.trunc), "TruncToInt": _to_zero, "FloorToInt": _down, "floor": _down,
    "CeilToInt": _up, "ceiling": _up, "RoundToInt": _nearest,
    **{f"OpaqueUnaryFn_{name}": _in_floats(getattr(floats, name)) for name in ("sqrt", "exp", "sin", "cos", "tanh")},
    **{f"OpaqueUnaryFn_{name}": _in_floats(getattr(floats, name)) for name in ("log", "log2")},
}  # fmt: skip
"""What PyTorch's functions of sizes are here, by their names."""


def expression(e: Any, symbol: Callable[[str], Any]) -> Any:
    """Returns a SymPy expression as a number or an expression; ``symbol`` gives what a name stands for.

    Floats are expressions of float64. TorchError for a function of sizes that the table does not have.
    """
    made = _read(e, symbol)
    return made.as_float() if isinstance(made, Ratio) else made


def is_rounded_float(e: Any) -> bool:
    """Returns whether an integer is computed from floats. Such numbers are data; extents are not known from them."""
    return isinstance(e, Expr) and any(n.dtype.is_float for n in pre_order(e) if isinstance(n, Expr))


def _read(e: Any, symbol: Callable[[str], Any]) -> Any:
    if e.is_Integer:
        return int(e)
    if e.is_Number:
        return float(e)
    if e.is_Symbol:
        return symbol(str(e))
    function = _FUNCTIONS.get(type(e).__name__)
    if function is None:
        raise TorchError(f"the size {e} is not supported; shapes= can give sizes as numbers")
    return function(*[_read(a, symbol) for a in e.args])
