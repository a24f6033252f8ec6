"""What is in scope while LLVM IR is emitted: the function under construction, earlier loads, indices, and addresses."""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Sequence

from ...tir.arith.normal_form.forms import Linear, add_into, collect
from ...tir.expr import DType, index_like
from ...tir.expr import nodes as E
from ...tir.stmt import Buffer, For
from ...tir.walk import pre_order
from ..backend.analyses import Effects
from ..backend.emitter import CACHE_LINE, Emitter, EmitterTables, Unit, constant_of, power_of_two
from ..lane_offsets import Products
from ..lowered import LoweredFunc
from .function_builder import (
    FunctionBuilder,
    InsertionPoint,
    align_of,
    llvm_type,
    memory_type,
    product,
    sum_text,
    vector_constant,
)

_INDEX_OPERATIONS = {">>": "ashr", "&": "and", "u//": "udiv", "u%": "urem"}
"""Instructions by the operation; sums and products are linear forms here."""

OPAQUE_ARCHITECTURES = frozenset(("x86_64", "aarch64"))
"""Where remainders are hidden from LLVM's analysis of loops, which reads one as its operand less a multiple of a quotient.

The operand may be an outer loop's variable. The constants of addresses then move into the sum for that loop, so that
each address of an unrolled body counts as one of its own, and the pass that picks the loop's pointers compares each
with all others: it took nine tenths of the time for machine code of convolutions. Hidden values cost no instruction.
"""

_ARITHMETIC = frozenset((E.Var, E.IntImm, E.Add, E.Sub, E.Mul))


def _never_faults(e: object) -> bool:
    """Returns whether integer arithmetic may be computed although its result is not needed."""
    if isinstance(e, (E.FloorDiv, E.FloorMod)):
        return isinstance(e.b, E.IntImm) and e.b.value > 0
    return type(e) in _ARITHMETIC


class LlvmUnit(Unit):
    """The parts that the functions of one module share: declarations and the functions outlined so far."""

    def __init__(self, lowered: LoweredFunc, tables: EmitterTables) -> None:
        super().__init__(lowered, tables)
        self.declarations: dict[str, str] = {}
        self.functions: list[str] = []
        self.outlined = 0
        self.metadata: dict[str, int] = {}
        self.effects = Effects(self.calls_out)

    def node(self, text: str) -> str:
        """Return the name of a metadata node, which is written once."""
        return f"!{self.metadata.setdefault(text, len(self.metadata))}"

    def builder(self, header: str, name: str, caller: FunctionBuilder | None = None) -> FunctionBuilder:
        """Return a builder of a function of the module, which is called where ``caller`` is at present."""
        return FunctionBuilder(header, self.declarations)

    def named_metadata(self) -> list[str]:
        """Return the module's named metadata."""
        return []

    def outline(self, type_: str, stem: str, definition: str) -> str:
        """Return the name of a function, which is defined once: ``definition`` begins at its parameters."""
        name = f"{stem}_{hashlib.sha256(f'{type_}{definition}'.encode()).hexdigest()[:12]}"
        text = f"define internal {type_} @{name}{definition}"
        if text not in self.functions:
            self.functions.append(text)
        return name


class LlvmScope(Emitter[str]):
    """The state of an emitter of LLVM IR. The modules of this folder emit nodes with it."""

    unit: LlvmUnit

    def __init__(self, unit: LlvmUnit, fn: FunctionBuilder) -> None:
        super().__init__(unit)
        self.fn = fn
        self.streaming = 0
        """Whether stores are non-temporal: 1 where the emitter proves that they are aligned, 2 where full vectors are
        known to be."""
        self.streamed = False
        self.failure: str | None = None
        """In a parallel region: the address where the number of a failure is left for the caller. None: the function
        returns it."""
        self.leaving: dict[str, str] = {}
        """For each block of scratch memory, the label where it and the earlier ones are given back."""
        self.reason: str | None = None
        """The address of the function's return value in the meantime."""
        self.own_memory: set[str] = set()
        """Pointers to scratch memory, aligned to a cache line."""
        self.places: dict[E.Var, InsertionPoint] = {}
        """The heads of the loops around, by their variables."""
        self.multiples: dict[str, int] = {}
        """What numbers remainders are multiples of, where that is more than 1."""
        self._versions: dict[E.Var, int] = {}
        self._clock = 0

    def type(self, e: E.Expr) -> str:
        """Return the LLVM type of an expression's value."""
        return llvm_type(e.dtype)

    def values(self, exprs: Sequence[E.Expr]) -> list[str]:
        """Return the values of several expressions."""
        return list(map(self.value, exprs))

    def splat(self, value: str, dtype: str, lanes: int) -> str:
        return self.fn.splat(value, llvm_type(dtype), lanes)

    # -- what the modules ask of each other --------------------------------------------------------------------------

    @abstractmethod
    def address(self, e: E.BufferLoad) -> str:
        """Return the address of the first lane of an access."""

    @abstractmethod
    def contiguous_address(self, e: E.BufferLoad) -> str | None:
        """Return the address of the first lane, or None unless the lanes are contiguous in memory and all are read."""

    @abstractmethod
    def float_extreme(self, largest: bool, x: str, y: str, dtype: DType, x_is_number: bool = False) -> str:
        """Return Min or Max of floats, NaN if either is NaN."""

    @abstractmethod
    def converted(self, text: str, source: DType, to: DType, in_range: bool = False) -> str:
        """Return a value in another type."""

    def divisor_range(self, e: E.Expr) -> tuple[int | None, int | None]:
        """Return a constant divisor, or None, and the least value that a lane of it can have, or None."""
        constant = constant_of(e)
        return (constant, constant) if isinstance(constant, int) else (None, None)

    def picked(self, e: E.BufferLoad, offset: Linear, distance: int) -> str | None:
        """Return the lanes that a load reads ``distance`` elements apart, or None where a gather is to read them."""
        return None

    def half_conversion(self, text: str, source: DType, to: DType, in_range: bool = False) -> str:
        """Return a value converted from or to float16 or bfloat16."""
        raise self.error(f"no conversion from {source} to {to}")

    @abstractmethod
    def run_loop(self, s: For, low: str, high: str, may_be_empty: bool) -> None:
        """Emit the blocks of a loop over ``[low, high)``."""

    def check(self, holds: str, code: str) -> None:
        """Emit code that continues when ``holds``, and otherwise gives scratch memory back and ends with ``code``."""
        raise self.error("nothing here ends a function early")

    # -- loads, emitted once ---------------------------------------------------------------------------------------

    def version(self, data: E.Var) -> int:
        """Return a number that changes when memory behind a pointer is written."""
        return self._versions[data] if data in self._versions else 0

    def cached_load(self, buffer: Buffer, text: str) -> str:
        """Return a load, which is emitted once as long as nothing is stored to the buffer."""
        key = f"{text} ;{self.version(buffer.data)}"
        known = self.fn.recall(key)
        return known if known is not None else self.fn.remember(key, self.fn.emit(text))

    def touch(self, *data: E.Var) -> None:
        """Forget earlier loads through these pointers, because the memory was written."""
        self._clock += 1
        for var in data:
            self._versions[var] = self._clock

    def order_nontemporal_stores(self) -> None:
        """Emit the fence that orders non-temporal stores with all others before the function ends."""
        if self.streamed and self.target.arch == "x86_64":
            self.fn.do(self.fn.intrinsic("llvm.x86.sse.sfence", "void", [], []))

    def from_memory(self, text: str, dtype: DType) -> str:
        """Convert a value from its form in memory to the form for computation (bools take a byte in memory)."""
        if not dtype.is_bool:
            return text
        zero = "0" if dtype.lanes == 1 else "zeroinitializer"
        return self.fn.pure(f"icmp ne {memory_type(dtype)} {text}, {zero}")

    def to_memory(self, text: str, dtype: DType) -> str:
        """Convert a value in the direction opposite to :meth:`from_memory`."""
        if not dtype.is_bool:
            return text
        return self.fn.pure(f"zext {llvm_type(dtype)} {text} to {memory_type(dtype)}")

    def lanes_compared(self, steps: list[int], how: str, distance: Linear, reach: int) -> str:
        """Return which of the numbers ``steps``, one a lane, compare with a distance as ``how`` says.

        A distance that is not within ``reach``, which all steps are, may stand for any other beyond it.
        """
        fn, lanes = self.fn, len(steps)
        low = fn.called("llvm.smax.i64", "i64", sum_text(distance, fn), str(-reach))
        clamped = fn.called("llvm.smin.i64", "i64", low, str(reach))
        narrow = fn.pure(f"trunc i64 {clamped} to i32")
        return fn.pure(
            f"icmp {how} <{lanes} x i32> {vector_constant(steps, 'i32')}, {self.splat(narrow, 'int32', lanes)}"
        )

    # -- indices ---------------------------------------------------------------------------------------------------

    def linear(self, e: E.Expr) -> Linear:
        """Return the scalar integer ``e`` as a sum. Parts that are not sums, or that wrap around in their own type
        (arithmetic on data, which reads memory), become operands."""
        if type(e) is E.Broadcast:
            return self.linear(e.value)
        if type(e) is E.IntImm:
            return Linear(e.value)
        form = self.fn.recall(e)  # unrolled copies share their expressions
        if form is None:
            form = collect(e, self._term) if index_like(e) else self._term(e)
            self.fn.remember(e, form)
        return form

    def _term(self, e: E.Expr) -> Linear:
        if isinstance(e, E.Mul) and index_like(e):
            return product(self.linear(e.a), self.linear(e.b), self.fn)
        return Linear(0, {self._operand(e): 1})

    def index(self, e: E.Expr) -> str:
        return sum_text(self.linear(e), self.fn)

    def index_value(self, e: E.Expr) -> str:
        text = self.index(e)
        if self.type(e) == "i64" or not text.startswith("%"):
            return text
        return self.fn.pure(f"trunc i64 {text} to {self.type(e)}")

    def computes_index(self, e: E.Expr) -> bool:
        return any(isinstance(n, E.Var) and n in self.indices for n in pre_order(e))

    def _operand(self, e: E.Expr) -> str:
        """Return the i64 value of an expression that is not a sum."""
        if isinstance(e, E.Var) and e in self.indices:
            return self.lookup(e)
        if index_like(e):
            if isinstance(e, (E.FloorDiv, E.FloorMod)):
                return self._floor(e)
            if isinstance(e, (E.Min, E.Max)):
                return self.index_operation("min" if isinstance(e, E.Min) else "max", self.index(e.a), self.index(e.b))
            if isinstance(e, E.Cast):
                return self.index(e.value)
        return self.widened(self.value(e), e.dtype)

    def widened(self, value: str, dtype: DType) -> str:
        type_ = llvm_type(dtype)
        extend = "zext" if dtype.startswith(("u", "b")) else "sext"
        return value if type_ == "i64" else self.fn.pure(f"{extend} {type_} {value} to i64")

    def index_operation(self, operation: str, a: str, b: str) -> str:
        if operation in ("min", "max"):
            return self.fn.called(f"llvm.s{operation}.i64", "i64", a, b)
        return self.fn.pure(f"{_INDEX_OPERATIONS[operation]} i64 {a}, {b}")

    def _floor(self, e: E.BinaryOp) -> str:
        """Returns a quotient or remainder. One of loops' variables by a number is computed at the head of the innermost of
        these loops."""
        parts = list(pre_order(e))
        places = [self.places.get(n) for n in parts if isinstance(n, E.Var)]
        place = max((p for p in places if p is not None), key=lambda p: p.line, default=None)
        if place is None or None in places or not all(map(_never_faults, parts)):
            text = self._divided(e)
        else:
            text = self.fn.hoisted(place, lambda: self._divided(e))
        if isinstance(e, E.FloorMod) and isinstance(e.b, E.IntImm) and text.startswith("%"):
            step = math.gcd(e.b.value, self.step_of(self.linear(e.a)))
            if step > 1:
                self.multiples[text] = step
        return text

    def step_of(self, offset: Linear) -> int:
        """Return a number of which a sum is a multiple; 0 where it is 0."""
        return math.gcd(offset.const, *[factor * self.multiples.get(text, 1) for text, factor in offset.terms.items()])

    def _divided(self, e: E.BinaryOp) -> str:
        a, quotient, bits = self.index(e.a), isinstance(e, E.FloorDiv), power_of_two(e.b)
        if bits is not None:  # an arithmetic shift and a mask round down for negative numbers too
            return (
                self.index_operation(">>", a, str(bits))
                if quotient
                else self.index_operation("&", a, str((1 << bits) - 1))
            )
        if isinstance(e.b, E.IntImm) and e.b.value > 0 and self.is_nonnegative(e.a):
            found = self.index_operation("u//" if quotient else "u%", a, str(e.b.value))
            return found if quotient or self.target.arch not in OPAQUE_ARCHITECTURES else self.fn.opaque(found)
        return self.quotient(e, a, self.index(e.b), DType("int64"))

    def is_nonnegative(self, e: E.Expr) -> bool:
        """Return whether an index is known not to be negative."""
        low = self.analyzer.const_int_bound(e)[0]
        return low is not None and low >= 0

    def vector_index(self, e: E.Expr, lanes: int) -> str:
        """Return a vector index as i64 lanes."""
        text = self.value(e)
        if e.dtype.bits == 64:
            return text
        how = "sext" if e.dtype.is_signed else "zext"
        return self.fn.pure(f"{how} {self.type(e)} {text} to <{lanes} x i64>")

    # -- addresses -------------------------------------------------------------------------------------------------

    def total(self, products: Products) -> Linear:
        """Return a sum of products."""
        const, terms = 0, dict[str, int]()
        for index, step in products:
            form, factor = self.linear(index), 1
            if isinstance(step, E.IntImm):
                factor = step.value
            else:
                form = product(form, self.linear(step), self.fn)
            const += factor * form.const
            add_into(terms, form.terms, factor)
        return Linear(const, terms)

    def pointer(self, buffer: Buffer, offset: Linear) -> str:
        """Return the address of an element. The variable part comes first, then the constant part, which addressing
        modes absorb."""
        element, pointer = memory_type(buffer.dtype.element), self.base(buffer)
        if offset.terms:
            varying = sum_text(Linear(0, offset.terms), self.fn)
            pointer = self.fn.pure(f"getelementptr {element}, ptr {pointer}, i64 {varying}")
        if offset.const:
            pointer = self.fn.pure(f"getelementptr {element}, ptr {pointer}, i64 {offset.const}")
        return pointer

    def alignment(self, buffer: Buffer, offset: Linear, dtype: DType) -> int:
        """Return a guaranteed alignment of a vector access in bytes. Scratch memory begins at a cache line."""
        sure = align_of(dtype)
        if dtype.lanes == 1 or self.bases.get(buffer.data) not in self.own_memory:
            return sure
        step = self.step_of(offset) * dtype.element.bytes
        return max(sure, math.gcd(step, CACHE_LINE))
