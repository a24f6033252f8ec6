"""Storage types: int4, uint4, int2, uint2, float8_e4m3fn and float8_e5m2 are kept as bytes and computed on as wider ones.

A parameter of an integer type of 2 or 4 bits is an array of bytes: along the last axis, 4 or 2 numbers share a byte, the first one
in its lowest bits, and each row begins with a byte. Every other buffer of such a type, one that a function allocates,
holds a number in each byte. A float8 is its byte everywhere.

A load gives an int32, or the byte of a float8. A conversion from float8 computes the float32, one to a storage type the
number or the byte: floats become the nearest float8, ties to even (e4m3fn: NaN beyond 448, e5m2: infinity beyond 57344, as
in ml_dtypes), and the integer that truncation gives, saturated; integers keep their low bits.

A function that writes numbers of 2 or 4 bits computes them into a buffer of bytes of its own, and packs this at its end. A
byte is so written by one iteration, with whatever loops the numbers were computed, parallel ones too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .expr import (
    BinaryOp,
    BufferLoad,
    Call,
    Cast,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Not,
    Select,
    Sub,
    Var,
    const,
    make_binary,
    max_value,
    min_value,
    op,
)
from .expr.dtype import DType, float8_bias, float_bits
from .expr.intrinsics import KEEPS_NUMBERS, OPERATIONS
from .expr.node import Mapper
from .stmt import Allocate, Buffer, BufferStore, Evaluate, For, IfThenElse, LetStmt, PrimFunc, Stmt, seq
from .walk import pre_order

STORED_TYPES = "stored_types"
"""The attribute of a lowered function with the storage type of each parameter, "" for others."""

STORED_NUMBERS = "stored_numbers"
"""The attribute with how many numbers a row of each such parameter has, 0 where that is not known before the call."""


WRITES_ALL = "writes_all"
"""The attribute of a function that writes every element of its outputs, whatever is in them before."""


def has_storage_types(func: PrimFunc) -> bool:
    """Return whether a parameter or a value of ``func`` is of a storage type."""
    if any([b.dtype.is_storage for b in func.buffers]):
        return True
    return any([_type_of(n).is_storage for n in pre_order(func.body)])


def _type_of(n: Any) -> DType:
    buffer = getattr(n, "buffer", None)
    found: DType = buffer.dtype if isinstance(buffer, Buffer) else getattr(n, "dtype", _VOID)
    return found


_VOID = DType("void")


def lower_storage_types(func: PrimFunc, packed: bool = True) -> PrimFunc:
    """Return ``func`` without storage types: it computes on wider ones, and its buffers hold bytes.

    Before (``A`` is int4)::

        B[i] = T.Cast("float32", A[i])

    After::

        B[i] = T.Cast("float32", T.shift_right(T.shift_left(T.Cast("int32", A[i // 2]), 28 - i % 2 * 4), 28))

    With ``packed=False``, for the interpreter, parameters hold one number in each byte as other buffers do. Otherwise
    the function has no blocks. ValueError where memory of such a type is used in a way that is not supported.
    """
    if not has_storage_types(func):
        return func
    return _Lowering(func, packed).run()


class _Lowering(Mapper):
    """The rewriting of one function. ``bytes_of``: the arrays of bytes of parameters of 2 or 4 bits."""

    def __init__(self, func: PrimFunc, packed: bool) -> None:
        self.func = func
        self.env: dict[Var, Var] = {}
        self.buffers: dict[Buffer, Buffer] = {}
        self.bytes_of: dict[Buffer, Buffer] = {}
        self.packed = {b.data: b for b in func.buffers if packed and b.dtype.per_byte > 1}

    def run(self) -> PrimFunc:
        func = self.func
        for p in func.params:
            if p not in func.buffer_map and p.dtype.is_storage:
                wide = "float32" if p.dtype.is_float else f"{p.dtype.kind}8"
                raise ValueError(
                    f"{func.name}: {p.name} is an argument of {p.dtype}, which arrays keep and numbers are not passed as; "
                    f'declare it as {wide}, and write .astype("{p.dtype}") where the narrow type is meant'
                )
        for b in func.buffers:
            if b.dtype.is_storage and b.dtype.lanes > 1:
                raise ValueError(
                    f"{func.name}: {b.name} has vectors of {b.dtype.element} as elements; let its elements be scalars"
                )
            if b.data in self.packed:
                self.bytes_of[b] = _array_of_bytes(func, b)
        stored = {n.buffer for n in pre_order(func.body) if isinstance(n, BufferStore)}
        written = [b for b in self.bytes_of if b in stored]
        for b in written:
            self.buffers[b] = Buffer(f"{b.name}_values", b.shape, _memory(b.dtype))
        body = self.visit(func.body)
        for b in written:
            body = self.around(b, self.buffers[b], body)
        buffers = {p: self.bytes_of.get(b) or self.use(b) for p, b in func.buffer_map.items()}
        types = tuple([_stored_type(func.buffer_map.get(p)) for p in func.params])
        out = PrimFunc(func.params, body, buffers, func.attrs)
        if not any(types):
            return out
        numbers = tuple([_numbers_in_a_row(func.buffer_map.get(p)) for p in func.params])
        return out.with_attr(STORED_TYPES, types).with_attr(STORED_NUMBERS, numbers)

    def around(self, b: Buffer, values: Buffer, body: Stmt) -> Stmt:
        """Return ``body`` between the loops that fill ``values`` with the numbers of ``b`` and those that pack them.

        Nothing is filled in where the function says that it writes all numbers.
        """
        loops = [n.kind for n in pre_order(body) if isinstance(n, For)]
        returns = any([isinstance(n, Call) and n.op == "tir.ret" for n in pre_order(body)])
        if returns or "thread_binding" in loops:
            raise ValueError(
                f"{self.func.name} writes {b.name}, {b.dtype}, which functions without bound threads and returns can; "
                "write one number in each byte, as int8 or uint8"
            )
        packing = _packing(self.bytes_of[b], values, b.dtype, "parallel" in loops)
        if self.func.attrs.get(WRITES_ALL):
            return Allocate(values, seq(body, packing))

        def unpacked(*at: Expr) -> Stmt:
            return BufferStore(values, Cast(values.dtype, self.number_in(b, at)), at)

        return Allocate(values, seq(_loops(b.shape, unpacked, "parallel" in loops), body, packing))

    # -- parts of the program ----------------------------------------------------------------------------------------

    def visit(self, n: Any) -> Any:
        """Return a statement without storage types; of an expression of such a type, the int32 or the byte."""
        rule = _RULES.get(type(n))
        if rule is not None:
            return rule(self, n)
        if isinstance(n, (BinaryOp, Not)) and any([c.dtype.is_storage for c in n.children()]):
            raise ValueError(f"{self.func.name}: `{n}` computes on a storage type; convert its operands first")
        return n.map_parts(self)

    def use(self, buffer: Buffer) -> Buffer:
        found = self.buffers.get(buffer)
        if found is not None:
            return found
        if buffer.data in self.packed:
            raise ValueError(
                f"{self.func.name}: {buffer.name} looks at the memory of {self.packed[buffer.data].name}, "
                f"{self.packed[buffer.data].dtype}, where only plain loads and stores of that parameter are supported"
            )
        if buffer.dtype.is_storage:
            made = buffer.with_(dtype=_memory(buffer.dtype), data=buffer.data)
            self.buffers[buffer] = made
            return made
        return buffer

    def variable(self, n: Var) -> Var:
        return self.env.get(n, n)

    def integer(self, n: IntImm) -> Expr:
        return IntImm(n.value, "int32") if n.dtype.is_storage else n

    def fraction(self, n: FloatImm) -> Expr:
        return IntImm(float_bits(n.value, n.dtype), "uint8") if n.dtype.is_storage else n

    def let(self, n: Let | LetStmt) -> Any:
        if not n.var.dtype.is_storage:
            return n.map_parts(self)
        var = self.env[n.var] = Var(n.var.name, _value(n.var.dtype))
        return type(n)(var, self.visit(n.value), self.visit(n.body))

    def load(self, n: BufferLoad) -> Expr:
        if n.buffer in self.bytes_of and n.buffer not in self.buffers:
            predicate = None if n.predicate is None else self.visit(n.predicate)
            return self.number_in(n.buffer, [self.visit(i) for i in n.indices], predicate)
        made: Expr = n.map_parts(self)
        return Cast(_value(n.dtype), made) if n.dtype.is_storage and n.dtype.is_int else made

    def number_in(self, buffer: Buffer, at: Sequence[Expr], predicate: Expr | None = None) -> Expr:
        """Return the number, in int32, at these indices of a parameter of 2 or 4 bits."""
        bits, per, place = buffer.dtype.bits, buffer.dtype.per_byte, tuple(at)
        low: Expr = const(0, "int32")
        if place:
            count = const(per, place[-1].dtype)
            low = op.cast("int32", make_binary(FloorMod, place[-1], count) * bits)
            place = (*place[:-1], make_binary(FloorDiv, place[-1], count))
        byte = BufferLoad(self.bytes_of[buffer], place, predicate)
        lanes = byte.dtype.lanes
        value, low = op.cast("int32", byte), op._widen(low, lanes)
        mask = const((1 << bits) - 1, value.dtype)
        if not buffer.dtype.is_signed:
            return Call("tir.bitwise_and", (_shift("right", value, low), mask), value.dtype)
        rest = const(32 - bits, value.dtype)
        return _shift("right", _shift("left", value, rest - low), rest)

    def store(self, n: BufferStore) -> Stmt:
        made = n.map_parts(self)
        if not n.buffer.dtype.is_storage or not n.buffer.dtype.is_int:
            return made
        return made.with_(value=op.cast(_memory(n.buffer.dtype).element, made.value))

    def cast(self, n: Cast) -> Expr:
        value, source = self.visit(n.value), n.value.dtype
        if source.is_storage and source.is_float:
            value = _float8_value(value, source)
        return _coded(value, n.dtype) if n.dtype.is_storage else op.cast(n.dtype.element, value)

    def call(self, n: Call) -> Expr:
        types = [a.dtype for a in n.args if a.dtype.is_storage]
        if not types and not n.dtype.is_storage:
            return n.map_parts(self)
        if n.op == "tir.reinterpret" and all([d.bits == 8 for d in (n.dtype, n.args[0].dtype)]):
            made = self.visit(n.args[0])
            to = _value(n.dtype) if n.dtype.is_storage else n.dtype
            return made if made.dtype == to else Call(n.op, (made,), to)
        if n.op in OPERATIONS and OPERATIONS[n.op].as_stored:
            return Call(n.op, tuple([self.visit(a) for a in n.args]), n.dtype)
        if n.op not in KEEPS_NUMBERS:
            raise ValueError(
                f"{self.func.name}: `{n}` is of {(types or [n.dtype])[0]}, which {n.op.removeprefix('tir.')} does not take"
            )
        if n.op == "tir.address_of" and isinstance(n.args[0], BufferLoad) and n.args[0].buffer.data in self.packed:
            raise ValueError(
                f"{self.func.name}: the address of an element of {n.args[0].buffer.name}, {n.args[0].buffer.dtype}, which shares its byte"
            )
        if n.op == "tir.address_of":
            return Call(n.op, tuple([a.map_parts(self) for a in n.args]), n.dtype)
        if n.op == "tir.type_annotation":
            return Call(n.op, (), _memory(n.dtype))
        return Call(n.op, tuple([self.visit(a) for a in n.args]), _value(n.dtype))


_RULES: dict[type, Callable[[_Lowering, Any], Any]] = {
    BufferLoad: _Lowering.load,
    BufferStore: _Lowering.store,
    Call: _Lowering.call,
    Cast: _Lowering.cast,
    FloatImm: _Lowering.fraction,
    IntImm: _Lowering.integer,
    Let: _Lowering.let,
    LetStmt: _Lowering.let,
    Var: _Lowering.variable,
}


def byte_shape(shape: Sequence[Expr], dtype: str) -> tuple[Expr, ...]:
    """Return the shape of the array of bytes that holds an array of integers of 2 or 4 bits.

    >>> byte_shape([const(3), const(5)], "int4")
    (3, 3)
    """
    per = DType(dtype).per_byte
    return (*shape[:-1], make_binary(FloorDiv, shape[-1] + (per - 1), const(per, shape[-1].dtype))) if shape else ()


def _array_of_bytes(func: PrimFunc, b: Buffer) -> Buffer:
    """Return the buffer of the bytes of a parameter; ValueError where its elements do not follow one another."""
    if b.strides or not op.is_const_int(b.elem_offset, 0):
        raise ValueError(
            f"{func.name}: {b.name} has strides or an offset, which count bytes that {b.dtype} shares; pass it without gaps"
        )
    return Buffer(b.name, byte_shape(b.shape, b.dtype), DType("uint8"), b.scope, data_alignment=b.data_alignment)


def _stored_type(b: Buffer | None) -> str:
    return "" if b is None or not b.dtype.is_storage else str(b.dtype)


def _numbers_in_a_row(b: Buffer | None) -> int:
    last = None if b is None or not b.shape else b.shape[-1]
    return last.value if isinstance(last, IntImm) else 0


def _memory(dtype: DType) -> DType:
    """Return the type of a byte that holds one number."""
    return DType("int8" if dtype.is_signed else "uint8").with_lanes(dtype.lanes)


def _value(dtype: DType) -> DType:
    """Return the type of a value in a program without storage types."""
    return DType("int32" if dtype.is_int else "uint8").with_lanes(dtype.lanes)


def _packing(data: Buffer, values: Buffer, dtype: DType, parallel: bool) -> Stmt:
    """Return loops that pack the numbers in ``values``: of each row whole bytes in vectors, then what is left."""
    per = dtype.per_byte

    def joined(row: Sequence[Expr], byte: Expr, count: int) -> Stmt:
        out: Expr = const(0, "uint8")
        for q in range(count):
            number = op.cast("uint8", BufferLoad(values, (*row, byte * per + q)))
            number = _shift("left", _both(number, (1 << dtype.bits) - 1), const(dtype.bits * q, "uint8"))
            out = number if q == 0 else Call("tir.bitwise_or", (out, number), number.dtype)
        return BufferStore(data, out, (*row, byte))

    if not values.shape:
        return BufferStore(data, _both(op.cast("uint8", BufferLoad(values, ())), (1 << dtype.bits) - 1), ())
    last = values.shape[-1]
    count, zero = const(per, last.dtype), const(0, last.dtype)
    whole, rest = make_binary(FloorDiv, last, count), make_binary(FloorMod, last, count)

    def row(*at: Expr) -> Stmt:
        parts: list[Stmt] = []
        if isinstance(whole, IntImm) and whole.value >= _LANES:
            v, lane = (Var(name, last.dtype) for name in ("byte", "lane"))
            inner = For(lane, zero, const(_LANES, v.dtype), "vectorized", joined(at, v * _LANES + lane, per))
            parts.append(For(v, zero, const(whole.value // _LANES, v.dtype), "serial", inner))
        done = const(whole.value // _LANES * _LANES, last.dtype) if isinstance(whole, IntImm) else zero
        left = make_binary(Sub, whole, done)
        if not op.is_const_int(left, 0):
            v = Var("byte", last.dtype)
            parts.append(For(v, zero, left, "serial", joined(at, done + v, per)))
        if isinstance(rest, IntImm):
            parts.extend([joined(at, whole, rest.value)] if rest.value else ())
        else:
            parts.extend([IfThenElse(rest.equal(const(n, rest.dtype)), joined(at, whole, n)) for n in range(1, per)])
        return seq(*parts) if parts else Evaluate(IntImm(0))

    return _loops(values.shape[:-1], row, parallel, 1)


_LANES = 32
"""The bytes of a vector that are packed at once."""


def _loops(shape: Sequence[Expr], body: Callable[..., Stmt], parallel: bool, inside: int = 0) -> Stmt:
    """Return loops over all places of a shape around a statement.

    The statement has ``inside`` loops of its own. The first of several loops may be parallel.
    """
    loop_vars = [Var(f"i{n}", e.dtype) for n, e in enumerate(shape)]
    out = body(*loop_vars)
    for n, v in reversed([*enumerate(loop_vars)]):
        kind = "parallel" if parallel and n == 0 and len(shape) + inside > 1 else "serial"
        out = For(v, const(0, v.dtype), shape[n], kind, out)
    return out


def _shift(way: str, a: Expr, by: Expr) -> Expr:
    return Call(f"tir.shift_{way}", (a, by), a.dtype)


def _both(a: Expr, mask: int) -> Expr:
    return Call("tir.bitwise_and", (a, const(mask, a.dtype)), a.dtype)


def _named(value: Expr, name: str, body: Callable[[Expr], Expr]) -> Expr:
    """Return ``body`` of a value that is computed once."""
    var = Var(name, value.dtype)
    return Let(var, value, body(var))


def _bits_of(value: Expr, dtype: str) -> Expr:
    return Call("tir.reinterpret", (value,), DType(dtype).with_lanes(value.dtype.lanes))


def _coded(value: Expr, dtype: DType) -> Expr:
    """Return a number as a value of a storage type: an int32, or a byte."""
    if dtype.is_float:
        return _float8_byte(op.cast("float32", value), dtype)
    source, value = value.dtype, op.cast("int32", value)
    if source.is_float:
        low, high = (const(f(dtype.element), value.dtype) for f in (min_value, max_value))
        return op.max_(op.min_(value, high), low)
    if source.is_bool:
        return value
    if not dtype.is_signed:
        return _both(value, (1 << dtype.bits) - 1)
    rest = const(32 - dtype.bits, value.dtype)
    return _shift("right", _shift("left", value, rest), rest)


def _float8_value(byte: Expr, dtype: DType) -> Expr:
    """Return the float32 of a float8 by way of the float16 with the same bits.

    e5m2 is the upper half of a float16. e4m3fn has one bit less of the exponent, whose bias is 8 less.
    """

    def value(b: Expr) -> Expr:
        wide = op.cast("uint16", b)
        if dtype.kind == "float8_e5m2":
            return op.cast("float32", _bits_of(_shift("left", wide, const(8, wide.dtype)), "float16"))
        size = _both(wide, 0x7F)
        sign = _shift("left", _both(wide, 0x80), const(8, wide.dtype))
        half = Call("tir.bitwise_or", (sign, _shift("left", size, const(7, wide.dtype))), wide.dtype)
        small = op.cast("float32", _bits_of(half, "float16"))
        nan = const(float("nan"), small.dtype)
        return Select(size.equal(const(0x7F, size.dtype)), nan, small * const(256.0, small.dtype))

    return _named(byte, "byte", value)


def _float8_byte(x: Expr, dtype: DType) -> Expr:
    """Return the byte of the float8 that is nearest to a float32, ties to even; see :func:`.expr.dtype.float8_to_bits`."""
    mantissa, bias = float8_bias(dtype.kind)
    shift, exponent = 23 - mantissa, 24 - bias - mantissa
    magic = const(2.0**exponent, x.dtype)

    def byte(bits: Expr) -> Expr:
        size = op.min_(_both(bits, 0x7FFFFFFF), const(0x7F800001, bits.dtype))  # a NaN is one more than infinity
        sign = _both(_shift("right", bits, const(24, bits.dtype)), 0x80)
        return _named(size, "size", lambda s: op.cast("uint8", Call("tir.bitwise_or", (sign, code(s)), bits.dtype)))

    def code(size: Expr) -> Expr:
        by = const(shift, size.dtype)
        even = size + ((1 << (shift - 1)) - 1) + _both(_shift("right", size, by), 1)
        normal = _shift("right", even, by) - ((127 - bias) << mantissa)
        small = _bits_of(_bits_of(size, "float32") + magic, "int32") - ((127 + exponent) << 23)
        found = Select(size < ((128 - bias) << 23), small, normal)
        if dtype.kind == "float8_e4m3fn":
            return op.min_(found, const(0x7F, size.dtype))
        return Select(size > 0x7F800000, const(0x7E, size.dtype), op.min_(found, const(0x7C, size.dtype)))

    return _named(_bits_of(x, "int32"), "bits", byte)
