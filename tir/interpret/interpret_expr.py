"""This module compiles expressions for the interpreter: each becomes Python text over registers, compiled once.

The text contains only names made here (``R[3]`` is register 3, ``c5`` a constant or an operation), never names or texts
from the IR. Deep trees are divided into several functions.

LLVM's intrinsics are evaluated, too, which tensor intrinsics call with their full name, as in
``tir.call_llvm_pure_intrin("int32x16", "llvm.x86.avx512.vpdpbusd.512", c, a, b)``. It knows the dot products of x86,
pmaddubs and pmaddwd, and the overloaded ones that are operations of :mod:`..expr.intrinsics` (``llvm.fma.v8f32`` …).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from ..expr import (
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
    DType,
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
    StringImm,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
    index_like,
)
from ..expr.dtype import bfloat16_from_bits, round_bfloat16, round_float
from ..expr.intrinsics import OPERATIONS, operation_named
from ..expr.intrinsics.number_operations import FIXED_POINT, fixed_point_steps
from ..expr.intrinsics.numpy_values import (
    caster,
    divider,
    dot2_bf16,
    fmax,
    fmin,
    integer_dot,
    scalar_type,
    value_dtype,
    wrapper,
)

_DEPTH = 40
_DIVISIONS: dict[type, str] = {
    FloorDiv: "floordiv",
    FloorMod: "floormod",
    TruncDiv: "truncdiv",
    TruncMod: "truncmod",
    Div: "truncdiv",
}


class InterpretError(Exception):
    """Raised when a program reads or writes outside a buffer, calls an unknown function, or runs too long."""


class ExprCompiler:
    """Compiles expressions.

    ``loader(buffer, lanes, masked)`` returns the function that reads a buffer; ``locator(buffer)`` returns the function
    that gives the memory from an element on.
    """

    def __init__(
        self,
        loader: Callable[[Any, int, bool], Callable[..., Any]],
        externs: dict[str, Any],
        locator: Callable[[Any], Callable[..., Any]] | None = None,
    ) -> None:
        self.registers: list[Any] = []
        self._slots: dict[Var, int] = {}
        self._loader = loader
        self.locator, self.externs = locator, externs
        self._names: dict[str, Any] = {"R": self.registers, "np": np, "__builtins__": {"int": int, "bool": bool}}

    def slot(self, var: Var) -> int:
        """Return the register of a variable."""
        number = self._slots.get(var)
        if number is None:
            number = self._slots[var] = len(self.registers)
            self.registers.append(_UNSET)
        return number

    def compile(self, e: Expr) -> Callable[[], Any]:
        """Return a function that evaluates ``e``."""
        if isinstance(e, IntImm):
            value = bool(e.value) if e.dtype == "bool" else e.value
            return lambda: value
        return self._function(self.text(e, 0), "")

    def compile_call(self, f: Callable[..., Any], args: list[Expr]) -> Callable[[], Any]:
        """Return a function that evaluates ``f(*args)``."""
        return self._function(f"{self.name(f)}({', '.join(self.text(a, 1) for a in args)})", "")

    def _function(self, body: str, parameters: str) -> Callable[[], Any]:
        code = compile(f"lambda {parameters}: {body}", "<expression>", "eval")
        return eval(code, self._names)

    def name(self, value: Any) -> str:
        """Return a name for a value in the text."""
        name = f"c{len(self._names)}"
        self._names[name] = value
        return name

    def text(self, e: Expr, depth: int) -> str:
        """Return the Python text of ``e``."""
        if depth > _DEPTH:
            return f"{self.name(self.compile(e))}()"
        write = _WRITERS.get(type(e))
        if write is None:
            raise InterpretError(f"cannot evaluate a {type(e).__name__}: {e}")
        return write(self, e, depth + 1)

    def _constant(self, e: IntImm | FloatImm, depth: int) -> str:
        if isinstance(e, IntImm):
            return str(bool(e.value)) if e.dtype == "bool" else f"({e.value})" if e.value < 0 else str(e.value)
        return self.name(scalar_type(e.dtype)(round_float(e.value, e.dtype)))

    def _string(self, e: StringImm, depth: int) -> str:
        return self.name(e.value)

    def _var(self, e: Var, depth: int) -> str:
        return f"R[{self.slot(e)}]"

    def _binary(self, e: BinaryOp, depth: int) -> str:
        a, b = self.text(e.a, depth), self.text(e.b, depth)
        kind, lanes = e.dtype.kind, e.dtype.lanes
        divided = _DIVISIONS.get(type(e)) if e.dtype.is_int else None
        if divided is not None and (type(e) not in (FloorDiv, FloorMod) or not _divides_plainly(e.b)):
            return f"{self.name(divider(divided, e.dtype))}({a}, {b})"
        if type(e) in (Min, Max):
            if lanes > 1:
                op: Any = np.minimum if type(e) is Min else np.maximum
            elif e.dtype.is_float:
                op = fmin if type(e) is Min else fmax
            else:
                op = min if type(e) is Min else max
            text = f"{self.name(op)}({a}, {b})"
        elif not e.symbol:
            raise InterpretError(f"cannot evaluate a {type(e).__name__} of {e.dtype}: {e}")
        else:
            text = f"({a} {e.symbol} {b})"
        if kind == "bfloat":
            return f"{self.name(round_bfloat16)}({text})"
        if e.dtype.is_int and lanes == 1 and type(e) in (Add, Sub, Mul) and not index_like(e):
            return f"{self.name(wrapper(e.dtype))}({text})"
        return text

    def _compare(self, e: CmpOp, depth: int) -> str:
        text = f"({self.text(e.a, depth)} {e.symbol} {self.text(e.b, depth)})"
        return f"bool{text}" if e.dtype.lanes == 1 and e.a.dtype.is_float else text

    def _logical(self, e: And | Or, depth: int) -> str:
        a, b = self.text(e.a, depth), self.text(e.b, depth)
        if e.dtype.lanes > 1:
            return f"({a} {'&' if isinstance(e, And) else '|'} {b})"
        return f"({a} {e.symbol} {b})"

    def _not(self, e: Not, depth: int) -> str:
        a = self.text(e.a, depth)
        return f"(~{a})" if e.dtype.lanes > 1 else f"(not {a})"

    def _select(self, e: Select, depth: int) -> str:
        c, t, f = [self.text(x, depth) for x in (e.condition, e.true_value, e.false_value)]
        if e.condition.dtype.lanes > 1:
            return f"np.where({c}, {t}, {f})"
        return f"{self.name(_pick)}({c}, {t}, {f})"

    def _cast(self, e: Cast, depth: int) -> str:
        if e.dtype == e.value.dtype:
            return self.text(e.value, depth)
        convert = caster(e.dtype.element, e.value.dtype.element, e.dtype.lanes > 1)
        return f"{self.name(convert)}({self.text(e.value, depth)})"

    def _ramp(self, e: Ramp, depth: int) -> str:
        lanes = self.name(np.arange(e.lanes, dtype=value_dtype(e.dtype.element)))
        return f"({self.text(e.base, depth)} + {self.text(e.stride, depth)} * {lanes})"

    def _broadcast(self, e: Broadcast, depth: int) -> str:
        dtype = self.name(value_dtype(e.dtype.element))
        return f"np.full({e.lanes}, {self.text(e.value, depth)}, {dtype})"

    def _shuffle(self, e: Shuffle, depth: int) -> str:
        parts = [self.text(v, depth) if v.dtype.lanes > 1 else f"[{self.text(v, depth)}]" for v in e.vectors]
        joined = f"np.concatenate(({', '.join(parts)},))" if len(parts) > 1 else f"{parts[0]}"
        if len(e.indices) == 1:
            lane = f"{joined}[{e.indices[0]}]"
            return lane if e.dtype.is_float else f"int({lane})"
        return f"{joined}[{self.name(list(e.indices))}]"

    def _load(self, e: BufferLoad, depth: int) -> str:
        lanes = max([i.dtype.lanes for i in e.indices], default=1)
        load = self.name(self._loader(e.buffer, lanes, e.predicate is not None))
        args = [self.text(i, depth) for i in e.indices]
        if e.predicate is not None:
            args.insert(0, self.text(e.predicate, depth))
        return f"{load}({', '.join(args)})"

    def _let(self, e: Let, depth: int) -> str:
        put = self.name(self.registers.__setitem__)
        return f"({put}({self.slot(e.var)}, {self.text(e.value, depth)}), {self.text(e.body, depth)})[1]"

    def _call(self, e: Call, depth: int) -> str:
        write = CALL_WRITERS.get(e.op)
        if write is not None:
            return write(self, e, depth)
        row = OPERATIONS.get(e.op)
        if row is None or row.evaluate is None:
            return self.applied(None, e, depth)
        return self.applied(row.evaluate(e.dtype, [a.dtype for a in e.args]), e, depth)

    def applied(self, f: Callable[..., Any] | None, e: Call, depth: int, skip: int = 0) -> str:
        """Return the text of ``f`` applied to the arguments of a call after the first ``skip``."""
        if f is None:
            f = raiser(f"cannot evaluate a call of {e.op}: {e}")
        return f"{self.name(f)}({', '.join([self.text(a, depth) for a in e.args[skip:]])})"

    def _choice(self, e: Call, depth: int) -> str:
        condition, yes, no = [self.text(a, depth) for a in e.args]
        if e.args[0].dtype.lanes > 1:
            return f"np.where({condition}, {yes}, {no})"
        return f"({yes} if {condition} else {no})"


class _Unset:
    def __repr__(self) -> str:
        return "<a variable without a value>"


_UNSET = _Unset()


def raiser(message: str) -> Callable[..., Any]:
    """Return a function that raises InterpretError."""

    def run(*args: Any) -> Any:
        raise InterpretError(message)

    return run


def _pick(c: Any, t: Any, f: Any) -> Any:
    return t if c else f


def _divides_plainly(e: Expr) -> bool:
    """Return whether ``e`` is a constant above zero, by which Python divides as the machine does."""
    if isinstance(e, Broadcast):
        e = e.value
    return isinstance(e, IntImm) and e.value > 0


_C = ExprCompiler
_WRITERS: dict[type, Callable[[Any, Any, int], str]] = {
    IntImm: _C._constant,
    FloatImm: _C._constant,
    StringImm: _C._string,
    Var: _C._var,
    **{t: _C._binary for t in (Add, Sub, Mul, Div, TruncDiv, TruncMod, FloorDiv, FloorMod, Min, Max)},
    **{t: _C._compare for t in (LT, LE, GT, GE, EQ, NE)},
    And: _C._logical,
    Or: _C._logical,
    Not: _C._not,
    Select: _C._select,
    Cast: _C._cast,
    Ramp: _C._ramp,
    Broadcast: _C._broadcast,
    Shuffle: _C._shuffle,
    BufferLoad: _C._load,
    Let: _C._let,
    Call: _C._call,
}


def _address(c: ExprCompiler, e: Call, depth: int) -> str:
    load = e.args[0]
    if not isinstance(load, BufferLoad) or c.locator is None:
        return c.applied(None, e, depth)
    first = [i.base if isinstance(i, Ramp) else i.value if isinstance(i, Broadcast) else i for i in load.indices]
    return f"{c.name(c.locator(load.buffer))}({', '.join(c.text(i, depth) for i in first)})"


def _assumption(c: ExprCompiler, e: Call, depth: int) -> str:
    broken = raiser(f"an assumption does not hold: {e.args[0]}")
    return f"({c.text(e.args[0], depth)} or {c.name(broken)}())"


def _place(c: ExprCompiler, e: Call, depth: int) -> str:
    return f"{c.text(e.args[1], depth)}[{c.text(e.args[2], depth)}:]"


def _extern(c: ExprCompiler, e: Call, depth: int) -> str:
    name = e.args[0]
    return c.applied(c.externs.get(name.value) if isinstance(name, StringImm) else None, e, depth, 1)


def _llvm(c: ExprCompiler, e: Call, depth: int) -> str:
    name, types = e.args[0], tuple([a.dtype for a in e.args])
    skip = 2 if len(e.args) > 1 and isinstance(e.args[1], IntImm) and types[1] == "uint32" else 1
    found = _llvm_evaluator(name.value, e.dtype, types[skip:]) if isinstance(name, StringImm) else None
    return c.applied(found, e, depth, skip)


def _misaligned(there: np.ndarray, size: int) -> int:
    return int(there.__array_interface__["data"][0] % size)


CallWriter = Callable[[ExprCompiler, Call, int], str]
CALL_WRITERS: dict[str, CallWriter] = {
    "tir.if_then_else": _C._choice,
    "tir.likely": lambda c, e, depth: c.text(e.args[0], depth),
    "tir.address_of": _address,
    "tir.assume": _assumption,
    "tir.call_extern": _extern,
    "tir.call_pure_extern": _extern,
    "tir.call_llvm_intrin": _llvm,
    "tir.call_llvm_pure_intrin": _llvm,
    "tir.misaligned": lambda c, e, depth: c.applied(_misaligned, e, depth),
    "tir.prefetch": lambda c, e, depth: "0",
    "tir.tvm_access_ptr": _place,
    "tir.type_annotation": lambda c, e, depth: "None",
    **dict.fromkeys(FIXED_POINT, lambda c, e, depth: c.text(fixed_point_steps(e), depth)),
}
"""What writes calls that are more than a function of the values of their arguments."""


_LLVM_NAMES = {
    "fma": "fma", "fmuladd": "fma", "sqrt": "sqrt", "fabs": "fabs", "floor": "floor", "ceil": "ceil",
    "trunc": "trunc", "rint": "round", "roundeven": "round", "nearbyint": "nearbyint", "copysign": "copysign",
    "exp": "exp", "exp2": "exp2", "log": "log", "log2": "log2", "log10": "log10", "pow": "pow", "sin": "sin",
    "cos": "cos", "ctpop": "popcount",
}  # fmt: skip


def _llvm_evaluator(name: str, dtype: DType, sources: tuple[DType, ...]) -> Callable[..., Any] | None:
    """Return the evaluator of the intrinsic ``name``; None when it is unknown here."""
    if re.fullmatch(r"llvm\.x86\.avx512\.vpdpbusd\.(128|256|512)", name):
        return _vpdpbusd
    if re.fullmatch(r"llvm\.x86\.avx512bf16\.dpbf16ps\.(128|256|512)", name):
        return _dpbf16
    if re.fullmatch(r"llvm\.x86\.(ssse3|avx2|avx512)\.(pmadd\.ub\.sw|pmaddubs\.w)(\.128|\.512)?", name):
        return _pmaddubs
    if re.fullmatch(r"llvm\.x86\.(sse2|avx2|avx512)\.(pmadd\.wd|pmaddw\.d)(\.512)?", name):
        return _pmaddwd
    match = re.fullmatch(r"llvm\.(\w+)(\.\w+)?", name)
    if match and match[1] in _LLVM_NAMES:
        evaluate = operation_named(_LLVM_NAMES[match[1]]).evaluate
        return None if evaluate is None else evaluate(dtype, sources)
    return None


def _bytes(v: Any, kind: Any) -> Any:
    return np.atleast_1d(v).view(kind)


def _vpdpbusd(c: Any, a: Any, b: Any) -> Any:
    return integer_dot(c, _bytes(a, np.uint8), _bytes(b, np.int8))


def _dpbf16(c: Any, a: Any, b: Any) -> Any:
    def floats(v: Any) -> Any:
        return v if v.dtype == np.float32 and v.size == 2 * c.size else bfloat16_from_bits(_bytes(v, np.uint16))

    return dot2_bf16(c, floats(a), floats(b))


def _pmaddubs(a: Any, b: Any) -> Any:
    """Multiply uint8 and int8, and add adjacent products, saturating to int16."""
    products = _bytes(a, np.uint8).astype(np.int32) * _bytes(b, np.int8).astype(np.int32)
    return np.clip(products.reshape(-1, 2).sum(axis=1), -(1 << 15), (1 << 15) - 1).astype(np.int16)


def _pmaddwd(a: Any, b: Any) -> Any:
    """Multiply int16, and add adjacent products; the sum wraps only when all four factors are -32768."""
    products = _bytes(a, np.int16).astype(np.int64) * _bytes(b, np.int16).astype(np.int64)
    return products.reshape(-1, 2).sum(axis=1).astype(np.int32)
