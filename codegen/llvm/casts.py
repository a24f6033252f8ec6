"""Emits conversions between data types. Those of float16 and bfloat16 take an instruction of the target or arithmetic
on their bits."""

from __future__ import annotations

from ...tir.expr import DType, Expr, index_like, max_value, min_value
from ..backend.value_ranges import whole_in_range
from ..machine.target import Target
from .function_builder import FunctionBuilder
from .llvm_scope import LlvmScope
from .llvm_types import float_constant, llvm_type, splat_constant, suffix


def emit_cast(em: LlvmScope, e: Expr, to: DType) -> str:
    """Return ``e`` converted to ``to``; index arithmetic is 64 bits wide already."""
    if to.lanes == 1 and to.is_int and to.bits == 64 and e.dtype.is_signed and index_like(e):
        return em.index(e)
    text = em.value(e)
    in_range = e.dtype.is_float and to.is_int and whole_in_range(em, e, to)
    return em.converted(text, e.dtype, to, in_range)


def converted(em: LlvmScope, text: str, source: DType, to: DType, in_range: bool = False) -> str:
    """Returns a value converted: integers are truncated or extended by their own sign, floats rounded to nearest even.

    ``in_range``: the value, truncated, is one of ``to``, or NaN.
    """
    if source == to:
        return text
    if any(one.is_float and one.bits == 16 for one in (source, to)):
        return em.half_conversion(text, source, to, in_range)
    fn, ts, td = em.fn, llvm_type(source), llvm_type(to)
    if to.is_bool:
        zero = "zeroinitializer" if to.lanes > 1 else "0.0" if source.is_float else "0"
        return fn.pure(f"{'fcmp une' if source.is_float else 'icmp ne'} {ts} {text}, {zero}")
    if source.is_float:
        if to.is_float:
            return fn.pure(f"{'fpext' if to.bits > source.bits else 'fptrunc'} {ts} {text} to {td}")
        by_machine = em.target.arch.startswith(_SATURATING)
        return (_saturating if by_machine else _within_ends)(em, text, source, to, in_range)
    if to.is_float:
        return fn.pure(f"{'sitofp' if source.is_signed else 'uitofp'} {ts} {text} to {td}")
    if source.bits == to.bits and not source.is_bool:
        return text
    if source.bits > to.bits:
        literal = to.lanes == 1 and not text.startswith("%")  # LLVM truncates surplus bits
        return text if literal else fn.pure(f"trunc {ts} {text} to {td}")
    return fn.pure(f"{'sext' if source.is_signed else 'zext'} {ts} {text} to {td}")


_SATURATING = ("aarch64", "arm", "riscv", "wasm")
"""Architectures whose conversions give the nearer end of the range."""


def _within_ends(em: LlvmScope, text: str, source: DType, to: DType, in_range: bool) -> str:
    """Returns a float as an integer where the conversion says nothing of what lies beyond its range.

    NaN and what lies below are replaced before it; so is what lies above, unless the largest integer is no float.
    """
    fn, ts, t1 = em.fn, llvm_type(source), llvm_type(DType("bool").with_lanes(to.lanes))
    low, high = int(min_value(to)), int(max_value(to))

    def number(value: float) -> str:
        return splat_constant(float_constant(value, source.element), source)

    def test(word: str, x: str, y: str) -> str:
        return fn.pure(f"fcmp {word} {ts} {x}, {y}")

    x = text
    if to.is_signed:
        x = fn.chosen(t1, test("ord", x, x), ts, x, number(0.0))
        x = x if in_range else fn.chosen(t1, test("ogt", x, number(float(low))), ts, x, number(float(low)))
    else:
        x = fn.chosen(t1, test("ogt", x, number(0.0)), ts, x, number(0.0))
    exact = to.bits < (24 if source.bits == 32 else 53)
    if not in_range and exact:
        x = fn.chosen(t1, test("olt", x, number(float(high))), ts, x, number(float(high)))
    out = fn.pure(f"{'fptosi' if to.is_signed else 'fptoui'} {ts} {x} to {llvm_type(to)}")
    if in_range or exact:
        return out
    beyond = test("oge", x, number(float(high + 1)))
    return fn.chosen(t1, beyond, llvm_type(to), splat_constant(str(high), to), out)


def _saturating(em: LlvmScope, text: str, source: DType, to: DType, in_range: bool) -> str:
    """Returns a float as an integer by the machine's conversion to 32 or 64 bits, which saturates.

    The ends of narrower types are taken after it.
    """
    fn = em.fn
    wide = to if to.bits >= 32 else DType("int32").with_lanes(to.lanes)
    tw, name = llvm_type(wide), f"llvm.fpto{'si' if wide.is_signed else 'ui'}.sat.{suffix(wide)}.{suffix(source)}"
    out = fn.pure(fn.intrinsic(name, tw, [llvm_type(source)], [text]))
    if wide == to:
        return out
    for word, end in () if in_range else (("smax", min_value(to)), ("smin", max_value(to))):
        out = fn.pure(fn.intrinsic(f"llvm.{word}.{suffix(wide)}", tw, [tw, tw], [out, splat_constant(str(end), wide)]))
    return fn.pure(f"trunc {tw} {out} to {llvm_type(to)}")


# Converts float16 and bfloat16 to and from float32, by an instruction of the target or by arithmetic on the bits.
#
# The arithmetic for float16 follows F. Giesen's conversions (public domain): a multiplication by a power of two
# gives the value of a denormal number, and an addition that aligns the mantissa gives its bits.


def _number(n: int, dtype: DType, lanes: int) -> str:
    return splat_constant(str(n), dtype.with_lanes(lanes))


def half_conversion(em: LlvmScope, text: str, source: DType, to: DType, in_range: bool = False) -> str:
    """Returns a value converted from or to float16 or bfloat16, through float32, which represents every value of both."""
    fn, lanes, single = em.fn, source.lanes, DType("float32").with_lanes(source.lanes)
    if source.kind == "bfloat":
        return em.converted(bfloat_to_float(fn, text, lanes), single, to, in_range)
    if source.is_float and source.bits == 16:
        return em.converted(half_to_float(fn, em.target, text, lanes), single, to, in_range)
    if to.kind == "bfloat":
        return float_to_bfloat(fn, em.converted(text, source, single), lanes)
    double = source.kind == "float" and source.bits == 64
    wide = double_to_odd_float(fn, text, lanes) if double else em.converted(text, source, single)
    return float_to_half(fn, em.target, wide, lanes)


def half_to_float(fn: FunctionBuilder, target: Target, text: str, lanes: int) -> str:
    """Returns the float32 of a float16, exactly; a signalling NaN becomes quiet."""
    th, t16, t32, tf, t1 = (
        llvm_type(DType(d).with_lanes(lanes)) for d in ("float16", "uint16", "uint32", "float32", "bool")
    )
    if target.has_f16c:
        return fn.pure(f"fpext {th} {text} to {tf}")

    def u32(n: int) -> str:
        return _number(n, DType("uint32"), lanes)

    wide = fn.pure(f"zext {t16} {fn.pure(f'bitcast {th} {text} to {t16}')} to {t32}")
    size = fn.pure(f"and {t32} {wide}, {u32(0x7FFF)}")
    sign = fn.pure(f"shl {t32} {fn.pure(f'and {t32} {wide}, {u32(0x8000)}')}, {u32(16)}")
    shifted = fn.pure(f"shl {t32} {size}, {u32(13)}")
    power = splat_constant("0x46F0000000000000", DType("float32").with_lanes(lanes))  # 2**112 moves the exponent's bias
    scaled = fn.pure(f"fmul {tf} {fn.pure(f'bitcast {t32} {shifted} to {tf}')}, {power}")
    finite = fn.pure(f"bitcast {tf} {scaled} to {t32}")
    quiet = fn.pure(f"select {t1} {fn.pure(f'icmp ugt {t32} {size}, {u32(0x7C00)}')}, {t32} {u32(0x7FC00000)}, "
                    f"{t32} {u32(0x7F800000)}")  # fmt: skip
    special = fn.pure(f"or {t32} {shifted}, {quiet}")
    is_special = fn.pure(f"icmp uge {t32} {size}, {u32(0x7C00)}")
    bits = fn.pure(f"or {t32} {fn.pure(f'select {t1} {is_special}, {t32} {special}, {t32} {finite}')}, {sign}")
    return fn.pure(f"bitcast {t32} {bits} to {tf}")


def float_to_half(fn: FunctionBuilder, target: Target, text: str, lanes: int) -> str:
    """Returns the float16 nearest to a float32, ties to even. A NaN keeps the upper part of its payload and becomes
    quiet."""
    th, t16, t32, tf, t1 = (
        llvm_type(DType(d).with_lanes(lanes)) for d in ("float16", "uint16", "uint32", "float32", "bool")
    )
    if target.has_f16c:
        return fn.pure(f"fptrunc {tf} {text} to {th}")

    def u32(n: int) -> str:
        return _number(n, DType("uint32"), lanes)

    def choose(test: str, yes: str, no: str) -> str:
        return fn.chosen(t1, test, t32, yes, no)

    bits = fn.pure(f"bitcast {tf} {text} to {t32}")
    sign = fn.pure(f"and {t32} {bits}, {u32(0x80000000)}")
    size = fn.pure(f"xor {t32} {bits}, {sign}")
    upper = fn.pure(f"lshr {t32} {size}, {u32(13)}")
    payload = fn.pure(f"and {t32} {upper}, {u32(0x3FF)}")
    nan = fn.pure(f"icmp ugt {t32} {size}, {u32(0x7F800000)}")
    large = choose(nan, fn.pure(f"or {t32} {payload}, {u32(0x7E00)}"), u32(0x7C00))
    magic = splat_constant("0x3FE0000000000000", DType("float32").with_lanes(lanes))  # 0.5: its last bit is 2**-24
    aligned = fn.pure(f"fadd {tf} {fn.pure(f'bitcast {t32} {size} to {tf}')}, {magic}")
    small = fn.pure(f"sub {t32} {fn.pure(f'bitcast {tf} {aligned} to {t32}')}, {u32(0x3F000000)}")
    odd = fn.pure(f"and {t32} {upper}, {u32(1)}")
    biased = fn.pure(f"add {t32} {size}, {u32((((15 - 127) << 23) + 0xFFF) & 0xFFFFFFFF)}")
    normal = fn.pure(f"lshr {t32} {fn.pure(f'add {t32} {biased}, {odd}')}, {u32(13)}")
    finite = choose(fn.pure(f"icmp ult {t32} {size}, {u32(113 << 23)}"), small, normal)
    out = choose(fn.pure(f"icmp uge {t32} {size}, {u32(143 << 23)}"), large, finite)
    signed = fn.pure(f"or {t32} {out}, {fn.pure(f'lshr {t32} {sign}, {u32(16)}')}")
    return fn.pure(f"bitcast {t16} {fn.pure(f'trunc {t32} {signed} to {t16}')} to {th}")


def double_to_odd_float(fn: FunctionBuilder, text: str, lanes: int) -> str:
    """Returns a float32 whose rounding to float16 equals the rounding of the float64 itself.

    The float64 is truncated, and the last bit is set when anything was lost (S. Boldo and G. Melquiond, "When double
    rounding is odd", 2005).
    """
    t32, tf, td, t1 = (llvm_type(DType(d).with_lanes(lanes)) for d in ("uint32", "float32", "float64", "bool"))
    one = _number(1, DType("uint32"), lanes)
    near = fn.pure(f"fptrunc {td} {text} to {tf}")
    back = fn.pure(f"fpext {tf} {near} to {td}")
    bits = fn.pure(f"bitcast {tf} {near} to {t32}")
    lost = fn.pure(f"fcmp one {td} {back}, {text}")
    sizes = [fn.called(f"llvm.fabs.{suffix(DType('float64').with_lanes(lanes))}", td, x) for x in (back, text)]
    beyond = fn.pure(f"fcmp ogt {td} {sizes[0]}, {sizes[1]}")
    cut = fn.pure(f"select {t1} {beyond}, {t32} {fn.pure(f'sub {t32} {bits}, {one}')}, {t32} {bits}")
    marked = fn.pure(f"or {t32} {cut}, {one}")
    chosen = fn.pure(f"select {t1} {lost}, {t32} {marked}, {t32} {bits}")
    return fn.pure(f"bitcast {t32} {chosen} to {tf}")


def bfloat_to_float(fn: FunctionBuilder, text: str, lanes: int) -> str:
    """Returns the float32 of a bfloat16, whose bits are the upper half of the float32's bits."""
    t16, t32, tf = (llvm_type(DType(d).with_lanes(lanes)) for d in ("uint16", "uint32", "float32"))
    wide = fn.pure(f"zext {t16} {text} to {t32}")
    high = fn.pure(f"shl {t32} {wide}, {splat_constant('16', DType('uint32').with_lanes(lanes))}")
    return fn.pure(f"bitcast {t32} {high} to {tf}")


def float_to_bfloat(fn: FunctionBuilder, text: str, lanes: int) -> str:
    """Returns the nearest bfloat16, ties to even, by arithmetic on the bits; NaN stays NaN."""
    t16, t32, tf, t1 = (llvm_type(DType(d).with_lanes(lanes)) for d in ("uint16", "uint32", "float32", "bool"))

    def number(n: int) -> str:
        return _number(n, DType("uint32"), lanes)

    bits = fn.pure(f"bitcast {tf} {text} to {t32}")
    upper = fn.pure(f"lshr {t32} {bits}, {number(16)}")
    odd = fn.pure(f"and {t32} {upper}, {number(1)}")
    bias = fn.pure(f"add {t32} {odd}, {number(0x7FFF)}")
    rounded = fn.pure(f"lshr {t32} {fn.pure(f'add {t32} {bits}, {bias}')}, {number(16)}")
    quiet = fn.pure(f"or {t32} {upper}, {number(0x40)}")
    nan = fn.pure(f"fcmp uno {tf} {text}, {text}")
    chosen = fn.pure(f"select {t1} {nan}, {t32} {quiet}, {t32} {rounded}")
    return fn.pure(f"trunc {t32} {chosen} to {t16}")
