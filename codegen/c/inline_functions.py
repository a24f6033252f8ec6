"""C names of types, and the inline functions that a source file needs, each written once when first used."""

from __future__ import annotations

from collections.abc import Iterable

from ...tir.expr import DType, max_value, min_value
from ..backend.emitter import EmitError


class CEmitError(EmitError):
    """Raised for a construct without a form in C."""


_PRELUDE = {
    "floordiv": (
        "static inline int64_t tw_floordiv(int64_t a, int64_t b) "
        "{ if (b == 0 || b == -1) return b ? (int64_t)(0 - (uint64_t)a) : 0; "
        "int64_t q = a / b; return q - (a % b != 0 && (a % b < 0) != (b < 0)); }"
    ),
    "floormod": (
        "static inline int64_t tw_floormod(int64_t a, int64_t b) "
        "{ if (b == 0 || b == -1) return 0; int64_t r = a % b; return r != 0 && (r < 0) != (b < 0) ? r + b : r; }"
    ),
    "bits_f32": "static inline uint32_t tw_bits_f32(float x) { uint32_t u; memcpy(&u, &x, 4); return u; }",
    "from_bits_f32": "static inline float tw_from_bits_f32(uint32_t u) { float x; memcpy(&x, &u, 4); return x; }",
    "bits_f64": "static inline uint64_t tw_bits_f64(double x) { uint64_t u; memcpy(&u, &x, 8); return u; }",
    "from_bits_f64": "static inline double tw_from_bits_f64(uint64_t u) { double x; memcpy(&x, &u, 8); return x; }",
    "bf16_to_f32": "static inline float tw_bf16_to_f32(uint16_t h) { return tw_from_bits_f32((uint32_t)h << 16); }",
    "f32_to_bf16": (
        "static inline uint16_t tw_f32_to_bf16(float x) {\n"
        "  uint32_t u = tw_bits_f32(x);\n"
        "  if (x != x) return (uint16_t)(u >> 16 | 0x40);\n"
        "  return (uint16_t)((u + 0x7FFF + (u >> 16 & 1)) >> 16);\n"
        "}"
    ),
    "f16_to_f32": (
        "static inline float tw_f16_to_f32(uint16_t h) {\n"
        "  uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 1023;\n"
        "  if (exponent == 31) return tw_from_bits_f32(sign | 0x7F800000 | fraction << 13);\n"
        "  if (exponent) return tw_from_bits_f32(sign | (exponent + 112) << 23 | fraction << 13);\n"
        "  float small = (float)fraction * 0x1p-24f;\n"
        "  return sign ? -small : small;\n"
        "}"
    ),
    # Rounding to nearest even falls out of an addition for subnormals and out of a bias for the others.
    "f32_to_f16": (
        "static inline uint16_t tw_f32_to_f16(float x) {\n"
        "  uint32_t u = tw_bits_f32(x), sign = u >> 16 & 0x8000;\n"
        "  u &= 0x7FFFFFFF;\n"
        "  if (u > 0x7F800000) return (uint16_t)(sign | 0x7E00 | (u >> 13 & 0x3FF));\n"
        "  if (u >= 0x477FF000) return (uint16_t)(sign | 0x7C00);\n"
        "  if (u < 0x38800000) return (uint16_t)(sign | (tw_bits_f32(tw_from_bits_f32(u) + 0.5f) - 0x3F000000));\n"
        "  return (uint16_t)(sign | (u + 0xC8000FFF + (u >> 13 & 1)) >> 13);\n"
        "}"
    ),
    # Rounding to odd loses nothing that the next rounding, to float16, needs (S. Boldo, G. Melquiond, 2005).
    "f64_to_odd_f32": (
        "static inline float tw_f64_to_odd_f32(double x) {\n"
        "  float near = (float)x;\n"
        "  uint32_t u = tw_bits_f32(near);\n"
        "  if (x != x || near == x) return near;\n"
        "  return tw_from_bits_f32((fabs(near) > fabs(x) ? u - 1 : u) | 1);\n"
        "}"
    ),
    "scratch": (
        "static inline void *tw_scratch(int64_t bytes) {\n"
        "  void *p = aligned_alloc(64, (size_t)(bytes + 64) & ~(size_t)63);\n"
        "  if (!p) abort();\n"
        "  return p;\n"
        "}"
    ),
}  # fmt: skip
_NEEDS = {
    "bf16_to_f32": ("from_bits_f32",),
    "f32_to_bf16": ("bits_f32",),
    "f16_to_f32": ("from_bits_f32",),
    "f32_to_f16": ("bits_f32", "from_bits_f32"),
    "f64_to_odd_f32": ("bits_f32", "from_bits_f32"),
}


def scalar_type(dtype: DType) -> str:
    """Returns the C type of one element as a value and in memory. A bool in memory takes a byte; half floats are
    bits."""
    kind, bits = dtype.kind, dtype.bits
    if kind == "float" and bits > 16:
        return "float" if bits == 32 else "double"
    if kind in ("float", "bfloat"):
        return "uint16_t"
    if kind == "bool":
        return "uint8_t"
    if kind == "handle":
        return "void *"
    if kind == "void":
        return "void"
    return f"{'u' if kind == 'uint' else ''}int{max(8, bits)}_t"


def c_type(dtype: DType) -> str:
    """Returns the C type of a value; vectors are named like ``f32x16``. A vector of bools is a vector of bytes, 0 or
    -1."""
    lanes = dtype.lanes
    if lanes == 1:
        return scalar_type(dtype)
    kind, bits = dtype.kind, dtype.bits
    if kind == "bool":
        return f"i8x{lanes}"
    if kind == "bfloat" or (kind == "float" and bits == 16):
        return f"u16x{lanes}"
    return f"{'f' if kind == 'float' else 'u' if kind == 'uint' else 'i'}{max(8, bits)}x{lanes}"


_ELEMENTS = {"f32": "float", "f64": "double", **{f"{s}{b}": f"{'u' if s == 'u' else ''}int{b}_t"
             for s in "iu" for b in (8, 16, 32, 64)}}  # fmt: skip


class Helpers:
    """The types and functions that a source file uses, in the order in which they can be written."""

    def __init__(self) -> None:
        self.lines: dict[str, str] = {}
        self.defined: frozenset[str] = frozenset()
        """The functions that the file defines, which no declaration names as another file's."""

    def text(self) -> str:
        """Return all definitions."""
        return "\n".join(self.lines.values())

    def at(self, vector: str, index: object) -> str:
        """Return a lane of a vector with a name."""
        return f"{vector}[{index}]"

    def literal(self, kind: str, lanes: Iterable[object]) -> str:
        """Return a vector of the given lanes."""
        return f"({kind}){{{', '.join(map(str, lanes))}}}"

    def mask(self, lanes: int) -> str:
        """Return the name of a vector of bools."""
        return self.vector(DType("bool").with_lanes(lanes))

    def vector(self, dtype: DType) -> str:
        """Return the name of a vector type, which is defined."""
        name = c_type(dtype)
        if dtype.lanes > 1:
            self.vector_named(name)
        return name

    def vector_named(self, name: str) -> str:
        """Define a vector type by its name, and its variant for any alignment in memory (``_u``)."""
        if name not in self.lines:
            element, lanes = name.split("x")
            if int(lanes) & (int(lanes) - 1):
                raise CEmitError(f"C's vector types have 2, 4, 8 … lanes, not {lanes}")
            base = _ELEMENTS[element]
            size = int(element[1:]) // 8
            self.lines[name] = (
                f"typedef {base} {name} __attribute__((vector_size({size * int(lanes)})));\n"
                f"typedef {base} {name}_u __attribute__((vector_size({size * int(lanes)}), aligned({size}), may_alias));"
            )
        return name

    def plain(self, name: str) -> str:
        """Return the C name of one of the fixed functions."""
        for other in _NEEDS.get(name, ()):
            self.plain(other)
        self.lines.setdefault(f"tw_{name}", _PRELUDE[name])
        return f"tw_{name}"

    def define(self, name: str, result: str, params: str, body: str) -> str:
        """Return the name of an inline function, which is written once."""
        self.lines.setdefault(name, f"static inline {result} {name}({params}) {{ {body} }}")
        return name

    def whole_number(self, source: DType, to: DType, in_range: bool) -> str:
        """Return a function for a float as an integer: the nearer end of its range beyond it, 0 for NaN. A float
        ``in_range`` is NaN, or lies within it."""
        given, kind = c_type(source.element), c_type(to.element)
        name, low, high = f"tw_{source.element}_to_{to.element}", int(min_value(to.element)), int(max_value(to.element))
        if in_range:
            return self.define(f"{name}_in_range", kind, f"{given} x", f"return x == x ? ({kind})x : 0;")
        mark, word = "f" if source.bits == 32 else "", f"{to.kind.upper()}{to.bits}"
        least, most = (f"{word}_MIN" if low else "0", f"{word}_MAX") if to.bits >= 8 else (str(low), str(high))
        below, above = f"x <= {float(low)!r}{mark}", f"x >= {float(high + 1)!r}{mark}"
        body = f"if ({below}) return {least}; if ({above}) return {most}; return x == x ? ({kind})x : 0;"
        return self.define(name, kind, f"{given} x", body)

    def division(self, quotient: bool, dtype: DType) -> str:
        """Return a function for a quotient rounded towards zero, or its remainder. The operands have the type
        ``dtype``; division by zero gives 0."""
        scalar = dtype.element
        kind, word, sign = c_type(scalar), "div" if quotient else "mod", "/" if quotient else "%"
        body = f"return b ? a {sign} b : 0;"
        if scalar.is_signed:
            wide = f"uint{max(32, scalar.bits)}_t"
            body = f"if (b == -1) return {f'({kind})(0 - ({wide})a)' if quotient else '0'}; {body}"
        name = self.define(f"tw_{word}_{_suffix(scalar)}", kind, f"{kind} a, {kind} b", body)
        return self.lanewise(name, dtype, [dtype, dtype])

    def shift(self, left: bool, dtype: DType) -> str:
        """Return a function that shifts bits by a distance that may be too large."""
        scalar = dtype.element
        kind, bits = c_type(scalar), scalar.bits
        wide = f"uint{max(32, bits)}_t"
        far = f"n < 0 || n >= {bits}" if scalar.is_signed else f"n >= {bits}"
        moved = f"({kind})(({wide})a << n)" if left else "a >> n"
        gone = "a < 0 ? -1 : 0" if scalar.is_signed and not left else "0"
        name = self.define(
            f"tw_sh{'l' if left else 'r'}_{_suffix(scalar)}", kind, f"{kind} a, {kind} n",
            f"return {far} ? ({gone}) : {moved};",
        )  # fmt: skip
        return self.lanewise(name, dtype, [dtype, dtype])

    def extreme(self, largest: bool, dtype: DType) -> str:
        """Return a function for Min or Max of two values of ``dtype``; for floats NaN when either is NaN."""
        kind = c_type(dtype.element)
        word, sign = ("max", ">") if largest else ("min", "<")
        test = f"a != a ? a : a {sign} b ? a : b" if dtype.is_float else f"a {sign} b ? a : b"
        name = self.define(f"tw_{word}_{_suffix(dtype.element)}", kind, f"{kind} a, {kind} b", f"return {test};")
        return self.lanewise(name, dtype, [dtype, dtype])

    def lanewise(self, function: str, to: DType, arguments: list[str]) -> str:
        """Return a function that applies the scalar ``function`` to the lanes of vectors; of scalars, itself."""
        lanes = to.lanes
        if lanes == 1:
            return function
        result = self.vector(to)
        types = [self.vector(DType(a)) for a in arguments]
        name = f"tw_each_{function.removeprefix('tw_')}_{result}_{'_'.join(types)}"
        params = ", ".join(f"{t} {n}" for t, n in zip(types, "abc", strict=False))
        passed = ", ".join(self.at(n, "i") for n, _ in zip("abc", types, strict=False))
        to_lane = self.at("r", "i")
        body = f"{result} r; for (int i = 0; i < {lanes}; ++i) {to_lane} = {function}({passed}); return r;"
        return self.define(name, result, params, body)

    def splat(self, dtype: DType) -> str:
        """Return a function that repeats a scalar in every lane."""
        kind, base = self.vector(dtype), c_type(dtype.element)
        base = "int8_t" if dtype.kind == "bool" else base
        value = self.literal(kind, ["x"] * dtype.lanes)
        return self.define(f"tw_splat_{kind}", kind, f"{base} x", f"return {value};")

    def select(self, dtype: DType) -> str:
        """Return a function for ``m ? a : b`` lane by lane, on the bits. ``m`` is a vector of bools."""
        lanes, kind = dtype.lanes, self.vector(dtype)
        mask, bits = self.vector_named(f"i8x{lanes}"), self.vector_named(f"i{kind.split('x')[0][1:]}x{lanes}")
        widened = "m" if bits == mask else f"__builtin_convertvector(m, {bits})"
        body = f"{bits} w = {widened}; return ({kind})((w & ({bits})a) | (~w & ({bits})b));"
        return self.define(f"tw_select_{kind}", kind, f"{mask} m, {kind} a, {kind} b", body)

    def memory(self, what: str, dtype: DType, space: str = "") -> str:
        """Return ``maskload``, ``maskstore``, ``gather``, ``maskgather``, ``scatter`` or ``maskscatter``, which work
        lane by lane. ``space``: the words in front of the pointer, in dialects that name the memory it points to."""
        lanes, base, kind = dtype.lanes, scalar_type(dtype.element), self.stored(dtype)
        at, index = "i", ""
        if what.endswith(("gather", "scatter")):
            at, index = self.at("at", "i"), f", {self.vector(DType('int64').with_lanes(lanes))} at"
        masked = f", {self.mask(lanes)} m" if what.startswith("mask") else ""
        name, lane, test = "_".join(["tw", what, kind, *space.strip("_ ").split()]), "i", self.at("m", "i")
        each = f"for (int {lane} = 0; {lane} < {lanes}; ++{lane})"
        if what.endswith(("load", "gather")):
            value = f"{test} ? p[{at}] : 0" if masked else f"p[{at}]"
            body = f"{kind} r; {each} {self.at('r', 'i')} = {value}; return r;"
            return self.define(name, kind, f"{space}const {base} *p{index}{masked}", body)
        guard = f"if ({test}) " if masked else ""
        return self.define(
            name, "void", f"{space}{base} *p{index}, {kind} v{masked}", f"{each} {guard}p[{at}] = {self.at('v', 'i')};"
        )

    def stored(self, dtype: DType) -> str:
        """Return the type of a vector as memory holds it."""
        return self.vector_named(f"u8x{dtype.lanes}") if dtype.is_bool else self.vector(dtype)

    def reduce(self, how: str, dtype: DType, rows: int = 1) -> str:
        """Return a function that combines the lanes, upper half with lower half, in the order of the machine code.
        ``rows`` is the number of parts that are reduced separately."""
        lanes, kind, base = dtype.lanes, self.vector(dtype), c_type(dtype.element)
        each = lanes // rows
        if each & (each - 1):
            raise CEmitError(f"reductions are of 2, 4, 8 … lanes, not {each}")
        first = "" if rows == 1 else f"j * {each} + "
        low, high = self.at("v", f"{first}i"), self.at("v", f"{first}i + h")
        if how in ("max", "min"):
            step = f"{self.extreme(how == 'max', dtype.element)}({low}, {high})"
        elif how in ("fmax", "fmin"):
            step = f"{low} {'>' if how == 'fmax' else '<'} {high} ? {low} : {high}"
        else:
            step = f"{low} {'+' if how == 'add' else '*'} {high}"
            if dtype.is_int:
                word = f"uint{max(32, dtype.bits)}_t"
                step = f"({base})(({word}){low} {'+' if how == 'add' else '*'} ({word}){high})"
        halving = f"for (int h = {each // 2}; h; h /= 2) for (int i = 0; i < h; ++i) {low} = {step};"
        if rows == 1:
            return self.define(f"tw_reduce_{how}_{kind}", base, f"{kind} v", f"{halving} return {self.at('v', 0)};")
        out = self.vector(dtype.element.with_lanes(rows))
        body = f"{out} r; for (int j = 0; j < {rows}; ++j) {{ {halving} {self.at('r', 'j')} = {self.at('v', f'j * {each}')}; }} return r;"
        return self.define(f"tw_reduce_{how}_{kind}_{rows}", out, f"{kind} v", body)


def _suffix(dtype: DType) -> str:
    kind, bits = dtype.kind, dtype.bits
    return f"{'f' if kind == 'float' else 'u' if kind in ('uint', 'bool') else 'i'}{bits}"
