"""WGSL's types of our values, and the functions that a text needs, each written once when first used.

========================  ============================================================================================
in the program            in WGSL
========================  ============================================================================================
int8, int16, int32        ``i32``, with its sign; arithmetic on the narrow ones keeps their low bits
uint8, uint16, uint32     ``u32``
float16, bfloat16         ``u32``, the bits; they are computed in ``f32``
float32, bool             ``f32``, ``bool``
vectors                   ``array<T, lanes>``; functions work lane by lane
========================  ============================================================================================

WGSL leaves open what a division by 0, a shift by more than the bits, a float beyond the integers and NaN give. The functions
here say what Tilewright says. Constants that are NaN or infinite are errors in WGSL, so their bits pass through a variable. It also
allows compilers to compute ``(a + b) - b`` as ``a``, which functions rely on not to happen: a sum that is part of another one is rounded
by ``tw_rounded``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ...codegen.backend.emitter import EmitError
from ...codegen.c.inline_functions import Helpers
from ...tir.expr import DType, max_value, min_value
from .wgsl_math import MATH


class WgslError(EmitError):
    """Raised for a construct without a form in WGSL."""


def scalar_kind(dtype: DType) -> str:
    """Returns WGSL's type of one element as a value. WgslError for types of 64 bits."""
    kind, bits = dtype.kind, dtype.bits
    if kind == "bool":
        return "bool"
    if kind == "float" and bits == 32:
        return "f32"
    if kind in ("float", "bfloat") and bits == 16:
        return "u32"
    if kind in ("int", "uint") and 8 <= bits <= 32:
        return "i32" if kind == "int" else "u32"
    raise WgslError(f"WGSL has no {dtype.element}")


def value_kind(dtype: DType) -> str:
    """Returns WGSL's type of a value."""
    kind = scalar_kind(dtype.element)
    return kind if dtype.lanes == 1 else f"array<{kind}, {dtype.lanes}>"


def is_half(dtype: DType) -> bool:
    """Returns whether an element is a float16 or bfloat16, whose value is its bits."""
    return dtype.kind in ("float", "bfloat") and dtype.bits == 16


def integer_text(value: int, dtype: DType) -> str:
    """Returns a constant of an integer type or bool."""
    if dtype.is_bool:
        return "true" if value else "false"
    if scalar_kind(dtype) == "u32":
        return f"{value}u"
    return f"i32({value})" if value == -(1 << 31) else f"({value}i)" if value < 0 else f"{value}i"


_LITERAL = re.compile(r"\(?-?[0-9][0-9a-fA-Fx.p+-]*[iuf]\)?|i32\(-\d+\)")


def wrapped(text: str, dtype: DType) -> str:
    """Returns an integer with the low bits that its type has."""
    if dtype.bits == 32:
        return text
    return f"extractBits({text}, 0u, {dtype.bits}u)" if dtype.is_signed else f"({text} & {(1 << dtype.bits) - 1:#x}u)"


ZERO = "tw_zero"
"""A 0 that no compiler knows. What is combined with it stays what was written: WGSL allows compilers to reorder sums."""

_FIXED = {
    "zero": f"var<private> {ZERO}: u32; // each kernel reads it from its uniform structure",
    "rounded": f"fn tw_rounded(x: f32) -> f32 {{ return bitcast<f32>(bitcast<u32>(x) ^ {ZERO}); }}",
    "number": "fn tw_number(bits: u32) -> f32 { return bitcast<f32>(bits ^ tw_zero); }",
    "isnan": "fn tw_isnan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }",
    "floordiv": (
        "fn tw_floordiv(a: i32, b: i32) -> i32 {\n"
        "  if (b == 0) { return 0; }\n  if (b == -1) { return 0 - a; }\n"
        "  let q = a / b;\n  let r = a - q * b;\n  return select(q, q - 1, r != 0 && (r < 0) != (b < 0));\n}"
    ),
    "floormod": (
        "fn tw_floormod(a: i32, b: i32) -> i32 {\n"
        "  if (b == 0 || b == -1) { return 0; }\n"
        "  let r = a - (a / b) * b;\n  return select(r, r + b, r != 0 && (r < 0) != (b < 0));\n}"
    ),
    "bf16_to_f32": "fn tw_bf16_to_f32(h: u32) -> f32 { return bitcast<f32>(h << 16u); }",
    "f32_to_bf16": (
        "fn tw_f32_to_bf16(x: f32) -> u32 {\n"
        "  let u = bitcast<u32>(x);\n"
        "  if ((u & 0x7fffffffu) > 0x7f800000u) { return (u >> 16u) | 0x40u; }\n"
        "  return (u + 0x7fffu + ((u >> 16u) & 1u)) >> 16u;\n}"
    ),
    "f16_to_f32": (
        "fn tw_f16_to_f32(h: u32) -> f32 {\n"
        "  let sign = (h & 0x8000u) << 16u;\n  let exponent = (h >> 10u) & 31u;\n  let fraction = h & 1023u;\n"
        "  if (exponent == 31u) { return bitcast<f32>(sign | 0x7f800000u | (fraction << 13u)); }\n"
        "  if (exponent != 0u) { return bitcast<f32>(sign | ((exponent + 112u) << 23u) | (fraction << 13u)); }\n"
        "  return bitcast<f32>(sign | bitcast<u32>(f32(fraction) * 0x1p-24f));\n}"
    ),
    # Rounding to nearest even falls out of an addition for subnormals and out of a bias for the others.
    "f32_to_f16": (
        "fn tw_f32_to_f16(x: f32) -> u32 {\n"
        "  let sign = (bitcast<u32>(x) >> 16u) & 0x8000u;\n  let u = bitcast<u32>(x) & 0x7fffffffu;\n"
        "  if (u > 0x7f800000u) { return sign | 0x7e00u | ((u >> 13u) & 0x3ffu); }\n"
        "  if (u >= 0x477ff000u) { return sign | 0x7c00u; }\n"
        "  if (u < 0x38800000u) { return sign | (bitcast<u32>(bitcast<f32>(u) + 0.5f) - 0x3f000000u); }\n"
        "  return sign | (((u + 0xc8000fffu + ((u >> 13u) & 1u)) >> 13u) & 0x7fffu);\n}"
    ),
    "times_exp2": (
        "fn tw_times_exp2(x: f32, n: f32) -> f32 {\n"
        "  let size = bitcast<u32>(x) & 0x7fffffffu;\n"
        "  if (tw_isnan(n) || tw_isnan(x)) { return n + x; }\n"
        "  if (size == 0u || size == 0x7f800000u) { return x; }\n"
        "  var m = x;\n  var e = i32(clamp(floor(n), -600f, 600f));\n"
        "  if (size < 0x00800000u) { m = x * 0x1p+24f; e -= 24; }\n"
        "  let exponent = i32((bitcast<u32>(m) >> 23u) & 255u) - 127;\n"
        "  m = bitcast<f32>((bitcast<u32>(m) & 0x807fffffu) | 0x3f800000u);\n"
        "  e = clamp(e + exponent, -252, 254);\n  let half = e >> 1u;\n"
        "  return m * bitcast<f32>(u32(half + 127) << 23u) * bitcast<f32>(u32(e - half + 127) << 23u);\n}"
    ),
    "round_rest": (
        "fn tw_round_rest(x: f32) -> f32 { return select(x - round(x), 0f, (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u); }"
    ),
    "copysign": (
        "fn tw_copysign(x: f32, y: f32) -> f32 "
        "{ return bitcast<f32>((bitcast<u32>(x) & 0x7fffffffu) | (bitcast<u32>(y) & 0x80000000u)); }"
    ),
}  # fmt: skip
_NEEDS = {"times_exp2": ("isnan",), "number": ("zero",), "rounded": ("zero",)}
"""What the fixed functions call."""


class WgslFunctions(Helpers):
    """The functions of a text, in the order in which they were needed."""

    def vector(self, dtype: DType) -> str:
        return value_kind(dtype)

    def plain(self, name: str) -> str:
        """Return the name of a fixed function, or of one of :data:`.wgsl_math.MATH`; ``zero`` is the variable of :data:`ZERO`."""
        text, needs = MATH[name] if name in MATH else (_FIXED[name], _NEEDS.get(name, ()))
        for other in needs:
            self.plain(other)
        self.lines.setdefault(f"tw_{name}", text)
        return f"tw_{name}"

    def define(self, name: str, result: str, params: str, body: str) -> str:
        """Return the name of a function, which is written once. Another one of this name gets a number."""
        number, chosen = 1, name
        while True:
            text = f"fn {chosen}({params}){f' -> {result}' if result else ''} {{ {body} }}"
            if self.lines.setdefault(chosen, text) == text:
                return chosen
            number += 1
            chosen = f"{name}_{number}"

    def each(self, word: str, to: DType, given: Sequence[DType], lane: Callable[..., str]) -> str:
        """Return a function that gives each lane of ``to`` the value that ``lane`` writes for the lanes of vectors."""
        result, kinds = value_kind(to), [value_kind(d) for d in given]
        names = "abcd"[: len(kinds)]
        lanes = [lane(*[f"{name}[{n}]" for name in names]) for n in range(to.lanes)]
        params = ", ".join(f"{name}: {kind}" for name, kind in zip(names, kinds, strict=True))
        return self.define(f"tw_{word}_{to}", result, params, f"return {result}({', '.join(lanes)});")

    # -- scalars -----------------------------------------------------------------------------------------------------

    def number(self, bits: int) -> str:
        """Return the float32 of certain bits. Those of a NaN or an infinity are hidden from WGSL's constants."""
        if bits & 0x7F800000 == 0x7F800000:
            return f"{self.plain('number')}({bits:#010x}u)"
        return f"bitcast<f32>({bits:#010x}u)"

    def hidden(self, text: str) -> str:
        """Return an operand of which WGSL does not know that it is constant; overflows of constants are errors."""
        if not _LITERAL.fullmatch(text):
            return text
        zero, kind = self.plain("zero"), {"i": "i32", "u": "u32", "f": "f32"}.get(text.rstrip(")")[-1], "i32")
        if kind == "f32":
            return f"bitcast<f32>(bitcast<u32>({text}) ^ {zero})"
        return f"({text} ^ {zero if kind == 'u32' else f'i32({zero})'})"

    def whole_quotient(self, word: str, a: str, b: str, dtype: DType) -> str:
        """Return ``floordiv``, ``floormod``, ``div`` or ``mod`` of two integers; by 0 each gives 0."""
        kind = scalar_kind(dtype)
        if word.startswith("floor") and kind == "i32":
            return wrapped(f"{self.plain(word)}({a}, {b})", dtype)
        word = word.removeprefix("floor")
        safe = "if (b == 0u) { return 0u; } "
        if kind == "i32":
            safe = f"if (b == 0) {{ return 0; }} if (b == -1) {{ return {'0 - a' if word == 'div' else '0'}; }} "
        body = f"{safe}return {'a / b' if word == 'div' else 'a % b'};"
        name = self.define(f"tw_{word}_{kind}", kind, f"a: {kind}, b: {kind}", body)
        return wrapped(f"{name}({a}, {b})", dtype)

    def shifted(self, left: bool, a: str, n: str, dtype: DType) -> str:
        """Return bits shifted by a distance that may be too large, or negative: all of them are gone then."""
        kind, bits = scalar_kind(dtype), dtype.bits
        far = f"n < 0 || n >= {bits}" if kind == "i32" else f"n >= {bits}u"
        gone = "select(0, -1, a < 0)" if kind == "i32" and not left else f"{kind}(0)"
        moved = f"a {'<<' if left else '>>'} u32(n)"
        body = f"if ({far}) {{ return {gone}; }} return {wrapped(moved if bits == 32 else f'({moved})', dtype)};"
        name = self.define(f"tw_sh{'l' if left else 'r'}_{dtype}", kind, f"a: {kind}, n: {kind}", body)
        return f"{name}({a}, {n})"

    def larger(self, largest: bool, a: str, b: str, dtype: DType) -> str:
        """Return the larger or smaller of two values; of floats NaN when either is."""
        word = "max" if largest else "min"
        if not dtype.is_float:
            return f"{word}({a}, {b})" if not dtype.is_bool else f"({a} {'||' if largest else '&&'} {b})"
        nan = self.plain("isnan")
        body = f"if ({nan}(a)) {{ return a; }} return select(b, a, a {'>' if largest else '<'} b);"
        return f"{self.define(f'tw_{word}', 'f32', 'a: f32, b: f32', body)}({a}, {b})"

    def whole(self, text: str, to: DType) -> str:
        """Return a float32 as an integer: the nearer end of its range beyond it, 0 for NaN."""
        kind, low, high = scalar_kind(to), int(min_value(to)), int(max_value(to))
        least, most = integer_text(low, to), integer_text(high, to)
        body = (
            f"if ({self.plain('isnan')}(x)) {{ return {kind}(0); }} if (x <= {float(low)}f) {{ return {least}; }} "
            f"if (x >= {float(high + 1)}f) {{ return {most}; }} return {kind}(x);"
        )
        return f"{self.define(f'tw_f32_to_{to}', kind, 'x: f32', body)}({text})"

    def converted(self, text: str, source: DType, to: DType) -> str:
        """Return a scalar of type ``source`` as ``to``."""
        if source == to:
            return text
        single = DType("float32")
        if is_half(source):
            wide = self.plain("bf16_to_f32" if source.kind == "bfloat" else "f16_to_f32")
            return self.converted(f"{wide}({text})", single, to)
        if is_half(to):
            narrow = self.plain("f32_to_bf16" if to.kind == "bfloat" else "f32_to_f16")
            return f"{narrow}({self.converted(text, source, single)})"
        kind = scalar_kind(to)
        if to.is_bool:
            return f"(!({text} == 0f))" if source.is_float else f"({text} != {integer_text(0, source)})"
        if source.is_bool:
            return f"select({kind}(0), {kind}(1), {text})"
        if source.is_float:
            return self.whole(text, to)
        if to.is_float:
            return f"f32({text})"
        same = text if kind == scalar_kind(source) else f"{kind}({text})"
        inside = min_value(to) <= min_value(source) and max_value(source) <= max_value(to)
        return same if inside else wrapped(same, to)

    def bits(self, text: str, dtype: DType) -> str:
        """Return the bits of an element as a ``u32``."""
        kind = scalar_kind(dtype)
        if kind == "bool":
            return f"u32({text})"
        if kind == "u32":
            return text
        whole = f"bitcast<u32>({text})"
        return whole if dtype.bits == 32 else f"({whole} & {(1 << dtype.bits) - 1:#x}u)"

    def of_bits(self, text: str, dtype: DType) -> str:
        """Return the element of the bits in a ``u32``, whose other bits are 0."""
        kind = scalar_kind(dtype)
        if kind == "bool":
            return f"({text} != 0u)"
        if kind == "u32":
            return text
        return (
            f"bitcast<{kind}>({text})" if dtype.bits == 32 else f"extractBits(bitcast<i32>({text}), 0u, {dtype.bits}u)"
        )
