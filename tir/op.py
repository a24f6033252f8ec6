"""This module lists the operations that a :class:`Call` may name, and builds such calls.

The names have the prefix ``tir.``, as in TVM:

=====================  ======================================================================================
floating point         exp exp2 exp10 log log2 log10 log1p expm1 sqrt rsqrt sin cos tan asin acos atan atan2 sinh cosh
                       tanh asinh acosh atanh sigmoid erf floor ceil round (half to even) nearbyint trunc fabs pow
                       fmod hypot copysign isnan isinf isfinite fma (a * b + c, rounded once)
                       times_exp2(x, n): x * 2**floor(n) for finite n, rounded once;
                       round_rest(x): x - round(x), 0 for infinities
                       lookup(number, v0, v1, …): the constant number ``number`` modulo the number of constants
integer                abs popcount clz bitwise_and bitwise_or bitwise_xor bitwise_not;
                       shift_left(a, n) shift_right(a, n): shifting by all bits or more, or by a negative number,
                       gives 0 (-1 for a negative number shifted right)
fixed point            q_multiply_shift q_multiply_shift_per_axis: see :mod:`.fixed_point`
control                if_then_else(cond, a, b): only the chosen side is evaluated; likely(cond): cond itself
type                   reinterpret(x): the same bits as another type of the same width
vector                 vectorlow vectorhigh vector_reduce_add vector_reduce_max vector_reduce_min vector_reduce_mul:
                       the lanes of one vector combined in no stated order; a result of r lanes combines
                       each of r equal parts of the lanes; vector_reduce_fmax vector_reduce_fmin: the extreme
                       of the lanes that are not NaN (NaN when all are)
dot products           dot4_u8i8(c, a, b): c[i] + a[4i]·b[4i] + … + a[4i+3]·b[4i+3], uint8 by int8 into int32, which wraps;
                       dot2_bf16(c, a, b): c[i] + a[2i]·b[2i] + a[2i+1]·b[2i+1], bfloat16 into float32
tiles                  tile_load tile_store tile_dot4 tile_dot2_bf16: see :mod:`.tile_ops`
memory                 prefetch(address, rw, locality) address_of(load)
                       misaligned(address, bytes): the address modulo a power of two
                       tvm_access_ptr(type, data, offset, extent, rw): the address of an element, counted from ``data``
call                   call_extern(name, …) ret(x)
                       call_llvm_intrin(name, …) call_llvm_pure_intrin(name, …): an intrinsic of LLVM, by its full name
=====================  ======================================================================================
"""

from __future__ import annotations

from typing import Any

from .dtype import is_bool, is_float, is_int, lanes_of, max_value, min_value, with_lanes
from .expr import (
    And,
    Call,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    Max,
    Min,
    Not,
    Or,
    Select,
    TruncDiv,
    TruncMod,
    cast,
    const,
    convert,
    make_binary,
    match_types,
)

OPAQUE_CALLS = (
    "tvm_bmma_sync", "tvm_fill_fragment", "tvm_load_matrix_sync", "tvm_mma_sync", "tvm_stack_alloca",
    "tvm_stack_make_array", "tvm_stack_make_shape", "tvm_store_matrix_sync", "tvm_tuple",
)  # fmt: skip
"""Operations of matrix units that can be printed, parsed and scheduled, but that no code generator supports."""

OPAQUE_INTS = (
    "call_cpacked", "call_packed", "dp4a", "tvm_call_cpacked", "tvm_call_packed",
    "tvm_storage_sync", "tvm_thread_allreduce", "vscale",
)  # fmt: skip
"""Operations like :data:`OPAQUE_CALLS` whose result is an int32."""

UNARY_FLOAT_OPS = (
    "exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "expm1", "sqrt", "rsqrt", "sin", "cos", "tan", "asin",
    "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sigmoid", "erf", "floor", "ceil", "round",
    "nearbyint", "trunc", "fabs",
)  # fmt: skip


def unary(name: str, x: Any) -> Expr:
    """Return ``tir.<name>(x)``, a function of one float; an integer ``x`` is converted to float32 first."""
    e = convert(x)
    if not is_float(e.dtype):
        if name in ("floor", "ceil", "round", "trunc", "nearbyint") and is_int(e.dtype):
            return e
        if name == "fabs" and is_int(e.dtype):
            return abs_(e)
        e = cast("float32", e)
    return Call(f"tir.{name}", (e,), e.dtype)


def exp(x: Any) -> Expr:
    """Return e to the power ``x``; :func:`unary` builds the others of :data:`UNARY_FLOAT_OPS`."""
    return unary("exp", x)


def floor(x: Any) -> Expr:
    """Return the largest whole number not above ``x``."""
    return unary("floor", x)


def ceil(x: Any) -> Expr:
    """Return the smallest whole number not below ``x``."""
    return unary("ceil", x)


def round_(x: Any) -> Expr:
    """Return the nearest whole number, halves to even."""
    return unary("round", x)


def abs_(x: Any) -> Expr:
    """Return the absolute value, for any numeric type."""
    e = convert(x)
    if is_float(e.dtype):
        return Call("tir.fabs", (e,), e.dtype)
    zero = const(0, e.dtype)
    return Select(e >= zero, e, zero - e)


def isnan(x: Any) -> Expr:
    """Return whether ``x`` is NaN."""
    return _classify("isnan", x)


def isinf(x: Any) -> Expr:
    """Return whether ``x`` is plus or minus infinity."""
    return _classify("isinf", x)


def isfinite(x: Any) -> Expr:
    """Return whether ``x`` is neither infinite nor NaN."""
    return _classify("isfinite", x)


def _classify(name: str, x: Any) -> Expr:
    e = convert(x)
    if not is_float(e.dtype):
        return const(name == "isfinite", with_lanes("bool", lanes_of(e.dtype)))
    return Call(f"tir.{name}", (e,), with_lanes("bool", lanes_of(e.dtype)))


def pow_(x: Any, y: Any) -> Expr:
    """Return ``x`` to the power ``y``."""
    return _float_pair("pow", x, y)


def fmod(x: Any, y: Any) -> Expr:
    """Return the remainder of ``x / y`` with the sign of ``x``."""
    return _float_pair("fmod", x, y)


def copysign(x: Any, y: Any) -> Expr:
    """Return ``x`` with the sign of ``y``."""
    return _float_pair("copysign", x, y)


def atan2(y: Any, x: Any) -> Expr:
    """Return the angle of the point (x, y)."""
    return _float_pair("atan2", y, x)


def hypot(x: Any, y: Any) -> Expr:
    """Return the length of (x, y)."""
    return _float_pair("hypot", x, y)


def _float_pair(name: str, x: Any, y: Any) -> Expr:
    a, b = match_types(x, y)
    if not is_float(a.dtype):
        a, b = cast("float32", a), cast("float32", b)
    return Call(f"tir.{name}", (a, b), a.dtype)


def round_rest(x: Any) -> Expr:
    """Return ``x - round(x)``, which lies between -1/2 and 1/2; 0 for infinities."""
    return unary("round_rest", x)


def times_exp2(x: Any, n: Any) -> Expr:
    """Return ``x * 2**floor(n)``, rounded once; both have one float type."""
    return _float_pair("times_exp2", x, n)


def lookup(number: Any, *values: Any) -> Expr:
    """Return ``values[number % len(values)]``.

    ``values`` are 2, 4, 8 … constants, all float32 or all float64; ``number`` is an int32 with as many lanes as the
    result. TypeError or ValueError otherwise.
    """
    n, table = convert(number), tuple([convert(v) for v in values])
    count, dtype = len(table), table[0].dtype if table else ""
    if count < 2 or count & (count - 1):
        raise ValueError(f"lookup: a table has 2, 4, 8 … values, not {count}")
    if dtype not in ("float32", "float64") or any(not isinstance(v, FloatImm) or v.dtype != dtype for v in table):
        raise TypeError("lookup: the values are constants, all float32 or all float64, like T.float32(0.5)")
    if with_lanes(n.dtype, 1) != "int32":
        raise TypeError(f"lookup: the number is an int32, not {n.dtype}; cast it")
    return Call("tir.lookup", (n, *table), with_lanes(dtype, lanes_of(n.dtype)))


def fma(a: Any, b: Any, c: Any) -> Expr:
    """Return ``a * b + c``, rounded once."""
    x, y = match_types(a, b)
    x, z = match_types(x, c)
    return Call("tir.fma", (x, cast(x.dtype, y), z), x.dtype)


def dot4_u8i8(c: Any, a: Any, b: Any) -> Expr:
    """Return ``c[i] + sum(a[4*i + k] * b[4*i + k] for k in range(4))``, the instruction vpdpbusd.

    The products are exact; the sum wraps.

    ``c`` is int32 with N lanes (N may be 1), ``a`` uint8 and ``b`` int8 with 4 N lanes. TypeError otherwise.
    """
    return _dot("dot4_u8i8", 4, ("int32", "uint8", "int8"), c, a, b)


def dot2_bf16(c: Any, a: Any, b: Any) -> Expr:
    """Return ``c[i] + a[2*i] * b[2*i] + a[2*i+1] * b[2*i+1]``, the instruction vdpbf16ps.

    The products are exact in float32; the sums are rounded to nearest even, in an order that the machine chooses
    (the interpreter adds the odd product first, as in Intel's manual), and subnormal numbers may count as zero.
    ``c`` is float32 with N lanes (N may be 1), ``a`` and ``b`` bfloat16 with 2 N lanes. TypeError otherwise.
    """
    return _dot("dot2_bf16", 2, ("float32", "bfloat16", "bfloat16"), c, a, b)


def _dot(name: str, width: int, types: tuple[str, str, str], *args: Any) -> Expr:
    c, a, b = (convert(x) for x in args)
    lanes = lanes_of(c.dtype)
    wanted = [with_lanes(types[0], lanes), *[with_lanes(t, width * lanes) for t in types[1:]]]
    if [c.dtype, a.dtype, b.dtype] != wanted:
        raise TypeError(f"{name} takes {', '.join(wanted)}, not {c.dtype}, {a.dtype}, {b.dtype}")
    return Call(f"tir.{name}", (c, a, b), c.dtype)


def popcount(x: Any) -> Expr:
    """Return the number of one bits."""
    e = convert(x)
    return Call("tir.popcount", (e,), e.dtype)


def clz(x: Any) -> Expr:
    """Return the number of leading zero bits."""
    e = convert(x)
    return Call("tir.clz", (e,), e.dtype)


def bitwise_not(x: Any) -> Expr:
    """Return ``x`` with all bits inverted."""
    e = convert(x)
    return Call("tir.bitwise_not", (e,), e.dtype)


def if_then_else(cond: Any, t: Any, f: Any) -> Expr:
    """Return ``t`` where ``cond`` holds, else ``f``; only the chosen side is evaluated, so that it may guard a read."""
    c = convert(cond)
    if not is_bool(c.dtype):
        raise TypeError(f"if_then_else: the condition is {c.dtype}, not bool")
    a, b = match_types(t, f)
    return Call("tir.if_then_else", (c, a, b), a.dtype)


def select(cond: Any, t: Any, f: Any) -> Expr:
    """Return ``t`` where ``cond`` holds, else ``f``; both sides are evaluated."""
    c = convert(cond)
    if not is_bool(c.dtype):
        raise TypeError(f"select: the condition is {c.dtype}, not bool")
    a, b = match_types(t, f)
    return Select(c, a, b)


def likely(cond: Any) -> Expr:
    """Return ``cond``, marked as a condition that holds most of the time."""
    c = convert(cond)
    return Call("tir.likely", (c,), c.dtype)


def reinterpret(dtype: str, x: Any) -> Expr:
    """Return the bits of ``x`` as another type of the same width."""
    e = convert(x)
    return e if e.dtype == dtype else Call("tir.reinterpret", (e,), dtype)


def max_(a: Any, b: Any) -> Expr:
    """Return the larger operand."""
    return make_binary(Max, *match_types(a, b))


def min_(a: Any, b: Any) -> Expr:
    """Return the smaller operand."""
    return make_binary(Min, *match_types(a, b))


def floordiv(a: Any, b: Any) -> Expr:
    """Return ``a / b`` rounded towards minus infinity."""
    return make_binary(FloorDiv, *match_types(a, b))


def floormod(a: Any, b: Any) -> Expr:
    """Return the remainder of :func:`floordiv`."""
    return make_binary(FloorMod, *match_types(a, b))


def truncdiv(a: Any, b: Any) -> Expr:
    """Return ``a / b`` rounded towards zero."""
    return make_binary(TruncDiv, *match_types(a, b))


def truncmod(a: Any, b: Any) -> Expr:
    """Return the remainder of :func:`truncdiv`."""
    return make_binary(TruncMod, *match_types(a, b))


def ceildiv(a: Any, b: Any) -> Expr:
    """Return ``a / b`` rounded towards plus infinity."""
    x, y = match_types(a, b)
    return (x + (y - 1)) // y


def all_(*conds: Any) -> Expr:
    """Return whether every condition holds."""
    return _chain(And, True, conds)


def any_(*conds: Any) -> Expr:
    """Return whether some condition holds."""
    return _chain(Or, False, conds)


def _chain(cls: Any, empty: bool, conds: tuple[Any, ...]) -> Expr:
    out: Expr | None = None
    for c in conds:
        e = convert(c)
        if not is_bool(e.dtype):
            raise TypeError(f"a condition is {e.dtype}, not bool")
        out = e if out is None else cls(out, e)
    return const(empty, "bool") if out is None else out


def not_(x: Any) -> Expr:
    """Return the negation of a condition."""
    return Not(convert(x))


def infinity(dtype: str = "float32") -> Expr:
    """Return plus infinity."""
    return const(float("inf"), dtype)


def max_value_of(dtype: str) -> Expr:
    """Return the largest finite value of ``dtype``."""
    return const(max_value(dtype), dtype)


def min_value_of(dtype: str) -> Expr:
    """Return the smallest finite value of ``dtype``."""
    return const(min_value(dtype), dtype)
