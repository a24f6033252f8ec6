"""Writes one LLVM function as text: fresh names, blocks, vectors, pure values computed once, and shared sums.

It has the LLVM names of data types and constants.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from typing import Any

from ...tir.arith.normal_form.forms import Linear
from ...tir.expr import DType
from ...tir.expr.dtype import float_bits, round_float


@cache
def llvm_type(dtype: str) -> str:
    """Returns the type of a value: ``float``, ``<16 x float>``, ``i1`` for bool, ``i16`` for bfloat16."""
    known = DType(dtype)
    kind, bits, lanes = known.kind, known.bits, known.lanes
    if kind == "float":
        base = {16: "half", 32: "float", 64: "double"}[bits]
    elif kind == "bfloat":
        base = "i16"
    elif kind == "handle":
        base = "ptr"
    elif kind == "void":
        base = "void"
    else:
        base = f"i{bits}"
    return base if lanes == 1 else f"<{lanes} x {base}>"


@cache
def memory_type(dtype: str) -> str:
    """Returns the type of an element in memory: the same as :func:`llvm_type`, but a bool takes a byte."""
    known = DType(dtype)
    kind, lanes = known.kind, known.lanes
    if kind != "bool":
        return llvm_type(dtype)
    return "i8" if lanes == 1 else f"<{lanes} x i8>"


@cache
def suffix(dtype: str) -> str:
    """Returns the type's part of an overloaded intrinsic's name: ``f32``, ``v16f32``, ``i64``."""
    known = DType(dtype)
    kind, bits, lanes = known.kind, known.bits, known.lanes
    base = f"f{bits}" if kind == "float" else f"i{max(bits, 1)}"
    return base if lanes == 1 else f"v{lanes}{base}"


def stored_suffix(dtype: DType) -> str:
    """Returns :func:`suffix` of a type in memory, where a bool takes a byte."""
    return suffix(DType("uint8").with_lanes(dtype.lanes) if dtype.is_bool else dtype)


def align_of(dtype: DType) -> int:
    """Returns the alignment of one element in bytes, which is all that a caller's array guarantees."""
    return dtype.element.bytes


def float_constant(value: float, dtype: DType) -> str:
    """Returns an exact floating-point literal: the hexadecimal bits in LLVM's form; for bfloat16, the bits as an
    integer."""
    return _literal(struct.pack("<d", value), dtype)


@lru_cache(maxsize=4096)  # tables of functions such as tanh stand in the code of each of their calls
def _literal(double: bytes, dtype: DType) -> str:
    """Returns the literal of a number in the bytes of a double, which tell 0.0 from -0.0."""
    (value,) = struct.unpack("<d", double)
    kind, bits = dtype.kind, dtype.bits
    if kind == "bfloat":
        return str(float_bits(value, dtype))
    if bits == 16:
        return f"0xH{float_bits(value, dtype):04X}"
    return f"0x{float_bits(round_float(value, dtype), 'float64'):016X}"


def splat_constant(text: str, dtype: DType) -> str:
    """Returns ``text``, a scalar literal, in every lane of ``dtype``."""
    lanes = dtype.lanes
    if lanes == 1:
        return text
    return f"splat ({llvm_type(dtype.element)} {text})"


def vector_constant(values: list[int], base: str) -> str:
    """Returns a vector literal of integers of the LLVM type ``base``."""
    return f"<{', '.join(f'{base} {v}' for v in values)}>"


def zero(dtype: DType) -> str:
    """Returns the zero of a type."""
    if dtype.lanes > 1:
        return "zeroinitializer"
    return "0.0" if dtype.is_float and llvm_type(dtype) != "i16" else "0"


class Phi:
    """A phi node whose incoming values become known after the loop's body is written."""

    __slots__ = ("line", "name", "type")

    def __init__(self, name: str, type_: str, line: int) -> None:
        self.name, self.type, self.line = name, type_, line


class InsertionPoint:
    """A place in a function under construction where code may still be put, and the values computed there."""

    __slots__ = ("known", "line")

    def __init__(self, line: int) -> None:
        self.line = line
        self.known: dict[Any, str] = {}


class FunctionBuilder:
    """The text of one function under construction.

    :meth:`pure` returns the same name for the same operation where the earlier one dominates (a scope per loop body and
    branch), so that repeated addresses and splats are emitted once.
    """

    def __init__(self, header: str, declarations: dict[str, str] | None = None) -> None:
        self.header = header
        self.declarations = {} if declarations is None else declarations
        """What the module declares, by the name of the function."""
        self.lines: list[str] = []
        self.allocas: list[str] = []
        self.block = "entry"
        self._next = 0
        self._hoisting = False
        self._known: dict[Any, Any] = {}
        self._scopes: list[set[Any]] = [set()]
        """What is known, and which of it was found in which region."""

    def fresh(self, hint: str = "v") -> str:
        """Return an unused name."""
        return f"%{self._numbered(hint)}"

    def new_label(self, hint: str) -> str:
        """Return an unused label."""
        return self._numbered(hint)

    def _numbered(self, hint: str) -> str:
        self._next += 1
        return (
            f"{hint}.{self._next}" if hint[-1:].isdigit() else f"{hint}{self._next}"
        )  # so that i1 with number 20 differs from i with number 120

    def push(self) -> None:
        """Enter a region whose values do not dominate what follows it."""
        self._scopes.append(set())

    def pop(self) -> None:
        """Leave the region entered last."""
        for key in self._scopes.pop():
            del self._known[key]

    def recall(self, key: Any) -> Any:
        """Return the value that :meth:`remember` stored under ``key`` here or in an enclosing region."""
        return self._known[key] if key in self._known else None

    def remember(self, key: Any, value: Any) -> Any:
        """Store a value for as long as it dominates the following code, and return it."""
        here = self._scopes[-1]
        if key in here or key not in self._known:
            here.add(key)
            self._known[key] = value
        return value

    def pure(self, text: str) -> str:
        """Return the value of an operation without effects, which is computed once per scope."""
        if text not in self._known:
            value = self.emit(text)
            self._scopes[-1].add(text)
            self._known[text] = value
        return self._known[text]

    def place(self) -> InsertionPoint:
        """Return this place, for code that is found later to belong here (:meth:`hoisted`)."""
        self.lines.append("")
        return InsertionPoint(len(self.lines) - 1)

    def hoisted(self, place: InsertionPoint, compute: Callable[[], str]) -> str:
        """Return what ``compute`` returns, whose instructions, all in one block, are written at ``place``. What it hoists
        itself, whose place is not further inside, is written there too."""
        if self._hoisting:
            return compute()
        self._hoisting, outer = True, (self.lines, self._known, self._scopes)
        self.lines, self._known, self._scopes = [], place.known, [set(place.known)]
        try:
            return compute()
        finally:
            written = self.lines
            self._hoisting = False
            self.lines, self._known, self._scopes = outer
            self.lines[place.line] = "\n".join([*filter(None, (self.lines[place.line],)), *written])

    def opaque(self, value: str) -> str:
        """Return an i64 value about which LLVM knows nothing; it costs no instruction."""
        return self.pure(f'call i64 asm "", "=r,0"(i64 {value}) nounwind willreturn memory(none)')

    def emit(self, text: str) -> str:
        """Return the value of an operation, which is computed here."""
        self._next += 1
        name = f"%v{self._next}"
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        """Write an instruction without a value."""
        self.lines.append(f"  {text}")

    def intrinsic(self, name: str, ret: str, types: Sequence[str], args: Sequence[str]) -> str:
        """Return the text of a call, whose function is declared once in the module."""
        if name not in self.declarations:
            self.declarations[name] = f"declare {ret} @{name}({', '.join(types)})"
        return f"call {ret} @{name}({', '.join([f'{t} {a}' for t, a in zip(types, args, strict=True)])})"

    def called(self, name: str, type_: str, *args: str) -> str:
        """Return the result of a pure function of operands of one type, which is the type of its result."""
        return self.pure(self.intrinsic(name, type_, [type_] * len(args), args))

    def chosen(self, bools: str, test: str, type_: str, yes: str, no: str) -> str:
        """Return one of two values, lane by lane where ``bools`` is a vector type."""
        return self.pure(f"select {bools} {test}, {type_} {yes}, {type_} {no}")

    def splat(self, text: str, base: str, lanes: int) -> str:
        """Return a vector with a value of type ``base`` in every lane."""
        if not text.startswith("%"):
            return text if lanes == 1 else f"splat ({base} {text})"
        wide = f"<{lanes} x {base}>"
        first = self.pure(f"insertelement {wide} poison, {base} {text}, i64 0")
        return self.pure(f"shufflevector {wide} {first}, {wide} poison, <{lanes} x i32> zeroinitializer")

    def shuffled(self, type_: str, a: str, b: str, order: Sequence[int]) -> str:
        """Return lanes of two vectors of type ``type_`` side by side; a negative number gives an arbitrary value."""
        picks = ", ".join([f"i32 {'poison' if k < 0 else k}" for k in order])
        return self.pure(f"shufflevector {type_} {a}, {type_} {b}, <{len(order)} x i32> <{picks}>")

    def lane(self, type_: str, text: str, n: int) -> str:
        """Return one lane of a vector."""
        return self.pure(f"extractelement {type_} {text}, i64 {n}")

    def cut(self, one: str, text: str, have: int, at: int, lanes: int) -> str:
        """Return ``lanes`` lanes of a vector of ``have``, from lane ``at`` on; ``one``: the type of a lane."""
        return text if have == lanes else self.shuffled(f"<{have} x {one}>", text, "poison", range(at, at + lanes))

    def resized(self, one: str, text: str, have: int, want: int) -> str:
        """Return the first ``want`` lanes of a vector of ``have``; missing lanes hold arbitrary values."""
        if have == 1:
            return self.joined(f"<{want} x {one}>", one, [text])
        if want == 1:
            return self.lane(f"<{have} x {one}>", text, 0)
        order = [*range(min(have, want)), *[-1] * max(0, want - have)]
        return self.shuffled(f"<{have} x {one}>", text, "poison", order)

    def appended(self, one: str, whole: str, part: str, have: int, lanes: int) -> str:
        """Return the ``have`` lanes of ``whole`` and behind them the ``lanes``, at most as many, of ``part``."""
        return self.shuffled(f"<{have} x {one}>", whole, self.resized(one, part, lanes, have), range(have + lanes))

    def joined(self, type_: str, base: str, lanes: Iterable[str]) -> str:
        """Return a vector of the given lanes."""
        out = "poison"
        for n, text in enumerate(lanes):
            out = self.pure(f"insertelement {type_} {out}, {base} {text}, i64 {n}")
        return out

    def each_lane(self, name: str, ret: str, types: Sequence[str], lanes: int, args: Sequence[str]) -> str:
        """Return the results of a pure function on scalars, for each lane of its operands."""

        def one(operands: Sequence[str]) -> str:
            return self.pure(self.intrinsic(name, ret, types, operands))

        if lanes == 1:
            return one(args)
        wide = [f"<{lanes} x {t}>" for t in types]
        picked = ([self.lane(t, a, n) for t, a in zip(wide, args, strict=True)] for n in range(lanes))
        return self.joined(f"<{lanes} x {ret}>", ret, map(one, picked))

    def alloca(self, count: int, element: str) -> str:
        """Return stack memory of the function, 64-byte aligned, reserved once at its entry."""
        name = self.fresh("stack")
        self.allocas.append(f"  {name} = alloca [{count} x {element}], align 64")
        return name

    def label(self, name: str) -> None:
        """Start the block ``name``."""
        self.lines.append(f"{name}:")
        self.block = name

    def branch(self, target: str) -> None:
        """Jump to ``target``."""
        self.do(f"br label %{target}")

    def branch_if(self, cond: str, yes: str, no: str) -> None:
        """Jump to one of two labels."""
        self.do(f"br i1 {cond}, label %{yes}, label %{no}")

    def phi(self, type_: str, hint: str = "phi") -> Phi:
        """Return a phi node in this block, which :meth:`fill` completes."""
        self.lines.append("")
        return Phi(self.fresh(hint), type_, len(self.lines) - 1)

    def fill(self, phi: Phi, incoming: list[tuple[str, str]]) -> None:
        """Set the incoming values of a phi node, as pairs of value and block."""
        pairs = ", ".join(f"[ {value}, %{block} ]" for value, block in incoming)
        self.lines[phi.line] = f"  {phi.name} = phi {phi.type} {pairs}"

    def repeat(
        self, low: str, high: str, carried: Sequence[tuple[str, str]], body: Callable[[str, list[str]], list[str]]
    ) -> list[str]:
        """Write a loop over ``[low, high)``, which must not be empty, and return what the carried values are after it.

        ``carried`` has their types and first values. ``body`` takes the loop's variable and their values, and returns
        the next ones.
        """
        start, head, done = self.block, self.new_label("loop"), self.new_label("done")
        self.branch(head)
        self.label(head)
        counter, phis = self.phi("i64", "n"), [self.phi(type_, "acc") for type_, _ in carried]
        after = body(counter.name, [phi.name for phi in phis])
        following, latch = self.emit(f"add i64 {counter.name}, 1"), self.block
        self.branch_if(self.emit(f"icmp slt i64 {following}, {high}"), head, done)
        self.fill(counter, [(low, start), (following, latch)])
        for phi, (_, first), value in zip(phis, carried, after, strict=True):
            self.fill(phi, [(first, start), (value, latch)])
        self.label(done)
        return after

    def text(self) -> str:
        """Return the whole definition."""
        return "\n".join([f"{self.header} {{", "entry:", *self.allocas, *filter(None, self.lines), "}"])


# Sums of 64-bit integers with constant coefficients, so that addresses share common parts.
#
# The terms of a :class:`~tilewright.tir.arith.normal_form.forms.Linear` are names of i64 values here.


def product(a: Linear, b: Linear, fn: FunctionBuilder) -> Linear:
    """Return ``a * b``, an instruction unless one of them is a constant."""
    if not b.terms:
        return a.times(b.const)
    if not a.terms:
        return b.times(a.const)
    return Linear(0, {fn.pure(f"mul nsw i64 {sum_text(a, fn)}, {sum_text(b, fn)}"): 1})


def sum_text(form: Linear, fn: FunctionBuilder) -> str:
    """Return the i64 value of a sum."""
    out: str | None = None
    for name, coefficient in form.terms.items():
        term = name if coefficient == 1 else fn.pure(f"mul nsw i64 {name}, {coefficient}")
        out = term if out is None else fn.pure(f"add nsw i64 {out}, {term}")
    if out is None:
        return str(form.const)
    return out if form.const == 0 else fn.pure(f"add nsw i64 {out}, {form.const}")
