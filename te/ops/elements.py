"""The table of element-wise operators: a row is a formula of elements, and the operator's names in other systems.

From a row come the function here, the operator of graphs, and the converters of the readers of ONNX, PyTorch and StableHLO
and of lazy arrays. A new operator is one row. :func:`element` makes a row of a formula, :func:`_of` one of a function of
the IR; :class:`ElementOperator` says what a row has. Shapes broadcast as in NumPy.

**Forms.** A program that has no word for an operator writes it out: ``x * sigmoid(x)`` is ``silu``. Such formulas are the
``forms`` of a row; :mod:`tilewright.graph.patterns` makes a rule of them that puts the operator in their place. They are texts:

- ``x``, the row's operand by its name, stands for any value, and always for the same one;
- ``1``, ``0.5``: a constant of that number, rounded to the data type. Numbers of many digits fit when they are near;
- ``alpha``, a parameter of the row: a constant number, which the operator gets. ``hardtanh(x, min_val=low)`` takes it from
  an attribute. Constants that are computed of it, as ``-alpha`` is, cannot be written; a form with values can have them;
- ``+ - * /``, and each operator of graphs as a function: ``exp(negative(x))``. Attributes stand by keyword; those that a row
  has and the form leaves out have its defaults;
- sums and products of several fit in any order, and so do the operands of ``maximum``, ``equal`` and the like;
- ``either(f, g)``: one of both.

A form with values, ``("relu6(x)", {"low": 0.0, "high": 6.0})``, says what the parameters are that it does not tell.

PyTorch takes some operators of ATen apart whenever it exports a program, and their names are never read: forms find these.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from ...tir.expr import (
    And,
    Expr,
    Not,
    Or,
    cast,
    const,
    floordiv,
    floormod,
    max_,
    min_,
    promote,
    select,
    truncdiv,
    truncmod,
)
from ...tir.expr.dtype import round_float
from ...tir.expr.intrinsics import Operation
from ...tir.expr.intrinsics import number_operations as operations
from ...tir.expr.intrinsics.control_and_memory import if_then_else
from ...tir.expr.intrinsics.number_operations import abs_, fmod, isfinite, isinf, isnan, pow_
from ...tir.expr.intrinsics.number_operations import reinterpret as as_bits
from ..tensor import Tensor
from .arguments import combine

REQUIRED = inspect.Parameter.empty
"""Stands for the default of a parameter that has none."""

TYPES = ("float", "exact", "rounding", "number", "test", "order", "truth", "bits", "choice")
"""What an operator does with data types; readers convert operands as their systems do for that.

- ``float``: a float of the operands' common type, computed in float32 where that is narrower. Of one integer it is float32.
- ``exact``: the same, computed in the type itself.
- ``rounding``: as ``float``; integers stay as they are.
- ``number``: computed in the operands' common type, which the result has.
- ``test``: a truth value of a float; narrow floats are converted to float32.
- ``order``: a truth value of operands of a common type.
- ``truth``: operands are true where they are not zero.
- ``bits``: integers, or truth values.
- ``choice``: a condition and two operands of the result's type.
"""


@dataclass(frozen=True)
class Named:
    """The name of an operator in another system, with parameters whose values there are others when nothing is given."""

    name: str
    defaults: Mapping[str, Any] = field(default_factory=dict)


def named(name: str, **defaults: Any) -> Named:
    """Returns a name elsewhere; ``defaults`` are the parameters that have other defaults there."""
    return Named(name, defaults)


Name = str | Named
"""A name elsewhere, or several that are separated by blanks; empty for none."""


@dataclass(frozen=True)
class ElementOperator:
    """A row of the table.

    ``function`` takes as many tensors as ``operands`` says, then the parameters, of which ``parameters`` has the defaults.
    ``types`` is one of :data:`TYPES`. ``onnx``, ``aten``, ``hlo`` (with its dialect) and ``array_api`` are its names
    there; but for tests and choices, a ufunc of NumPy has that of ``array_api``, too. ``forms`` are formulas of other
    operators that graphs replace by this one, see :mod:`tilewright.graph.patterns`.
    """

    name: str
    operands: int
    parameters: Mapping[str, Any]
    types: str
    function: Callable[..., Any]
    onnx: Name = ""
    aten: Name = ""
    hlo: str = ""
    array_api: str = ""
    forms: tuple[str | tuple[str, Mapping[str, Any]], ...] = ()

    @property
    def operand_names(self) -> tuple[str, ...]:
        """Returns the names of the operands."""
        return tuple(inspect.signature(self.function).parameters)[: self.operands]

    def names(self, system: str) -> list[tuple[str, dict[str, Any]]]:
        """Returns the operator's names in ``onnx``, ``aten``, ``hlo`` or ``array_api``, with all parameters' defaults."""
        given: Name = getattr(self, system)
        found = given if isinstance(given, Named) else Named(given)
        return [(n, {**self.parameters, **found.defaults}) for n in found.name.split()]


ELEMENTS: dict[str, ElementOperator] = {}
"""All rows by the operator's name."""


def element(types: str = "float", **names: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns a decorator that makes a row of a formula, and an operator on tensors of it.

    The formula's parameters that are annotated as ``Expr`` are the operands; the others are the operator's parameters.
    ``names`` are the row's names elsewhere and its ``forms``.
    """

    def enter(formula: Callable[..., Any]) -> Callable[..., Any]:
        given = [p for p in inspect.signature(formula).parameters.values() if p.annotation == "Expr"]
        more = [p for p in inspect.signature(formula).parameters.values() if p.annotation != "Expr"]
        return _row(formula.__name__, formula, given, more, formula.__doc__ or "", types, names)

    return enter


def _of(operation: Operation, types: str = "float", name: str = "", **names: Any) -> Callable[..., Any]:
    """Returns the operator that applies a function of the IR."""
    one = inspect.Parameter("x", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    meaning = f"Computes {operation.meaning}, element by element."
    return _row(name or operation.name, lambda x: operation(x), [one], [], meaning, types, names)


def _row(
    name: str,
    formula: Callable[..., Any],
    given: list[inspect.Parameter],
    more: list[inspect.Parameter],
    meaning: str,
    types: str,
    names: Mapping[str, Any],
) -> Callable[..., Any]:
    assert types in TYPES and name not in ELEMENTS
    signature = inspect.Signature([
        *[p.replace(annotation="Tensor") for p in given], *more,
        inspect.Parameter("name", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=f"T_{name}", annotation="str"),
    ], return_annotation="Tensor")  # fmt: skip
    computed = _typed(types, len(given), formula)

    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}: {error}; its parameters are {', '.join(signature.parameters)}") from None
        bound.apply_defaults()
        values = [bound.arguments[p.name] for p in given]
        told = {p.name: bound.arguments[p.name] for p in more}
        return combine(name, lambda *e: computed(*e, **told), values, bound.arguments["name"])

    function.__name__ = function.__qualname__ = name
    function.__module__ = __name__
    function.__doc__ = meaning
    function.__signature__ = signature  # type: ignore[attr-defined]
    parameters = {p.name: p.default for p in more}
    ELEMENTS[name] = ElementOperator(name, len(given), parameters, types, function, **names)
    return function


def _typed(types: str, operands: int, formula: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the formula with the conversions that ``types`` stands for."""

    def of_floats(*e: Expr, **told: Any) -> Any:
        if operands == 1 and not e[0].dtype.is_float:
            return e[0] if types == "rounding" else formula(cast("float32", e[0]), **told)
        if not all(v.dtype.is_float for v in e):
            raise TypeError(f"floats are needed, not {' and '.join([str(v.dtype) for v in e])}")
        dtype = e[0].dtype if operands == 1 else promote(e[0].dtype, e[1].dtype)
        wide = dtype if dtype.bits >= 32 or types == "exact" else "float32"
        out = formula(*[v if v.dtype == wide else cast(wide, v) for v in e], **told)
        return out if wide == dtype else cast(dtype, out)

    def of_bits(*e: Expr, **told: Any) -> Any:
        if any(v.dtype.is_float for v in e):
            raise TypeError(f"integers are needed, not {' and '.join([str(v.dtype) for v in e])}")
        return formula(*e, **told)

    def of_truths(*e: Expr, **told: Any) -> Any:
        return formula(*[v if v.dtype.is_bool else v != const(0, v.dtype) for v in e], **told)

    def test(e: Expr, **told: Any) -> Any:
        return formula(cast("float32", e) if e.dtype.is_float and e.dtype.bits < 32 else e, **told)

    by_types = {"float": of_floats, "exact": of_floats, "rounding": of_floats, "bits": of_bits, "truth": of_truths, "test": test}  # fmt: skip
    return by_types.get(types, formula)


# functions of one float

exp = _of(operations.exp, onnx="Exp", aten="exp", hlo="stablehlo.exponential", array_api="exp")
exp2 = _of(operations.exp2, aten="exp2")
expm1 = _of(operations.expm1, aten="expm1", hlo="stablehlo.exponential_minus_one", array_api="expm1")
log = _of(operations.log, onnx="Log", aten="log", hlo="stablehlo.log", array_api="log")
log2 = _of(operations.log2, aten="log2", array_api="log2")
log10 = _of(operations.log10, aten="log10", array_api="log10")
log1p = _of(operations.log1p, aten="log1p", hlo="stablehlo.log_plus_one", array_api="log1p")
sqrt = _of(operations.sqrt, onnx="Sqrt", aten="sqrt", hlo="stablehlo.sqrt", array_api="sqrt")
rsqrt = _of(operations.rsqrt, aten="rsqrt", hlo="stablehlo.rsqrt")
sin = _of(operations.sin, onnx="Sin", aten="sin", hlo="stablehlo.sine", array_api="sin")
cos = _of(operations.cos, onnx="Cos", aten="cos", hlo="stablehlo.cosine", array_api="cos")
tan = _of(operations.tan, onnx="Tan", aten="tan", hlo="stablehlo.tan", array_api="tan")
asin = _of(operations.asin, onnx="Asin", aten="asin", hlo="chlo.asin", array_api="asin")
acos = _of(operations.acos, onnx="Acos", aten="acos", hlo="chlo.acos", array_api="acos")
atan = _of(operations.atan, onnx="Atan", aten="atan", hlo="chlo.atan", array_api="atan")
sinh = _of(operations.sinh, onnx="Sinh", aten="sinh", hlo="chlo.sinh", array_api="sinh")
cosh = _of(operations.cosh, onnx="Cosh", aten="cosh", hlo="chlo.cosh", array_api="cosh")
tanh = _of(operations.tanh, onnx="Tanh", aten="tanh", hlo="stablehlo.tanh", array_api="tanh")
asinh = _of(operations.asinh, onnx="Asinh", aten="asinh", hlo="chlo.asinh", array_api="asinh")
acosh = _of(operations.acosh, onnx="Acosh", aten="acosh", hlo="chlo.acosh", array_api="acosh")
atanh = _of(operations.atanh, onnx="Atanh", aten="atanh", hlo="chlo.atanh", array_api="atanh")
erf = _of(operations.erf, onnx="Erf", aten="erf", hlo="chlo.erf")
sigmoid = _of(
    operations.sigmoid, onnx="Sigmoid", aten="sigmoid", hlo="stablehlo.logistic", forms=("1 / (1 + exp(negative(x)))",)
)
floor = _of(operations.floor, "rounding", onnx="Floor", aten="floor", hlo="stablehlo.floor", array_api="floor")
ceil = _of(operations.ceil, "rounding", onnx="Ceil", aten="ceil", hlo="stablehlo.ceil", array_api="ceil")
round = _of(operations.round_, "rounding", "round", onnx="Round", aten="round", hlo="stablehlo.round_nearest_even")
trunc = _of(operations.trunc, "rounding", aten="trunc", array_api="trunc")


@element(onnx="Reciprocal", aten="reciprocal", array_api="reciprocal")
def reciprocal(x: Expr) -> Expr:
    """Returns 1 / x."""
    return const(1.0, x.dtype) / x


@element(hlo="stablehlo.cbrt")
def cbrt(x: Expr) -> Expr:
    """Returns the cube root, which has the sign of x.

    It is a power whose exponent ``third`` is the float next to 1/3, times exp((1/3 - third) · log|x|), of which the first two
    terms make up for the exponent's rounding: at most 1.5 units in the last place off. Of 0 and infinity the power is right.
    """
    third, size = round_float(1.0 / 3.0, x.dtype), abs_(x)
    lost = const(float(Fraction(1, 3) - Fraction(third)), x.dtype)
    near = pow_(size, const(third, x.dtype))
    inside = And(size > const(0.0, x.dtype), size < const(math.inf, x.dtype))
    return operations.copysign(select(inside, near + near * (operations.log(size) * lost), near), x)


# numbers


@element("number", onnx="Identity", array_api="positive")
def identity(x: Expr) -> Expr:
    """Returns a copy."""
    return x


@element("number", onnx="Abs", aten="abs", hlo="stablehlo.abs", array_api="abs")
def abs(x: Expr) -> Expr:
    """Returns the absolute value."""
    return x if x.dtype.kind == "uint" else abs_(x)


@element("number", onnx="Neg", aten="neg", hlo="stablehlo.negate", array_api="negative")
def negative(x: Expr) -> Expr:
    """Returns the element times -1."""
    return -x


@element("number", onnx="Sign", array_api="sign")
def sign(x: Expr) -> Expr:
    """Returns -1, 0 or 1; NaN stays NaN, and so do both zeros."""
    one, zero = const(1, x.dtype), const(0, x.dtype)
    return select(x > zero, one, select(x < zero, zero - one, x))


@element("number", hlo="chlo.square", array_api="square")
def square(x: Expr) -> Expr:
    """Returns the element times itself."""
    return x * x


@element("number", forms=("hardtanh(x, min_val=low, max_val=high)", ("relu6(x)", {"low": 0.0, "high": 6.0})))
def clip(x: Expr, low: float, high: float) -> Expr:
    """Returns the element, but at least ``low`` and at most ``high``."""
    return _between("clip", x, low, high)


@element("number", aten="hardtanh")
def hardtanh(x: Expr, min_val: float = -1.0, max_val: float = 1.0) -> Expr:
    """Returns the element, but at least ``min_val`` and at most ``max_val``; of integers, without what follows the point."""
    if x.dtype.is_int:
        min_val, max_val = int(min_val), int(max_val)
    return _between("hardtanh", x, min_val, max_val)


def _between(op: str, x: Expr, low: float, high: float) -> Expr:
    if low > high:
        raise ValueError(f"{op}: the lower bound {low} is above the upper bound {high}")
    return min_(max_(x, const(low, x.dtype)), const(high, x.dtype))


@element("number", onnx="Relu", aten="relu")
def relu(x: Expr) -> Expr:
    """Returns max(x, 0)."""
    return max_(x, const(0, x.dtype))


@element("number", aten="relu6")
def relu6(x: Expr) -> Expr:
    """Returns min(max(x, 0), 6)."""
    return _between("relu6", x, 0, 6)


@element("number", onnx="ThresholdedRelu")
def thresholded_relu(x: Expr, alpha: float = 1.0) -> Expr:
    """Returns ``x`` where it is above ``alpha``, else 0."""
    return select(x > const(alpha, x.dtype), x, const(0, x.dtype))


@element("number", onnx="Shrink")
def shrink(x: Expr, bias: float = 0.0, lambd: float = 0.5) -> Expr:
    """Returns ``x - bias`` above ``lambd``, ``x + bias`` below ``-lambd``, else 0."""
    edge, step = const(lambd, x.dtype), const(bias, x.dtype)
    return select(x > edge, x - step, select(x < -edge, x + step, const(0, x.dtype)))


# activations


def _zero(x: Expr) -> Expr:
    return const(0.0, x.dtype)


def _log_of_one_more(x: Expr) -> Expr:
    """Returns log(1 + exp(x)) without overflow."""
    return max_(x, _zero(x)) + operations.log1p(operations.exp(-abs_(x)))


def _two_slopes(x: Expr, alpha: float, scale: float, input_scale: float) -> Expr:
    """Returns ``scale · x`` where positive, else ``scale · alpha · (exp(input_scale · x) - 1)``."""
    low = min_(x, _zero(x))
    curve = operations.expm1(low * const(input_scale, x.dtype)) * const(alpha * scale, x.dtype)
    return select(x > 0.0, x * const(scale, x.dtype), curve)


@element(onnx="LeakyRelu", aten="leaky_relu")
def leaky_relu(x: Expr, alpha: float = 0.01) -> Expr:
    """Returns ``x`` where positive, else ``alpha · x``."""
    return select(x > 0.0, x, x * const(alpha, x.dtype))


_BELOW = "either(x, minimum(x, 0), where(greater(x, 0), 0, x))"


@element(
    onnx="Elu",
    aten="elu",
    forms=(
        f"where(greater(x, 0), x, alpha * expm1({_BELOW}))",
        (f"where(greater(x, 0), x, expm1({_BELOW}))", {"alpha": 1.0}),
    ),
)
def elu(x: Expr, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Expr:
    """Returns ``scale · x`` where positive, else ``scale · alpha · (exp(input_scale · x) - 1)`` (Clevert et al., 2016)."""
    return _two_slopes(x, alpha, scale, input_scale)


_ABOVE = "either(relu(x), maximum(x, 0))"


@element(
    onnx="Celu",
    aten="celu",
    forms=(
        f"{_ABOVE} + alpha * expm1(minimum(x, 0) / alpha)",
        (f"{_ABOVE} + expm1(minimum(x, 0))", {"alpha": 1.0}),
    ),
)
def celu(x: Expr, alpha: float = 1.0) -> Expr:
    """Returns ``x`` where positive, else ``alpha · (exp(x / alpha) - 1)`` (Barron, 2017)."""
    if alpha == 0:
        raise ValueError("celu: alpha is 0, by which it divides")
    low = min_(x, _zero(x)) / const(alpha, x.dtype)
    return max_(x, _zero(x)) + operations.expm1(low) * const(alpha, x.dtype)


@element(onnx="Selu")
def selu(x: Expr, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875) -> Expr:
    """Returns ``gamma · x`` where positive, else ``gamma · alpha · (exp(x) - 1)`` (Klambauer et al., 2017)."""
    return _two_slopes(x, alpha, gamma, 1.0)


_CUBE = "either(power(x, 3), square(x) * x, x * x * x)"
_ROOT = math.sqrt(2.0 / math.pi)


@element(
    onnx="Gelu",
    aten="gelu",
    forms=(
        f"x * 0.5 * (1 + erf(either(x / {math.sqrt(2.0)}, x * {math.sqrt(0.5)})))",
        (
            f"x * 0.5 * (1 + tanh(either({_ROOT} * (x + 0.044715 * {_CUBE}), {_ROOT} * x * (1 + 0.044715 * square(x)),"
            f" {_ROOT} * x * (1 + 0.044715 * x * x))))",
            {"approximate": "tanh"},
        ),
    ),
)
def gelu(x: Expr, approximate: str = "none") -> Expr:
    """Returns x times the normal distribution function of x (Hendrycks and Gimpel, 2016).

    ``approximate="none"``: x/2 (1 + erf(x/√2)); ``"tanh"``: x/2 (1 + tanh(√(2/π) (x + 0.044715 x³))).
    """
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu: approximate={approximate!r}; there are 'none' and 'tanh'")
    if approximate == "none":
        return x * 0.5 * (operations.erf(x * math.sqrt(0.5)) + 1.0)
    inner = (x + x * x * x * 0.044715) * math.sqrt(2.0 / math.pi)
    return x * 0.5 * (operations.tanh(inner) + 1.0)


@element(aten="silu", forms=("x * sigmoid(x)", "x / (1 + exp(negative(x)))"))
def silu(x: Expr) -> Expr:
    """Returns x · sigmoid(x), also called swish."""
    return x * operations.sigmoid(x)


@element(forms=("silu(gate) * up",))
def swiglu(gate: Expr, up: Expr) -> Expr:
    """Returns silu(gate) · up, the gated unit of language models (Shazeer, 2020); both have one data type."""
    return gate * operations.sigmoid(gate) * up


def _log1p_exp(form: str) -> str:
    """Returns the form of log(1 + exp(…)), which is ``softplus`` when its turn has come."""
    return f"either(log1p(exp({form})), softplus({form}))"


@element(
    onnx="Softplus",
    aten=named("softplus", threshold=20.0),
    forms=(
        "either(log(1 + exp(x)), log1p(exp(x)))",
        "where(not_equal(x, x), x + 0, softplus(x))",
        f"{_ABOVE} + {_log1p_exp('negative(abs(x))')}",
    ),
)
def softplus(x: Expr, beta: float = 1.0, threshold: float = math.inf) -> Expr:
    """Returns log(1 + exp(beta · x)) / beta, without overflow; ``x`` itself where ``beta · x`` is above ``threshold``."""
    inner = x if beta == 1 else x * const(beta, x.dtype)
    out = _log_of_one_more(inner) if beta == 1 else _log_of_one_more(inner) / const(beta, x.dtype)
    return out if threshold == math.inf else select(inner > const(threshold, x.dtype), x, out)


@element(onnx="Mish", aten="mish", forms=("x * tanh(softplus(x))",))
def mish(x: Expr) -> Expr:
    """Returns x · tanh(softplus(x)) (Misra, 2019)."""
    return x * operations.tanh(_log_of_one_more(x))


@element(onnx="Softsign")
def softsign(x: Expr) -> Expr:
    """Returns ``x / (1 + abs(x))``."""
    return x / (abs_(x) + 1.0)


_RAMP = "clip(x + 3, low=0.0, high=6.0)"
_SIXTH = 1.0 / 6.0


@element(
    onnx=named("HardSigmoid", alpha=0.2, beta=0.5),
    aten="hardsigmoid",
    forms=(
        f"clip(either(x * {_SIXTH}, x / 6) + 0.5, low=0.0, high=1.0)",
        f"either({_RAMP} / 6, {_RAMP} * {_SIXTH})",
    ),
)
def hardsigmoid(x: Expr, alpha: float = 1.0 / 6.0, beta: float = 0.5) -> Expr:
    """Returns ``alpha · x + beta`` between 0 and 1."""
    if alpha <= 0:
        return min_(max_(x * const(alpha, x.dtype) + const(beta, x.dtype), _zero(x)), const(1.0, x.dtype))
    return _ramp(x, beta / alpha, 1.0 / alpha) * const(alpha, x.dtype)


@element(
    onnx="HardSwish",
    aten="hardswish",
    forms=(f"either(x * hardsigmoid(x, alpha={_SIXTH!r}, beta=0.5), x * {_RAMP} * {_SIXTH}, x * {_RAMP} / 6)",),
)
def hardswish(x: Expr) -> Expr:
    """Returns x · hardsigmoid(x)."""
    return x * (_ramp(x, 3.0, 6.0) * (1.0 / 6.0))


def _ramp(x: Expr, before: float, top: float) -> Expr:
    """Returns ``x + before`` between 0 and ``top``."""
    return min_(max_(x + const(before, x.dtype), _zero(x)), const(top, x.dtype))


# two numbers


@element("number", onnx="Add", hlo="stablehlo.add", array_api="add")
def add(a: Expr, b: Expr) -> Expr:
    """Returns a + b."""
    return a + b


@element("number", onnx="Sub", hlo="stablehlo.subtract", array_api="subtract")
def subtract(a: Expr, b: Expr) -> Expr:
    """Returns a - b."""
    return a - b


@element("number", onnx="Mul", aten="mul", hlo="stablehlo.multiply", array_api="multiply")
def multiply(a: Expr, b: Expr) -> Expr:
    """Returns a · b."""
    return a * b


@element("number", array_api="divide")
def divide(a: Expr, b: Expr) -> Expr:
    """Returns a / b, in float32 when both are integers."""
    if a.dtype.is_float or b.dtype.is_float:
        return a / b
    return cast("float32", a) / cast("float32", b)


def _float_division(x: Expr, y: Expr) -> tuple[Expr, Expr, Expr, Expr]:
    """The operands in the type to compute in, C's fmod of them, and whether that has another sign than ``y``."""
    dtype = promote(x.dtype, y.dtype)
    wide = dtype if dtype.bits >= 32 else "float32"
    a, b = cast(wide, x), cast(wide, y)
    rest, zero = fmod(a, b), const(0.0, wide)
    return a, b, rest, Or(And(rest < zero, b > zero), And(rest > zero, b < zero))


@element("number", array_api="remainder")
def floor_mod(a: Expr, b: Expr) -> Expr:
    """Returns the remainder of floor_divide, with the sign of b; it is exact for floats."""
    if not (a.dtype.is_float or b.dtype.is_float):
        return floormod(a, b)
    _, divisor, rest, differs = _float_division(a, b)  # that of C's fmod, moved by b where the signs differ
    return cast(promote(a.dtype, b.dtype), select(differs, rest + divisor, rest))


@element("number", array_api="floor_divide")
def floor_divide(a: Expr, b: Expr) -> Expr:
    """Returns a / b rounded towards minus infinity. A quotient by zero or of an infinity is that of ``/``, as in NumPy."""
    if not (a.dtype.is_float or b.dtype.is_float):
        return floordiv(a, b)
    x, y, rest, differs = _float_division(a, b)
    near = (x - rest) / y  # a whole number, or next to one
    down = operations.floor(near)
    whole = down + cast(x.dtype, near - down > const(0.5, x.dtype)) - cast(x.dtype, differs)
    zero = const(0.0, y.dtype)
    signed = select(whole.equal(zero), operations.copysign(zero, x / y), whole)
    return cast(promote(a.dtype, b.dtype), select(y.equal(zero), x / y, signed))


@element("number")
def truncate_divide(a: Expr, b: Expr) -> Expr:
    """Returns a / b of integers, rounded towards zero."""
    if not (a.dtype.is_int and b.dtype.is_int):
        raise TypeError(f"integers are needed, not {a.dtype} and {b.dtype}")
    return truncdiv(a, b)


@element("number")
def remainder(a: Expr, b: Expr) -> Expr:
    """Returns what is left of a after dividing by b, with the sign of a, as C's fmod."""
    if not a.dtype.is_float:
        return truncmod(a, b)
    if a.dtype in ("float32", "float64"):
        return fmod(a, b)
    return cast(a.dtype, fmod(cast("float32", a), cast("float32", b)))


@element("number", aten="maximum", hlo="stablehlo.maximum", array_api="maximum")
def maximum(a: Expr, b: Expr) -> Expr:
    """Returns the larger, NaN if either is."""
    return max_(a, b)


@element("number", aten="minimum", hlo="stablehlo.minimum", array_api="minimum")
def minimum(a: Expr, b: Expr) -> Expr:
    """Returns the smaller, NaN if either is."""
    return min_(a, b)


@element("number")
def power(a: Expr, b: Expr) -> Expr:
    """Returns a to the power b."""
    return pow_(a, b)


@element(aten="atan2", hlo="stablehlo.atan2", array_api="atan2")
def atan2(a: Expr, b: Expr) -> Expr:
    """Returns the angle of the point (b, a)."""
    return operations.atan2(a, b)


@element(aten="copysign", array_api="copysign")
def copysign(a: Expr, b: Expr) -> Expr:
    """Returns a with the sign of b."""
    return operations.copysign(a, b)


@element(aten="hypot", array_api="hypot")
def hypot(a: Expr, b: Expr) -> Expr:
    """Returns the length of (a, b), without overflow."""
    return operations.hypot(a, b)


@element(
    aten="logaddexp",
    array_api="logaddexp",
    forms=(f"where(not_equal(a - b, a - b), a + b, maximum(a, b) + {_log1p_exp('negative(abs(a - b))')})",),
)
def logaddexp(a: Expr, b: Expr) -> Expr:
    """Returns the logarithm of exp(a) + exp(b), without overflow."""
    apart = operations.log1p(operations.exp(-abs_(a - b)))
    return max_(a, b) + select(a.equal(b), const(math.log(2), a.dtype), apart)  # a - b of equal infinities is NaN


@element("exact", aten="nextafter", array_api="nextafter")
def nextafter(a: Expr, b: Expr) -> Expr:
    """Returns the float next to a on the way to b.

    Its bits are one more or one less than those of a. Next to zero is the smallest float with the sign of b.
    """
    kind = f"int{a.dtype.bits}"
    bits, one = as_bits(kind, a), const(1, kind)
    farther = (a < b).equal(bits > const(0, kind))
    lowest = const(-(2 ** (a.dtype.bits - 1)), kind)
    least = select(b > const(0, b.dtype), one, lowest + one)
    moved = select(a.equal(const(0, a.dtype)), least, bits + select(farther, one, const(-1, kind)))
    return select(Or(isnan(a), isnan(b)), a + b, select(a.equal(b), b, as_bits(a.dtype, moved)))


# comparisons, tests, logic and bits


@element("order", onnx="Equal", aten="eq", array_api="equal")
def equal(a: Expr, b: Expr) -> Expr:
    """Returns whether a equals b."""
    return a.equal(b)


@element("order", aten="ne", array_api="not_equal")
def not_equal(a: Expr, b: Expr) -> Expr:
    """Returns whether a differs from b."""
    return ~a.equal(b)


@element("order", onnx="Less", aten="lt", array_api="less")
def less(a: Expr, b: Expr) -> Expr:
    """Returns whether a < b."""
    return a < b


@element("order", onnx="LessOrEqual", aten="le", array_api="less_equal")
def less_equal(a: Expr, b: Expr) -> Expr:
    """Returns whether a <= b."""
    return a <= b


@element("order", onnx="Greater", aten="gt", array_api="greater")
def greater(a: Expr, b: Expr) -> Expr:
    """Returns whether a > b."""
    return a > b


@element("order", onnx="GreaterOrEqual", aten="ge", array_api="greater_equal")
def greater_equal(a: Expr, b: Expr) -> Expr:
    """Returns whether a >= b."""
    return a >= b


@element("test", onnx="IsNaN", aten="isnan", array_api="isnan")
def is_nan(x: Expr) -> Expr:
    """Returns whether the element is not a number."""
    return isnan(x) if x.dtype.is_float else const(False, "bool")


@element("test", onnx="IsInf", aten="isinf", array_api="isinf")
def is_inf(x: Expr, detect_negative: int = 1, detect_positive: int = 1) -> Expr:
    """Returns whether the element is infinite; those of one sign are left out where its parameter is 0."""
    if not x.dtype.is_float or not (detect_negative or detect_positive):
        return const(False, "bool")
    if detect_negative and detect_positive:
        return isinf(x)
    return x.equal(const(math.inf if detect_positive else -math.inf, x.dtype))


@element("test", hlo="stablehlo.is_finite", array_api="isfinite")
def is_finite(x: Expr) -> Expr:
    """Returns whether the element is neither infinite nor NaN."""
    return isfinite(x) if x.dtype.is_float else const(True, "bool")


@element("test", aten="signbit", array_api="signbit")
def signbit(x: Expr) -> Expr:
    """Returns whether the element has a minus sign; that of -0.0 and of NaN is the sign of their bits."""
    if x.dtype.is_float:
        kind = f"int{x.dtype.bits}"
        return as_bits(kind, x) < const(0, kind)
    return x < const(0, x.dtype) if x.dtype.kind == "int" else const(False, "bool")


@element("truth", onnx="And", aten="logical_and", array_api="logical_and")
def logical_and(a: Expr, b: Expr) -> Expr:
    """Returns whether both are true (not zero)."""
    return And(a, b)


@element("truth", onnx="Or", aten="logical_or", array_api="logical_or")
def logical_or(a: Expr, b: Expr) -> Expr:
    """Returns whether one of both is true (not zero)."""
    return Or(a, b)


@element("truth", onnx="Xor", aten="logical_xor", array_api="logical_xor")
def logical_xor(a: Expr, b: Expr) -> Expr:
    """Returns whether exactly one is true."""
    return a != b


@element("truth", onnx="Not", aten="logical_not", array_api="logical_not")
def logical_not(x: Expr) -> Expr:
    """Returns whether the element is false (zero)."""
    return Not(x)


@element("bits", onnx="BitwiseAnd", aten="bitwise_and", hlo="stablehlo.and", array_api="bitwise_and")
def bitwise_and(a: Expr, b: Expr) -> Any:
    """Returns the bits that both have."""
    return a & b


@element("bits", onnx="BitwiseOr", aten="bitwise_or", hlo="stablehlo.or", array_api="bitwise_or")
def bitwise_or(a: Expr, b: Expr) -> Any:
    """Returns the bits that one of both has."""
    return a | b


@element("bits", onnx="BitwiseXor", aten="bitwise_xor", hlo="stablehlo.xor", array_api="bitwise_xor")
def bitwise_xor(a: Expr, b: Expr) -> Any:
    """Returns the bits that exactly one has."""
    return a != b if a.dtype.is_bool else a ^ b


@element("bits", onnx="BitwiseNot", aten="bitwise_not", hlo="stablehlo.not", array_api="bitwise_invert")
def bitwise_not(x: Expr) -> Any:
    """Returns the element with each bit inverted."""
    return ~x


@element("bits", array_api="bitwise_left_shift")
def left_shift(a: Expr, b: Expr) -> Any:
    """Returns a shifted by b bits to the left."""
    return a << b


@element("bits", array_api="bitwise_right_shift")
def right_shift(a: Expr, b: Expr) -> Any:
    """Returns a shifted by b bits to the right."""
    return a >> b


@element(
    "choice",
    onnx="Where",
    aten="where.self where.ScalarSelf where.ScalarOther where.Scalar",
    hlo="stablehlo.select",
    array_api="where",
)
def where(condition: Expr, x: Expr, y: Expr) -> Any:
    """Returns ``x`` where ``condition`` (bool, or not zero), else ``y``."""
    dtype = promote(x.dtype, y.dtype)
    holds = condition if condition.dtype.is_bool else condition != const(0, condition.dtype)
    return if_then_else(holds, x if x.dtype == dtype else cast(dtype, x), y if y.dtype == dtype else cast(dtype, y))


OF_SYMBOLS: dict[str, Callable[..., Tensor]] = {"+": add, "-": subtract, "*": multiply, "/": divide}
"""What makes ``A + B`` and the like of whole tensors."""

__all__ = [*ELEMENTS]
