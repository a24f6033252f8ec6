"""This module defines the words of ``T``: those that make statements, types and expressions.

The parser looks words up here; :mod:`tilewright.tir.script` offers them to Python programs. The names of node classes
(``T.Add``, ``T.Select``, ``T.Cast`` …) build exactly that node; functions in lower case fold constants and match the
operands' types like the operators.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn

from .expr import (
    INDEX,
    DType,
    Expr,
    FloatImm,
    IntImm,
    Var,
    as_exprs,
    const,
    convert,
    match_types,
    max_value,
    min_value,
    op,
)
from .expr import cast as converted
from .expr import nodes as E
from .expr.intrinsics import OPERATIONS, control_and_memory
from .expr.intrinsics.number_operations import abs_, pow_

__all__ = ["FUNCTIONS", "WORDS", "Axis", "BufferWord", "TypeWord", "Word", "type_word", "word_named"]


def word_named(name: str) -> Any:
    """Return the word ``T.<name>``; AttributeError when there is none."""
    if name == "axis":
        return Axis
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    if name in WORDS and "." not in name:
        return WORDS[name]
    if f"tir.{name}" in OPERATIONS:
        return OPERATIONS[f"tir.{name}"]
    return type_word(name)


class Word:
    """Represents a name in ``T`` that is valid inside a ``@T.prim_func`` only. A call elsewhere raises an
    explanation."""

    def __init__(self, name: str, doc: str) -> None:
        self.name = name
        self.__doc__ = doc

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(f"T.{self.name} has a meaning only inside a function decorated with @T.prim_func")

    def __repr__(self) -> str:
        return f"T.{self.name}"


class BufferWord(Word):
    """Represents ``T.Buffer((16, 16), "float32")``, the type of a parameter. Python evaluates annotations, so it is
    callable.

    ``T.Buffer[(16, 16), "float32"]``, the older spelling, means the same.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self

    def __getitem__(self, key: Any) -> Any:
        return self


_DOCS = {
    "grid": "for i, j in T.grid(16, 16): nested serial loops from 0",
    "serial": "for i in T.serial(16) or T.serial(start, stop), annotations={...}: a loop in order",
    "parallel": "for i in T.parallel(16): iterations in any order, by several threads",
    "vectorized": "for i in T.vectorized(16): all iterations at once, in the lanes of vectors",
    "unroll": "for i in T.unroll(4): the body repeated",
    "thread_binding": 'for i in T.thread_binding(4, thread="threadIdx.x"): one iteration per thread of the axis',
    "block": 'with T.block("C"): a unit of computation with axes of its own',
    "init": "with T.init(): what runs when all reduction axes are at their start",
    "where": "T.where(condition): the block runs where the condition holds",
    "reads": "T.reads(A[i, 0:4], ...): what the block reads; found out when left out",
    "writes": "T.writes(C[i, j]): what the block writes; found out when left out",
    "block_attr": "T.block_attr({...}): annotations of the block",
    "alloc_buffer": 'B = T.alloc_buffer((16,), "float32", scope="local"): a buffer that lives in the block',
    "match_buffer": "A = T.match_buffer(a, (n, 16)): the buffer of a parameter; or another view of a region, in a block",
    "decl_buffer": "B = T.decl_buffer((16,)), or with ... as B: a buffer that lives in what follows",
    "allocate": 'p = T.allocate([16], "float32", "global"): the pointer of a buffer that lives in what follows; older TVM',
    "local_scalar": "x = T.local_scalar(T.int32): x will be a name for a value; newer TVM",
    "comm_reducer": "T.comm_reducer(lambda x, y: x + y, [T.float32(0)]): what combines two values, and what changes none",
    "target": "T.target({...}): a target among a function's attributes, kept as it is written",
    "func_attr": "T.func_attr({...}): attributes of the function",
    "LetStmt": "with T.LetStmt(value) as x: a name for a value; x: T.int32 = value says the same to the end of the body",
    "attr": "T.attr(node, key, value): a remark about what follows, or with T.attr(...): about the body",
    "Assert": "with T.Assert(condition, message): the body runs when the condition holds, else the program stops",
    "evaluate": "T.evaluate(x): x for its effect",
    "buffer_store": "T.buffer_store(A, value, [i, j]): A[i, j] = value",
    "launch_thread": 'with T.launch_thread("threadIdx.x", 4) as tx: the threads of an axis',
    "env_thread": 'tx = T.env_thread("threadIdx.x"): the variable of a thread axis',
    "iter_var": 'T.iter_var(v, T.Range(0, 4), "thread", "threadIdx.x"): an axis, in T.attr',
    "Range": "T.Range(start, stop): a half-open interval",
    "Let": "T.Let(body, where={x: value}): an expression with a name for a value",
    "meta_var": "x = T.meta_var(value): x stands for the value itself, no variable is made",
    "var": 'n = T.var("int32"): a size, as n = T.int32()',
    "axis.remap": 'vi, vk = T.axis.remap("SR", [i, k]): axes over the very ranges of the loops i and k',
    "axis.spatial": "vi = T.axis.spatial(16, value): an axis whose iterations are independent",
    "axis.reduce": "vk = T.axis.reduce(16, value): an axis that is reduced over",
    "axis.opaque": "v = T.axis.opaque(16, value): an axis about which nothing is known",
    "axis.scan": "v = T.axis.scan(16, value): an axis whose iterations must run in order",
}

WORDS: dict[str, Word] = {name: Word(name, doc) for name, doc in _DOCS.items()}
"""The words, by the name after ``T.``; :data:`ALIASES` are other spellings."""

WORDS["Buffer"] = BufferWord("Buffer", 'A: T.Buffer((16, 16), "float32"): the type of a buffer parameter')

ALIASES = {
    "sblock": "block", "sblock_alloc_buffer": "alloc_buffer", "sblock_attr": "block_attr", "unrolled": "unroll",
    "let": "LetStmt", "bind": "LetStmt", "Bind": "LetStmt", "allocate_buffer": "decl_buffer", "vectorize": "vectorized",
}  # fmt: skip

for _other, _name in ALIASES.items():
    WORDS[_other] = WORDS[_name]


class Axis:
    """Represents ``T.axis``, which binds the axes of a block. ``S`` and ``R`` are short for ``spatial`` and
    ``reduce``."""

    remap = WORDS["axis.remap"]
    spatial = S = WORDS["axis.spatial"]
    reduce = R = WORDS["axis.reduce"]
    opaque = O = WORDS["axis.opaque"]  # noqa: E741
    scan = C = WORDS["axis.scan"]


class TypeWord:
    """Represents a data type.

    ``T.int64(3)`` and ``T.float32("inf")`` are constants, ``T.int64(x)`` converts ``x``, ``n = T.int32()`` declares a
    size.
    """

    __slots__ = ("dtype",)

    def __init__(self, dtype: str) -> None:
        self.dtype = DType(dtype)

    def __call__(self, value: Any = None, *rest: Any, is_size_var: bool = False) -> Expr:
        if self.dtype == "handle":
            return Var("handle", "handle")
        if value is None:
            return Var("v", self.dtype)
        if isinstance(value, str):
            if not self.dtype.is_float:
                raise ValueError(f"T.{self.dtype} of the text {value!r}: only floating-point types take one")
            return const(float(value), self.dtype)
        if isinstance(value, (int, float)):
            if (
                isinstance(value, int)
                and self.dtype.is_int
                and not (min_value(self.dtype) <= value <= max_value(self.dtype))
            ):
                raise ValueError(f"{value} does not fit into {self.dtype}")
            return const(value, self.dtype)
        e = convert(value)
        if isinstance(e, (IntImm, FloatImm)) and e.dtype.lanes == 1:
            if isinstance(value, Expr) and e.dtype.is_float and not self.dtype.is_float:
                return E.Cast(self.dtype, e)
            return const(e.value, self.dtype)
        return converted(self.dtype.with_lanes(e.dtype.lanes), e)

    def __repr__(self) -> str:
        return f"T.{self.dtype}"


_SHORT = {"boolean": "bool", "int": INDEX, "ptr": "handle", "bf16": "bfloat16"} | {
    f"{letter}{bits}": f"{kind}{bits}"
    for letter, kind, widths in (
        ("f", "float", (16, 32, 64)),
        ("i", "int", (8, 16, 32, 64)),
        ("u", "uint", (8, 16, 32, 64)),
    )
    for bits in widths
}


@cache
def type_word(name: str) -> TypeWord:
    """Return the word for a data type's name; AttributeError when there is no such type."""
    name = _SHORT.get(name, name)
    try:
        DType(name)
    except ValueError:
        raise AttributeError(f"T has no word {name!r}") from None
    return TypeWord(name)


def _raw(cls: type[E.BinaryOp]) -> Callable[[Any, Any], E.Expr]:
    def build(a: Any, b: Any) -> E.Expr:
        return cls(*match_types(a, b))

    build.__name__, build.__doc__ = cls.__name__, f"The node {cls.__name__}(a, b); nothing is folded."
    return build


def Not(a: Any) -> E.Expr:
    """Return the node Not(a)."""
    return E.Not(convert(a))


def Select(condition: Any, true_value: Any, false_value: Any) -> E.Expr:
    """Return ``true_value`` where ``condition`` holds, else ``false_value``; both are evaluated."""
    return op.select(condition, true_value, false_value)


def Cast(dtype: str, value: Any) -> E.Expr:
    """Return the node Cast(dtype, value); :func:`cast` returns a value that has the type already as it is."""
    return E.Cast(dtype, convert(value))


def cast(value: Any, dtype: str) -> E.Expr:
    """Return ``value`` converted to ``dtype``."""
    return converted(dtype, value)


def _whole(value: Any, word: str) -> int:
    """Returns an integer argument of a word; TypeError for other numbers, which are not rounded."""
    try:
        return int(operator.index(value))
    except TypeError:
        raise TypeError(f"T.{word} takes an integer, not {value!r}") from None


def Ramp(base: Any, stride: Any, lanes: Any) -> E.Expr:
    """Return the vector base, base + stride, …"""
    b = convert(base)
    return E.Ramp(b, convert(stride, b.dtype), _whole(lanes, "Ramp"))


def Broadcast(value: Any, lanes: Any) -> E.Expr:
    """Return a vector with one scalar in every lane."""
    return E.Broadcast(convert(value), _whole(lanes, "Broadcast"))


def Shuffle(vectors: Any, indices: Any) -> E.Expr:
    """Return lanes picked from the concatenation of vectors."""
    return E.Shuffle(as_exprs(vectors), tuple(_whole(i, "Shuffle") for i in indices))


def call(name: str, *args: Any, dtype: str) -> E.Expr:
    """Return a call of any operation, as in ``T.call("tir.exp", x, dtype="float32")``."""
    return E.Call(name, as_exprs(args), dtype)


def call_intrin(*args: Any, dtype: str | None = None) -> E.Expr:
    """Return a call of an operation by its name, as in ``T.call_intrin("float32", "tir.exp", x)``."""
    call = control_and_memory.call_intrin(*args, dtype=dtype)
    assert isinstance(call, E.Call)
    name = call.args[0].value if isinstance(call.args[0], E.StringImm) else ""
    return E.Call(name, call.args[1:], call.dtype) if name in OPERATIONS else call


def llvm_lookup_intrinsic_id(name: str) -> str:
    """Return the name itself, because intrinsics of LLVM are called by name here."""
    return name


def _infinity(dtype: str = "float32") -> E.Expr:
    return op.infinity(dtype)


_NODES = (
    E.Add, E.Sub, E.Mul, E.Div, E.TruncDiv, E.TruncMod, E.FloorDiv, E.FloorMod, E.Min, E.Max,
    E.EQ, E.NE, E.LT, E.LE, E.GT, E.GE, E.And, E.Or,
)  # fmt: skip

TYPED = {"call", "cast", "Cast", "infinity", "max_value", "min_value"}
"""Functions with a ``dtype`` parameter; for others TVM's ``dtype=`` only repeats the type of the result."""

FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{cls.__name__: _raw(cls) for cls in _NODES},
    **{row.name: row for row in OPERATIONS.values()},
    **{f.__name__: f for f in (
        Not, Select, Cast, cast, Ramp, Broadcast, Shuffle, call, call_intrin, llvm_lookup_intrinsic_id,
        op.ceildiv, op.floordiv, op.floormod, op.truncdiv, op.truncmod,
    )},
    "abs": abs_, "all": op.all_, "any": op.any_, "broadcast": Broadcast, "infinity": _infinity, "max": op.max_,
    "max_value": op.max_value_of, "min": op.min_, "min_value": op.min_value_of, "power": pow_, "ramp": Ramp,
    "select": Select,
}  # fmt: skip
"""The functions, by the name after ``T.``."""
