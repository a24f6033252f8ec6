"""Emits calls: intrinsics, horizontal reductions, and functions of the C library that no pass has expanded."""

from __future__ import annotations

from collections.abc import Callable

from ...tir.expr import BufferLoad, Call, DType, IntImm, Shuffle, StringImm
from ...tir.walk import pre_order
from ..backend.value_ranges import range_of
from .llvm_scope import LlvmScope
from .llvm_types import llvm_type, splat_constant, suffix, zero
from .reduction_network import reduce_rows

_INTRINSICS = {
    "fma": "fma", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "roundeven",
    "nearbyint": "roundeven", "fabs": "fabs", "copysign": "copysign", "popcount": "ctpop",
}  # fmt: skip
_BITWISE = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}
_ONE = "0x3FF0000000000000"


def _intrinsic(name: str) -> Callable[[LlvmScope, Call], str]:
    """Returns the emitter of a call as an intrinsic of LLVM on operands of one type."""
    return lambda em, e: em.fn.called(f"llvm.{name}.{suffix(e.dtype)}", em.type(e), *em.values(e.args))


def library_call(em: LlvmScope, symbol: str, e: Call) -> str:
    """Returns the results of a function of the C library, lane by lane."""
    scalar = llvm_type(e.dtype.element)
    return em.fn.each_lane(symbol, scalar, [scalar] * len(e.args), e.dtype.lanes, em.values(e.args))


def _bitwise(word: str) -> Callable[[LlvmScope, Call], str]:
    return lambda em, e: em.fn.pure(f"{word} {em.type(e)} {em.value(e.args[0])}, {em.value(e.args[1])}")


def _bools(dtype: DType) -> str:
    return llvm_type(DType("bool").with_lanes(dtype.lanes))


def _shift(em: LlvmScope, e: Call) -> str:
    """Returns a shifted value. The processor reads only a few bits of the distance, so a distance that may be too large
    is checked first."""
    fn, type_, bits = em.fn, em.type(e), e.dtype.bits
    left = e.op == "tir.shift_left"
    how = "shl" if left else "ashr" if e.dtype.is_signed else "lshr"
    value, by = em.values(e.args)
    low, high = range_of(em, e.args[1])
    if low is not None and high is not None and 0 <= low and high < bits:
        return fn.pure(f"{how} {type_} {value}, {by}")
    if how == "ashr":
        near = fn.called(f"llvm.umin.{suffix(e.dtype)}", type_, by, splat_constant(str(bits - 1), e.dtype))
        return fn.pure(f"ashr {type_} {value}, {near}")
    fits = fn.pure(f"icmp ult {type_} {by}, {splat_constant(str(bits), e.dtype)}")
    return fn.chosen(_bools(e.dtype), fits, type_, fn.pure(f"{how} {type_} {value}, {by}"), zero(e.dtype))


def _bitwise_not(em: LlvmScope, e: Call) -> str:
    return em.fn.pure(f"xor {em.type(e)} {em.value(e.args[0])}, {splat_constant('-1', e.dtype)}")


def _clz(em: LlvmScope, e: Call) -> str:
    type_, name = em.type(e), f"llvm.ctlz.{suffix(e.dtype)}"
    return em.fn.pure(em.fn.intrinsic(name, type_, [type_, "i1"], [em.value(e.args[0]), "false"]))


def _reinterpret(em: LlvmScope, e: Call) -> str:
    (arg,) = e.args
    if em.type(arg) == em.type(e):
        return em.value(arg)
    return em.fn.pure(f"bitcast {em.type(arg)} {em.value(arg)} to {em.type(e)}")


def _classify(em: LlvmScope, e: Call) -> str:
    (x,) = e.args
    type_, text = em.type(x), em.value(x)
    if e.op == "tir.isnan":
        return em.fn.pure(f"fcmp uno {type_} {text}, {text}")
    size = em.fn.called(f"llvm.fabs.{suffix(x.dtype)}", type_, text)
    infinity = "0x7FF0000000000000" if x.dtype.bits != 16 else "0xH7C00"
    how = "oeq" if e.op == "tir.isinf" else "olt"
    return em.fn.pure(f"fcmp {how} {type_} {size}, {splat_constant(infinity, x.dtype)}")


def _rsqrt(em: LlvmScope, e: Call) -> str:
    root = _intrinsic("sqrt")(em, e)
    return em.fn.pure(f"fdiv {em.type(e)} {splat_constant(_ONE, e.dtype)}, {root}")


def _sigmoid(em: LlvmScope, e: Call) -> str:
    type_, one = em.type(e), splat_constant(_ONE, e.dtype)
    power = em.call(Call("tir.exp", (e.args[0] * -1.0,), e.dtype))
    return em.fn.pure(f"fdiv {type_} {one}, {em.fn.pure(f'fadd {type_} {one}, {power}')}")


# -- horizontal reductions -----------------------------------------------------------------------------------------------


def _vector_reduce(em: LlvmScope, e: Call) -> str:
    """Returns the combined lanes of a vector, in log2(lanes) steps of halves; several vectors side by side are combined
    together."""
    (vector,) = e.args
    how, rows = e.op.removeprefix("tir.vector_reduce_"), e.dtype.lanes
    if rows == 1:
        return _halved(em, how, em.value(vector), vector.dtype)
    lanes = vector.dtype.lanes // rows
    if isinstance(vector, Shuffle) and len(vector.vectors) == rows and [*vector.indices] == [*range(rows * lanes)]:
        parts = em.values(vector.vectors)
    else:
        text = em.value(vector)
        cuts = [range(n * lanes, (n + 1) * lanes) for n in range(rows)]
        parts = [em.fn.shuffled(em.type(vector), text, "poison", cut) for cut in cuts]
    scalar = e.dtype.element
    return reduce_rows(
        em.fn, parts, scalar, lanes, em.target.vector_lanes(scalar),
        lambda a, b, dtype: _combine(em, how, a, b, DType(dtype)), lambda v, dtype: _halved(em, how, v, DType(dtype)),
    )  # fmt: skip


def _halved(em: LlvmScope, how: str, text: str, dtype: DType) -> str:
    """Returns the combined lanes of one vector.

    Sums of integers are left to LLVM's intrinsic: where halves of halves are added, LLVM 22 takes the sum of bytes times
    bytes, or of their differences, for one of as many bytes as the last half has, and leaves lanes out.
    """
    lanes, scalar = dtype.lanes, dtype.element
    if how == "add" and scalar.is_int and lanes > 1:
        return em.fn.pure(
            em.fn.intrinsic(f"llvm.vector.reduce.add.{suffix(dtype)}", llvm_type(scalar), [llvm_type(dtype)], [text])
        )
    while lanes > 1:
        half, type_ = lanes // 2, llvm_type(scalar.with_lanes(lanes))
        if half == 1:
            low, high = (em.fn.lane(type_, text, n) for n in (0, 1))
        else:
            low, high = (em.fn.shuffled(type_, text, "poison", range(n, n + half)) for n in (0, half))
        text = _combine(em, how, low, high, scalar.with_lanes(half))
        lanes = half
    return text


def _combine(em: LlvmScope, how: str, a: str, b: str, dtype: DType) -> str:
    type_ = llvm_type(dtype)
    if how in ("fmax", "fmin"):
        test = em.fn.pure(f"fcmp {'ogt' if how == 'fmax' else 'olt'} {type_} {a}, {b}")
        return em.fn.chosen(_bools(dtype), test, type_, a, b)
    if how in ("max", "min"):
        if dtype.is_float:
            return em.float_extreme(how == "max", a, b, dtype)
        return em.fn.called(f"llvm.{'s' if dtype.is_signed else 'u'}{how}.{suffix(dtype)}", type_, a, b)
    return em.fn.pure(f"{'f' if dtype.is_float else ''}{how} {type_} {a}, {b}")


# -- choices, functions of other libraries, addresses ----------------------------------------------------------------------


def if_then_else(em: LlvmScope, e: Call) -> str:
    """Returns the chosen value. Only the chosen branch is evaluated, unless neither reads memory."""
    cond, yes, no = e.args
    fn = em.fn
    if not any(isinstance(n, (BufferLoad, Call)) for side in (yes, no) for n in pre_order(side)):
        texts = em.values((yes, no))
        return em.choice(em.value(cond), texts[0], texts[1], e.dtype, cond.dtype)
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


def _call_extern(em: LlvmScope, e: Call) -> str:
    """Returns ``call_extern(name, args…)``, the call of a C function. An argument may be a buffer's pointer or the
    address of a load."""
    name = e.args[0]
    assert isinstance(name, StringImm)
    return em.called_with_effects(name.value, e.dtype, e.args[1:])


def _address_of(em: LlvmScope, e: Call) -> str:
    (where,) = e.args
    assert isinstance(where, BufferLoad)
    return em.address(where)


def _prefetch(em: LlvmScope, e: Call) -> str:
    where = em.value(e.args[0])
    numbers = [str(a.value) for a in e.args[1:3] if isinstance(a, IntImm)]
    rw, locality = numbers if len(numbers) == 2 else ("0", "3")
    types = ["ptr", "i32", "i32", "i32"]
    em.fn.do(em.fn.intrinsic("llvm.prefetch.p0", "void", types, [where, rw, locality, "1"]))
    return ""


def _misaligned(em: LlvmScope, e: Call) -> str:
    where = em.fn.pure(f"ptrtoint ptr {em.value(e.args[0])} to i64")
    (_, size) = e.args
    assert isinstance(size, IntImm)
    low = em.fn.pure(f"and i64 {where}, {size.value - 1}")
    return low if em.type(e) == "i64" else em.fn.pure(f"trunc i64 {low} to {em.type(e)}")


PLAIN_CALLS: dict[str, Callable[[LlvmScope, Call], str]] = {
    **{name: _intrinsic(word) for name, word in _INTRINSICS.items()},
    **{name: _bitwise(word) for name, word in _BITWISE.items()},
    **dict.fromkeys(("isnan", "isinf", "isfinite"), _classify),
    **dict.fromkeys(("shift_left", "shift_right"), _shift),
    **dict.fromkeys([f"vector_reduce_{how}" for how in ("add", "mul", "fmax", "fmin", "max", "min")], _vector_reduce),
    "address_of": _address_of,
    "bitwise_not": _bitwise_not,
    "call_extern": _call_extern,
    "call_pure_extern": _call_extern,
    "clz": _clz,
    "if_then_else": if_then_else,
    "likely": lambda em, e: em.value(e.args[0]),
    "misaligned": _misaligned,
    "prefetch": _prefetch,
    "reinterpret": _reinterpret,
    "rsqrt": _rsqrt,
    "sigmoid": _sigmoid,
}
"""Emitters by the operation's name."""
