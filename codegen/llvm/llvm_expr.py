"""Emits expressions: scalars and vectors as SSA values, conversions between data types, and reductions over lanes.

Conversions of float16 and bfloat16 take an instruction of the target or arithmetic on their bits. Divisions never make the
processor fault.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...tir.expr import (
    BinaryOp,
    Call,
    Div,
    DType,
    Expr,
    FloorDiv,
    FloorMod,
    Shuffle,
    TruncDiv,
    index_like,
    max_value,
    min_value,
)
from ...tir.expr import nodes as E
from ...tir.walk import pre_order
from ..backend import emitter as expressions
from ..backend.analyses import is_external_call, whole_in_range
from ..backend.emitter import constant_of
from ..machine.target import Target
from .function_builder import (
    FunctionBuilder,
    float_constant,
    llvm_type,
    splat_constant,
    suffix,
    vector_constant,
    zero,
)
from .llvm_scope import LlvmScope


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
        return em.fn.chosen(llvm_type(DType("bool").with_lanes(dtype.lanes)), test, type_, a, b)
    if how in ("max", "min"):
        if dtype.is_float:
            return em.float_extreme(how == "max", a, b, dtype)
        return em.fn.called(f"llvm.{'s' if dtype.is_signed else 'u'}{how}.{suffix(dtype)}", type_, a, b)
    return em.fn.pure(f"{'f' if dtype.is_float else ''}{how} {type_} {a}, {b}")


LANE_REDUCTIONS: dict[str, Callable[[LlvmScope, Call], str]] = dict.fromkeys(
    [f"vector_reduce_{how}" for how in ("add", "mul", "fmax", "fmin", "max", "min")], _vector_reduce
)
"""Emitters by the operation's name."""


# Reduces several vectors at once: the rows of a matrix of registers become the lanes of one vector.
#
# Reducing each row by itself takes log2(lanes) shuffles and as many combinations. In a reduction of several rows, each
# step combines the halves of two vectors and puts the results into one, which does the work of two steps with the same
# three instructions. The steps unpack within 128-bit parts first and then exchange those parts, as in a transpose of
# which only the sums of columns are kept.

Combine = Callable[[str, str, str], str]
"""The combination of two values of a type."""


def reduce_rows(
    fn: FunctionBuilder, rest: list[str], scalar: DType, lanes: int, register_lanes: int, combine: Combine,
    one: Callable[[str, str], str],
) -> str:  # fmt: skip
    """Returns a vector whose lane ``r`` combines the ``lanes`` lanes of row ``r``. ``one`` reduces a vector of a type to
    a scalar, for shapes that the network does not support."""
    rows = len(rest)
    unit = 128 // scalar.bits  # the lanes of one part, within which unpacking works
    if rows & (rows - 1) or lanes & (lanes - 1) or scalar.bits not in (32, 64) or rows > lanes or lanes < unit:
        base = llvm_type(scalar)
        return fn.joined(f"<{rows} x {base}>", base, (one(part, scalar.with_lanes(lanes)) for part in rest))

    def step(a: str, b: str, low: list[int], high: list[int], width: int) -> str:
        halves = [fn.shuffled(llvm_type(scalar.with_lanes(width)), a, b, order) for order in (low, high)]
        return combine(halves[0], halves[1], scalar.with_lanes(len(low)))

    most = max(unit, register_lanes)
    parts, wide = [], lanes
    for part in rest:  # each row is first reduced to one register
        lanes = wide
        while lanes > max(most, rows):
            part = step(part, part, list(range(lanes // 2)), list(range(lanes // 2, lanes)), lanes)
            lanes //= 2
        parts.append(part)
    have = 1  # rows in each unit of a vector
    while len(parts) > 1 and have < unit:
        low, high = _unpacking(lanes, unit, have)
        parts = [step(a, b, low, high, lanes) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        have *= 2
    copies = lanes // unit  # the number of neighbouring units that hold the same rows
    while copies > 1:
        units = range(lanes // unit)
        low = [u for u in units if u % copies < copies // 2]
        high = [u for u in units if u % copies >= copies // 2]
        if len(parts) > 1:
            both = [[*half, *[u + lanes // unit for u in half]] for half in (low, high)]
            orders = [[u * unit + k for u in half for k in range(unit)] for half in both]
            parts = [step(a, b, orders[0], orders[1], lanes) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        else:
            orders = [[u * unit + k for u in half for k in range(unit)] for half in (low, high)]
            parts = [step(parts[0], parts[0], orders[0], orders[1], lanes)]
            lanes //= 2
        copies //= 2
    width = lanes
    while width > rows:  # fewer rows than a unit has lanes
        width //= 2
        parts = [step(parts[0], parts[0], list(range(width)), list(range(width, 2 * width)), 2 * width)]
    return parts[0]


def _unpacking(lanes: int, unit: int, have: int) -> tuple[list[int], list[int]]:
    """Returns the lanes of two vectors that an unpacking of the halves of each unit takes.

    The first list is for the low halves, the second for the high halves; ``have`` lanes stay together.
    """
    low: list[int] = []
    high: list[int] = []
    for start in range(0, lanes, unit):
        for n in range(unit // 2 // have):
            for order, first in ((low, start), (high, start + unit // 2)):
                chunk = [first + n * have + k for k in range(have)]
                order += [*chunk, *[lanes + k for k in chunk]]
    return low, high


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
    mask = mask_of_lanes(em, e, range(e.dtype.lanes)) if e.dtype.lanes > 1 and e.a.dtype.is_signed else None
    return expressions.comparison(em, e) if mask is None else mask


def mask_of_lanes(em: LlvmScope, e: E.CmpOp, numbers: Sequence[int]) -> str | None:
    """Returns a comparison of a ramp with a single value in the lanes of these ``numbers``; None for another one.

    A number below 0 or beyond the lanes stands for a lane that goes on like the others.
    """
    if not (isinstance(e.a, E.Ramp) and isinstance(e.b, E.Broadcast) and isinstance(e.a.stride, E.IntImm)):
        return None
    if not (index_like(e.a.base) and index_like(e.b.value)):
        return None
    stride = e.a.stride.value
    gap = em.linear(e.b.value).plus(em.linear(e.a.base), -1)  # stride * lane  OP  gap
    if not gap.terms:
        return vector_constant([int(_HOLDS[type(e)](stride * n, gap.const)) for n in numbers], "i1")
    reach = max(abs(stride) * e.a.lanes, *[abs(stride * n) for n in numbers]) + 1
    if isinstance(e, (E.EQ, E.NE)) or reach >= 1 << 30:
        return None
    # beyond the reach of the lanes the distance makes no difference
    return em.lanes_compared([stride * n for n in numbers], _COMPARE[type(e)][1], gap, reach)


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


_NANS = {"float32": "0xFFFFFFFFE0000000", "float64": "0xFFFFFFFFFFFFFFFF"}
"""The NaN of which all bits are set, so that a mask of a comparison gives it by a bitwise "or". A choice of the operand
itself would be joined with the choice before it, and no instruction for the maximum be found."""


def float_extreme(em: LlvmScope, largest: bool, x: str, y: str, dtype: DType, x_is_number: bool = False) -> str:
    """Returns Min or Max of floats, NaN if either is NaN. This is one instruction when one operand is a constant number.

    The select gives ``y`` whenever ``y`` is NaN.
    """
    fn, type_, bools = em.fn, llvm_type(dtype), llvm_type(DType("bool").with_lanes(dtype.lanes))
    if not x_is_number and _has_extreme(em.target, dtype):
        found = fn.intrinsic(f"llvm.{'maximum' if largest else 'minimum'}.{suffix(dtype)}", type_, [type_] * 2, [y, x])
        return fn.pure(found.replace("call", "call nsz", 1))  # the sign of a zero is open, as below
    test = fn.pure(f"fcmp {'ogt' if largest else 'olt'} {type_} {x}, {y}")
    best = fn.chosen(bools, test, type_, x, y)
    if x_is_number:
        return best
    unordered = fn.pure(f"fcmp uno {type_} {x}, {x}")
    nan = _NANS.get(dtype.element)
    if nan is not None and dtype.lanes > 1:
        nan = f"splat ({llvm_type(dtype.element)} {nan})"
    return fn.chosen(bools, unordered, type_, nan or x, best)


def _has_extreme(target: Target, dtype: DType) -> bool:
    """Returns whether Min and Max that give NaN if either is NaN take one or two instructions of a target."""
    if target.mcpu.startswith("sm_"):  # max.NaN.f32 of PTX
        return dtype.element == "float32" and int("".join(ch for ch in target.mcpu if ch.isdigit())) >= 80
    return dtype.lanes > 1 and dtype.element in _NANS and target.has("avx512vl")


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
    """Returns lanes picked from one vector or several of the same length. A few bytes, repeated, are one broadcast word."""
    if e.vectors[0].dtype.lanes == 1 or len(e.indices) == 1 or len(e.vectors) > 2:
        picked = [_lane(em, e, n) for n in e.indices]
        return picked[0] if len(picked) == 1 else em.fn.joined(em.type(e), llvm_type(e.dtype.element), picked)
    first = em.value(e.vectors[0])
    part = e.vectors[0].dtype
    times, bits = len(e.indices) // part.lanes, part.lanes * part.bits
    if times > 1 and e.indices == tuple(range(part.lanes)) * times and bits in (32, 64) and not part.is_bool:
        word = em.fn.pure(f"bitcast {em.type(e.vectors[0])} {first} to i{bits}")
        words = em.fn.splat(word, f"i{bits}", times)
        return em.fn.pure(f"bitcast <{times} x i{bits}> {words} to {em.type(e)}")
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
# The nodes (:class:`~.nodes.FloorDiv`) define the results that the machine leaves open: a quotient and a remainder by zero are
# 0, and the smallest number divided by -1 is itself. Divisors that can be neither 0 nor -1 need no extra instructions.
# Other divisors are replaced by 1 before the instruction, and the quotient is selected afterwards.
#
# No processor divides vectors of integers. Vectors of at most 32 bits that are not divided by a constant are divided as floats,
# and the quotient is cut off. That is exact: a quotient that is no whole number lies at least 1/b below the next one, which
# is a share of more than 1/|a| of it, and floats of twice the bits, or of 24 bits for numbers of 16, tell these apart.


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
    floats = constant is None and dtype.lanes > 1 and dtype.bits <= 32
    if constant is not None or (least is not None and least > 0):
        return _plain(fn, e, a, b, dtype, floats)
    type_, bools = llvm_type(dtype), llvm_type(DType("bool").with_lanes(dtype.lanes))
    one = splat_constant("1", dtype)
    if dtype.lanes > 1:  # lanes that were never stored to hold an arbitrary number
        b = fn.pure(f"freeze {type_} {b}")
    if dtype.is_signed and (least is None or least < 0):
        next_ = fn.pure(f"add {type_} {b}, {one}")
        special = fn.pure(f"icmp ult {type_} {next_}, {splat_constant('2', dtype)}")  # b is -1 or 0
    else:
        special = fn.pure(f"icmp eq {type_} {b}, {zero(dtype)}")
    result = _plain(fn, e, a, fn.chosen(bools, special, type_, one, b), dtype, floats)
    if not quotient:  # the remainder by 1 is 0, as it is by 0 and by -1
        return result
    return fn.chosen(bools, special, type_, fn.pure(f"mul {type_} {a}, {b}"), result)  # 0, or -a


def _plain(fn: FunctionBuilder, e: BinaryOp, a: str, b: str, dtype: DType, floats: bool) -> str:
    """Returns the division when no divisor is 0, and none is -1 where the smallest number may be divided."""
    quotient = isinstance(e, (Div, TruncDiv, FloorDiv))
    if isinstance(e, (FloorDiv, FloorMod)) and dtype.is_signed:
        return _floored(fn, quotient, a, b, dtype, floats)
    whole, rest = _cut_off(fn, a, b, dtype, floats)
    return whole() if quotient else rest()


def _cut_off(
    fn: FunctionBuilder, a: str, b: str, dtype: DType, floats: bool
) -> tuple[Callable[[], str], Callable[[], str]]:
    """Returns what writes the quotient rounded towards zero, and what writes its remainder."""
    type_, sign = llvm_type(dtype), "s" if dtype.is_signed else "u"
    if not floats:
        return (lambda: fn.pure(f"{sign}div {type_} {a}, {b}")), (lambda: fn.pure(f"{sign}rem {type_} {a}, {b}"))
    wide = llvm_type(DType("float64" if dtype.bits > 16 else "float32").with_lanes(dtype.lanes))

    def whole() -> str:
        over, under = (fn.pure(f"{sign}itofp {type_} {x} to {wide}") for x in (a, b))
        return fn.pure(f"fpto{sign}i {wide} {fn.pure(f'fdiv {wide} {over}, {under}')} to {type_}")

    return whole, lambda: fn.pure(f"sub {type_} {a}, {fn.pure(f'mul {type_} {whole()}, {b}')}")


def _floored(fn: FunctionBuilder, quotient: bool, a: str, b: str, dtype: DType, floats: bool) -> str:
    """Returns signed division rounded towards minus infinity, or its remainder."""
    type_, bool_type = llvm_type(dtype), llvm_type(DType("bool").with_lanes(dtype.lanes))
    whole, rest = _cut_off(fn, a, b, dtype, floats)
    rem = rest()
    nonzero = fn.pure(f"icmp ne {type_} {rem}, {zero(dtype)}")
    signs = fn.pure(f"xor {type_} {rem}, {b}")
    differ = fn.pure(f"icmp slt {type_} {signs}, {zero(dtype)}")
    adjust = fn.pure(f"and {bool_type} {nonzero}, {differ}")
    if quotient:
        div = whole()
        step = fn.pure(f"sext {bool_type} {adjust} to {type_}")
        return fn.pure(f"add {type_} {div}, {step}")
    added = fn.pure(f"add {type_} {rem}, {b}")
    return fn.chosen(bool_type, adjust, type_, added, rem)
