"""This module defines the parser's values besides expressions and buffers, and the rules for Python values."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .. import vocabulary
from ..expr import Expr, IterVar, Var, max_, min_
from ..expr.intrinsics.float_operations import abs_
from ..stmt import Buffer, BufferRegion, MatchBufferRegion, Stmt

_LIMIT = 1 << 128
_MAX_ITEMS = 100_000


@dataclass(frozen=True, slots=True)
class MetaVar:
    """Represents the value of ``T.meta_var``, which is used itself, without a variable."""

    value: Any


@dataclass(frozen=True, slots=True)
class BufferMethod:
    """Represents a method of a buffer such as ``A.vload``, before its call."""

    buffer: Buffer
    name: str


@dataclass
class Frame:
    """Holds the declarations of a block, or of the function around all blocks, so far."""

    is_function: bool = False
    axes: list[IterVar] = field(default_factory=list)
    values: list[Expr] = field(default_factory=list)
    predicate: Expr | None = None
    reads: tuple[BufferRegion, ...] | None = None
    writes: tuple[BufferRegion, ...] | None = None
    annotations: dict[str, Any] = field(default_factory=dict)
    allocs: list[Buffer] = field(default_factory=list)
    matches: list[MatchBufferRegion] = field(default_factory=list)
    init: Stmt | None = None
    has_init: bool = False
    params: dict[Var, Buffer] = field(default_factory=dict)


class Namespace:
    """Represents ``T`` or ``I`` in a text; its attributes are words."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def lookup(self, word: str) -> Any:
        """Return the word; AttributeError when there is none."""
        if self.name == "T" and word not in ("prim_func", "ir_module"):
            return vocabulary.word_named(word)
        return Namespace(f"{self.name}.{word}")

    def __repr__(self) -> str:
        return self.name


def python_binary(op: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    """Return ``op`` of two Python values. Numbers and sequences have a limited size."""
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        if isinstance(a, int) and isinstance(b, int):
            if op is operator.pow and (abs(b) > 128 or (abs(a) > 1 and abs(a).bit_length() * abs(b) > 256)):
                raise ValueError(f"{a} ** {b} is too large")
            if op is operator.lshift and b > 128:
                raise ValueError(f"{a} << {b} is too large")
        out = op(a, b)
        if isinstance(out, int) and abs(out) >= _LIMIT:
            raise ValueError("the constant is too large")
        return out
    if op is operator.add and type(a) is type(b) and isinstance(a, (list, tuple, str)):
        if len(a) + len(b) > _MAX_ITEMS:
            raise ValueError("the sequence is too long")
        return a + b
    raise TypeError(f"{type(a).__name__} and {type(b).__name__} do not support this operator")


def _range(*args: Any) -> range:
    out = range(*[operator.index(a) for a in args])
    if len(out) > _MAX_ITEMS:
        raise ValueError(f"range of {len(out)} items")
    return out


def _extreme(on_exprs: Callable[[Any, Any], Any], on_numbers: Callable[..., Any]) -> Callable[..., Any]:
    def pick(*args: Any) -> Any:
        items = list(args[0]) if len(args) == 1 else list(args)
        if all(isinstance(i, (int, float)) for i in items):
            return on_numbers(items)
        out = items[0]
        for item in items[1:]:
            out = on_exprs(out, item)
        return out

    return pick


def _sum(items: Any) -> Any:
    out: Any = 0
    for k, item in enumerate(list(items)):
        out = out + item if k else item
    return out


def _abs(x: Any) -> Any:
    return abs(x) if isinstance(x, (int, float)) else abs_(x)


def _float(x: Any) -> float:
    return float(x)


def _int(x: Any) -> int:
    if not isinstance(x, (int, float, str)):
        raise TypeError("int() takes a constant here; convert values with T.Cast or .astype")
    return int(x)


BUILTINS: dict[str, Any] = {
    "abs": _abs, "bool": bool, "enumerate": lambda x: list(enumerate(x)), "float": _float, "int": _int, "len": len,
    "list": list, "max": _extreme(max_, max), "min": _extreme(min_, min), "range": _range,
    "reversed": lambda x: list(reversed(x)), "str": str, "sum": _sum, "tuple": tuple,
    "zip": lambda *x: list(zip(*x, strict=False)),
    "True": True, "False": False, "None": None,
}  # fmt: skip
"""The builtin names of Python that a text may use."""
