"""Emits expressions: scalars and vectors as SSA values, and divisions that never make the processor fault."""

from __future__ import annotations

from ...tir.expr import BinaryOp, Div, DType, FloorDiv, FloorMod, TruncDiv, index_like
from ...tir.expr import nodes as E
from ...tir.walk import pre_order
from ..backend import emitter as expressions
from ..backend.effects import is_external_call
from ..backend.emitter import constant_of
from .function_builder import FunctionBuilder, sum_text
from .llvm_scope import LlvmScope
from .llvm_types import llvm_type, splat_constant, vector_constant, zero

_OPERATIONS: dict[type, tuple[str, str]] = {  # of floats, of integers
    E.Add: ("fadd", "add"),
    E.Sub: ("fsub", "sub"),
    E.Mul: ("fmul", "mul"),
    E.Div: ("fdiv", ""),
}
_COMPARE: dict[type, tuple[str, str, str]] = {  # float, signed, unsigned
    E.EQ: ("oeq", "eq", "eq"),
    E.NE: ("une", "ne", "ne"),
    E.LT: ("olt", "slt", "ult"),
    E.LE: ("ole", "sle", "ule"),
    E.GT: ("ogt", "sgt", "ugt"),
    E.GE: ("oge", "sge", "uge"),
}
_HOLDS = {E.EQ: int.__eq__, E.NE: int.__ne__, E.LT: int.__lt__, E.LE: int.__le__, E.GT: int.__gt__, E.GE: int.__ge__}


def integer(em: LlvmScope, value: int, dtype: DType) -> str:
    """Returns an integer literal."""
    return str(value) if not dtype.is_bool else ("true" if value else "false")


def variable(em: LlvmScope, var: E.Var) -> str:
    """Returns the value of a variable in its own type; of a buffer's pointer, the address."""
    if var in em.bases:
        return em.bases[var]
    text = em.lookup(var)
    if var in em.indices and text.startswith("%") and llvm_type(var.dtype) != "i64":
        return em.fn.pure(f"trunc i64 {text} to {llvm_type(var.dtype)}")
    return text


def arithmetic(em: LlvmScope, op: type, a: str, b: str, dtype: DType) -> str:
    """Returns a sum, difference, product, or quotient of floats."""
    return em.fn.pure(f"{_OPERATIONS[op][0 if dtype.is_float else 1]} {llvm_type(dtype)} {a}, {b}")


def product(em: LlvmScope, e: E.Mul) -> str:
    """Returns a product; that of floats with -1 is a change of sign."""
    if e.dtype.is_float and constant_of(e.b) == -1.0:
        return em.fn.pure(f"fneg {em.type(e)} {em.value(e.a)}")
    return expressions.arithmetic(em, e)


def comparison(em: LlvmScope, op: type, a: str, b: str, dtype: DType) -> str:
    """Returns a comparison."""
    floats, signed, unsigned = _COMPARE[op]
    how = f"fcmp {floats}" if dtype.is_float else f"icmp {signed if dtype.is_signed else unsigned}"
    return em.fn.pure(f"{how} {llvm_type(dtype)} {a}, {b}")


def compared(em: LlvmScope, e: E.CmpOp) -> str:
    """Returns a comparison. One of a ramp with a single value is a constant mask, or one of lane numbers with a clamped
    distance."""
    mask = _lane_mask(em, e) if e.dtype.lanes > 1 and e.a.dtype.is_signed else None
    return expressions.comparison(em, e) if mask is None else mask


def _lane_mask(em: LlvmScope, e: E.CmpOp) -> str | None:
    if not (isinstance(e.a, E.Ramp) and isinstance(e.b, E.Broadcast) and isinstance(e.a.stride, E.IntImm)):
        return None
    if not (index_like(e.a.base) and index_like(e.b.value)):
        return None
    fn, lanes, stride = em.fn, e.a.lanes, e.a.stride.value
    gap = em.linear(e.b.value).plus(em.linear(e.a.base), -1)  # stride * lane  OP  gap
    if not gap.terms:
        return vector_constant([int(_HOLDS[type(e)](stride * n, gap.const)) for n in range(lanes)], "i1")
    reach = abs(stride) * lanes + 1
    if isinstance(e, (E.EQ, E.NE)) or reach >= 1 << 30:
        return None
    # beyond the reach of the lanes the distance makes no difference
    low = fn.called("llvm.smax.i64", "i64", sum_text(gap, fn), str(-reach))
    clamped = fn.called("llvm.smin.i64", "i64", low, str(reach))
    narrow = fn.pure(f"trunc i64 {clamped} to i32")
    steps = vector_constant([stride * n for n in range(lanes)], "i32")
    return fn.pure(f"icmp {_COMPARE[type(e)][1]} <{lanes} x i32> {steps}, {em.splat(narrow, 'int32', lanes)}")


def logical(em: LlvmScope, e: E.And | E.Or) -> str:
    """Returns a conjunction or disjunction. Where the second operand reads memory or calls external functions, it is
    evaluated only when it decides the result."""
    fn, both = em.fn, isinstance(e, E.And)
    if e.dtype.lanes > 1 or not any(isinstance(n, E.BufferLoad) or is_external_call(n) for n in pre_order(e.b)):
        return fn.pure(f"{'and' if both else 'or'} {em.type(e)} {em.value(e.a)}, {em.value(e.b)}")
    first = em.value(e.a)
    start, more, done = fn.block, fn.new_label("more"), fn.new_label("both")
    fn.branch_if(first, *((more, done) if both else (done, more)))
    fn.push()
    fn.label(more)
    second = em.value(e.b)
    end = fn.block
    fn.branch(done)
    fn.pop()
    fn.label(done)
    phi = fn.phi("i1")
    fn.fill(phi, [("false" if both else "true", start), (second, end)])
    return phi.name


def negation(em: LlvmScope, a: str, dtype: DType) -> str:
    """Returns the opposite of a bool, or of a vector of them."""
    return em.fn.pure(f"xor {llvm_type(dtype)} {a}, {splat_constant('true', dtype)}")


def choice(em: LlvmScope, test: str, yes: str, no: str, dtype: str, tested: str) -> str:
    """Returns one of two values, lane by lane where the test is a vector."""
    return yes if yes == no else em.fn.chosen(llvm_type(tested), test, llvm_type(dtype), yes, no)


def extreme(em: LlvmScope, e: E.Min | E.Max) -> str:
    """Returns the smaller or the larger of two values."""
    dtype, largest = e.dtype, isinstance(e, E.Max)
    if dtype.is_float:
        a, b = (e.b, e.a) if _is_number(e.b) else (e.a, e.b)
        return float_extreme(em, largest, em.value(a), em.value(b), dtype, _is_number(a))
    if dtype.lanes == 1 and index_like(e) and (em.computes_index(e.a) or em.computes_index(e.b)):
        return em.index_value(e)
    x, y = em.value(e.a), em.value(e.b)
    test = comparison(em, E.GT if largest else E.LT, x, y, dtype)
    return em.fn.chosen(llvm_type(DType("bool").with_lanes(dtype.lanes)), test, llvm_type(dtype), x, y)


def float_extreme(em: LlvmScope, largest: bool, x: str, y: str, dtype: DType, x_is_number: bool = False) -> str:
    """Returns Min or Max of floats, NaN if either is NaN. This is one instruction when one operand is a constant number.

    The select gives ``y`` whenever ``y`` is NaN.
    """
    fn, type_, bools = em.fn, llvm_type(dtype), llvm_type(DType("bool").with_lanes(dtype.lanes))
    test = fn.pure(f"fcmp {'ogt' if largest else 'olt'} {type_} {x}, {y}")
    best = fn.chosen(bools, test, type_, x, y)
    return best if x_is_number else fn.chosen(bools, fn.pure(f"fcmp uno {type_} {x}, {x}"), type_, x, best)


def _is_number(e: E.Expr) -> bool:
    value = constant_of(e)
    return value is not None and value == value


def ramp(em: LlvmScope, e: E.Ramp) -> str:
    """Returns a vector of evenly spaced values as data."""
    fn, lanes, scalar = em.fn, e.lanes, e.dtype.element
    type_, base_type = em.type(e), llvm_type(scalar)
    base = em.splat(em.value(e.base), scalar, lanes)
    if isinstance(e.stride, E.IntImm):
        steps = vector_constant([e.stride.value * n for n in range(lanes)], base_type)
    else:
        stride = em.splat(em.value(e.stride), scalar, lanes)
        steps = fn.pure(f"mul {type_} {stride}, {vector_constant(list(range(lanes)), base_type)}")
    if isinstance(e.base, E.IntImm) and e.base.value == 0:
        return steps
    return fn.pure(f"add {type_} {base}, {steps}")


def named(em: LlvmScope, var: E.Var, value: E.Expr, is_index: bool) -> str:
    """Returns what stands for a variable: its value."""
    return em.index(value) if is_index else em.value(value)


def shuffle(em: LlvmScope, e: E.Shuffle) -> str:
    """Returns lanes picked from one vector or several of the same length."""
    if e.vectors[0].dtype.lanes == 1 or len(e.indices) == 1 or len(e.vectors) > 2:
        picked = [_lane(em, e, n) for n in e.indices]
        return picked[0] if len(picked) == 1 else em.fn.joined(em.type(e), llvm_type(e.dtype.element), picked)
    first = em.value(e.vectors[0])
    second = em.value(e.vectors[1]) if len(e.vectors) == 2 else "poison"
    return em.fn.shuffled(em.type(e.vectors[0]), first, second, e.indices)


def _lane(em: LlvmScope, e: E.Shuffle, n: int) -> str:
    """Returns lane ``n`` of the vectors' concatenation."""
    for vector in e.vectors:
        lanes = vector.dtype.lanes
        if n < lanes:
            text = em.value(vector)
            return text if lanes == 1 else em.fn.lane(em.type(vector), text, n)
        n -= lanes
    raise em.error("a shuffle's index is beyond its vectors")


# Integer division of scalars and of vectors, emitted so that no operand makes the processor fault.
#
# The nodes (:class:`.FloorDiv`) define the results that the machine leaves open: a quotient and a remainder by zero are
# 0, and the smallest number divided by -1 is itself. Divisors that can be neither 0 nor -1 need no extra instructions.
# Other divisors are replaced by 1 before the instruction, and the quotient is selected afterwards.


def divide(
    fn: FunctionBuilder, e: BinaryOp, a: str, b: str, dtype: DType, divisor: tuple[int | None, int | None]
) -> str:
    """Returns the quotient or the remainder that ``e`` describes, of two values of type ``dtype``. ``divisor`` is the
    divisor when it is a constant, and the least value that it can have."""
    quotient, (constant, least) = isinstance(e, (Div, TruncDiv, FloorDiv)), divisor
    if constant == 0 or (constant == -1 and dtype.is_signed):
        if constant == 0 or not quotient:
            return zero(dtype)
        return fn.pure(f"sub {llvm_type(dtype)} {zero(dtype)}, {a}")
    if constant is not None or (least is not None and least > 0):
        return _plain(fn, e, a, b, dtype)
    type_, bools = llvm_type(dtype), llvm_type(DType("bool").with_lanes(dtype.lanes))
    one = splat_constant("1", dtype)
    if dtype.lanes > 1:  # lanes that were never stored to hold an arbitrary number
        b = fn.pure(f"freeze {type_} {b}")
    if dtype.is_signed and (least is None or least < 0):
        next_ = fn.pure(f"add {type_} {b}, {one}")
        special = fn.pure(f"icmp ult {type_} {next_}, {splat_constant('2', dtype)}")  # b is -1 or 0
    else:
        special = fn.pure(f"icmp eq {type_} {b}, {zero(dtype)}")
    result = _plain(fn, e, a, fn.chosen(bools, special, type_, one, b), dtype)
    if not quotient:  # the remainder by 1 is 0, as it is by 0 and by -1
        return result
    return fn.chosen(bools, special, type_, fn.pure(f"mul {type_} {a}, {b}"), result)  # 0, or -a


def _plain(fn: FunctionBuilder, e: BinaryOp, a: str, b: str, dtype: DType) -> str:
    """Returns the division when no divisor is 0, and none is -1 where the smallest number may be divided."""
    type_ = llvm_type(dtype)
    if isinstance(e, (FloorDiv, FloorMod)) and dtype.is_signed:
        return _floored(fn, isinstance(e, FloorDiv), a, b, dtype)
    word = "div" if isinstance(e, (Div, TruncDiv, FloorDiv)) else "rem"
    return fn.pure(f"{'s' if dtype.is_signed else 'u'}{word} {type_} {a}, {b}")


def _floored(fn: FunctionBuilder, quotient: bool, a: str, b: str, dtype: DType) -> str:
    """Returns signed division rounded towards minus infinity, or its remainder."""
    type_, bool_type = llvm_type(dtype), llvm_type(DType("bool").with_lanes(dtype.lanes))
    rem = fn.pure(f"srem {type_} {a}, {b}")
    nonzero = fn.pure(f"icmp ne {type_} {rem}, {zero(dtype)}")
    signs = fn.pure(f"xor {type_} {rem}, {b}")
    differ = fn.pure(f"icmp slt {type_} {signs}, {zero(dtype)}")
    adjust = fn.pure(f"and {bool_type} {nonzero}, {differ}")
    if quotient:
        div = fn.pure(f"sdiv {type_} {a}, {b}")
        step = fn.pure(f"sext {bool_type} {adjust} to {type_}")
        return fn.pure(f"add {type_} {div}, {step}")
    added = fn.pure(f"add {type_} {rem}, {b}")
    return fn.chosen(bool_type, adjust, type_, added, rem)
