"""Words of strict ISO C99, whose vectors are structures and work lane by lane. What a condition guards becomes
statements in front of the one that uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...tir.expr import BufferLoad, Call, DType, Expr
from ...tir.expr import nodes as E
from ...tir.stmt import Buffer, While
from ..backend.emitter import constant_of
from . import c_expr, c_stmt
from .c_stmt import CScope
from .inline_functions import Helpers, c_type, scalar_type


def arithmetic(em: PortableScope, op: type[E.BinaryOp], a: str, b: str, dtype: DType) -> str:
    """Returns a sum, difference, product, or quotient of floats."""

    def lane(x: str, y: str) -> str:
        return c_expr.arithmetic(em, op, x, y, dtype.element)

    return lane(a, b) if dtype.lanes == 1 else em.each(op.__name__.lower(), dtype, [(a, dtype), (b, dtype)], lane)


def quotient(em: PortableScope, e: E.BinaryOp, a: str, b: str, dtype: DType) -> str:
    """Returns a quotient or remainder of integers. A constant divisor of vectors is part of their function."""
    if dtype.lanes == 1 or (isinstance(e, (E.FloorDiv, E.FloorMod)) and dtype.is_signed):
        return c_expr.quotient(em, e, a, b, dtype)
    constant = constant_of(e.b)
    if constant is None or constant in (0, -1):
        return c_expr.quotient(em, e, a, b, dtype)
    sign = "/" if isinstance(e, (E.Div, E.TruncDiv, E.FloorDiv)) else "%"
    word, kind = (
        f"{'over' if sign == '/' else 'rest'}{'n' if constant < 0 else ''}{abs(constant)}",
        scalar_type(dtype.element),
    )
    divisor = em.integer(int(constant), dtype.element)
    return em.each(word, dtype, [(a, dtype)], lambda x: f"({kind})({x} {sign} {divisor})")


def comparison(em: PortableScope, op: type[E.CmpOp], a: str, b: str, dtype: DType) -> str:
    """Returns a comparison. One with 0 that holds for every value of its type is a constant, since compilers warn."""

    def lane(x: str, y: str) -> str:
        return f"({x} {op.symbol} {y})"

    if dtype.lanes > 1:
        return em.each(op.__name__.lower(), DType("bool").with_lanes(dtype.lanes), [(a, dtype), (b, dtype)], lane)
    if dtype.kind in ("uint", "bool"):
        known = {(E.GE, "b"): "1", (E.LT, "b"): "0", (E.LE, "a"): "1", (E.GT, "a"): "0"}
        zero = "b" if b in _ZERO else "a" if a in _ZERO else ""
        if (op, zero) in known:
            return known[op, zero]
    return lane(a, b)


_ZERO = ("0", "0ULL")


def logical(em: PortableScope, e: E.And | E.Or) -> str:
    """Returns a conjunction or disjunction; the second operand of scalars is evaluated only when it decides."""
    both = isinstance(e, E.And)
    if e.dtype.lanes > 1:
        sign = "&" if both else "|"
        operands = [(em.value(part), e.dtype) for part in (e.a, e.b)]
        return em.each("and" if both else "or", e.dtype, operands, lambda x, y: f"{x} {sign} {y}")
    first, (lines, second) = em.value(e.a), em.part(e.b)
    if not lines:
        return f"({first} {'&&' if both else '||'} {second})"
    name = em.name("decided")
    em.before(f"uint8_t {name} = {first};")
    em.before(f"if ({'' if both else '!'}{name}) {{ {lines} {name} = {second}; }}")
    return name


def negation(em: PortableScope, a: str, dtype: DType) -> str:
    """Returns the opposite of a bool, or of a vector of them."""
    return f"(!{a})" if dtype.lanes == 1 else em.each("not", dtype, [(a, dtype)], lambda x: f"!{x}")


def splat(em: PortableScope, value: str, dtype: DType, lanes: int) -> str:
    """Returns a vector with a scalar in every lane."""
    return f"{em.helpers.splat(dtype.with_lanes(lanes))}({value})"


def converted(em: PortableScope, text: str, source: DType, to: DType, in_range: bool = False) -> str:
    """Returns a value of type ``source`` as ``to``."""
    if source == to:
        return text

    def lane(x: str) -> str:
        return c_expr.converted(em, x, source.element, to.element, in_range)

    return (
        lane(text)
        if to.lanes == 1
        else em.each(f"{source.element}_to_{to.element}{'_in_range' * in_range}", to, [(text, source)], lane)
    )


def ramp(em: PortableScope, e: E.Ramp) -> str:
    """Returns a vector of evenly spaced values as data."""
    kind, scalar = em.helpers.vector(e.dtype), scalar_type(e.dtype.element)
    sum_ = c_expr.arithmetic(
        em, E.Add, "base", c_expr.arithmetic(em, E.Mul, "step", "i", e.dtype.element), e.dtype.element
    )
    body = f"{kind} r; for ({scalar} i = 0; i < {e.lanes}; ++i) {em.helpers.at('r', 'i')} = {sum_}; return r;"
    function = em.helpers.define(f"tw_ramp_{kind}", kind, f"{scalar} base, {scalar} step", body)
    return f"{function}({em.value(e.base)}, {em.value(e.stride)})"


def named(em: PortableScope, var: E.Var, value: E.Expr, is_index: bool) -> str:
    """Returns the name of a variable, which is declared here."""
    name, line = c_expr.declared(em, var, value, is_index)
    em.before(line)
    return name


def let(em: PortableScope, e: E.Let) -> str:
    """Returns the body of an expression whose variable is declared in front."""
    em.define(e.var, e.value)
    return em.value(e.body)


def shuffle(em: PortableScope, e: E.Shuffle) -> str:
    """Returns lanes picked from vectors."""
    names = []
    for v in e.vectors:
        names.append(em.name("lanes"))
        em.before(f"const {em.helpers.vector(v.dtype)} {names[-1]} = {em.value(v)};")
    each = e.vectors[0].dtype.lanes
    picked = [em.helpers.at(names[i // each], i % each) if each > 1 else names[i] for i in e.indices]
    return picked[0] if len(picked) == 1 else em.helpers.literal(em.helpers.vector(e.dtype), picked)


def load(em: PortableScope, e: BufferLoad) -> str:
    """Returns an element, or a vector of elements."""
    if e.dtype.lanes == 1:
        return c_expr.load(em, e)
    pointer, at = em.place(e.buffer, e.indices, e.dtype.lanes)
    what = ("" if e.predicate is None else "mask") + ("load" if at is None else "gather")
    operands = [pointer, *([] if at is None else [at]), *([] if e.predicate is None else [em.value(e.predicate)])]
    return f"{em.helpers.memory(what, e.dtype, em.space(e.buffer))}({', '.join(operands)})"


def store(
    em: PortableScope, buffer: Buffer, indices: tuple[Expr, ...], value: str, dtype: DType, predicate: Expr | None
) -> None:
    """Write a store to memory."""
    if dtype.lanes == 1:
        c_stmt.store(em, buffer, indices, value, dtype, predicate)
        return
    pointer, at = em.place(buffer, indices, dtype.lanes)
    what = ("" if predicate is None else "mask") + ("store" if at is None else "scatter")
    operands = [pointer, *([] if at is None else [at]), value, *([] if predicate is None else [em.value(predicate)])]
    em.put(f"{em.helpers.memory(what, dtype, em.space(buffer))}({', '.join(operands)});")


def while_loop(em: PortableScope, s: While) -> None:
    """Write a loop that tests its condition before each iteration."""
    lines, test = em.part(s.condition)
    if not lines:
        c_stmt.block(em, f"while ({test})", s.body)
        return
    c_stmt.block(em, "for (;;)", s.body, f"{lines} if (!{test}) break;")


def new_register(em: PortableScope, buffer: Buffer) -> str:
    """Returns the name of a register value."""
    kind, name = em.helpers.vector(buffer.dtype), em.name(buffer.name)
    em.put(f"{kind} {name} = {'0' if buffer.dtype.lanes == 1 else '{{0}}'};")
    return name


def stack_memory(em: PortableScope, buffer: Buffer, elements: int) -> str:
    """Returns the name of an array on the stack."""
    name = em.name(buffer.name)
    em.put(f"{scalar_type(buffer.dtype.element)} {name}[{elements}];")
    return name


def scratch_memory(em: PortableScope, buffer: Buffer, elements: int | None) -> str:
    """Returns the name of a pointer to memory on the heap. Without memory the function returns -1; in a parallel loop
    it ends the program."""
    name = c_stmt.scratch_memory(em, buffer, elements)
    frees = "".join(f"free({pointer}); " for pointer in reversed(em.scratch))
    em.put(f"if (!{name}) {'abort();' if em.in_parallel else f'{{ {frees}return -1; }}'}")
    return name


def floating(em: PortableScope, value: float, dtype: DType) -> str:
    """Returns an exact constant in hexadecimal; half floats as bits."""
    if value != value and dtype.bits > 16:
        return "NAN" if dtype.bits == 32 else "((double)NAN)"
    if value in (float("inf"), -float("inf")) and dtype.bits > 16:
        return f"({'-' if value < 0 else ''}{'' if dtype.bits == 32 else '(double)'}INFINITY)"
    return c_expr.floating(em, value, dtype)


# -- calls ---------------------------------------------------------------------------------------------------------------


def _bitwise(word: str, sign: str) -> Callable[[PortableScope, Call], str]:
    def emit(em: PortableScope, e: Call) -> str:
        a, b = map(em.value, e.args)
        if e.dtype.lanes == 1:
            return f"({a} {sign} {b})"
        return em.each(word, e.dtype, [(a, e.dtype), (b, e.dtype)], lambda x, y: f"{x} {sign} {y}")

    return emit


def _bitwise_not(em: PortableScope, e: Call) -> str:
    (x,), kind = e.args, scalar_type(e.dtype.element)

    def lane(text: str) -> str:
        return f"(!{text})" if e.dtype.is_bool else f"({kind})~{text}"

    return f"({lane(em.value(x))})" if e.dtype.lanes == 1 else em.each("inv", e.dtype, [(em.value(x), x.dtype)], lane)


def _shift(em: PortableScope, e: Call) -> str:
    a, n = map(em.value, e.args)
    return f"{em.helpers.shift(e.op == 'tir.shift_left', e.dtype)}({a}, {n})"


def _fma(em: PortableScope, e: Call) -> str:
    function = em.helpers.lanewise("fmaf" if e.dtype.bits == 32 else "fma", e.dtype, [a.dtype for a in e.args])
    return f"{function}({', '.join(map(em.value, e.args))})"


def _if_then_else(em: PortableScope, e: Call) -> str:
    test, lanes = em.value(e.args[0]), e.args[0].dtype.lanes
    if lanes > 1:
        return _lane_by_lane(em, e, test)
    (first, yes), (second, no) = em.part(e.args[1]), em.part(e.args[2])
    if not first and not second:
        return f"({test} ? {yes} : {no})"
    name, kind = em.name("chosen"), em.helpers.vector(e.dtype)
    em.before(f"{kind} {name};")
    em.before(f"if ({test}) {{ {first} {name} = {yes}; }} else {{ {second} {name} = {no}; }}")
    return name


def _lane_by_lane(em: PortableScope, e: Call, test: str) -> str:
    """Returns a choice by a vector of bools; the other branch is evaluated when some lane needs it."""
    lanes, kind, usual = e.args[0].dtype.lanes, em.helpers.vector(e.dtype), em.value(e.args[1])
    mask = em.helpers.mask(lanes)
    body = f"int r = 1; for (int i = 0; i < {lanes}; ++i) r &= {em.helpers.at('m', 'i')}; return r;"
    every = em.helpers.define(f"tw_every_{mask}", "int", f"{mask} m", body)
    which, name = em.name("which"), em.name("chosen")
    em.before(f"const {mask} {which} = {test};")
    em.before(f"{kind} {name} = {usual};")
    lines, other = em.part(e.args[2])
    em.before(f"if (!{every}({which})) {{ {lines} {name} = {em.helpers.select(e.dtype)}({which}, {name}, {other}); }}")
    return name


def _likely(em: PortableScope, e: Call) -> str:
    return em.value(e.args[0])


def _prefetch(em: PortableScope, e: Call) -> str:
    return "(void)0"


def _count(word: str, body: str) -> Callable[[PortableScope, Call], str]:
    def emit(em: PortableScope, e: Call) -> str:
        kind, bits = scalar_type(e.dtype.element), e.dtype.bits
        name = f"tw_{word}_{'u' if kind[0] == 'u' else 'i'}{bits}"
        em.helpers.define(name, kind, f"{kind} x", body.replace("KIND", kind).replace("BITS", str(bits)))
        return f"{em.helpers.lanewise(name, e.dtype, [a.dtype for a in e.args])}({em.value(e.args[0])})"

    return emit


def _reinterpret(em: PortableScope, e: Call) -> str:
    (x,) = e.args
    text, source, to = em.value(x), em.helpers.vector(x.dtype), em.helpers.vector(e.dtype)
    if source == to:
        return text
    name = em.helpers.define(
        f"tw_as_{to}_{source}".replace(" *", "p"), to, f"{source} a", f"{to} r; memcpy(&r, &a, sizeof r); return r;"
    )
    return f"{name}({text})"


PORTABLE_CALLS: dict[str, Callable[[Any, Call], str]] = {
    **{f"bitwise_{word}": _bitwise(word, sign) for word, sign in (("and", "&"), ("or", "|"), ("xor", "^"))},
    "bitwise_not": _bitwise_not,
    "clz": _count("clz", "uint64_t u = (uint64_t)x << (64 - BITS); int n = 0; "
                  "while (n < BITS && !(u >> 63)) { u <<= 1; ++n; } return (KIND)n;"),
    "fma": _fma,
    "if_then_else": _if_then_else,
    "likely": _likely,
    "popcount": _count("popcount", "uint64_t u = (uint64_t)x << (64 - BITS); int n = 0; "
                       "while (u) { u &= u - 1; ++n; } return (KIND)n;"),
    "prefetch": _prefetch,
    "reinterpret": _reinterpret,
    "shift_left": _shift,
    "shift_right": _shift,
}  # fmt: skip
"""Writers by the operation's name, of those that differ from the text with GCC's vector types."""


# What is in scope while strict C is written: statements in front of the one that uses a value.


class PortableScope(CScope):
    """The state of a writer of strict C99."""

    helpers: StructHelpers

    def before(self, line: str) -> None:
        """Write a line where values are evaluated at present."""
        self.scopes[-1].put(line)

    def each(self, word: str, to: DType, operands: Sequence[tuple[str, DType]], lane: Callable[..., str]) -> str:
        """Return a vector whose lanes ``lane`` writes, from the lanes of vectors given with their types."""
        function = self.helpers.each(word, to, [dtype for _, dtype in operands], lane)
        return f"{function}({', '.join([text for text, _ in operands])})"


# Vectors in strict ISO C: a structure with an array of lanes, and inline functions that work lane by lane.

_SCRATCH = "static inline void *tw_scratch(int64_t bytes) { return malloc(bytes > 0 ? (size_t)bytes : 1); }"


class StructHelpers(Helpers):
    """The types and functions of a source file that needs no extension of the language. A bool is 0 or 1 in vectors,
    too."""

    def at(self, vector: str, index: object) -> str:
        return f"{vector}.v[{index}]"

    def literal(self, kind: str, lanes: Iterable[object]) -> str:
        return f"({kind}){{{{{', '.join(map(str, lanes))}}}}}"

    def vector(self, dtype: DType) -> str:
        if dtype.lanes == 1:
            return c_type(dtype)
        name = f"b8x{dtype.lanes}" if dtype.is_bool else c_type(dtype)
        self.lines.setdefault(name, f"typedef struct {{ {scalar_type(dtype.element)} v[{dtype.lanes}]; }} {name};")
        return name

    def stored(self, dtype: DType) -> str:
        return self.vector(dtype)

    def plain(self, name: str) -> str:
        if name == "scratch":
            self.lines.setdefault("tw_scratch", _SCRATCH)
            return "tw_scratch"
        return super().plain(name)

    def splat(self, dtype: DType) -> str:
        kind, base = self.vector(dtype), scalar_type(dtype.element)
        lane = self.at("r", "i")
        body = f"{kind} r; for (int i = 0; i < {dtype.lanes}; ++i) {lane} = x; return r;"
        return self.define(f"tw_splat_{kind}", kind, f"{base} x", body)

    def select(self, dtype: DType) -> str:
        def chosen(m: str, a: str, b: str) -> str:
            return f"{m} ? {a} : {b}"

        return self.each("select", dtype, [DType("bool").with_lanes(dtype.lanes), dtype, dtype], chosen)

    def each(self, word: str, to: DType, arguments: Sequence[DType], lane: Callable[..., str]) -> str:
        """Return a function that gives each lane of ``to`` the value that ``lane`` writes for the lanes of vectors."""
        result, types = self.vector(to), [self.vector(a) for a in arguments]
        names = "abcd"[: len(types)]
        value = lane(*[self.at(n, "i") for n in names])
        body = f"{result} r; for (int i = 0; i < {to.lanes}; ++i) {self.at('r', 'i')} = {value}; return r;"
        params = ", ".join(f"{t} {n}" for t, n in zip(types, names, strict=True))
        return self.define("_".join(["tw", word, result, *types]), result, params, body)
