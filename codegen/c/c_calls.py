"""Emits calls of operations in C: math functions, bits, dot products, other C functions."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...tir.buffer import Buffer
from ...tir.dtype import bits_of, bytes_of, element_of, is_float, lanes_of, with_lanes
from ...tir.expr import EQ, LT, NE, Broadcast, BufferLoad, Call, CmpOp, Expr, FloatImm, IntImm, StringImm
from ...tir.intrinsics import OPERATIONS
from ..lower.expand_dots import expand_dot
from .c_tiles import TileCalls
from .inline_functions import CEmitError, Helpers, c_type, scalar_type

_BITWISE = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}
_MATH = {row.c_name for row in OPERATIONS.values() if row.c_name}
"""The functions that C's mathematical library declares."""


def constant_of(e: Expr) -> int | None:
    """Returns the number that an integer has in every lane, when it is a constant."""
    if isinstance(e, Broadcast):
        e = e.value
    return e.value if isinstance(e, IntImm) else None


class Calls(TileCalls):
    """The methods of :class:`.c_expr.CExprs` for a :class:`Call`."""

    helpers: Helpers

    if TYPE_CHECKING:

        def value(self, e: Expr) -> str: ...
        def index(self, e: Expr) -> str: ...
        def compare(self, e: CmpOp) -> str: ...
        def choose(self, condition: Expr, yes: str, no: str, dtype: str) -> str: ...
        def either(self, condition: str, yes: str, no: str, dtype: str) -> str: ...
        def place(self, buffer: Buffer, indices: tuple[Expr, ...], lanes: int) -> tuple[str, str | None]: ...

    def call(self, e: Call) -> str:
        """Return a call of an operation."""
        name, dtype, lanes = e.op.removeprefix("tir."), e.dtype, lanes_of(e.dtype)
        special: Callable[[Call], str] | None = getattr(self, f"call_{name}", None)
        if special is not None:
            return special(e)
        if name in _BITWISE:
            return f"({self.value(e.args[0])} {_BITWISE[name]} {self.value(e.args[1])})"
        if name.startswith("vector_reduce_"):
            (v,) = e.args
            return f"{self.helpers.reduce(name.removeprefix('vector_reduce_'), v.dtype, lanes)}({self.value(v)})"
        row = OPERATIONS.get(e.op)
        if row is not None and row.c_name and bits_of(dtype) in (32, 64):
            function = row.c_name + ("f" if bits_of(dtype) == 32 else "")
            if lanes > 1:
                function = self.helpers.lanewise(function, dtype, [a.dtype for a in e.args])
            return f"{function}({', '.join(map(self.value, e.args))})"
        raise CEmitError(f"no C form for the call {e.op} of {dtype}")

    def call_fma(self, e: Call) -> str:
        """Return a * b + c rounded once.

        GCC and Clang contract a vector expression where the machine has the instruction (a loop over the lanes they
        would not vectorize). Elsewhere, and in strict ISO mode, which forbids contraction, it is computed lane by lane.
        """
        scalar = "__builtin_fma" + ("f" if bits_of(e.dtype) == 32 else "")
        function = scalar
        if lanes_of(e.dtype) > 1:
            kind = self.helpers.vector(e.dtype)
            lanes = (
                f"{kind} r; for (int i = 0; i < {lanes_of(e.dtype)}; ++i) r[i] = {scalar}(a[i], b[i], c[i]); return r;"
            )
            body = (
                "\n#if (defined(__FMA__) || defined(__FP_FAST_FMAF)) && !defined(__STRICT_ANSI__)\n"
                f"  return a * b + c;\n#else\n  {lanes}\n#endif\n"
            )
            function = self.helpers.define(f"tw_fma_{kind}", kind, f"{kind} a, {kind} b, {kind} c", body)
        return f"{function}({', '.join(map(self.value, e.args))})"

    def call_if_then_else(self, e: Call) -> str:
        cond, usual, other = map(self.value, e.args)
        lanes, kind = lanes_of(e.args[0].dtype), self.helpers.vector(e.dtype)
        if lanes == 1:
            return self.either(cond, usual, other, e.dtype)
        # the other branch is evaluated when some lane needs it
        mask = self.helpers.vector_named(f"i8x{lanes}")
        body = f"int r = -1; for (int i = 0; i < {lanes}; ++i) r &= m[i]; return r != 0;"
        every = self.helpers.define(f"tw_every_{mask}", "int", f"{mask} m", body)
        chosen = f"{self.helpers.select(e.dtype)}(tw_m, tw_usual, {other})"
        return f"({{ {mask} tw_m = {cond}; {kind} tw_usual = {usual}; {every}(tw_m) ? tw_usual : {chosen}; }})"

    def call_round_rest(self, e: Call) -> str:
        end, kind = ("f", "float") if bits_of(e.dtype) == 32 else ("", "double")
        body = f"{kind} r = x - rint{end}(x); return fabs{end}(x) == INFINITY ? 0 : r;"
        function = self.helpers.define(f"tw_round_rest{end}", kind, f"{kind} x", body)
        call = function if lanes_of(e.dtype) == 1 else self.helpers.lanewise(function, e.dtype, [e.dtype])
        return f"{call}({self.value(e.args[0])})"

    def call_times_exp2(self, e: Call) -> str:
        """Return a product with two factors where that is exact, else a call of the C library."""
        single = bits_of(e.dtype) == 32
        kind, end, word, bias, mantissa = (
            ("float", "f", "int32_t", 127, 23) if single else ("double", "", "int64_t", 1023, 52)
        )
        body = (
            f"if (x >= 0.25{end} && x <= 4 && n > -{2 * bias - 4} && n < {2 * bias}) {{ "
            f"{word} i = ({word})floor{end}(n), a = i >> 1, u = (a + {bias}) << {mantissa}, v = (i - a + {bias}) << {mantissa}; "
            f"{kind} p, q; memcpy(&p, &u, sizeof p); memcpy(&q, &v, sizeof q); return x * p * q; }} "
            f"return n != n ? n : ldexp{end}(x, (int)fmax{end}(fmin{end}(floor{end}(n), 9999), -9999));"
        )
        function = self.helpers.define(f"tw_times_exp2{end}", kind, f"{kind} x, {kind} n", body)
        call = function if lanes_of(e.dtype) == 1 else self.helpers.lanewise(function, e.dtype, [e.dtype, e.dtype])
        return f"{call}({', '.join(map(self.value, e.args))})"

    def call_lookup(self, e: Call) -> str:
        """Return an element of a constant array; the modulus is a power of two."""
        number, *values = e.args
        kind = c_type(element_of(e.dtype))
        table = ", ".join([self.value(v) for v in values])
        name = f"tw_lookup_{hashlib.sha256(table.encode()).hexdigest()[:12]}"
        body = f"static const {kind} table[{len(values)}] = {{{table}}}; return table[n & {len(values) - 1}];"
        function = self.helpers.define(name, kind, "int32_t n", body)
        call = function if lanes_of(e.dtype) == 1 else self.helpers.lanewise(function, e.dtype, [number.dtype])
        return f"{call}({self.value(number)})"

    def call_likely(self, e: Call) -> str:
        text = self.value(e.args[0])
        return text if lanes_of(e.dtype) > 1 else f"__builtin_expect(!!{text}, 1)"

    def call_rsqrt(self, e: Call) -> str:
        one = Broadcast(FloatImm(1.0, element_of(e.dtype)), lanes_of(e.dtype)) if lanes_of(e.dtype) > 1 else None
        return f"({self.value(one or FloatImm(1.0, e.dtype))} / {self.value(Call('tir.sqrt', e.args, e.dtype))})"

    def call_sigmoid(self, e: Call) -> str:
        scalar = element_of(e.dtype)
        kind, end = c_type(scalar), "f" if scalar == "float32" else ""
        body = f"return 1 / (1 + exp{end}(-x));"
        function = self.helpers.define(f"tw_sigmoid{end}", kind, f"{kind} x", body)
        call = function if lanes_of(e.dtype) == 1 else self.helpers.lanewise(function, e.dtype, [e.dtype])
        return f"{call}({self.value(e.args[0])})"

    def call_isnan(self, e: Call) -> str:
        x = e.args[0]
        return self.compare(NE(x, x))

    def _size_test(self, e: Call, cls: type[CmpOp]) -> str:
        x = e.args[0]
        limit: Expr = FloatImm(math.inf, element_of(x.dtype))
        if lanes_of(x.dtype) > 1:
            limit = Broadcast(limit, lanes_of(x.dtype))
        return self.compare(cls(Call("tir.fabs", (x,), x.dtype), limit))

    def call_isinf(self, e: Call) -> str:
        return self._size_test(e, EQ)

    def call_isfinite(self, e: Call) -> str:
        return self._size_test(e, LT)

    def call_bitwise_not(self, e: Call) -> str:
        return f"({self.helpers.vector(e.dtype)})(~{self.value(e.args[0])})"

    def _shift(self, e: Call) -> str:
        lanes, kind = lanes_of(e.dtype), self.helpers.vector(e.dtype)
        left, by, bits = e.op == "tir.shift_left", constant_of(e.args[1]), bits_of(e.dtype)
        a, n = self.value(e.args[0]), self.value(e.args[1])
        if by is None or not 0 <= by < bits:
            return f"{self.helpers.shift(left, e.dtype)}({a}, {n})"
        wide = self.helpers.vector(with_lanes(f"uint{bits if lanes > 1 else max(32, bits)}", lanes)) if left else kind
        return f"({kind})(({wide}){a} {'<<' if left else '>>'} {n})"

    call_shift_left = call_shift_right = _shift

    def _count(self, e: Call, name: str, body: str) -> str:
        kind, bits = c_type(element_of(e.dtype)), bits_of(e.dtype)
        function = self.helpers.define(f"tw_{name}{bits}{kind[0]}", kind, f"{kind} x", body.format(bits=bits))
        call = function if lanes_of(e.dtype) == 1 else self.helpers.lanewise(function, e.dtype, [e.dtype])
        return f"{call}({self.value(e.args[0])})"

    def call_popcount(self, e: Call) -> str:
        return self._count(e, "popcount", "return __builtin_popcountll((uint64_t)x << (64 - {bits}));")

    def call_clz(self, e: Call) -> str:
        body = "uint64_t u = (uint64_t)x << (64 - {bits}); return u ? __builtin_clzll(u) : {bits};"
        return self._count(e, "clz", body)

    def call_reinterpret(self, e: Call) -> str:
        (x,) = e.args
        text, source, to = self.value(x), self.helpers.vector(x.dtype), self.helpers.vector(e.dtype)
        if source == to:
            return text
        if lanes_of(e.dtype) > 1 or not (is_float(x.dtype) or is_float(e.dtype)):
            return f"(({to}){text})"
        bits = bits_of(e.dtype)
        if bits == 16:
            return f"(({to}){text})"
        if is_float(e.dtype):
            return f"{self.helpers.plain(f'from_bits_f{bits}')}((uint{bits}_t){text})"
        return f"({to}){self.helpers.plain(f'bits_f{bits}')}({text})"

    def call_address_of(self, e: Call) -> str:
        (where,) = e.args
        assert isinstance(where, BufferLoad)
        return f"({self.place(where.buffer, where.indices, lanes_of(where.dtype))[0]})"

    def call_tvm_access_ptr(self, e: Call) -> str:
        kind, data, offset = e.args[:3]
        return f"((void *)((char *){self.value(data)} + {bytes_of(element_of(kind.dtype))} * ({self.index(offset)})))"

    def call_dot4_u8i8(self, e: Call) -> str:
        return self.value(expand_dot(e))

    call_dot2_bf16 = call_dot4_u8i8

    def call_misaligned(self, e: Call) -> str:
        return f"((int32_t)((uintptr_t){self.value(e.args[0])} % {self.value(e.args[1])}))"

    def call_prefetch(self, e: Call) -> str:
        numbers = [str(a.value) for a in e.args[1:3] if isinstance(a, IntImm)]
        return (
            f"__builtin_prefetch({', '.join([self.value(e.args[0]), *(numbers if len(numbers) == 2 else ['0', '3'])])})"
        )

    def call_call_extern(self, e: Call) -> str:
        name = e.args[0]
        assert isinstance(name, StringImm)
        args = e.args[1:]
        stem = name.value.removesuffix("f")
        if stem not in _MATH:
            types = ", ".join("void *" if a.dtype == "handle" else scalar_type(a.dtype) for a in args)
            self.helpers.lines.setdefault(
                f"extern {name.value}", f"extern {scalar_type(e.dtype)} {name.value}({types or 'void'});"
            )
        passed = [f"(void *){self.value(a)}" if a.dtype == "handle" else self.value(a) for a in args]
        return f"{name.value}({', '.join(passed)})"

    call_call_pure_extern = call_call_extern
