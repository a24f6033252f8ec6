"""Emits calls: intrinsics, horizontal reductions, and functions of the C library that no pass has expanded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...tir.dtype import bits_of, element_of, is_float, is_signed, lanes_of, with_lanes
from ...tir.expr import BufferLoad, Call, Expr, IntImm, StringImm
from ...tir.walk import pre_order
from .cold_paths import emit_likely, is_likely
from .exp2_scaling import emit_round_rest, emit_times_exp2
from .llvm_tiles import TILE_CALLS
from .llvm_types import llvm_type, splat_constant, suffix, vector_constant, zero
from .reduction_network import reduce_rows
from .table_lookup import emit_lookup
from .target_intrinsics import MACHINE_CALLS, may_write
from .value_ranges import range_of

if TYPE_CHECKING:
    from .llvm_expr import ExprEmitter

_INTRINSICS = {
    "fma": "fma", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "roundeven",
    "nearbyint": "roundeven", "fabs": "fabs", "copysign": "copysign", "popcount": "ctpop",
}  # fmt: skip
_LIBM = {
    "exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "expm1", "sin", "cos", "tan", "asin", "acos", "atan",
    "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "pow", "fmod", "hypot",
}  # fmt: skip
_BITWISE = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}


def is_external_call(e: object) -> bool:
    """Returns whether an expression calls a function from outside the program."""
    return isinstance(e, Call) and e.op.startswith(("tir.call_extern", "tir.call_pure_extern"))


def emit_call(em: ExprEmitter, e: Call) -> str:
    """Returns the value of a call."""
    name = e.op.removeprefix("tir.")
    fn = em.fn
    if name in _INTRINSICS:
        return _intrinsic(em, f"llvm.{_INTRINSICS[name]}.{suffix(e.dtype)}", e)
    if name in _BITWISE:
        return fn.pure(f"{_BITWISE[name]} {em.type(e)} {em.value(e.args[0])}, {em.value(e.args[1])}")
    handler = _HANDLERS.get(name)
    if handler is not None:
        return handler(em, e)
    if name in _LIBM:
        return _libm(em, e, name)
    raise ValueError(f"no machine form for the call {name!r}")


def _intrinsic(em: ExprEmitter, name: str, e: Call) -> str:
    types = [em.type(a) for a in e.args]
    return em.fn.pure(em.intrinsic(name, em.type(e), types, [em.value(a) for a in e.args]))


def _shift(em: ExprEmitter, e: Call) -> str:
    """Returns a shifted value. The processor reads only a few bits of the distance, so a distance that may be too large
    is checked first."""
    fn, type_, bits = em.fn, em.type(e), bits_of(e.dtype)
    left = e.op == "tir.shift_left"
    how = "shl" if left else "ashr" if is_signed(e.dtype) else "lshr"
    value, by = em.value(e.args[0]), em.value(e.args[1])
    low, high = range_of(em, e.args[1])
    if low is not None and high is not None and 0 <= low and high < bits:
        return fn.pure(f"{how} {type_} {value}, {by}")
    if how == "ashr":
        last = splat_constant(str(bits - 1), e.dtype)
        near = fn.pure(em.intrinsic(f"llvm.umin.{suffix(e.dtype)}", type_, [type_, type_], [by, last]))
        return fn.pure(f"ashr {type_} {value}, {near}")
    fits = fn.pure(f"icmp ult {type_} {by}, {splat_constant(str(bits), e.dtype)}")
    moved = fn.pure(f"{how} {type_} {value}, {by}")
    bools = llvm_type(with_lanes("bool", lanes_of(e.dtype)))
    return fn.pure(f"select {bools} {fits}, {type_} {moved}, {type_} {zero(e.dtype)}")


def _bitwise_not(em: ExprEmitter, e: Call) -> str:
    ones = splat_constant("-1", e.dtype)
    return em.fn.pure(f"xor {em.type(e)} {em.value(e.args[0])}, {ones}")


def _clz(em: ExprEmitter, e: Call) -> str:
    type_ = em.type(e)
    name = f"llvm.ctlz.{suffix(e.dtype)}"
    return em.fn.pure(em.intrinsic(name, type_, [type_, "i1"], [em.value(e.args[0]), "false"]))


def _reinterpret(em: ExprEmitter, e: Call) -> str:
    (arg,) = e.args
    if em.type(arg) == em.type(e):
        return em.value(arg)
    return em.fn.pure(f"bitcast {em.type(arg)} {em.value(arg)} to {em.type(e)}")


def _likely(em: ExprEmitter, e: Call) -> str:
    return em.value(e.args[0])


def _classify(em: ExprEmitter, e: Call) -> str:
    (x,) = e.args
    type_, text = em.type(x), em.value(x)
    if e.op == "tir.isnan":
        return em.fn.pure(f"fcmp uno {type_} {text}, {text}")
    size = em.fn.pure(em.intrinsic(f"llvm.fabs.{suffix(x.dtype)}", type_, [type_], [text]))
    infinity = "0x7FF0000000000000" if bits_of(x.dtype) != 16 else "0xH7C00"
    how = "oeq" if e.op == "tir.isinf" else "olt"
    return em.fn.pure(f"fcmp {how} {type_} {size}, {splat_constant(infinity, x.dtype)}")


def _rsqrt(em: ExprEmitter, e: Call) -> str:
    root = em.fn.pure(em.intrinsic(f"llvm.sqrt.{suffix(e.dtype)}", em.type(e), [em.type(e)], [em.value(e.args[0])]))
    one = splat_constant("0x3FF0000000000000", e.dtype)
    return em.fn.pure(f"fdiv {em.type(e)} {one}, {root}")


def _sigmoid(em: ExprEmitter, e: Call) -> str:
    x = e.args[0]
    power = em.value(Call("tir.exp", (_negative(x),), e.dtype))
    one = splat_constant("0x3FF0000000000000", e.dtype)
    return em.fn.pure(f"fdiv {em.type(e)} {one}, {em.fn.pure(f'fadd {em.type(e)} {one}, {power}')}")


def _negative(x: Expr) -> Expr:
    return x * -1.0


def _if_then_else(em: ExprEmitter, e: Call) -> str:
    """Returns the chosen value. Only the chosen branch is evaluated, unless neither reads memory."""
    cond, yes, no = e.args
    fn = em.fn
    if is_likely(e):
        return emit_likely(em, e)
    if not any(isinstance(n, (BufferLoad, Call)) for side in (yes, no) for n in pre_order(side)):
        return em.select(cond, em.value(yes), em.value(no), e.dtype)
    then, other, done = fn.new_label("then"), fn.new_label("else"), fn.new_label("chosen")
    fn.branch_if(em.value(cond), then, other)
    results = []
    for label, side in ((then, yes), (other, no)):
        fn.push()
        fn.label(label)
        results.append((em.value(side), fn.block))
        fn.branch(done)
        fn.pop()
    fn.label(done)
    phi = fn.phi(em.type(e))
    fn.fill(phi, results)
    return phi.name


def _vector_reduce(em: ExprEmitter, e: Call) -> str:
    """Returns the combined lanes of a vector, in log2(lanes) steps of halves; several vectors side by side are combined
    together."""
    (vector,) = e.args
    how = e.op.removeprefix("tir.vector_reduce_")
    if lanes_of(e.dtype) > 1:
        return reduce_rows(
            em, e, lambda a, b, dtype: _combine(em, how, a, b, dtype), lambda v, dtype: _halved(em, how, v, dtype)
        )
    return _halved(em, how, em.value(vector), vector.dtype)


def _halved(em: ExprEmitter, how: str, text: str, dtype: str) -> str:
    lanes, scalar = lanes_of(dtype), element_of(dtype)
    while lanes > 1:
        half = lanes // 2
        type_ = llvm_type(with_lanes(scalar, lanes))
        low, high = (
            em.fn.pure(
                f"shufflevector {type_} {text}, {type_} poison, <{half} x i32> "
                f"{vector_constant(list(range(start, start + half)), 'i32')}"
            )
            for start in (0, half)
        )
        if half == 1:
            low, high = (em.fn.pure(f"extractelement {type_} {text}, i64 {n}") for n in (0, 1))
        text = _combine(em, how, low, high, with_lanes(scalar, half))
        lanes = half
    return text


def _combine(em: ExprEmitter, how: str, a: str, b: str, dtype: str) -> str:
    type_ = llvm_type(dtype)
    if how in ("fmax", "fmin"):
        bools, order = llvm_type(with_lanes("bool", lanes_of(dtype))), "ogt" if how == "fmax" else "olt"
        test = em.fn.pure(f"fcmp {order} {type_} {a}, {b}")
        return em.fn.pure(f"select {bools} {test}, {type_} {a}, {type_} {b}")
    if how in ("max", "min"):
        if is_float(dtype):
            return em.float_extreme_text(how == "max", a, b, dtype)
        name = f"llvm.{'s' if is_signed(dtype) else 'u'}{how}.{suffix(dtype)}"
        return em.fn.pure(em.intrinsic(name, type_, [type_, type_], [a, b]))
    word = {"add": "add", "mul": "mul"}[how]
    return em.fn.pure(f"{'f' if is_float(dtype) else ''}{word} {type_} {a}, {b}")


def _libm(em: ExprEmitter, e: Call, name: str) -> str:
    """Returns the result of a C library function, lane by lane."""
    if bits_of(e.dtype) not in (32, 64):
        raise ValueError(f"{e.op} of {e.dtype}")
    symbol = name + ("f" if bits_of(e.dtype) == 32 else "")
    scalar = llvm_type(element_of(e.dtype))
    args = [em.value(a) for a in e.args]
    lanes = lanes_of(e.dtype)
    if lanes == 1:
        return em.fn.pure(em.intrinsic(symbol, scalar, [scalar] * len(args), args))
    out, type_ = "poison", em.type(e)
    for n in range(lanes):
        picked = [em.fn.pure(f"extractelement {type_} {a}, i64 {n}") for a in args]
        one = em.fn.pure(em.intrinsic(symbol, scalar, [scalar] * len(args), picked))
        out = em.fn.pure(f"insertelement {type_} {out}, {scalar} {one}, i64 {n}")
    return out


def _call_extern(em: ExprEmitter, e: Call) -> str:
    """Returns ``call_extern(name, args…)``, the call of a C function. An argument may be a buffer's pointer or the
    address of a load."""
    name = e.args[0]
    assert isinstance(name, StringImm)
    args = e.args[1:]
    text = em.intrinsic(name.value, em.type(e), [em.type(a) for a in args], [em.value(a) for a in args])
    may_write(em, args)
    if e.dtype == "void":
        em.fn.do(text)
        return ""
    return em.fn.emit(text)


def _address_of(em: ExprEmitter, e: Call) -> str:
    (where,) = e.args
    assert isinstance(where, BufferLoad)
    return em.address(where)


def _prefetch(em: ExprEmitter, e: Call) -> str:
    where = em.value(e.args[0])
    numbers = [str(a.value) for a in e.args[1:3] if isinstance(a, IntImm)]
    rw, locality = numbers if len(numbers) == 2 else ("0", "3")
    em.fn.do(em.intrinsic("llvm.prefetch.p0", "void", ["ptr", "i32", "i32", "i32"], [where, rw, locality, "1"]))
    return ""


def _misaligned(em: ExprEmitter, e: Call) -> str:
    where = em.fn.pure(f"ptrtoint ptr {em.value(e.args[0])} to i64")
    (_, size) = e.args
    assert isinstance(size, IntImm)
    low = em.fn.pure(f"and i64 {where}, {size.value - 1}")
    return low if em.type(e) == "i64" else em.fn.pure(f"trunc i64 {low} to {em.type(e)}")


_HANDLERS = {
    "shift_left": _shift,
    "shift_right": _shift,
    "bitwise_not": _bitwise_not,
    "clz": _clz,
    "reinterpret": _reinterpret,
    "likely": _likely,
    "isnan": _classify,
    "isinf": _classify,
    "isfinite": _classify,
    "lookup": emit_lookup,
    "round_rest": emit_round_rest,
    "rsqrt": _rsqrt,
    "sigmoid": _sigmoid,
    "times_exp2": emit_times_exp2,
    "if_then_else": _if_then_else,
    "vector_reduce_add": _vector_reduce,
    "vector_reduce_mul": _vector_reduce,
    "vector_reduce_fmax": _vector_reduce,
    "vector_reduce_fmin": _vector_reduce,
    "vector_reduce_max": _vector_reduce,
    "vector_reduce_min": _vector_reduce,
    "call_extern": _call_extern,
    "call_pure_extern": _call_extern,
    "address_of": _address_of,
    "misaligned": _misaligned,
    "prefetch": _prefetch,
    **MACHINE_CALLS,
    **TILE_CALLS,
}
