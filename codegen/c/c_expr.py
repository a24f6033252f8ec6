"""Expressions in C. Every method returns text that may stand as an operand."""

from __future__ import annotations

import math

from ...tir.buffer import Buffer
from ...tir.dtype import bits_of, element_of, is_bool, is_float, is_int, is_signed, lanes_of, parse_dtype, with_lanes
from ...tir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    BinaryOp,
    Broadcast,
    BufferLoad,
    Call,
    Cast,
    CmpOp,
    Div,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Ramp,
    Select,
    Shuffle,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
)
from ...tir.index_types import index_like
from ...tir.rounding import float_bits, round_float
from ..lower.lanes import flat_lanes
from .c_calls import Calls, constant_of
from .inline_functions import CEmitError, Helpers, c_type

_OPERATORS = {Add: "+", Sub: "-", Mul: "*", Div: "/"}
_COMPARE = {EQ: "==", NE: "!=", LT: "<", LE: "<=", GT: ">", GE: ">="}


class CExprs(Calls):
    """A translator of expressions to C, with the names in scope."""

    def __init__(self, helpers: Helpers) -> None:
        self.helpers = helpers
        self.names: dict[object, str] = {}
        self.taken: set[str] = set()
        self.indices: set[Var] = set()
        """Variables declared as int64_t."""

    def name(self, key: object, hint: str) -> str:
        """Return a fresh C identifier for a variable or a buffer's pointer."""
        base = "".join(ch if ch.isascii() and (ch.isalnum() or ch == "_") else "_" for ch in hint) or "v"
        base = base if not base[0].isdigit() else f"_{base}"
        text, n = base, 1
        while text in self.taken:
            text, n = f"{base}_{n}", n + 1
        self.taken.add(text)
        self.names[key] = text
        return text

    def value(self, e: Expr) -> str:
        """Return the text of ``e``."""
        if isinstance(e, IntImm):
            return _integer(e.value, e.dtype)
        if isinstance(e, FloatImm):
            return self.float_constant(e.value, e.dtype)
        if isinstance(e, Var):
            return self.lookup(e)
        if isinstance(e, BufferLoad):
            return self.load(e)
        if isinstance(e, Call):
            return self.call(e)
        if isinstance(e, CmpOp):
            return self.compare(e)
        if isinstance(e, (And, Or)):
            if lanes_of(e.dtype) > 1:
                return f"({self.value(e.a)} {'&' if isinstance(e, And) else '|'} {self.value(e.b)})"
            return f"({self.value(e.a)} {'&&' if isinstance(e, And) else '||'} {self.value(e.b)})"
        if isinstance(e, BinaryOp):
            return self.binary(e)
        if isinstance(e, Not):
            return f"({'~' if lanes_of(e.dtype) > 1 else '!'}{self.value(e.a)})"
        if isinstance(e, Broadcast):
            inner = self.value(e.value)
            return f"{self.helpers.splat(e.dtype)}({f'-{inner}' if is_bool(e.dtype) else inner})"
        if isinstance(e, Ramp):
            return self.ramp(e)
        if isinstance(e, Cast):
            return self.cast(e.value, e.dtype)
        if isinstance(e, Select):
            return self.choose(e.condition, self.value(e.true_value), self.value(e.false_value), e.dtype)
        if isinstance(e, Let):
            value, kind = self.value(e.value), self.let_type(e.var, e.value)
            return f"({{ const {kind} {self.name(e.var, e.var.name)} = {value}; {self.value(e.body)}; }})"
        if isinstance(e, Shuffle):
            return self.shuffle(e)
        raise CEmitError(f"no C form for {type(e).__name__}: {e}")

    def let_type(self, var: Var, value: Expr) -> str:
        """Return the C type of a named value; index arithmetic is 64 bits wide."""
        if is_signed(var.dtype) and lanes_of(var.dtype) == 1 and index_like(value):
            self.indices.add(var)
            return "int64_t"
        return self.helpers.vector(var.dtype)

    def lookup(self, key: object) -> str:
        """Return the C name of a variable or of a buffer's pointer."""
        try:
            return self.names[key]
        except KeyError:
            raise CEmitError(f"{getattr(key, 'name', key)} is not defined here") from None

    # -- integers and floats ---------------------------------------------------------------------------------------

    def index(self, e: Expr) -> str:
        """Return a scalar integer in 64 bits."""
        if isinstance(e, IntImm):
            return str(e.value)
        if isinstance(e, Var):
            text = self.lookup(e)
            return text if e in self.indices or e.dtype == "int64" else f"(int64_t){text}"
        if isinstance(e, Broadcast):
            return self.index(e.value)
        if index_like(e):
            if isinstance(e, Cast):
                return self.index(e.value)
            assert isinstance(e, BinaryOp)
            a, b = self.index(e.a), self.index(e.b)
            if isinstance(e, (FloorDiv, FloorMod)):
                power = isinstance(e.b, IntImm) and e.b.value > 0 and e.b.value & (e.b.value - 1) == 0
                if power:
                    assert isinstance(e.b, IntImm)
                    shift = f">> {e.b.value.bit_length() - 1}" if isinstance(e, FloorDiv) else f"& {e.b.value - 1}"
                    return f"({a} {shift})"
                return f"{self.helpers.plain('floordiv' if isinstance(e, FloorDiv) else 'floormod')}({a}, {b})"
            if isinstance(e, (Min, Max)):
                return f"{self.helpers.extreme(isinstance(e, Max), 'int64')}({a}, {b})"
            return f"({a} {_OPERATORS[type(e)]} {b})"
        return f"(int64_t){self.value(e)}"

    def binary(self, e: BinaryOp) -> str:
        """Return an arithmetic operation: integers wrap, index arithmetic is 64 bits wide."""
        dtype, lanes = e.dtype, lanes_of(e.dtype)
        if isinstance(e, (Min, Max)):
            return f"{self.helpers.extreme(isinstance(e, Max), dtype)}({self.value(e.a)}, {self.value(e.b)})"
        if is_float(dtype):
            if bits_of(dtype) == 16:
                raise CEmitError(f"arithmetic on {dtype}: {e}")
            if type(e) not in _OPERATORS:
                raise CEmitError(f"{type(e).__name__} of {dtype}")
            return f"({self.value(e.a)} {_OPERATORS[type(e)]} {self.value(e.b)})"
        if lanes == 1 and is_signed(dtype) and index_like(e):
            return self.index(e)
        if isinstance(e, (FloorDiv, FloorMod)) and is_signed(dtype):
            word = "floordiv" if isinstance(e, FloorDiv) else "floormod"
            function = self.helpers.plain(word)
            if lanes > 1:
                return f"{self.helpers.lanewise(function, dtype, [dtype, dtype])}({self.value(e.a)}, {self.value(e.b)})"
            return f"({c_type(dtype)}){function}({self.value(e.a)}, {self.value(e.b)})"
        kind = self.helpers.vector(dtype)
        if isinstance(e, (Div, TruncDiv, TruncMod, FloorDiv, FloorMod)):
            quotient = isinstance(e, (Div, TruncDiv, FloorDiv))
            if constant_of(e.b) in (None, 0, -1):
                return f"{self.helpers.division(quotient, dtype)}({self.value(e.a)}, {self.value(e.b)})"
            return f"(({kind})({self.value(e.a)} {'/' if quotient else '%'} {self.value(e.b)}))"
        sign = _OPERATORS[type(e)]
        wide = with_lanes(f"uint{bits_of(dtype) if lanes > 1 else max(32, bits_of(dtype))}", lanes)
        unsigned = self.helpers.vector(wide)
        return f"({kind})(({unsigned}){self.value(e.a)} {sign} ({unsigned}){self.value(e.b)})"

    def float_constant(self, value: float, dtype: str) -> str:
        """Return an exact constant in hexadecimal; half floats as bits."""
        bits = bits_of(dtype)
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

    def compare(self, e: CmpOp) -> str:
        """Return a comparison; for vectors, a vector of bytes."""
        sign, lanes = _COMPARE[type(e)], lanes_of(e.dtype)
        if lanes == 1 and is_int(e.a.dtype) and index_like(e.a) and index_like(e.b):
            return f"({self.index(e.a)} {sign} {self.index(e.b)})"
        text = f"({self.value(e.a)} {sign} {self.value(e.b)})"
        if lanes == 1:
            return text
        self.helpers.vector(e.a.dtype)
        return f"__builtin_convertvector({text}, {self.helpers.vector(e.dtype)})"

    def choose(self, condition: Expr, yes: str, no: str, dtype: str) -> str:
        """Return one of two values."""
        if lanes_of(condition.dtype) == 1:
            return self.either(self.value(condition), yes, no, dtype)
        return f"{self.helpers.select(dtype)}({self.value(condition)}, {yes}, {no})"

    def either(self, condition: str, yes: str, no: str, dtype: str) -> str:
        """Return one of two values by a scalar condition. Both are converted to one type, since a vector loaded from
        memory has a type of smaller alignment."""
        as_type = f"({self.helpers.vector(dtype)})" if lanes_of(dtype) > 1 else ""
        return f"({condition} ? {as_type}{yes} : {as_type}{no})"

    def cast(self, e: Expr, to: str) -> str:
        """Return a conversion; half floats are converted through float32."""
        source, lanes = e.dtype, lanes_of(to)
        if source == to:
            return self.value(e)
        a = parse_dtype(source)
        if a.bits == 16 and a.kind in ("float", "bfloat"):
            function = self.helpers.plain("bf16_to_f32" if a.kind == "bfloat" else "f16_to_f32")
            single = with_lanes("float32", lanes)
            call = function if lanes == 1 else self.helpers.lanewise(function, single, [source])
            return self.convert(f"{call}({self.value(e)})", single, to)
        return self.convert(self.value(e), source, to)

    def convert(self, text: str, source: str, to: str) -> str:
        """Return a value of type ``source`` as ``to``."""
        if source == to:
            return text
        lanes, kind = lanes_of(to), self.helpers.vector(to)
        b = parse_dtype(to)
        if b.bits == 16 and b.kind in ("float", "bfloat"):
            function = self.helpers.plain("f32_to_bf16" if b.kind == "bfloat" else "f32_to_f16")
            single = with_lanes("float32", lanes)
            call = function if lanes == 1 else self.helpers.lanewise(function, to, [single])
            return f"{call}({self.convert(text, source, single)})"
        if is_bool(to):
            return f"({text} != 0)" if lanes == 1 else f"__builtin_convertvector({text} != 0, {kind})"
        if lanes == 1:
            return f"({kind}){text}"
        self.helpers.vector(source)
        if is_bool(source):
            text = f"(-{text})"
        return f"__builtin_convertvector({text}, {kind})"

    def ramp(self, e: Ramp) -> str:
        """Return a vector of evenly spaced values as data."""
        dtype, scalar = e.dtype, element_of(e.dtype)
        kind = self.helpers.vector(dtype)
        steps = f"({kind}){{{', '.join(map(str, range(e.lanes)))}}}"
        splat = self.helpers.splat(dtype)
        if not (isinstance(e.stride, IntImm) and e.stride.value == 1):
            steps = f"{splat}(({c_type(scalar)}){self.value(e.stride)}) * {steps}"
        return f"({splat}(({c_type(scalar)}){self.value(e.base)}) + {steps})"

    def shuffle(self, e: Shuffle) -> str:
        """Return lanes picked from vectors."""
        names, lets = [], []
        for v in e.vectors:
            temporary = self.name(object(), "lanes")
            names.append(temporary)
            lets.append(f"const {self.helpers.vector(v.dtype)} {temporary} = {self.value(v)};")
        each = lanes_of(e.vectors[0].dtype)
        picked = [names[i // each] + (f"[{i % each}]" if each > 1 else "") for i in e.indices]
        if is_bool(e.dtype) and (each > 1) is not (len(picked) > 1):  # a true bool is 1, in a vector -1
            picked = [f"-{lane}" for lane in picked]
        result = picked[0] if len(picked) == 1 else f"({self.helpers.vector(e.dtype)}){{{', '.join(picked)}}}"
        return f"({{ {' '.join(lets)} {result}; }})"

    # -- memory ----------------------------------------------------------------------------------------------------

    def place(self, buffer: Buffer, indices: tuple[Expr, ...], lanes: int) -> tuple[str, str | None]:
        """Return a pointer to the first element, and a vector of offsets from it unless the lanes are contiguous."""
        offset = [] if isinstance(buffer.elem_offset, IntImm) and not buffer.elem_offset.value else [buffer.elem_offset]
        even = 0
        pairs = list(zip(indices, buffer.element_strides(), strict=True))
        flat = flat_lanes(indices, buffer.element_strides()) if lanes > 1 else None
        if flat is not None and flat[1] and flat[1] == list(range(flat[1][0], flat[1][0] + lanes)):
            offset += [scalar * step for scalar, step in flat[0]] + [IntImm(flat[1][0])]
            even, pairs = 1, []
        vectors: list[str] = []
        for index, step in pairs:
            one = isinstance(step, IntImm) and step.value == 1
            if lanes_of(index.dtype) == 1 or isinstance(index, Broadcast):
                offset.append((index.value if isinstance(index, Broadcast) else index) * step)
            elif isinstance(index, Ramp) and one and isinstance(index.stride, IntImm) and index.stride.value == 1:
                offset.append(index.base)
                even += 1
            else:
                wide = with_lanes("int64", lanes)
                text = self.convert(self.value(index), index.dtype, wide)
                vectors.append(text if one else f"{text} * {self.helpers.splat(wide)}({self.index(step)})")
        total = " + ".join(self.index(o) for o in offset if not (isinstance(o, IntImm) and o.value == 0))
        pointer = self.lookup(buffer.data)
        pointer = f"({pointer} + {total})" if total else pointer
        if lanes == 1 or (even == 1 and not vectors):
            return pointer, None
        kind = self.helpers.vector(with_lanes("int64", lanes))
        if even:
            vectors.append(" + ".join([f"({kind}){{{', '.join(map(str, range(lanes)))}}}"] * even))
        return pointer, " + ".join(vectors) if vectors else f"({kind}){{0}}"

    def load(self, e: BufferLoad) -> str:
        """Return a register value, an element, or a vector of elements."""
        buffer, dtype, lanes = e.buffer, e.dtype, lanes_of(e.dtype)
        if buffer in self.names:
            return self.names[buffer]
        pointer, at = self.place(buffer, e.indices, lanes)
        if lanes == 1:
            return element(pointer)
        mask = "" if e.predicate is None else f", {self.value(e.predicate)}"
        self.helpers.vector(dtype)
        stored = self.helpers.vector_named(f"u8x{lanes}") if is_bool(dtype) else c_type(dtype)
        if at is None and not mask:
            text = f"*(const {stored}_u *){pointer}"
        elif at is None:
            text = f"{self.helpers.memory('maskload', dtype)}({pointer}{mask})"
        else:
            text = f"{self.helpers.memory('maskgather' if mask else 'gather', dtype)}({pointer}, {at}{mask})"
        return f"({text} != 0)" if is_bool(dtype) else text


def element(pointer: str) -> str:
    """Returns the element at a pointer that :meth:`CExprs.place` gave: ``A[i]`` for ``(A + i)``."""
    if not pointer.startswith("("):
        return f"{pointer}[0]"
    name, offset = pointer[1:-1].split(" + ", 1)
    return f"{name}[{offset}]"


def _integer(value: int, dtype: str) -> str:
    if is_bool(dtype):
        return str(value)
    if dtype == "uint64":
        return f"{value}ULL"
    if value == -(1 << 63):
        return "INT64_MIN"
    if dtype == "int64" or not -(1 << 31) < value < 1 << 31:
        return f"({value}LL)" if value < 0 else f"{value}LL"
    return f"({value})" if value < 0 else str(value)
