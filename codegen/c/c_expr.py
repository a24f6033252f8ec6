"""Writes expressions in C, calls of operations among them. Every function returns text that may stand as an operand."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence

from ...tir.blas_calls import ROUTINES
from ...tir.expr import (
    EQ,
    LT,
    NE,
    Broadcast,
    BufferLoad,
    Call,
    Div,
    DType,
    Expr,
    FloatImm,
    IntImm,
    StringImm,
    index_like,
)
from ...tir.expr import nodes as E
from ...tir.expr.dtype import float_bits, round_float
from ...tir.expr.intrinsics import OPERATIONS
from ...tir.expr.intrinsics.matrix_operations import TILE_DOTS, TILE_ROWS
from ...tir.expr.intrinsics.number_operations import DOT_PRODUCTS
from ..backend.analyses import whole_in_range
from ..backend.emitter import constant_of, expand_dot
from ..lower.tile_accesses import tile_access
from ..machine.blas import called_library, product_c
from .c_stmt import CScope, element
from .inline_functions import c_type, scalar_type


def integer(em: CScope, value: int, dtype: DType) -> str:
    """Returns an integer constant."""
    if dtype.is_bool:
        return str(value)
    if dtype == "uint64":
        return f"{value}ULL"
    if value == -(1 << 63):
        return "INT64_MIN"
    if dtype == "int64" or not -(1 << 31) < value < 1 << 31:
        return f"({value}LL)" if value < 0 else f"{value}LL"
    return f"({value})" if value < 0 else str(value)


def floating(em: CScope, value: float, dtype: DType) -> str:
    """Returns an exact constant in hexadecimal; half floats as bits."""
    bits = dtype.bits
    if bits == 16:
        return f"0x{float_bits(value, dtype):04x}"
    value = round_float(value, dtype)
    end = "f" if bits == 32 else ""
    if math.isnan(value):
        return f'__builtin_nan{end}("")'
    if math.isinf(value):
        return f"({'-' if value < 0 else ''}__builtin_inf{end}())"
    text = f"{value!r}{end}" if value == int(value) and abs(value) < 1e6 else f"{value.hex()}{end}"
    return f"({text})" if text.startswith("-") else text


def arithmetic(em: CScope, op: type[E.BinaryOp], a: str, b: str, dtype: DType) -> str:
    """Returns a sum, difference, product, or quotient of floats; integers wrap."""
    sign, lanes, bits = op.symbol, dtype.lanes, dtype.bits
    if dtype.is_float:
        if bits == 16:
            raise em.error(f"arithmetic on {dtype}: {a} {sign} {b}")
        return f"({a} {sign} {b})"
    unsigned = em.helpers.vector(DType(f"uint{bits if lanes > 1 else max(32, bits)}").with_lanes(lanes))
    return f"({em.helpers.vector(dtype)})(({unsigned}){a} {sign} ({unsigned}){b})"


def quotient(em: CScope, e: E.BinaryOp, a: str, b: str, dtype: DType) -> str:
    """Returns a quotient or remainder of integers."""
    helpers, kind = em.helpers, em.helpers.vector(dtype)
    is_quotient = isinstance(e, (E.Div, E.TruncDiv, E.FloorDiv))
    if isinstance(e, (E.FloorDiv, E.FloorMod)) and dtype.startswith("int"):
        function = helpers.plain("floordiv" if is_quotient else "floormod")
        if dtype.lanes > 1:
            return f"{helpers.lanewise(function, dtype, [dtype, dtype])}({a}, {b})"
        return f"({kind}){function}({a}, {b})"
    constant = constant_of(e.b)
    if constant is None or constant in (0, -1):
        return f"{helpers.division(is_quotient, dtype)}({a}, {b})"
    return f"(({kind})({a} {'/' if is_quotient else '%'} {b}))"


def extreme(em: CScope, e: E.Min | E.Max) -> str:
    """Returns the smaller or the larger of two values."""
    return f"{em.helpers.extreme(isinstance(e, E.Max), e.dtype)}({em.value(e.a)}, {em.value(e.b)})"


def comparison(em: CScope, op: type[E.CmpOp], a: str, b: str, dtype: DType) -> str:
    """Returns a comparison; for vectors, a vector of bytes."""
    text, lanes = f"({a} {op.symbol} {b})", dtype.lanes
    if lanes == 1:
        return text
    em.helpers.vector(dtype)
    return f"__builtin_convertvector({text}, {em.helpers.vector(DType('bool').with_lanes(lanes))})"


def logical(em: CScope, e: E.And | E.Or) -> str:
    """Returns a conjunction or disjunction."""
    sign = "&" if isinstance(e, E.And) else "|"
    if e.dtype.lanes > 1:
        return f"({em.value(e.a)} {sign} {em.value(e.b)})"
    return f"({em.value(e.a)} {2 * sign} {em.guarded(e.b)})"


def negation(em: CScope, a: str, dtype: DType) -> str:
    """Returns the opposite of a bool, or of a vector of them."""
    return f"({'~' if dtype.lanes > 1 else '!'}{a})"


def choice(em: CScope, test: str, yes: str, no: str, dtype: DType, tested: DType) -> str:
    """Returns one of two values. By a scalar condition, both are converted to one type, since a vector loaded from
    memory has a type of smaller alignment."""
    if tested.lanes > 1:
        return f"{em.helpers.select(dtype)}({test}, {yes}, {no})"
    as_type = f"({em.helpers.vector(dtype)})" if dtype.lanes > 1 else ""
    return f"({test} ? {as_type}{yes} : {as_type}{no})"


def splat(em: CScope, value: str, dtype: DType, lanes: int) -> str:
    """Returns a vector with a scalar in every lane; a true bool is 1, in a vector -1."""
    return f"{em.helpers.splat(dtype.with_lanes(lanes))}({f'-{value}' if dtype.is_bool else value})"


def conversion(em: CScope, e: E.Expr, to: DType) -> str:
    """Returns ``e`` as another type."""
    text = em.value(e)
    in_range = e.dtype.is_float and to.is_int and whole_in_range(em, e, to)
    return em.converted(text, e.dtype, to, in_range)


def converted(em: CScope, text: str, source: DType, to: DType, in_range: bool = False) -> str:
    """Returns a value of type ``source`` as ``to``; half floats are converted through float32.

    ``in_range``: the float, truncated, is a value of the integer type ``to``, or NaN.
    """
    if source == to:
        return text
    helpers, lanes = em.helpers, to.lanes
    single = DType("float32").with_lanes(lanes)
    if source.bits == 16 and source.kind in ("float", "bfloat"):
        function = helpers.plain("bf16_to_f32" if source.kind == "bfloat" else "f16_to_f32")
        return converted(em, f"{helpers.lanewise(function, single, [source])}({text})", single, to, in_range)
    if to.bits == 16 and to.kind in ("float", "bfloat"):
        if source.element == "float64" and to.kind == "float":
            odd = helpers.lanewise(helpers.plain("f64_to_odd_f32"), single, [source])
            text, source = f"{odd}({text})", single
        function = helpers.plain("f32_to_bf16" if to.kind == "bfloat" else "f32_to_f16")
        return f"{helpers.lanewise(function, to, [single])}({converted(em, text, source, single)})"
    kind = helpers.vector(to)
    if to.is_bool:
        return f"({text} != 0)" if lanes == 1 else f"__builtin_convertvector({text} != 0, {kind})"
    if source.is_float and to.is_int:
        return f"{helpers.lanewise(helpers.whole_number(source, to, in_range), to, [source])}({text})"
    if lanes == 1:
        return f"({kind}){text}"
    helpers.vector(source)
    return f"__builtin_convertvector({f'(-{text})' if source.is_bool else text}, {kind})"


def ramp(em: CScope, e: E.Ramp) -> str:
    """Returns a vector of evenly spaced values as data."""
    kind, scalar = em.helpers.vector(e.dtype), c_type(e.dtype.element)
    steps = f"({kind}){{{', '.join(map(str, range(e.lanes)))}}}"
    splat = em.helpers.splat(e.dtype)
    if not (isinstance(e.stride, E.IntImm) and e.stride.value == 1):
        steps = f"{splat}(({scalar}){em.value(e.stride)}) * {steps}"
    return f"({splat}(({scalar}){em.value(e.base)}) + {steps})"


def declared(em: CScope, var: E.Var, value: E.Expr, is_index: bool) -> tuple[str, str]:
    """Returns a new name for a variable, and its declaration."""
    text = em.value(value)
    kind = em.kind_of(value) if is_index else em.helpers.vector(var.dtype)
    name = em.name(var.name)
    return name, f"const {kind} {name} = {text};"


def named(em: CScope, var: E.Var, value: E.Expr, is_index: bool) -> str:
    """Returns the name of a variable, which is declared here."""
    name, line = declared(em, var, value, is_index)
    em.put(line)
    return name


def let(em: CScope, e: E.Let) -> str:
    """Returns a statement expression that names a part of itself."""
    is_index = index_like(e.var) and index_like(e.value)
    em.vars[e.var], line = declared(em, e.var, e.value, is_index)
    if is_index:
        em.indices.add(e.var)
    return f"({{ {line} {em.guarded(e.body)}; }})"


def shuffle(em: CScope, e: E.Shuffle) -> str:
    """Returns lanes picked from vectors."""
    names, lets = [], []
    for v in e.vectors:
        temporary = em.name("lanes")
        names.append(temporary)
        lets.append(f"const {em.helpers.vector(v.dtype)} {temporary} = {em.value(v)};")
    each = e.vectors[0].dtype.lanes
    picked = [names[i // each] + (f"[{i % each}]" if each > 1 else "") for i in e.indices]
    if e.dtype.is_bool and (each > 1) is not (len(picked) > 1):  # a true bool is 1, in a vector -1
        picked = [f"-{lane}" for lane in picked]
    result = picked[0] if len(picked) == 1 else f"({em.helpers.vector(e.dtype)}){{{', '.join(picked)}}}"
    return f"({{ {' '.join(lets)} {result}; }})"


def load(em: CScope, e: E.BufferLoad) -> str:
    """Returns an element, or a vector of elements."""
    dtype, lanes = e.dtype, e.dtype.lanes
    pointer, at = em.place(e.buffer, e.indices, lanes)
    if lanes == 1:
        return element(pointer)
    mask = "" if e.predicate is None else f", {em.value(e.predicate)}"
    em.helpers.vector(dtype)
    stored = em.helpers.vector_named(f"u8x{lanes}") if dtype.is_bool else c_type(dtype)
    if at is None and not mask:
        text = f"*(const {stored}_u *){pointer}"
    elif at is None:
        text = f"{em.helpers.memory('maskload', dtype)}({pointer}{mask})"
    else:
        text = f"{em.helpers.memory('maskgather' if mask else 'gather', dtype)}({pointer}, {at}{mask})"
    return f"({text} != 0)" if dtype.is_bool else text


_MATH = {row.c_name for row in OPERATIONS.values() if row.c_name}
"""The functions that C's mathematical library declares."""


def applied(em: CScope, e: Call, name: str, params: str, body: str, args: Sequence[Expr] | None = None) -> str:
    """Returns the results of an inline function of scalars for each lane of ``args`` (of the call's). ``KIND`` stands for
    the result's type in ``params``."""
    kind, args = c_type(e.dtype.element), e.args if args is None else args
    function = em.helpers.define(name, kind, params.replace("KIND", kind), body)
    call = em.helpers.lanewise(function, e.dtype, [a.dtype for a in args])
    return f"{call}({', '.join(map(em.value, args))})"


def library_call(em: CScope, symbol: str, e: Call) -> str:
    """Returns the result of a function of the C library, lane by lane."""
    function = em.helpers.lanewise(symbol, e.dtype, [a.dtype for a in e.args])
    return f"{function}({', '.join(map(em.value, e.args))})"


def _float(e: Call) -> tuple[str, str]:
    """Returns the C type of a float, and the end of its functions' names."""
    return ("float", "f") if e.dtype.bits == 32 else ("double", "")


def _bitwise(sign: str) -> Callable[[CScope, Call], str]:
    return lambda em, e: f"({em.value(e.args[0])} {sign} {em.value(e.args[1])})"


def _vector_reduce(how: str) -> Callable[[CScope, Call], str]:
    def emit(em: CScope, e: Call) -> str:
        (v,) = e.args
        return f"{em.helpers.reduce(how, v.dtype, e.dtype.lanes)}({em.value(v)})"

    return emit


def _fma(em: CScope, e: Call) -> str:
    """Returns a * b + c rounded once.

    GCC and Clang contract a vector expression where the machine has the instruction (a loop over the lanes they
    would not vectorize). Elsewhere, and in strict ISO mode, which forbids contraction, it is computed lane by lane.
    """
    scalar = f"__builtin_fma{_float(e)[1]}"
    function = scalar
    if e.dtype.lanes > 1:
        kind = em.helpers.vector(e.dtype)
        lanes = f"{kind} r; for (int i = 0; i < {e.dtype.lanes}; ++i) r[i] = {scalar}(a[i], b[i], c[i]); return r;"
        body = (
            "\n#if (defined(__FMA__) || defined(__FP_FAST_FMAF)) && !defined(__STRICT_ANSI__)\n"
            f"  return a * b + c;\n#else\n  {lanes}\n#endif\n"
        )
        function = em.helpers.define(f"tw_fma_{kind}", kind, f"{kind} a, {kind} b, {kind} c", body)
    return f"{function}({', '.join(map(em.value, e.args))})"


def _if_then_else(em: CScope, e: Call) -> str:
    cond = em.value(e.args[0])
    lanes, kind = e.args[0].dtype.lanes, em.helpers.vector(e.dtype)
    if lanes == 1:
        return em.choice(cond, em.guarded(e.args[1]), em.guarded(e.args[2]), e.dtype, DType("bool"))
    usual, other = em.value(e.args[1]), em.guarded(e.args[2])
    # the other branch is evaluated when some lane needs it
    mask = em.helpers.vector_named(f"i8x{lanes}")
    body = f"int r = -1; for (int i = 0; i < {lanes}; ++i) r &= m[i]; return r != 0;"
    every = em.helpers.define(f"tw_every_{mask}", "int", f"{mask} m", body)
    chosen = f"{em.helpers.select(e.dtype)}(tw_m, tw_usual, {other})"
    return f"({{ {mask} tw_m = {cond}; {kind} tw_usual = {usual}; {every}(tw_m) ? tw_usual : {chosen}; }})"


def _round_rest(em: CScope, e: Call) -> str:
    kind, end = _float(e)
    body = f"{kind} r = x - rint{end}(x); return fabs{end}(x) == INFINITY ? 0 : r;"
    return applied(em, e, f"tw_round_rest{end}", "KIND x", body)


def _times_exp2(em: CScope, e: Call) -> str:
    """Returns a product with two factors where that is exact, else a call of the C library."""
    (kind, end), single = _float(e), e.dtype.bits == 32
    word, bias, mantissa = ("int32_t", 127, 23) if single else ("int64_t", 1023, 52)
    body = (
        f"if (x >= 0.25{end} && x <= 4 && n > -{2 * bias - 4} && n < {2 * bias}) {{ "
        f"{word} i = ({word})floor{end}(n), a = i >> 1, u = (a + {bias}) << {mantissa}, v = (i - a + {bias}) << {mantissa}; "
        f"{kind} p, q; memcpy(&p, &u, sizeof p); memcpy(&q, &v, sizeof q); return x * p * q; }} "
        f"return n != n ? n : ldexp{end}(x, (int)fmax{end}(fmin{end}(floor{end}(n), 9999), -9999));"
    )
    return applied(em, e, f"tw_times_exp2{end}", "KIND x, KIND n", body)


def _lookup(em: CScope, e: Call) -> str:
    """Returns an element of a constant array; the modulus is a power of two."""
    number, *values = e.args
    table = ", ".join([em.value(v) for v in values])
    name, kind = f"tw_lookup_{hashlib.sha256(table.encode()).hexdigest()[:12]}", c_type(e.dtype.element)
    body = f"static const {kind} table[{len(values)}] = {{{table}}}; return table[n & {len(values) - 1}];"
    return applied(em, e, name, "int32_t n", body, [number])


def _likely(em: CScope, e: Call) -> str:
    text = em.value(e.args[0])
    return text if e.dtype.lanes > 1 else f"__builtin_expect(!!{text}, 1)"


def _float_like(value: float, dtype: DType) -> Expr:
    """Returns a constant in every lane of ``dtype``."""
    one = FloatImm(value, dtype.element)
    return one if dtype.lanes == 1 else Broadcast(one, dtype.lanes)


def _rsqrt(em: CScope, e: Call) -> str:
    return em.value(Div(_float_like(1.0, e.dtype), Call("tir.sqrt", e.args, e.dtype)))


def _sigmoid(em: CScope, e: Call) -> str:
    end = _float(e)[1]
    return applied(em, e, f"tw_sigmoid{end}", "KIND x", f"return 1 / (1 + exp{end}(-x));")


def _isnan(em: CScope, e: Call) -> str:
    return em.value(NE(e.args[0], e.args[0]))


def _isinf(em: CScope, e: Call) -> str:
    (x,) = e.args
    size, limit = Call("tir.fabs", (x,), x.dtype), _float_like(math.inf, x.dtype)
    return em.value(EQ(size, limit) if e.op == "tir.isinf" else LT(size, limit))


def _bitwise_not(em: CScope, e: Call) -> str:
    return f"({em.helpers.vector(e.dtype)})(~{em.value(e.args[0])})"


def _shift(em: CScope, e: Call) -> str:
    lanes, kind = e.dtype.lanes, em.helpers.vector(e.dtype)
    left, by, bits = e.op == "tir.shift_left", constant_of(e.args[1]), e.dtype.bits
    a, n = map(em.value, e.args)
    if by is None or not 0 <= by < bits:
        return f"{em.helpers.shift(left, e.dtype)}({a}, {n})"
    wide = em.helpers.vector(DType(f"uint{bits if lanes > 1 else max(32, bits)}").with_lanes(lanes)) if left else kind
    return f"({kind})(({wide}){a} {'<<' if left else '>>'} {n})"


def _count(name: str, body: str) -> Callable[[CScope, Call], str]:
    """Returns the writer of a function that counts bits; ``BITS`` stands for their number in ``body``."""

    def emit(em: CScope, e: Call) -> str:
        kind, bits = c_type(e.dtype.element), e.dtype.bits
        return applied(em, e, f"tw_{name}{bits}{kind[0]}", "KIND x", body.replace("BITS", str(bits)))

    return emit


def _reinterpret(em: CScope, e: Call) -> str:
    (x,) = e.args
    text, source, to = em.value(x), em.helpers.vector(x.dtype), em.helpers.vector(e.dtype)
    if source == to:
        return text
    bits = e.dtype.bits
    if e.dtype.lanes > 1 or not (x.dtype.is_float or e.dtype.is_float) or bits == 16:
        return f"(({to}){text})"
    if e.dtype.is_float:
        return f"{em.helpers.plain(f'from_bits_f{bits}')}((uint{bits}_t){text})"
    return f"({to}){em.helpers.plain(f'bits_f{bits}')}({text})"


def _address_of(em: CScope, e: Call) -> str:
    (where,) = e.args
    assert isinstance(where, BufferLoad)
    return f"({em.place(where.buffer, where.indices, where.dtype.lanes)[0]})"


def _access_ptr(em: CScope, e: Call) -> str:
    kind, data, offset = e.args[:3]
    return f"((void *)((char *){em.value(data)} + {kind.dtype.element.bytes} * ({em.index(offset)})))"


def _dot(em: CScope, e: Call) -> str:
    return em.value(expand_dot(e))


def _misaligned(em: CScope, e: Call) -> str:
    return f"((int32_t)((uintptr_t){em.value(e.args[0])} % {em.value(e.args[1])}))"


def _prefetch(em: CScope, e: Call) -> str:
    numbers = [str(a.value) for a in e.args[1:3] if isinstance(a, IntImm)]
    hints = numbers if len(numbers) == 2 else ["0", "3"]
    return f"__builtin_prefetch({', '.join([em.value(e.args[0]), *hints])})"


def _call_extern(em: CScope, e: Call) -> str:
    name = e.args[0]
    assert isinstance(name, StringImm)
    args = e.args[1:]
    if name.value in ROUTINES:
        library = called_library(em.target, "the program", [e])
        em.helpers.lines.setdefault(name.value, product_c(library, ROUTINES[name.value], name.value))
    elif name.value.removesuffix("f") not in _MATH and name.value not in em.helpers.defined:
        types = ", ".join("void *" if a.dtype == "handle" else scalar_type(a.dtype) for a in args)
        declaration = f"extern {scalar_type(e.dtype)} {name.value}({types or 'void'});"
        em.helpers.lines.setdefault(f"extern {name.value}", declaration)
    passed = [f"(void *){em.value(a)}" if a.dtype == "handle" else em.value(a) for a in args]
    return f"{name.value}({', '.join(passed)})"


PLAIN_CALLS: dict[str, Callable[[CScope, Call], str]] = {
    **{f"vector_reduce_{how}": _vector_reduce(how) for how in ("add", "mul", "fmax", "fmin", "max", "min")},
    **{f"bitwise_{name}": _bitwise(sign) for name, sign in (("and", "&"), ("or", "|"), ("xor", "^"))},
    "address_of": _address_of,
    "bitwise_not": _bitwise_not,
    "call_extern": _call_extern,
    "call_pure_extern": _call_extern,
    "clz": _count("clz", "uint64_t u = (uint64_t)x << (64 - BITS); return u ? __builtin_clzll(u) : BITS;"),
    **dict.fromkeys(DOT_PRODUCTS, _dot),
    "fma": _fma,
    "if_then_else": _if_then_else,
    "isfinite": _isinf,
    "isinf": _isinf,
    "isnan": _isnan,
    "likely": _likely,
    "lookup": _lookup,
    "misaligned": _misaligned,
    "popcount": _count("popcount", "return __builtin_popcountll((uint64_t)x << (64 - BITS));"),
    "prefetch": _prefetch,
    "reinterpret": _reinterpret,
    "round_rest": _round_rest,
    "rsqrt": _rsqrt,
    "shift_left": _shift,
    "shift_right": _shift,
    "sigmoid": _sigmoid,
    "times_exp2": _times_exp2,
    "tvm_access_ptr": _access_ptr,
}
"""Writers by the operation's name."""


# Writes operations on tiles (:mod:`tilewright.tir.expr.intrinsics.matrix_operations`) in C, as plain loops that compilers vectorize.


def _tile_load(em: CScope, e: Call) -> str:
    """Return sixteen rows as one vector."""
    kind, base, columns = em.helpers.vector(e.dtype), scalar_type(e.dtype.element), _columns(e.dtype)
    name = em.helpers.define(
        f"tw_tile_load_{kind}", kind, f"const {base} *p, int64_t step",
        f"{kind} r; for (int i = 0; i < {e.dtype.lanes}; ++i) {em.helpers.at('r', 'i')} = p[i / {columns} * step + i % {columns}]; return r;",
    )  # fmt: skip
    return f"{name}({_rows(em, e)})"


def _tile_store(em: CScope, e: Call) -> str:
    """Return a store of one vector as sixteen rows."""
    dtype = e.args[2].dtype
    kind, base, columns = em.helpers.vector(dtype), scalar_type(dtype.element), _columns(dtype)
    name = em.helpers.define(
        f"tw_tile_store_{kind}", "void", f"{base} *p, int64_t step, {kind} v",
        f"for (int i = 0; i < {dtype.lanes}; ++i) p[i / {columns} * step + i % {columns}] = {em.helpers.at('v', 'i')};",
    )  # fmt: skip
    return f"{name}({_rows(em, e)}, {em.value(e.args[2])})"


def _tile_dot4(em: CScope, e: Call) -> str:
    """Return a product of tiles, four (two) terms at a time. int32 wraps, so the sum is computed without sign."""
    c, a, b = e.args
    width, kind = TILE_DOTS[e.op], em.helpers.vector(c.dtype)
    left, right = (scalar_type(x.dtype.element) for x in (a, b))
    x, y = (f"{n}[{at}]" for n, at in (("a", f"i * sa + {width} * k + q"), ("b", f"k * sb + {width} * j + q")))
    if width == 2:
        wide = em.helpers.plain("bf16_to_f32")
        product = f"{wide}({x}) * {wide}({y})"
    else:
        product = f"(uint32_t)((int32_t){x} * {y})"
    total = "float" if width == 2 else "uint32_t"
    body = (
        f"{total} t[{TILE_ROWS * 16}]; memcpy(t, &c, sizeof t); for (int i = 0; i < {TILE_ROWS}; ++i) "
        f"for (int k = 0; k < 16; ++k) for (int j = 0; j < 16; ++j) for (int q = 0; q < {width}; ++q) "
        f"t[16 * i + j] += {product}; memcpy(&c, t, sizeof t); return c;"
    )
    params = f"{kind} c, const {left} *a, int64_t sa, const {right} *b, int64_t sb"
    name = em.helpers.define(f"tw_tile_dot{width}_{left[:-2]}_{right[:-2]}", kind, params, body)
    return f"{name}({em.value(c)}, {_rows(em, a)}, {_rows(em, b)})"


def _rows(em: CScope, e: Expr) -> str:
    """Return the place of a tile: a pointer to its first row, and the distance of its rows in elements."""
    base = scalar_type((e.args[2].dtype if isinstance(e, Call) and e.op == "tir.tile_store" else e.dtype).element)
    first = tile_access(e)
    if first is not None:
        assert isinstance(e, Call)
        return f"{em.place(first.buffer, first.indices, 1)[0]}, {em.index(e.args[1])}"
    if isinstance(e, BufferLoad) and e.predicate is None and e.buffer not in em.registers:
        pointer, apart = em.place(e.buffer, e.indices, e.dtype.lanes)
        if apart is None:
            return f"{pointer}, {_columns(e.dtype)}"
    return f"(const {base} *)({em.helpers.vector(e.dtype)}[]){{{em.value(e)}}}, {_columns(e.dtype)}"


def _columns(dtype: DType) -> int:
    return dtype.lanes // TILE_ROWS


TILE_CALLS = {"tile_dot2_bf16": _tile_dot4, "tile_dot4": _tile_dot4, "tile_load": _tile_load, "tile_store": _tile_store}
"""Writers by the operation's name."""
