"""The rows of CUDA's library of functions (libdevice), of checks while a kernel runs, and of what stays with GPUs.

The functions take floats of any width: float16 and bfloat16 are computed in float32. Functions of bits keep the type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ..tir.expr import Expr, Select, const
from ..tir.expr.dtype import BOOL, DType
from ..tir.expr.intrinsics import operation_named
from . import basic_rows, random_rows
from .block_values import BlockValue, broadcast_make, broadcast_shape, computed_once, promoted
from .kernel_builder import FLOAT32, KernelBuilder
from .rows import Builtin, builtin, int32, int64, to_named, uint32

LIBDEVICE: dict[str, Builtin] = {}
"""The functions of the library, by their names there."""

Function = Callable[..., Expr]


def _listed(*names: str) -> Callable[[Callable[..., Any]], Builtin]:
    def add(compute: Callable[..., Any]) -> Builtin:
        row = Builtin(compute)
        LIBDEVICE.update(dict.fromkeys(names, row))
        return row

    return add


def _on_floats(
    k: KernelBuilder, function: Function, values: tuple[Any, ...], result: DType | None = None
) -> BlockValue:
    """Returns a function of floats of each element, computed in float32 or float64."""
    blocks = [k.value(v) for v in values]
    weak = [isinstance(v, (bool, int, float)) for v in values]
    dtype, is_weak = blocks[0].dtype, weak[0]
    for b, w in zip(blocks[1:], weak[1:], strict=True):
        dtype, is_weak = promoted(dtype, b.dtype, is_weak, w), is_weak and w
    dtype = dtype if dtype.is_float else FLOAT32
    if dtype.is_storage:
        raise TypeError(f"{dtype} is only kept; convert it with .to(tl.float32) first")
    inner = FLOAT32 if dtype.bits < 32 else dtype
    shape = broadcast_shape(*[b.shape for b in blocks])
    makes = [broadcast_make(k.cast_data(b, inner), shape) for b in blocks]
    reads = frozenset().union(*[b.reads for b in blocks])
    found = BlockValue(
        shape, result or inner, lambda lanes: function(*[make(lanes) for make in makes]), sum([b.cost for b in blocks]) + 20,
        reads,
    )  # fmt: skip
    return found if result is not None or inner == dtype else k.data(found, dtype)


def _function(operation: str, *names: str, count: int = 1, made: Function | None = None) -> None:
    """Adds the row of an operation of one or more floats under its names."""
    function = made or operation_named(operation)
    if count == 1:

        def one(k: KernelBuilder, x: Any) -> BlockValue:
            return _on_floats(k, function, (x,))

        compute: Callable[..., Any] = one
    else:

        def two(k: KernelBuilder, x: Any, y: Any) -> BlockValue:
            return _on_floats(k, function, (x, y))

        compute = two
    compute.__name__ = compute.__qualname__ = names[0]
    compute.__doc__ = f"Return {names[0]} of each element."
    _listed(*names)(compute)


def _half_away(x: Expr) -> Expr:
    """Returns the nearest whole number, halves away from zero."""

    def rounded(e: Expr) -> Expr:
        whole = operation_named("trunc")(e)
        far = operation_named("fabs")(e - whole) >= const(0.5, e.dtype)
        one = operation_named("copysign")(const(1.0, e.dtype), e)
        return operation_named("copysign")(Select(far, whole + one, whole), e)

    return computed_once(x, rounded)


def _remainder(x: Expr, y: Expr) -> Expr:
    """Returns x - n·y for the whole number n nearest to x / y, which is exact for quotients below 2**24."""
    row = operation_named("fma")
    return computed_once(
        x, lambda a: computed_once(y, lambda b: row(const(0.0, a.dtype) - operation_named("round")(a / b), b, a))
    )


def _dim(x: Expr, y: Expr) -> Expr:
    zero = const(0.0, x.dtype)
    return computed_once(x, lambda a: computed_once(y, lambda b: Select(a <= b, zero, a - b)))


def _saturated(x: Expr) -> Expr:
    zero, one = const(0.0, x.dtype), const(1.0, x.dtype)
    return computed_once(x, lambda a: Select(a > zero, Select(a < one, a, one), zero))


for _name in (
    "acos acosh asin asinh atan atanh ceil cos cosh erf exp exp10 exp2 expm1 floor log log10 log1p log2 nearbyint rsqrt sin sinh "
    "sqrt tan tanh trunc"
).split():  # fmt: skip
    _function(_name, _name)
for _name in "atan2 copysign fmod hypot pow".split():
    _function(_name, _name, count=2)
_function("round", "rint")
_function("sqrt", "sqrt_rn")
_function("rsqrt", "rsqrt_rn")
_function("", "round", made=_half_away)
_function("", "fdim", count=2, made=_dim)
_function("", "saturatef", made=_saturated)
for _name in "cos exp exp10 log log10 log2 sin tan tanh".split():
    _function(_name, f"fast_{_name}f")
_function("pow", "fast_powf", count=2)
LIBDEVICE |= {
    "abs": basic_rows.abs, "div_rn": basic_rows.div_rn, "fast_dividef": basic_rows.fdiv, "fma": basic_rows.fma,
    "fma_rn": basic_rows.fma,
}  # fmt: skip


def _test(operation: str, *names: str) -> None:
    def compute(k: KernelBuilder, x: Any) -> BlockValue:
        return _on_floats(k, operation_named(operation), (x,), BOOL)

    compute.__name__ = compute.__qualname__ = names[0]
    compute.__doc__ = f"Return whether {operation} holds, of each element."
    _listed(*names)(compute)


_test("isnan", "isnan")
_test("isinf", "isinf")
_test("isfinite", "finitef", "isfinited")


@_listed("signbit")
def signbit(k: KernelBuilder, x: Any) -> BlockValue:
    """Return whether the sign of each float is set, that of -0.0 and NaN too."""
    value = k.cast(k.value(x), FLOAT32) if k.value(x).dtype.bits < 32 else k.value(x)
    bits = basic_rows.to.meaning(k, value, DType(f"int{value.dtype.bits}"), bitcast=True)
    return k.binary("<", bits, 0)


def _conversions() -> None:
    """Adds conversions of floats to integers by direction, and casts of bits."""
    directions: dict[str, Function | None] = {"rn": operation_named("round"), "rz": None, "rd": operation_named("floor"),
                                              "ru": operation_named("ceil")}  # fmt: skip
    for source in ("float", "double"):
        for word, kind in (("int", "int32"), ("uint", "uint32"), ("ll", "int64"), ("ull", "uint64")):
            for end, way in directions.items():

                def convert(k: KernelBuilder, x: Any, way: Any = way, kind: str = kind) -> BlockValue:
                    whole = k.value(x) if way is None else _on_floats(k, way, (x,))
                    return k.cast_data(whole, DType(kind))

                _named(convert, f"{source}2{word}_{end}", f"Return each float as {kind}, rounded.")
    for name, way in (("llrint", operation_named("round")), ("llround", _half_away)):

        def nearest(k: KernelBuilder, x: Any, way: Any = way) -> BlockValue:
            return k.cast_data(_on_floats(k, way, (x,)), DType("int64"))

        _named(nearest, name, "Return the nearest int64 of each float.")
    for name, kind in (
        ("float_as_int", "int32"), ("float_as_uint", "uint32"), ("int_as_float", "float32"), ("uint_as_float", "float32"),
        ("double_as_longlong", "int64"), ("longlong_as_double", "float64"),
    ):  # fmt: skip

        def bits(k: KernelBuilder, x: Any, kind: str = kind) -> Any:
            return basic_rows.to.meaning(k, x, DType(kind), bitcast=True)

        _named(bits, name, f"Return the bits of each element as {kind}.")


def _named(compute: Callable[..., Any], name: str, doc: str) -> None:
    def row(k: KernelBuilder, x: Any) -> Any:
        return compute(k, x)

    row.__name__ = row.__qualname__ = name
    row.__doc__ = doc
    _listed(name)(row)


_conversions()


def _bits_of(k: KernelBuilder, x: Any, function: Callable[[Expr, DType], Expr]) -> BlockValue:
    """Returns a function of the bits of integers of 32 or 64 bits, as int32."""
    value = k.value(x)
    if not value.dtype.is_int or value.dtype.bits < 32:
        raise TypeError(f"bits are counted in integers of 32 and 64 bits, not in {value.type_text()}")
    unsigned = DType(f"uint{value.dtype.bits}")
    exact = k.cast_data(value, unsigned)
    return BlockValue(
        value.shape, int32, lambda lanes: function(exact.make(lanes), unsigned), value.cost + 3, value.reads
    )


@_listed("popc")
def popc(k: KernelBuilder, x: Any) -> BlockValue:
    """Return the number of bits that are set in each integer."""
    return _bits_of(k, x, lambda e, _: operation_named("popcount")(e).astype(int32))


@_listed("clz")
def clz(k: KernelBuilder, x: Any) -> BlockValue:
    """Return the number of zeros before the highest bit of each integer that is set."""
    return _bits_of(k, x, lambda e, _: operation_named("clz")(e).astype(int32))


@_listed("ffs")
def ffs(k: KernelBuilder, x: Any) -> BlockValue:
    """Return the place of the lowest bit that is set, counted from 1. Where none is, it is 0."""

    def place(e: Expr, t: DType) -> Expr:
        zeros = operation_named("clz")
        zero = const(0, t)
        lowest = computed_once(e, lambda a: (zero - a) & a)
        counted = const(t.bits, int32) - computed_once(lowest, zeros).astype(int32)
        return computed_once(e, lambda a: Select(a.equal(zero), const(0, int32), counted))

    return _bits_of(k, x, place)


@_listed("brev")
def brev(k: KernelBuilder, x: Any) -> BlockValue:
    """Return each uint32 or int32 with its bits in reverse order."""
    value = k.value(x)
    if not value.dtype.is_int or value.dtype.bits != 32:
        raise TypeError(f"brev is for integers of 32 bits, not {value.type_text()}")
    out: Any = basic_rows.to.meaning(k, value, uint32, bitcast=True)
    for step, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF), (16, 0x0000FFFF)):
        low = k.binary("<<", k.binary("&", out, mask), step)
        out = k.kept(k.binary("|", low, k.binary("&", k.binary(">>", out, step), mask)))
    result: BlockValue = basic_rows.to.meaning(k, out, value.dtype, bitcast=True)
    return result


@_listed("mulhi")
def mulhi(k: KernelBuilder, x: Any, y: Any) -> BlockValue:
    """Return the upper 32 bits of the products of integers of 32 bits, by the sign of their type."""
    a, b = k.value(x), k.value(y)
    dtype = promoted(a.dtype, b.dtype, isinstance(x, int), isinstance(y, int))
    if dtype == uint32:
        result: BlockValue = random_rows.umulhi.meaning(k, k.cast(a, dtype), k.cast(b, dtype))
        return result
    if dtype != int32:
        raise TypeError(f"mulhi is for integers of 32 bits, not {a.type_text()} and {b.type_text()}")
    wide = [k.cast_data(v, int64) for v in (a, b)]
    shape = broadcast_shape(a.shape, b.shape)
    first, second = [broadcast_make(v, shape) for v in wide]
    return BlockValue(
        shape, int32, lambda lanes: ((first(lanes) * second(lanes)) >> const(32, int64)).astype(int32),
        a.cost + b.cost + 4, a.reads | b.reads,
    )  # fmt: skip


# -- checks while a kernel runs ----------------------------------------------------------------------------------------


@builtin
def device_assert(k: KernelBuilder, cond: Any, msg: str = "", mask: Any = None) -> None:
    """Check a condition while the kernel runs, where the mask holds; the launch raises AssertionError where it is false."""
    if not isinstance(msg, str):
        raise TypeError(f"the message of an assertion is text that is known when the kernel is compiled, not {msg!r}")
    k.check_condition(k.value(cond), None if mask is None else k.value(mask), msg)


def _refused(name: str, doc: str, instead: str) -> Builtin:
    def compute(k: KernelBuilder, *args: Any, **named: Any) -> NoReturn:
        raise NotImplementedError(f"tl.{name} is not known here: {instead}")

    return builtin(to_named(compute, name, doc))


device_print = _refused(
    "device_print", "Refuse to print while the kernel runs.",
    "programs run on many cores at once; store the values to an array of their own, or check them with tl.device_assert",
)  # fmt: skip
inline_asm_elementwise = _refused(
    "inline_asm_elementwise", "Refuse text in a GPU's assembly.",
    "text in a GPU's assembly runs on that GPU only; write the operation with tl or tl.extra.libdevice",
)  # fmt: skip
dot_scaled = _refused(
    "dot_scaled", "Refuse products of scaled blocks.",
    "multiply the factors by their scales and use tl.dot: tl.dot(a.to(tl.float32) * a_scale, b.to(tl.float32) * b_scale)",
)  # fmt: skip
map_elementwise = _refused(
    "map_elementwise", "Refuse a function of single elements.",
    "call the @triton.jit function on the blocks, with tl.where in place of its branches",
)  # fmt: skip
