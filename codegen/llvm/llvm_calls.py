"""Emits calls of operations. Choices, hints and mathematical functions come first, then bits, memory, the target's own
instructions, and lookups in tables."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...tir.expr import BufferLoad, Call, DType, Expr, FloatImm, IntImm, StringImm, Var
from ...tir.expr.intrinsics.number_operations import DOT_PRODUCTS
from ...tir.walk import free_vars, pre_order
from ..backend.analyses import range_of
from ..backend.emitter import expand_dot
from ..machine.target_text import TargetError
from ..math.trig import large_argument_path
from .function_builder import FunctionBuilder, float_constant, llvm_type, splat_constant, suffix, vector_constant, zero
from .llvm_scope import LlvmScope

if TYPE_CHECKING:
    from .llvm_scope import LlvmScope


def _reinterpret(em: LlvmScope, e: Call) -> str:
    (arg,) = e.args
    if em.type(arg) == em.type(e):
        return em.value(arg)
    return em.fn.pure(f"bitcast {em.type(arg)} {em.value(arg)} to {em.type(e)}")


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


PLAIN_CALLS: dict[str, Callable[[LlvmScope, Call], str]] = {
    "if_then_else": if_then_else,
    "likely": lambda em, e: em.value(e.args[0]),
    "reinterpret": _reinterpret,
}
"""Emitters by the operation's name."""


# Emits mathematical functions: intrinsics, and functions of the C library that no pass has expanded.

_INTRINSICS = {
    "fma": "fma", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "roundeven",
    "nearbyint": "roundeven", "fabs": "fabs", "copysign": "copysign", "popcount": "ctpop",
}  # fmt: skip
_ONE = "0x3FF0000000000000"


def _intrinsic(name: str) -> Callable[[LlvmScope, Call], str]:
    """Returns the emitter of a call as an intrinsic of LLVM on operands of one type."""
    return lambda em, e: em.fn.called(f"llvm.{name}.{suffix(e.dtype)}", em.type(e), *em.values(e.args))


def library_call(em: LlvmScope, symbol: str, e: Call) -> str:
    """Returns the results of a function of the C library, lane by lane."""
    scalar = llvm_type(e.dtype.element)
    return em.fn.each_lane(symbol, scalar, [scalar] * len(e.args), e.dtype.lanes, em.values(e.args))


def _rsqrt(em: LlvmScope, e: Call) -> str:
    root = _intrinsic("sqrt")(em, e)
    return em.fn.pure(f"fdiv {em.type(e)} {splat_constant(_ONE, e.dtype)}, {root}")


def _sigmoid(em: LlvmScope, e: Call) -> str:
    type_, one = em.type(e), splat_constant(_ONE, e.dtype)
    power = em.call(Call("tir.exp", (e.args[0] * -1.0,), e.dtype))
    return em.fn.pure(f"fdiv {type_} {one}, {em.fn.pure(f'fadd {type_} {one}, {power}')}")


MATH_CALLS: dict[str, Callable[[LlvmScope, Call], str]] = {
    **{name: _intrinsic(word) for name, word in _INTRINSICS.items()},
    "rsqrt": _rsqrt,
    "sigmoid": _sigmoid,
}
"""Emitters by the operation's name."""


# Emits operations on the bits of values: logic, shifts, leading zeros, kinds of floats, the alignment of an
# address.

_BITWISE = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}


def _bitwise(word: str) -> Callable[[LlvmScope, Call], str]:
    return lambda em, e: em.fn.pure(f"{word} {em.type(e)} {em.value(e.args[0])}, {em.value(e.args[1])}")


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
    return fn.chosen(
        llvm_type(DType("bool").with_lanes(e.dtype.lanes)),
        fits,
        type_,
        fn.pure(f"{how} {type_} {value}, {by}"),
        zero(e.dtype),
    )


def _bitwise_not(em: LlvmScope, e: Call) -> str:
    return em.fn.pure(f"xor {em.type(e)} {em.value(e.args[0])}, {splat_constant('-1', e.dtype)}")


def _clz(em: LlvmScope, e: Call) -> str:
    type_, name = em.type(e), f"llvm.ctlz.{suffix(e.dtype)}"
    return em.fn.pure(em.fn.intrinsic(name, type_, [type_, "i1"], [em.value(e.args[0]), "false"]))


def _classify(em: LlvmScope, e: Call) -> str:
    (x,) = e.args
    type_, text = em.type(x), em.value(x)
    if e.op == "tir.isnan":
        return em.fn.pure(f"fcmp uno {type_} {text}, {text}")
    size = em.fn.called(f"llvm.fabs.{suffix(x.dtype)}", type_, text)
    infinity = "0x7FF0000000000000" if x.dtype.bits != 16 else "0xH7C00"
    how = "oeq" if e.op == "tir.isinf" else "olt"
    return em.fn.pure(f"fcmp {how} {type_} {size}, {splat_constant(infinity, x.dtype)}")


def _misaligned(em: LlvmScope, e: Call) -> str:
    where = em.fn.pure(f"ptrtoint ptr {em.value(e.args[0])} to i64")
    (_, size) = e.args
    assert isinstance(size, IntImm)
    low = em.fn.pure(f"and i64 {where}, {size.value - 1}")
    return low if em.type(e) == "i64" else em.fn.pure(f"trunc i64 {low} to {em.type(e)}")


BIT_CALLS: dict[str, Callable[[LlvmScope, Call], str]] = {
    **{name: _bitwise(word) for name, word in _BITWISE.items()},
    **dict.fromkeys(("isnan", "isinf", "isfinite"), _classify),
    **dict.fromkeys(("shift_left", "shift_right"), _shift),
    "bitwise_not": _bitwise_not,
    "clz": _clz,
    "misaligned": _misaligned,
}
"""Emitters by the operation's name."""


# Emits calls that may write memory, the addresses that they take, and prefetches.


def may_write(em: LlvmScope, args: Sequence[Expr]) -> None:
    """Mark memory whose address is among ``args`` as written by a call."""
    for a in args:
        for n in pre_order(a):
            if isinstance(n, BufferLoad):
                em.touch(n.buffer.data)
            elif isinstance(n, Var) and n in em.bases:
                em.touch(n)


def called_with_effects(em: LlvmScope, name: str, dtype: str, args: Sequence[Expr]) -> str:
    """Return the result of a function that may write through the pointers among ``args``."""
    text = em.fn.intrinsic(name, llvm_type(dtype), [em.type(a) for a in args], em.values(args))
    may_write(em, args)
    if dtype == "void":
        em.fn.do(text)
        return ""
    return em.fn.emit(text)


def _call_extern(em: LlvmScope, e: Call) -> str:
    """Returns ``call_extern(name, args…)``, the call of a C function. An argument may be a buffer's pointer or the
    address of a load."""
    name = e.args[0]
    assert isinstance(name, StringImm)
    return called_with_effects(em, name.value, e.dtype, e.args[1:])


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


EXTERNAL_CALLS: dict[str, Callable[[LlvmScope, Call], str]] = {
    "address_of": _address_of,
    "call_extern": _call_extern,
    "call_pure_extern": _call_extern,
    "prefetch": _prefetch,
}
"""Emitters by the operation's name."""


# Emits choices with a likely condition: the usual value inline, the other one by a call of a cold function.


def _is_likely(e: Call) -> bool:
    """Returns whether an ``if_then_else`` has a likely condition and no branch that reads memory."""
    cond, *sides = e.args
    usual = isinstance(cond, Call) and cond.op == "tir.likely"
    return usual and not any(isinstance(n, BufferLoad) for side in sides for n in pre_order(side))


def _emit_likely(em: LlvmScope, e: Call) -> str:
    """Returns ``yes`` in the lanes where the condition holds. ``no`` is computed only when it does not hold in all of
    them."""
    cond, yes, no = e.args
    fn, type_, bools = em.fn, llvm_type(e.dtype), llvm_type(cond.dtype)
    usual, test = em.value(yes), em.value(cond)
    every, lanes = test, cond.dtype.lanes
    if lanes > 1:
        every = fn.pure(fn.intrinsic(f"llvm.vector.reduce.and.v{lanes}i1", "i1", [bools], [test]))
    every = fn.pure(fn.intrinsic("llvm.expect.i1", "i1", ["i1", "i1"], [every, "true"]))
    far = _call_outlined(em, no)
    start, rare, done = fn.block, fn.new_label("rare"), fn.new_label("chosen")
    fn.branch_if(every, done, rare)
    fn.push()
    fn.label(rare)
    other = fn.emit(far)
    mixed = fn.emit(f"select {bools} {test}, {type_} {usual}, {type_} {other}") if lanes > 1 else other
    fn.branch(done)
    fn.pop()
    fn.label(done)
    phi = fn.phi(type_)
    fn.fill(phi, [(usual, start), (mixed, rare)])
    return phi.name


def _call_outlined(em: LlvmScope, e: Expr) -> str:
    """Returns the call of a function that computes ``e``. Expressions with the same text share one function.

    Where the target has fused operations, a sine, cosine or tangent becomes the computation for large arguments, which
    replaces the call of the library.
    """
    if isinstance(e, Call) and em.target.has_fma:
        far = large_argument_path(e)
        e = e if far is None else far
    free = free_vars(e)
    captured: list[Var] = []
    for n in pre_order(e):
        if isinstance(n, Var) and n in free and n not in captured:
            captured.append(n)
    passed = ", ".join(f"{llvm_type(v.dtype)} {em.variable(v)}" for v in captured)
    params = ", ".join(f"{llvm_type(v.dtype)} %p{k}" for k, v in enumerate(captured))
    type_ = llvm_type(e.dtype)
    inner = FunctionBuilder(f"({params}) noinline cold nounwind {em.target.llvm_attributes}", em.unit.declarations)
    outer = em.fn, em.vars, em.indices
    em.fn, em.vars, em.indices = inner, {v: f"%p{k}" for k, v in enumerate(captured)}, set()
    try:
        inner.do(f"ret {type_} {em.value(e)}")
    finally:
        em.fn, em.vars, em.indices = outer
    return f"call {type_} @{em.unit.outline(type_, 'rare', inner.text())}({passed})"


def likely_choices(usual: Callable[[LlvmScope, Call], str]) -> dict[str, Callable[[LlvmScope, Call], str]]:
    """Returns the row of choices for a table of calls; ``usual`` emits those without a likely condition."""
    return {"if_then_else": lambda em, e: _emit_likely(em, e) if _is_likely(e) else usual(em, e)}


# Legalizes vectors of any number of lanes for instructions that work on whole registers.


def by_registers(
    fn: FunctionBuilder, values: list[str], scalars: tuple[str, str], lanes: int, widths: Sequence[int],
    instruction: Callable[[int, list[str]], str],
) -> str:  # fmt: skip
    """Apply ``instruction`` to one register of lanes at a time. A vector with few lanes occupies the front of one
    register.

    ``scalars``: the element types of the values and of the result; ``widths``: the numbers of lanes of a register, the
    largest first; ``instruction`` gets the number of lanes to work on, and a register of each value.
    """
    ours, theirs = map(llvm_type, scalars)
    register = next((w for w in widths if lanes % w == 0), None) or (widths[-1] if lanes < widths[-1] else 0)
    if not register:  # as many of the smallest registers as hold all lanes
        register = widths[-1]
    room = -(-lanes // register) * register
    if room > lanes:
        values = [fn.resized(ours, v, lanes, room) for v in values]
    parts = [instruction(register, [fn.cut(ours, v, room, at, register) for v in values])
             for at in range(0, room, register)]  # fmt: skip
    whole, have = parts[0], register
    for part in parts[1:]:
        whole, have = fn.appended(theirs, whole, part, have, register), have + register
    return fn.resized(theirs, whole, room, lanes) if room > lanes else whole


# Emits ``times_exp2`` and ``round_rest`` by the AVX-512 instructions vscalef and vreduce, or by ldexp and arithmetic.
#
# The expansions of exp and similar functions use these operations only where the target has the instructions.


def _times_exp2(em: LlvmScope, e: Call) -> str:
    """Returns ``x * 2**floor(n)``."""
    if not em.target.has("avx512f"):
        return _by_library(em.fn, e.dtype, *em.values(e.args))
    return _by_registers(em, e, "scalef", ["zeroinitializer"])


def _round_rest(em: LlvmScope, e: Call) -> str:
    """Returns ``x - round(x)``, which is 0 for infinities."""
    if em.target.has("avx512dq"):
        return _by_registers(em, e, "reduce", ["8", "zeroinitializer"])  # to nearest even, without exceptions
    fn, type_, dot = em.fn, em.type(e), suffix(e.dtype)
    x = em.value(e.args[0])
    rest = fn.pure(f"fsub {type_} {x}, {fn.called(f'llvm.roundeven.{dot}', type_, x)}")
    size = fn.called(f"llvm.fabs.{dot}", type_, x)
    endless = fn.pure(f"fcmp oeq {type_} {size}, {splat_constant('0x7FF0000000000000', e.dtype)}")
    return fn.chosen(_bools(e.dtype), endless, type_, splat_constant("0x0", e.dtype), rest)


def _bools(dtype: DType) -> str:
    return llvm_type(DType("bool").with_lanes(dtype.lanes))


def _by_library(fn: FunctionBuilder, dtype: DType, x: str, n: str) -> str:
    """Calls the C library lane by lane; a NaN in either operand gives NaN."""
    lanes, type_, dot = dtype.lanes, llvm_type(dtype), suffix(dtype)
    whole_dtype = DType("int32").with_lanes(lanes)
    down = fn.called(f"llvm.floor.{dot}", type_, n)
    saturating = f"llvm.fptosi.sat.{suffix(whole_dtype)}.{dot}"
    whole = fn.pure(fn.intrinsic(saturating, llvm_type(whole_dtype), [type_], [down]))
    scalar = llvm_type(dtype.element)
    name = "ldexpf" if dtype.bits == 32 else "ldexp"
    out = fn.each_lane(name, scalar, [scalar, "i32"], lanes, [x, whole])
    return fn.chosen(_bools(dtype), fn.pure(f"fcmp uno {type_} {n}, {n}"), type_, n, out)


def _by_registers(em: LlvmScope, e: Call, word: str, controls: list[str]) -> str:
    """Applies an AVX-512 instruction to one register of lanes at a time. ``controls``: its further operands."""
    bits, scalar = e.dtype.bits, e.dtype.element
    widths = [512 // bits, *([256 // bits, 128 // bits] if em.target.has("avx512vl") else [])]

    def instruction(lanes: int, values: list[str]) -> str:
        type_ = llvm_type(scalar.with_lanes(lanes))
        name = f"llvm.x86.avx512.mask.{word}.{'ps' if bits == 32 else 'pd'}.{lanes * bits}"
        args = [*values, *controls, "-1"]
        types = ["i32" if a.isdigit() else type_ for a in args[:-1]] + [f"i{max(lanes, 8)}"]
        if lanes * bits == 512:
            types, args = [*types, "i32"], [*args, "4"]  # rounding mode of the control register
        return em.fn.pure(em.fn.intrinsic(name, type_, types, args))

    return by_registers(em.fn, em.values(e.args), (scalar, scalar), e.dtype.lanes, widths, instruction)


EXP2_CALLS = {"round_rest": _round_rest, "times_exp2": _times_exp2}
"""Emitters by the operation's name."""


# Emits operations that name the target's own instructions: intrinsics of LLVM, dot products, pointers.

_OWNERS: dict[str, tuple[str, ...]] = {
    "aarch64": ("aarch64",),
    "amdgcn": ("amdgcn",),
    "arm": ("arm", "thumb"),
    "nvvm": ("nvptx",),
    "riscv": ("riscv",),
    "wasm": ("wasm",),
    "x86": ("x86", "i"),
}
"""The processors of LLVM's intrinsics that begin like this; on another one LLVM ends the process."""


def _llvm_intrinsic(em: LlvmScope, e: Call) -> str:
    """Returns ``call_llvm_intrin(name, …)``, an intrinsic by its full name. An unsigned constant after the name, a
    number of arguments as in older TVM, is left out."""
    name, args = e.args[0], e.args[1:]
    if not isinstance(name, StringImm) or not name.value.startswith("llvm."):
        raise ValueError(f"{e.op} takes the full name of an intrinsic, llvm.…, not {name}")
    owner = _OWNERS.get(name.value.split(".")[1])
    if owner is not None and not em.target.arch.startswith(owner):
        raise TargetError(
            f"{em.unit.name} calls {name.value}, an instruction of another processor than {em.target.triple}"
        )
    if args and isinstance(args[0], IntImm) and args[0].dtype == "uint32":
        args = args[1:]
    if e.op == "tir.call_llvm_pure_intrin":
        return em.fn.pure(em.fn.intrinsic(name.value, em.type(e), [em.type(a) for a in args], em.values(args)))
    return called_with_effects(em, name.value, e.dtype, args)


def _access_ptr(em: LlvmScope, e: Call) -> str:
    kind, data, offset = e.args[:3]
    step = kind.dtype.element.bytes
    return em.fn.pure(f"getelementptr [{step} x i8], ptr {em.value(data)}, i64 {em.index(offset)}")


# -- dot products --------------------------------------------------------------------------------------------------------


def _dot(em: LlvmScope, e: Call) -> str:
    """Returns a dot product by the widest instructions that fit, or by plain arithmetic where there are none."""
    lanes = e.dtype.lanes
    piece = next((p for p in em.target.dot_lanes(e.op) if lanes % p == 0), None)
    if piece is None:
        return em.value(expand_dot(e))
    values = em.values(e.args)
    if piece == lanes:
        return _instruction(em, e.op, lanes, values)
    parts = []
    for first in range(0, lanes, piece):
        cut = []
        for a, text in zip(e.args, values, strict=True):
            width = a.dtype.lanes // lanes
            cut.append(em.fn.shuffled(em.type(a), text, "poison", range(first * width, (first + piece) * width)))
        parts.append(_instruction(em, e.op, piece, cut))
    return _joined(em, parts, e.dtype.element, piece)


def _joined(em: LlvmScope, parts: list[str], dtype: DType, lanes: int) -> str:
    """Returns the concatenation of vectors of ``lanes`` lanes; their number may be odd."""
    total = lanes * len(parts)
    whole, small = llvm_type(dtype.with_lanes(total)), llvm_type(dtype.with_lanes(lanes))
    out = ""
    for n, part in enumerate(parts):
        order = [k - n * lanes if 0 <= k - n * lanes < lanes else -1 for k in range(total)]
        wide = em.fn.shuffled(small, part, "poison", order)
        keep = [k if k < n * lanes else total + k for k in range(total)]
        out = wide if n == 0 else em.fn.shuffled(whole, out, wide, keep)
    return out


def _instruction(em: LlvmScope, op: str, lanes: int, values: list[str]) -> str:
    fn, words, name = em.fn, f"<{lanes} x i32>", op.removeprefix("tir.")
    total, first, second = values
    if op == "tir.dot2_bf16":
        bits, pairs, words = f"<{2 * lanes} x i16>", f"<{2 * lanes} x bfloat>", f"<{lanes} x float>"
        factors = [fn.pure(f"bitcast {bits} {v} to {pairs}") for v in (first, second)]
        neon = em.target.arch == "aarch64"
        called = "llvm.aarch64.neon.bfdot.v4f32.v8bf16" if neon else f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}"
        return fn.pure(fn.intrinsic(called, words, [words, pairs, pairs], [total, *factors]))
    if op == "tir.dot2_i16":  # where there is vpdpwssd, LLVM makes it of the sum
        halves = f"<{2 * lanes} x i16>"
        sums = fn.pure(fn.intrinsic(_MULTIPLY_ADD_PAIRS[lanes], words, [halves, halves], [first, second]))
        return fn.pure(f"add {words} {total}, {sums}")
    if em.target.arch == "aarch64":
        called = f"llvm.aarch64.neon.{_NEON_DOTS[name]}.v4i32.v16i8"
        return fn.pure(fn.intrinsic(called, words, [words, "<16 x i8>", "<16 x i8>"], values))
    factors = [fn.pure(f"bitcast <{4 * lanes} x i8> {v} to {words}") for v in (first, second)]
    called = f"llvm.x86.{_X86_DOTS[name]}.{32 * lanes}"
    return fn.pure(fn.intrinsic(called, words, [words] * 3, [total, *factors]))


_MULTIPLY_ADD_PAIRS = {
    16: "llvm.x86.avx512.pmaddw.d.512", 8: "llvm.x86.avx2.pmadd.wd", 4: "llvm.x86.sse2.pmadd.wd",
}  # fmt: skip
_NEON_DOTS = {"dot4_u8i8": "usdot", "dot4_i8i8": "sdot", "dot4_u8u8": "udot"}
_X86_DOTS = {"dot4_u8i8": "avx512.vpdpbusd", "dot4_i8i8": "avx2.vpdpbssd", "dot4_u8u8": "avx2.vpdpbuud"}


MACHINE_CALLS = {
    "call_llvm_intrin": _llvm_intrinsic,
    "call_llvm_pure_intrin": _llvm_intrinsic,
    **dict.fromkeys(DOT_PRODUCTS, _dot),
    "tvm_access_ptr": _access_ptr,
}
"""Emitters by the operation's name."""


# Emits ``lookup``, by instructions that permute the lanes of a register or from a constant array.
#
# The instructions of AVX2, AVX-512 and NEON serve sixteen float32. Other tables, and other targets, read a constant
# array, lane by lane.


def emit_lookup(em: LlvmScope, e: Call) -> str:
    """Returns ``values[number % len(values)]``."""
    number, *values = e.args
    scalar, lanes, has = e.dtype.element, e.dtype.lanes, em.target.has
    table = [v.value for v in values if isinstance(v, FloatImm)]
    assert len(table) == len(values), "tir.op.lookup takes constants"
    pick: Callable[[LlvmScope, list[float], int, str], str] | None = None
    if lanes > 1 and scalar == "float32" and len(table) == 16:
        if has("avx512f"):
            widths, pick = [16, 8] if has("avx512vl") else [16], _avx512
        elif has("avx2"):
            widths, pick = [8], _avx2
        elif em.target.arch == "aarch64" and has("neon"):
            widths, pick = [4], _neon
    if pick is None:
        return _from_memory(em, e, table)
    instruction = pick
    return by_registers(
        em.fn, [em.value(number)], ("int32", scalar), lanes, widths,
        lambda n, parts: instruction(em, table, n, parts[0]),
    )  # fmt: skip


def _vector(table: list[float]) -> str:
    texts = [f"float {float_constant(v, DType('float32'))}" for v in table]
    return f"<{', '.join(texts)}>"


def _avx512(em: LlvmScope, table: list[float], lanes: int, number: str) -> str:
    """Looks up by vpermps, or by vpermi2ps from two registers. Both take the number modulo 16."""
    if lanes == 16:
        types = ["<16 x float>", "<16 x i32>"]
        return em.fn.pure(em.fn.intrinsic("llvm.x86.avx512.permvar.sf.512", types[0], types, [_vector(table), number]))
    types = ["<8 x float>", "<8 x i32>", "<8 x float>"]
    args = [_vector(table[:8]), number, _vector(table[8:])]
    return em.fn.pure(em.fn.intrinsic("llvm.x86.avx512.vpermi2var.ps.256", types[0], types, args))


def _avx2(em: LlvmScope, table: list[float], lanes: int, number: str) -> str:
    """Looks up by vpermd in the first half of the bits and in the differences of the second half.

    vpermd takes the number modulo 8.

    This is cheaper than a choice between two halves, which takes processors three steps.
    """
    bits = struct.unpack("16I", struct.pack("16f", *table))
    halves = [list(bits[:8]), [a ^ b for a, b in zip(bits[:8], bits[8:], strict=True)]]
    type_ = "<8 x i32>"
    low, other = (
        em.fn.pure(
            em.fn.intrinsic("llvm.x86.avx2.permd", type_, [type_, type_], [vector_constant(half, "i32"), number])
        )
        for half in halves
    )
    fourth = em.fn.pure(f"shl <8 x i32> {number}, splat (i32 28)")
    mask = em.fn.pure(f"ashr <8 x i32> {fourth}, splat (i32 31)")
    turned = em.fn.pure(f"and <8 x i32> {other}, {mask}")
    found = em.fn.pure(f"xor <8 x i32> {low}, {turned}")
    return em.fn.pure(f"bitcast <8 x i32> {found} to <8 x float>")


def _neon(em: LlvmScope, table: list[float], lanes: int, number: str) -> str:
    """Looks up by tbl, which picks bytes from four registers; the bytes of number k begin at 4k."""
    below = em.fn.pure(f"and <4 x i32> {number}, splat (i32 15)")
    spread = em.fn.pure(f"mul <4 x i32> {below}, splat (i32 {0x04040404})")
    picks = em.fn.pure(f"add <4 x i32> {spread}, splat (i32 {0x03020100})")
    text = em.fn.pure(f"bitcast <4 x i32> {picks} to <16 x i8>")
    registers = [em.fn.pure(f"bitcast <4 x float> {_vector(table[k : k + 4])} to <16 x i8>") for k in range(0, 16, 4)]
    types = ["<16 x i8>"] * 5
    found = em.fn.pure(em.fn.intrinsic("llvm.aarch64.neon.tbl4.v16i8", types[0], types, [*registers, text]))
    return em.fn.pure(f"bitcast <16 x i8> {found} to <4 x float>")


def _from_memory(em: LlvmScope, e: Call, table: list[float]) -> str:
    scalar, ints = llvm_type(e.dtype.element), DType("int32").with_lanes(e.dtype.lanes)
    kind = f"[{len(table)} x {scalar}]"
    texts = [float_constant(v, e.dtype.element) for v in table]
    body = f"{kind} [{', '.join([f'{scalar} {v}' for v in texts])}]"
    name = f"tw_table_{hashlib.sha256(body.encode()).hexdigest()[:12]}"
    em.unit.declarations.setdefault(name, f"@{name} = private unnamed_addr constant {body}, align 64")
    masked = em.fn.pure(f"and {llvm_type(ints)} {em.value(e.args[0])}, {splat_constant(str(len(table) - 1), ints)}")

    def one(number: str) -> str:
        where = em.fn.pure(f"getelementptr inbounds {kind}, ptr @{name}, i32 0, i32 {number}")
        return em.fn.pure(f"load {scalar}, ptr {where}")

    if e.dtype.lanes == 1:
        return one(masked)
    out = "poison"
    for k in range(e.dtype.lanes):
        picked = one(em.fn.pure(f"extractelement {llvm_type(ints)} {masked}, i64 {k}"))
        out = em.fn.pure(f"insertelement {em.type(e)} {out}, {scalar} {picked}, i64 {k}")
    return out
