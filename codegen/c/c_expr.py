"""Writes expressions in C. Every function returns text that may stand as an operand."""

from __future__ import annotations

import math

from ...tir.expr import DType, index_like
from ...tir.expr import nodes as E
from ...tir.expr.dtype import float_bits, round_float
from ..backend.emitter import constant_of
from ..backend.value_ranges import whole_in_range
from .c_scope import CScope, element
from .inline_functions import c_type


def integer(em: CScope, value: int, dtype: DType) -> str:
    """Returns an integer constant."""
    if dtype.is_bool:
        return str(value)
    if dtype == "uint64":
        return f"{value}ULL"
    if value == -(1 << 63):
        return "INT64_MIN"
    if dtype == "int64" or not -(1 << 31) < value < 1 << 31:
        return f"({value}LL)" if value < 0 else f"{value}LL"
    return f"({value})" if value < 0 else str(value)


def floating(em: CScope, value: float, dtype: DType) -> str:
    """Returns an exact constant in hexadecimal; half floats as bits."""
    bits = dtype.bits
    if bits == 16:
        return f"0x{float_bits(value, dtype):04x}"
    value = round_float(value, dtype)
    end = "f" if bits == 32 else ""
    if math.isnan(value):
        return f'__builtin_nan{end}("")'
    if math.isinf(value):
        return f"({'-' if value < 0 else ''}__builtin_inf{end}())"
    text = f"{value!r}{end}" if value == int(value) and abs(value) < 1e6 else f"{value.hex()}{end}"
    return f"({text})" if text.startswith("-") else text


def arithmetic(em: CScope, op: type[E.BinaryOp], a: str, b: str, dtype: DType) -> str:
    """Returns a sum, difference, product, or quotient of floats; integers wrap."""
    sign, lanes, bits = op.symbol, dtype.lanes, dtype.bits
    if dtype.is_float:
        if bits == 16:
            raise em.error(f"arithmetic on {dtype}: {a} {sign} {b}")
        return f"({a} {sign} {b})"
    unsigned = em.helpers.vector(DType(f"uint{bits if lanes > 1 else max(32, bits)}").with_lanes(lanes))
    return f"({em.helpers.vector(dtype)})(({unsigned}){a} {sign} ({unsigned}){b})"


def quotient(em: CScope, e: E.BinaryOp, a: str, b: str, dtype: DType) -> str:
    """Returns a quotient or remainder of integers."""
    helpers, kind = em.helpers, em.helpers.vector(dtype)
    is_quotient = isinstance(e, (E.Div, E.TruncDiv, E.FloorDiv))
    if isinstance(e, (E.FloorDiv, E.FloorMod)) and dtype.startswith("int"):
        function = helpers.plain("floordiv" if is_quotient else "floormod")
        if dtype.lanes > 1:
            return f"{helpers.lanewise(function, dtype, [dtype, dtype])}({a}, {b})"
        return f"({kind}){function}({a}, {b})"
    constant = constant_of(e.b)
    if constant is None or constant in (0, -1):
        return f"{helpers.division(is_quotient, dtype)}({a}, {b})"
    return f"(({kind})({a} {'/' if is_quotient else '%'} {b}))"


def extreme(em: CScope, e: E.Min | E.Max) -> str:
    """Returns the smaller or the larger of two values."""
    return f"{em.helpers.extreme(isinstance(e, E.Max), e.dtype)}({em.value(e.a)}, {em.value(e.b)})"


def comparison(em: CScope, op: type[E.CmpOp], a: str, b: str, dtype: DType) -> str:
    """Returns a comparison; for vectors, a vector of bytes."""
    text, lanes = f"({a} {op.symbol} {b})", dtype.lanes
    if lanes == 1:
        return text
    em.helpers.vector(dtype)
    return f"__builtin_convertvector({text}, {em.helpers.vector(DType('bool').with_lanes(lanes))})"


def logical(em: CScope, e: E.And | E.Or) -> str:
    """Returns a conjunction or disjunction."""
    sign = "&" if isinstance(e, E.And) else "|"
    if e.dtype.lanes > 1:
        return f"({em.value(e.a)} {sign} {em.value(e.b)})"
    return f"({em.value(e.a)} {2 * sign} {em.guarded(e.b)})"


def negation(em: CScope, a: str, dtype: DType) -> str:
    """Returns the opposite of a bool, or of a vector of them."""
    return f"({'~' if dtype.lanes > 1 else '!'}{a})"


def choice(em: CScope, test: str, yes: str, no: str, dtype: DType, tested: DType) -> str:
    """Returns one of two values. By a scalar condition, both are converted to one type, since a vector loaded from
    memory has a type of smaller alignment."""
    if tested.lanes > 1:
        return f"{em.helpers.select(dtype)}({test}, {yes}, {no})"
    as_type = f"({em.helpers.vector(dtype)})" if dtype.lanes > 1 else ""
    return f"({test} ? {as_type}{yes} : {as_type}{no})"


def splat(em: CScope, value: str, dtype: DType, lanes: int) -> str:
    """Returns a vector with a scalar in every lane; a true bool is 1, in a vector -1."""
    return f"{em.helpers.splat(dtype.with_lanes(lanes))}({f'-{value}' if dtype.is_bool else value})"


def conversion(em: CScope, e: E.Expr, to: DType) -> str:
    """Returns ``e`` as another type."""
    text = em.value(e)
    in_range = e.dtype.is_float and to.is_int and whole_in_range(em, e, to)
    return em.converted(text, e.dtype, to, in_range)


def converted(em: CScope, text: str, source: DType, to: DType, in_range: bool = False) -> str:
    """Returns a value of type ``source`` as ``to``; half floats are converted through float32.

    ``in_range``: the float, truncated, is a value of the integer type ``to``, or NaN.
    """
    if source == to:
        return text
    helpers, lanes = em.helpers, to.lanes
    single = DType("float32").with_lanes(lanes)
    if source.bits == 16 and source.kind in ("float", "bfloat"):
        function = helpers.plain("bf16_to_f32" if source.kind == "bfloat" else "f16_to_f32")
        return converted(em, f"{helpers.lanewise(function, single, [source])}({text})", single, to, in_range)
    if to.bits == 16 and to.kind in ("float", "bfloat"):
        if source.element == "float64" and to.kind == "float":
            odd = helpers.lanewise(helpers.plain("f64_to_odd_f32"), single, [source])
            text, source = f"{odd}({text})", single
        function = helpers.plain("f32_to_bf16" if to.kind == "bfloat" else "f32_to_f16")
        return f"{helpers.lanewise(function, to, [single])}({converted(em, text, source, single)})"
    kind = helpers.vector(to)
    if to.is_bool:
        return f"({text} != 0)" if lanes == 1 else f"__builtin_convertvector({text} != 0, {kind})"
    if source.is_float and to.is_int:
        return f"{helpers.lanewise(helpers.whole_number(source, to, in_range), to, [source])}({text})"
    if lanes == 1:
        return f"({kind}){text}"
    helpers.vector(source)
    return f"__builtin_convertvector({f'(-{text})' if source.is_bool else text}, {kind})"


def ramp(em: CScope, e: E.Ramp) -> str:
    """Returns a vector of evenly spaced values as data."""
    kind, scalar = em.helpers.vector(e.dtype), c_type(e.dtype.element)
    steps = f"({kind}){{{', '.join(map(str, range(e.lanes)))}}}"
    splat = em.helpers.splat(e.dtype)
    if not (isinstance(e.stride, E.IntImm) and e.stride.value == 1):
        steps = f"{splat}(({scalar}){em.value(e.stride)}) * {steps}"
    return f"({splat}(({scalar}){em.value(e.base)}) + {steps})"


def declared(em: CScope, var: E.Var, value: E.Expr, is_index: bool) -> tuple[str, str]:
    """Returns a new name for a variable, and its declaration."""
    text = em.value(value)
    kind = em.index_kind(var.dtype) if is_index else em.helpers.vector(var.dtype)
    name = em.name(var.name)
    return name, f"const {kind} {name} = {text};"


def named(em: CScope, var: E.Var, value: E.Expr, is_index: bool) -> str:
    """Returns the name of a variable, which is declared here."""
    name, line = declared(em, var, value, is_index)
    em.put(line)
    return name


def let(em: CScope, e: E.Let) -> str:
    """Returns a statement expression that names a part of itself."""
    is_index = index_like(e.var) and index_like(e.value)
    em.vars[e.var], line = declared(em, e.var, e.value, is_index)
    if is_index:
        em.indices.add(e.var)
    return f"({{ {line} {em.guarded(e.body)}; }})"


def shuffle(em: CScope, e: E.Shuffle) -> str:
    """Returns lanes picked from vectors."""
    names, lets = [], []
    for v in e.vectors:
        temporary = em.name("lanes")
        names.append(temporary)
        lets.append(f"const {em.helpers.vector(v.dtype)} {temporary} = {em.value(v)};")
    each = e.vectors[0].dtype.lanes
    picked = [names[i // each] + (f"[{i % each}]" if each > 1 else "") for i in e.indices]
    if e.dtype.is_bool and (each > 1) is not (len(picked) > 1):  # a true bool is 1, in a vector -1
        picked = [f"-{lane}" for lane in picked]
    result = picked[0] if len(picked) == 1 else f"({em.helpers.vector(e.dtype)}){{{', '.join(picked)}}}"
    return f"({{ {' '.join(lets)} {result}; }})"


def load(em: CScope, e: E.BufferLoad) -> str:
    """Returns an element, or a vector of elements."""
    dtype, lanes = e.dtype, e.dtype.lanes
    pointer, at = em.place(e.buffer, e.indices, lanes)
    if lanes == 1:
        return element(pointer)
    mask = "" if e.predicate is None else f", {em.value(e.predicate)}"
    em.helpers.vector(dtype)
    stored = em.helpers.vector_named(f"u8x{lanes}") if dtype.is_bool else c_type(dtype)
    if at is None and not mask:
        text = f"*(const {stored}_u *){pointer}"
    elif at is None:
        text = f"{em.helpers.memory('maskload', dtype)}({pointer}{mask})"
    else:
        text = f"{em.helpers.memory('maskgather' if mask else 'gather', dtype)}({pointer}, {at}{mask})"
    return f"({text} != 0)" if dtype.is_bool else text
