"""Emits expressions: scalars and vectors as SSA values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...tir.arith import Analyzer
from ...tir.buffer import Buffer
from ...tir.dtype import (
    bits_of,
    bytes_of,
    element_of,
    is_bool,
    is_float,
    is_int,
    is_signed,
    lanes_of,
    with_lanes,
)
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
    Var,
)
from ...tir.index_types import index_like
from ...tir.walk import pre_order
from .casts import emit_cast
from .function_builder import FunctionBuilder
from .index_arithmetic import Linear, index_text, linear, linear_text
from .integer_division import divide
from .llvm_calls import emit_call, is_external_call
from .llvm_types import align_of, float_constant, llvm_type, splat_constant, vector_constant
from .loads_stores import address, load


class EmitError(ValueError):
    """Raised for a construct in the lowered function without a machine form. The message is for the developer of a
    pass."""


class ModuleParts:
    """The parts that functions of one module share: declarations and the functions outlined so far."""

    def __init__(self) -> None:
        self.declarations: dict[str, str] = {}
        self.functions: list[str] = []
        self.outlined = 0
        self.metadata: dict[str, str] = {}
        self.on_stack: frozenset[Buffer] = frozenset()
        """Scratch buffers on the stack."""
        self.tiles = False
        """Whether some instruction uses tile registers, which the operating system has to allow first."""
        self.calls_out = False
        """Whether some call may write memory in a way that the emitter cannot see."""
        self.assertions: dict[int, int] = {}
        """Numbers of the assertions by identity, in the order of the text: what a function returns when one fails."""


CACHE_LINE = 64
"""Scratch memory, on the stack and from the runtime, begins at a multiple of so many bytes."""
_INT_OPS: dict[type, str] = {Add: "add", Sub: "sub", Mul: "mul"}
_FLOAT_OPS: dict[type, str] = {Add: "fadd", Sub: "fsub", Mul: "fmul", Div: "fdiv"}
_COMPARE: dict[type, tuple[str, str, str]] = {  # float, signed, unsigned
    EQ: ("oeq", "eq", "eq"),
    NE: ("une", "ne", "ne"),
    LT: ("olt", "slt", "ult"),
    LE: ("ole", "sle", "ule"),
    GT: ("ogt", "sgt", "ugt"),
    GE: ("oge", "sge", "uge"),
}


class ExprEmitter:
    """An emitter of expressions as values of the function under construction."""

    def __init__(self, fn: FunctionBuilder, parts: ModuleParts, target: Any) -> None:
        self.fn = fn
        self.parts = parts
        self.target = target
        self.analyzer = Analyzer()
        self.vars: dict[Var, str] = {}
        """Values of variables: i64 for those in ``indices``, else of their own type."""
        self.indices: set[Var] = set()
        self.meanings: dict[Var, Expr] = {}
        """The values of the integer variables of data, from which their ranges follow."""
        self.bases: dict[Var, str] = {}
        self.registers: dict[Buffer, str] = {}
        self.versions: dict[Var, int] = {}
        self.own_memory: set[str] = set()
        """Pointers to scratch memory, aligned to a cache line."""
        self._clock = 0

    # -- pieces the other modules use ----------------------------------------------------------------------------

    def type(self, e: Expr) -> str:
        """Return the LLVM type of an expression's value."""
        return llvm_type(e.dtype)

    def intrinsic(self, name: str, ret: str, types: Sequence[str], args: Sequence[str]) -> str:
        """Return the text of a call, whose function is declared once in the module."""
        self.parts.declarations.setdefault(name, f"declare {ret} @{name}({', '.join(types)})")
        return f"call {ret} @{name}({', '.join(f'{t} {a}' for t, a in zip(types, args, strict=True))})"

    def base(self, buffer: Buffer) -> str:
        """Return the pointer to a buffer's data."""
        try:
            return self.bases[buffer.data]
        except KeyError:
            raise EmitError(f"buffer {buffer.name} has no memory here: it is neither parameter nor allocated") from None

    def address(self, e: BufferLoad) -> str:
        """Return the address of the (first) element that a load reads."""
        return address(self, e)

    def index_var(self, var: Var) -> str:
        """Return the i64 value of an integer variable."""
        text = self.lookup(var)
        if var in self.indices:
            return text
        type_ = llvm_type(var.dtype)
        if type_ == "i64":
            return text
        return self.fn.pure(f"{'sext' if is_signed(var.dtype) else 'zext'} {type_} {text} to i64")

    def lookup(self, var: Var) -> str:
        """Return the value of a variable."""
        try:
            return self.vars[var]
        except KeyError:
            raise EmitError(f"variable {var.name} is not defined here") from None

    def splat(self, text: str, dtype: str, lanes: int) -> str:
        """Return a vector with a scalar of type ``dtype`` in every lane."""
        base = llvm_type(dtype)
        if not text.startswith("%"):
            return splat_constant(text, with_lanes(dtype, lanes))
        wide = f"<{lanes} x {base}>"
        first = self.fn.pure(f"insertelement {wide} poison, {base} {text}, i64 0")
        return self.fn.pure(f"shufflevector {wide} {first}, {wide} poison, <{lanes} x i32> zeroinitializer")

    def reverse(self, text: str, dtype: str) -> str:
        """Return the lanes in opposite order."""
        lanes, type_ = lanes_of(dtype), llvm_type(dtype)
        order = vector_constant(list(range(lanes - 1, -1, -1)), "i32")
        return self.fn.pure(f"shufflevector {type_} {text}, {type_} poison, <{lanes} x i32> {order}")

    def cached_load(self, buffer: Buffer, text: str) -> str:
        """Return a load, which is emitted once as long as nothing is stored to the buffer."""
        version = self.versions.get(buffer.data, 0)
        key = f"{text} ;{version}"
        known = self.fn.recall(key)
        return known if known is not None else self.fn.remember(key, self.fn.emit(text))

    def written(self, *buffers: Buffer) -> None:
        """Forget earlier loads from these buffers, because they were written."""
        self._clock += 1
        for buffer in buffers:
            self.versions[buffer.data] = self._clock

    def wrote(self, data: Var) -> None:
        """Do the same as :meth:`written` for the memory behind a pointer."""
        self._clock += 1
        self.versions[data] = self._clock

    def alignment(self, buffer: Buffer, offset: Linear, dtype: str) -> int:
        """Return a guaranteed alignment of a vector access in bytes. Scratch memory begins at a cache line."""
        sure = align_of(dtype)
        if lanes_of(dtype) == 1 or self.bases.get(buffer.data) not in self.own_memory:
            return sure
        step = math.gcd(offset.const, *offset.terms.values()) * bytes_of(element_of(dtype))
        return max(sure, math.gcd(step, CACHE_LINE))

    def store_place(self, buffer: Buffer, offset: Linear, dtype: str) -> tuple[int, str]:
        """Return alignment and metadata of a plain store."""
        return self.alignment(buffer, offset, dtype), ""

    def from_memory(self, text: str, dtype: str) -> str:
        """Convert a value from its form in memory to the form for computation (bools take a byte in memory)."""
        if not is_bool(dtype):
            return text
        memory = llvm_type(with_lanes("uint8", lanes_of(dtype)))
        zero = "0" if lanes_of(dtype) == 1 else "zeroinitializer"
        return self.fn.pure(f"icmp ne {memory} {text}, {zero}")

    def to_memory(self, text: str, dtype: str) -> str:
        """Convert a value in the direction opposite to :meth:`from_memory`."""
        if not is_bool(dtype):
            return text
        return self.fn.pure(f"zext {llvm_type(dtype)} {text} to {llvm_type(with_lanes('uint8', lanes_of(dtype)))}")

    def is_nonnegative(self, e: Expr) -> bool:
        """Return whether an index is known not to be negative."""
        low = self.analyzer.const_int_bound(e)[0]
        return low is not None and low >= 0

    # -- expressions -----------------------------------------------------------------------------------------------

    def value(self, e: Expr) -> str:
        """Return the value of ``e``: a name or a literal of the type that :func:`llvm_type` gives its dtype."""
        if isinstance(e, IntImm):
            return str(e.value) if not is_bool(e.dtype) else ("true" if e.value else "false")
        if isinstance(e, FloatImm):
            return float_constant(e.value, e.dtype)
        if isinstance(e, Var):
            return self.variable(e)
        if isinstance(e, BufferLoad):
            if e.buffer in self.registers:
                return self.registers[e.buffer]
            # Unrolled copies share their expressions: the same node is the same address.
            key = (id(e), self.versions.get(e.buffer.data, 0))
            known = self.fn.recall(key)
            return known if known is not None else self.fn.remember(key, load(self, e))
        if isinstance(e, Call):
            return emit_call(self, e)
        if isinstance(e, CmpOp):
            return self.compare(e)
        if isinstance(e, (And, Or)):
            return self.logical(e)
        if isinstance(e, (Min, Max)):
            return self.extreme(e)
        if isinstance(e, BinaryOp):
            return self.arithmetic(e)
        if isinstance(e, Broadcast):
            if isinstance(e.value, (IntImm, FloatImm)):
                return splat_constant(self.value(e.value), e.dtype)
            return self.splat(self.value(e.value), e.value.dtype, e.lanes)
        if isinstance(e, Ramp):
            return self.ramp(e)
        if isinstance(e, Cast):
            return emit_cast(self, e.value, e.dtype)
        if isinstance(e, Select):
            return self.select(e.condition, self.value(e.true_value), self.value(e.false_value), e.dtype)
        if isinstance(e, Not):
            ones = "true" if lanes_of(e.dtype) == 1 else splat_constant("true", e.dtype)
            return self.fn.pure(f"xor {self.type(e)} {self.value(e.a)}, {ones}")
        if isinstance(e, Let):
            self.define(e.var, e.value)
            return self.value(e.body)
        if isinstance(e, Shuffle):
            return self.shuffle(e)
        raise EmitError(f"no machine form for {type(e).__name__}: {e}")

    def define(self, var: Var, value: Expr) -> None:
        """Bind a variable to its value; an index is 64 bits wide."""
        if index_like(var) and index_like(value):
            self.vars[var] = index_text(self, value)
            self.indices.add(var)
            self.analyzer.bind(var, value)
            return
        self.vars[var] = self.value(value)
        if is_int(var.dtype):
            self.meanings[var] = value

    def variable(self, var: Var) -> str:
        """Return the value of a variable in its own type; of a buffer's pointer, the address."""
        if var in self.bases:
            return self.bases[var]
        text = self.lookup(var)
        if var in self.indices and llvm_type(var.dtype) != "i64":
            if not text.startswith("%"):
                return text
            return self.fn.pure(f"trunc i64 {text} to {llvm_type(var.dtype)}")
        return text

    def select(self, cond: Expr, yes: str, no: str, dtype: str) -> str:
        """Return one of two values, lane by lane."""
        test = self.value(cond)
        if yes == no:
            return yes
        return self.fn.pure(f"select {self.type(cond)} {test}, {llvm_type(dtype)} {yes}, {llvm_type(dtype)} {no}")

    def compare(self, e: CmpOp) -> str:
        """Return a comparison; index arithmetic is compared in 64 bits."""
        fn, dtype = self.fn, e.a.dtype
        floats, signed, unsigned = _COMPARE[type(e)]
        if is_float(dtype):
            return fn.pure(f"fcmp {floats} {llvm_type(dtype)} {self.value(e.a)}, {self.value(e.b)}")
        if lanes_of(dtype) == 1 and index_like(e.a) and index_like(e.b):
            return fn.pure(f"icmp {signed} i64 {index_text(self, e.a)}, {index_text(self, e.b)}")
        if lanes_of(dtype) > 1 and is_signed(dtype):
            mask = self.lane_mask(e)
            if mask is not None:
                return mask
        how = signed if is_signed(dtype) else unsigned
        return fn.pure(f"icmp {how} {llvm_type(dtype)} {self.value(e.a)}, {self.value(e.b)}")

    def lane_mask(self, e: CmpOp) -> str | None:
        """Return a comparison of a ramp with one value: a constant mask, or lane numbers compared with a clamped
        distance."""
        if not (isinstance(e.a, Ramp) and isinstance(e.b, Broadcast) and isinstance(e.a.stride, IntImm)):
            return None
        if not (index_like(e.a.base) and index_like(e.b.value)):
            return None
        fn, lanes, stride = self.fn, e.a.lanes, e.a.stride.value
        gap = linear(self, e.b.value).plus(linear(self, e.a.base), -1)  # stride * lane  OP  gap
        if not gap.terms:
            holds = {EQ: int.__eq__, NE: int.__ne__, LT: int.__lt__, LE: int.__le__, GT: int.__gt__, GE: int.__ge__}
            return vector_constant([int(holds[type(e)](stride * n, gap.const)) for n in range(lanes)], "i1")
        reach = abs(stride) * lanes + 1
        if isinstance(e, (EQ, NE)) or reach >= 1 << 30:
            return None
        low = fn.pure(
            self.intrinsic("llvm.smax.i64", "i64", ["i64", "i64"], [linear_text(self, gap), str(-reach)])
        )  # beyond the reach of the lanes the distance makes no difference
        clamped = fn.pure(self.intrinsic("llvm.smin.i64", "i64", ["i64", "i64"], [low, str(reach)]))
        narrow = fn.pure(f"trunc i64 {clamped} to i32")
        steps = vector_constant([stride * n for n in range(lanes)], "i32")
        wide = self.splat(narrow, "int32", lanes)
        return fn.pure(f"icmp {_COMPARE[type(e)][1]} <{lanes} x i32> {steps}, {wide}")

    def logical(self, e: And | Or) -> str:
        """Return a conjunction or disjunction. Where the second operand reads memory or calls external functions, it is
        evaluated only when it decides the result."""
        fn, type_ = self.fn, self.type(e)
        name = "and" if isinstance(e, And) else "or"
        if lanes_of(e.dtype) == 1 and any(isinstance(n, BufferLoad) or is_external_call(n) for n in pre_order(e.b)):
            first = self.value(e.a)
            known = "false" if isinstance(e, And) else "true"
            start, more, done = fn.block, fn.new_label("more"), fn.new_label("both")
            fn.branch_if(first, *((more, done) if isinstance(e, And) else (done, more)))
            fn.push()
            fn.label(more)
            second = self.value(e.b)
            end = fn.block
            fn.branch(done)
            fn.pop()
            fn.label(done)
            phi = fn.phi("i1")
            fn.fill(phi, [(known, start), (second, end)])
            return phi.name
        return fn.pure(f"{name} {type_} {self.value(e.a)}, {self.value(e.b)}")

    def extreme(self, e: Min | Max) -> str:
        """Return the smaller or the larger of two values."""
        dtype = e.dtype
        if is_float(dtype):
            return self.float_extreme(isinstance(e, Max), e.a, e.b)
        if lanes_of(dtype) == 1 and index_like(e) and (self.uses_index(e.a) or self.uses_index(e.b)):
            text = index_text(self, e)
            return text if llvm_type(dtype) == "i64" else self.fn.pure(f"trunc i64 {text} to {llvm_type(dtype)}")
        a, b = self.value(e.a), self.value(e.b)
        how = ("s" if is_signed(dtype) else "u") + ("gt" if isinstance(e, Max) else "lt")
        test = self.fn.pure(f"icmp {how} {llvm_type(dtype)} {a}, {b}")
        return self.fn.pure(
            f"select {self.type(CmpOp(e.a, e.b))} {test}, {llvm_type(dtype)} {a}, {llvm_type(dtype)} {b}"
        )

    def float_extreme(self, largest: bool, a: Expr, b: Expr) -> str:
        """Return Min or Max of floats, NaN if either is NaN. This is one instruction when one operand is a constant
        number."""
        if _is_number(b):
            a, b = b, a
        x, y = self.value(a), self.value(b)
        return self.float_extreme_text(largest, x, y, a.dtype, _is_number(a))

    def float_extreme_text(self, largest: bool, x: str, y: str, dtype: str, x_is_number: bool = False) -> str:
        """Return :meth:`float_extreme` of two emitted values. The select gives ``y`` whenever ``y`` is NaN."""
        type_, bools = llvm_type(dtype), llvm_type(with_lanes("bool", lanes_of(dtype)))
        test = self.fn.pure(f"fcmp {'ogt' if largest else 'olt'} {type_} {x}, {y}")
        best = self.fn.pure(f"select {bools} {test}, {type_} {x}, {type_} {y}")
        if x_is_number:
            return best
        nan = self.fn.pure(f"fcmp uno {type_} {x}, {x}")
        return self.fn.pure(f"select {bools} {nan}, {type_} {x}, {type_} {best}")

    def uses_index(self, e: Expr) -> bool:
        """Return whether ``e`` contains a loop's variable."""
        return any(isinstance(n, Var) and n in self.indices for n in pre_order(e))

    def arithmetic(self, e: BinaryOp) -> str:
        """Return a sum, difference, product, quotient or remainder."""
        fn, dtype, type_ = self.fn, e.dtype, self.type(e)
        if is_float(dtype):
            if type(e) not in _FLOAT_OPS:
                raise EmitError(f"{type(e).__name__} of {dtype}")
            if isinstance(e, Mul) and isinstance(e.b, (FloatImm, Broadcast)) and _constant(e.b) == -1.0:
                return fn.pure(f"fneg {type_} {self.value(e.a)}")
            return fn.pure(f"{_FLOAT_OPS[type(e)]} {type_} {self.value(e.a)}, {self.value(e.b)}")
        if lanes_of(dtype) == 1 and is_signed(dtype) and index_like(e) and self.uses_index(e):
            text = index_text(self, e)
            return text if type_ == "i64" or not text.startswith("%") else fn.pure(f"trunc i64 {text} to {type_}")
        if type(e) in _INT_OPS:
            return fn.pure(f"{_INT_OPS[type(e)]} {type_} {self.value(e.a)}, {self.value(e.b)}")
        return divide(self, e, self.value(e.a), self.value(e.b), dtype)

    def ramp(self, e: Ramp) -> str:
        """Return a vector of evenly spaced values as data."""
        fn, lanes, scalar = self.fn, e.lanes, element_of(e.dtype)
        type_, base_type = self.type(e), llvm_type(scalar)
        base = self.splat(self.value(e.base), scalar, lanes)
        if isinstance(e.stride, IntImm):
            steps = vector_constant([e.stride.value * n for n in range(lanes)], base_type)
        else:
            stride = self.splat(self.value(e.stride), scalar, lanes)
            steps = fn.pure(f"mul {type_} {stride}, {vector_constant(list(range(lanes)), base_type)}")
        if isinstance(e.base, IntImm) and e.base.value == 0:
            return steps
        return fn.pure(f"add {type_} {base}, {steps}")

    def vector_index(self, e: Expr, lanes: int) -> str:
        """Return a vector index as i64 lanes."""
        text = self.value(e)
        if bits_of(e.dtype) == 64:
            return text
        how = "sext" if is_signed(e.dtype) else "zext"
        return self.fn.pure(f"{how} {self.type(e)} {text} to <{lanes} x i64>")

    def shuffle(self, e: Shuffle) -> str:
        """Return lanes picked from one vector or several of the same length."""
        fn = self.fn
        base = llvm_type(element_of(e.dtype))
        have = lanes_of(e.vectors[0].dtype)
        if have == 1 or len(e.indices) == 1 or len(e.vectors) > 2:
            picked = [self.lane(e, n) for n in e.indices]
            if len(picked) == 1:
                return picked[0]
            out, type_ = "poison", self.type(e)
            for n, text in enumerate(picked):
                out = fn.pure(f"insertelement {type_} {out}, {base} {text}, i64 {n}")
            return out
        type_ = f"<{have} x {base}>"
        first = self.value(e.vectors[0])
        second = self.value(e.vectors[1]) if len(e.vectors) == 2 else "poison"
        order = vector_constant(list(e.indices), "i32")
        return fn.pure(f"shufflevector {type_} {first}, {type_} {second}, <{len(e.indices)} x i32> {order}")

    def lane(self, e: Shuffle, n: int) -> str:
        """Return lane ``n`` of the vectors' concatenation."""
        for vector in e.vectors:
            lanes = lanes_of(vector.dtype)
            if n < lanes:
                text = self.value(vector)
                return text if lanes == 1 else self.fn.pure(f"extractelement {self.type(vector)} {text}, i64 {n}")
            n -= lanes
        raise EmitError("a shuffle's index is beyond its vectors")


def _constant(e: Expr) -> float | None:
    if isinstance(e, Broadcast):
        e = e.value
    return e.value if isinstance(e, (FloatImm, IntImm)) else None


def _is_number(e: Expr) -> bool:
    value = _constant(e)
    return value is not None and value == value
