"""This module prints expressions: as operators where parsing these gives the same node back, else as ``T.`` words.

The parser folds constants as the operators of :mod:`.expr` do (``i + 0`` is ``i``), so a node that an operator would
fold is written as a call that does not: ``T.Add(i, 0)``. :class:`Names` makes names that are unique within their scope.
"""

from __future__ import annotations

import json
import keyword
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .expr import (
    FOLDED,
    Add,
    And,
    BinaryOp,
    Broadcast,
    BufferLoad,
    Call,
    Cast,
    CmpOp,
    CommReducer,
    Div,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    IterVar,
    Let,
    Max,
    Min,
    Not,
    Or,
    Ramp,
    Range,
    Reduce,
    Select,
    Shuffle,
    StringImm,
    TruncDiv,
    TruncMod,
    Var,
    make_binary,
    max_value,
)
from .expr.intrinsics import OPERATIONS, Operation, Spelling
from .stmt import Buffer, BufferRegion

_PRECEDENCE = {
    "or": 1, "and": 2, "==": 4, "!=": 4, "<": 4, "<=": 4, ">": 4, ">=": 4, "+": 9, "-": 9, "*": 10, "/": 10, "//": 10, "%": 10,
}  # fmt: skip
_NOT_PRECEDENCE, _ADD_PRECEDENCE = 3, 9
_FUNCTIONS = {Min: "min", Max: "max", TruncDiv: "truncdiv", TruncMod: "truncmod"}
Render = Callable[[Any, "ExprPrinter"], Any]
_PRINTERS: dict[type, Render] = {}


def register_printer(cls: type, render: Render) -> None:
    """Register a node type: ``render(node, printer)`` returns the text, or ``(text, precedence)``.

    ``printer.text(child, min_precedence)`` prints a child. Text alone never needs parentheses.
    """
    _PRINTERS[cls] = render


def folds(cls: type[BinaryOp], a: Expr, b: Expr) -> bool:
    """Return whether the operator of ``cls`` on these operands builds another node than ``cls(a, b)``."""
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return True
    if isinstance(a, (IntImm, FloatImm)) and isinstance(b, (IntImm, FloatImm)):
        return issubclass(cls, CmpOp)
    if not (isinstance(a, IntImm) or isinstance(b, IntImm)) or cls not in FOLDED:
        return False
    made = make_binary(cls, a, b)
    return not (type(made) is cls and made.a is a and made.b is b)  # x + 0 gives x, which may be a sum as well


class ExprPrinter:
    """Prints expressions; :class:`tilewright.tir.printer.StmtPrinter` prints statements.

    Without ``typed`` numbers, and conversions between them, are written without their data types.
    """

    def __init__(self, typed: bool = True) -> None:
        self.names = Names()
        self.typed = typed

    def text(self, e: Any, min_precedence: int = 0) -> str:
        """Return the text of ``e``, in parentheses when its precedence is below ``min_precedence``."""
        cls = type(e)
        if cls is Var:
            name = self.names.texts.get(e)
            return name if name is not None else self.unknown_var(e)
        if cls is IntImm and (e.dtype == "int32" or not self.typed):
            return str(e.value)
        if cls is Cast and not self.typed:
            return self.text(e.value, min_precedence)
        if issubclass(cls, BinaryOp) and cls.symbol:
            precedence = _PRECEDENCE[cls.symbol]
            a, b = e.a, e.b
            if self._is_plain(cls, a, b):
                tight = precedence + (precedence == 4)
                out = f"{self.text(a, tight)} {cls.symbol} {self.text(b, precedence + 1)}"
                return out if precedence >= min_precedence else f"({out})"
            return f"T.{cls.__name__}({self.text(a)}, {self.text(b)})"
        render = _PRINTERS.get(cls)
        if render is None:
            render = next((r for c, r in _PRINTERS.items() if isinstance(e, c)), _unknown)
        out = render(e, self)
        if isinstance(out, tuple):
            out, precedence = out
            return out if precedence >= min_precedence else f"({out})"
        return str(out)

    def _is_plain(self, cls: type, a: Expr, b: Expr) -> bool:
        if cls is And or cls is Or:
            return True
        dtype = a.dtype
        if (self.typed and dtype != b.dtype) or folds(cls, a, b):
            return False
        if cls is FloorDiv or cls is FloorMod:
            return not dtype.is_float
        return cls is not Div or not dtype.is_int

    def many(self, items: Any) -> str:
        """Return expressions separated by commas."""
        return ", ".join([self.text(item) for item in items])

    def unknown_var(self, var: Var) -> str:
        """Return the name of a variable that nothing printed so far defines."""
        return self.names.define(var, var.name)

    def buffer_name(self, buffer: Buffer) -> str:
        """Return the name of ``buffer``."""
        name = self.names.texts.get(buffer)
        return name if name is not None else self.unknown_buffer(buffer)

    def unknown_buffer(self, buffer: Buffer) -> str:
        """Return the name of a buffer that nothing printed so far declares."""
        return self.define_buffer(buffer)

    def define_buffer(self, buffer: Buffer) -> str:
        """Name a buffer, and its pointer after it unless another buffer has the same pointer; return the name."""
        name = self.names.define(buffer, buffer.name)
        if buffer.data not in self.names.texts:
            self.names.alias(buffer.data, f"{name}.data")
        return name

    def access(self, name: str, indices: tuple[Expr, ...]) -> str:
        """Return ``A[i, 0:4]``; ``A[()]`` for a buffer of rank 0."""
        return f"{name}[{', '.join([self._index(i) for i in indices]) or '()'}]"

    def _index(self, index: Expr) -> str:
        if type(index) is Ramp and index.lanes > 1 and type(index.stride) is IntImm:
            dtype = index.base.dtype
            if index.stride.value == 1 and index.stride.dtype == dtype:
                return ":".join(self.span(index.base, IntImm(index.lanes, dtype)))
        return self.text(index)

    def span(self, lo: Expr, extent: Expr) -> tuple[str, str]:
        """Return the texts of ``lo`` and ``lo + extent``, from which the parser recovers ``extent``."""
        if type(lo) is IntImm:
            if type(extent) is IntImm and lo.value + extent.value <= max_value(extent.dtype):
                return self.text(lo), self.text(IntImm(lo.value + extent.value, extent.dtype))
            if lo.value == 0:
                return self.text(lo), self.text(extent)
        if type(lo) is Add and type(lo.b) is IntImm and type(lo.a) is not IntImm and type(extent) is IntImm:
            end = lo.b.value + extent.value
            if end != 0 and lo.b.value != 0 and end <= max_value(extent.dtype):
                tail = self.text(IntImm(end, extent.dtype))
                return self.text(lo), f"{self.text(lo.a, _ADD_PRECEDENCE)} + {tail}"
        return self.text(lo), f"{self.text(lo, _ADD_PRECEDENCE)} + {self.text(extent, _ADD_PRECEDENCE + 1)}"

    def region(self, region: BufferRegion) -> str:
        """Return a region as ``A[i, 0:4]``, with one index or slice per dimension."""
        items = []
        for r in region.region:
            extent = r.extent
            if type(extent) is IntImm and extent.value == 1 and extent.dtype == r.min.dtype:
                items.append(self.text(r.min))
            else:
                items.append(":".join(self.span(r.min, extent)))
        return f"{self.buffer_name(region.buffer)}[{', '.join(items) or '()'}]"

    def value(self, value: Any) -> str:
        """Return the value of an attribute or annotation: text, numbers, expressions, lists and dicts of them."""
        if isinstance(value, str):
            return quote(value)
        if isinstance(value, (list, tuple)):
            return f"[{', '.join([self.value(v) for v in value])}]"
        if hasattr(value, "items"):
            return self.mapping(value)
        if isinstance(value, IntImm):
            return repr(bool(value.value)) if value.dtype.is_bool else self.text(value)
        if isinstance(value, (Expr, CommReducer)):
            return self.text(value)
        if isinstance(value, float) and not math.isfinite(value):
            return f'T.float64("{value}")'
        if isinstance(value, Buffer):
            return self.buffer_name(value)
        return repr(value)

    def mapping(self, items: Any) -> str:
        """Return a dict as text, with its values printed by :meth:`value`."""
        return "{" + ", ".join([f"{quote(str(k))}: {self.value(v)}" for k, v in items.items()]) + "}"


def quote(text: str) -> str:
    """Return ``text`` as a string literal."""
    return json.dumps(text, ensure_ascii=False) if text.isprintable() else json.dumps(text)


def _unknown(e: Any, p: ExprPrinter) -> str:
    return object.__repr__(e)


def _int(e: IntImm, p: ExprPrinter) -> str:
    if e.dtype.is_bool:
        return f"T.bool({bool(e.value)})"
    return f"T.{e.dtype}({e.value})"


def _float(e: FloatImm, p: ExprPrinter) -> str:
    value = float(e.value)
    return f"T.{e.dtype}({value!r})" if math.isfinite(value) else f'T.{e.dtype}("{value}")'


def _not(e: Not, p: ExprPrinter) -> tuple[str, int]:
    return f"not {p.text(e.a, _NOT_PRECEDENCE)}", _NOT_PRECEDENCE


def _function(e: BinaryOp, p: ExprPrinter) -> str:
    cls = type(e)
    word = cls.__name__ if folds(cls, e.a, e.b) or e.a.dtype != e.b.dtype else _FUNCTIONS[cls]
    return f"T.{word}({p.text(e.a)}, {p.text(e.b)})"


def _load(e: BufferLoad, p: ExprPrinter) -> str:
    name = p.buffer_name(e.buffer)
    if e.predicate is None:
        return p.access(name, e.indices)
    return f"{name}.vload([{p.many(e.indices)}], predicate={p.text(e.predicate)})"


def _call(e: Call, p: ExprPrinter) -> str:
    row = OPERATIONS.get(e.op)
    texts = [p.text(a) for a in e.args]
    if row is not None and row.spelling is Spelling.TYPED and _builds(row, e, e.dtype):
        return f"T.{row.name}({', '.join([quote(e.dtype), *texts])})"
    if row is not None and row.spelling is Spelling.PLAIN and _builds(row, e, None):
        return f"T.{row.name}({', '.join(texts)})"
    return f"T.call({', '.join([quote(e.op), *texts])}, dtype={quote(e.dtype)})"


def _builds(row: Operation, e: Call, dtype: str | None) -> bool:
    """Return whether ``row`` builds the call ``e`` from its arguments, with ``dtype`` stated."""
    try:
        return row.result_type(e.args, dtype) == e.dtype
    except (TypeError, ValueError):
        return False


def _let(e: Let, p: ExprPrinter) -> str:
    """Print nested lets as one ``where`` in order, so that later values may use earlier names."""
    body: Expr = e
    named = []
    while isinstance(body, Let):
        value = p.text(body.value)
        p.names.enter()
        named.append(f"{p.names.define(body.var, body.var.name)}: {value}")
        body = body.body
    out = f"T.Let({p.text(body)}, where={{{', '.join(named)}}})"
    for _ in named:
        p.names.leave()
    return out


def _reducer(e: CommReducer, p: ExprPrinter) -> str:
    p.names.enter()
    args = ", ".join([p.names.define(v, v.name) for v in (*e.lhs, *e.rhs)])
    body = p.text(e.result[0]) if len(e.result) == 1 else f"({p.many(e.result)})"
    p.names.leave()
    return f"T.comm_reducer(lambda {args}: {body}, [{p.many(e.identity_element)}])"


def _reduce(e: Reduce, p: ExprPrinter) -> str:
    where = "" if isinstance(e.condition, IntImm) and e.condition.value else f", where={p.text(e.condition)}"
    init = f", init=[{p.many(e.init)}]" if e.init else ""
    axes = ", ".join([p.text(a) for a in e.axis])
    source = p.text(e.source[0]) if len(e.source) == 1 else f"({p.many(e.source)})"
    item = f"[{e.value_index}]" if len(e.source) > 1 else ""
    return f"T.reduce({p.text(e.combiner)}, {source}, axis=[{axes}]{where}{init}){item}"


def _iter_var(e: IterVar, p: ExprPrinter) -> str:
    tag = f", {quote(e.thread_tag)}" if e.thread_tag else ""
    return f"T.iter_var({p.text(e.var)}, {p.text(e.dom)}, {quote(e.kind)}{tag})"


_PRINTERS.update(
    {
        IntImm: _int,
        FloatImm: _float,
        StringImm: lambda e, p: quote(e.value),
        Not: _not,
        Min: _function,
        Max: _function,
        TruncDiv: _function,
        TruncMod: _function,
        Select: lambda e, p: f"T.Select({p.many((e.condition, e.true_value, e.false_value))})",
        Cast: lambda e, p: f"T.Cast({quote(e.dtype)}, {p.text(e.value)})",
        Ramp: lambda e, p: f"T.Ramp({p.text(e.base)}, {p.text(e.stride)}, {e.lanes})",
        Broadcast: lambda e, p: f"T.Broadcast({p.text(e.value)}, {e.lanes})",
        Shuffle: lambda e, p: f"T.Shuffle([{p.many(e.vectors)}], {list(e.indices)})",
        BufferLoad: _load,
        Call: _call,
        Let: _let,
        CommReducer: _reducer,
        Reduce: _reduce,
        IterVar: _iter_var,
        Range: lambda e, p: "T.Range({}, {})".format(*p.span(e.min, e.extent)),
        BufferRegion: lambda e, p: p.region(e),
        Buffer: lambda e, p: p.buffer_name(e),
    }
)


_NOT_IN_NAMES = re.compile(r"\W")
_RESERVED = frozenset(keyword.kwlist) | {"T", "I", "range"}


class Names:
    """Holds the names of all variables and buffers in scope.

    A name that is in use gets a number: ``i``, ``i_1``, ``i_2``. Leaving a scope frees the names made in it, so that
    two consecutive loops may both be ``i``.
    """

    def __init__(self) -> None:
        self.texts: dict[Any, str] = {}
        self._live: set[str] = set()
        self._next: dict[str, int] = {}
        self._scopes: list[list[tuple[Any, str | None, str, str, int | None]]] = [[]]
        self._into = -1

    @property
    def depth(self) -> int:
        """The number of the innermost scope, for :meth:`within`."""
        return len(self._scopes) - 1

    @contextmanager
    def within(self, depth: int) -> Iterator[None]:
        """Make names in the outer scope of this number inside the ``with``; they live as long as that scope."""
        before, self._into = self._into, depth
        try:
            yield
        finally:
            self._into = before

    def enter(self) -> None:
        """Open a scope."""
        self._scopes.append([])

    def leave(self) -> None:
        """Close the innermost scope and free its names."""
        for key, before, text, base, old in reversed(self._scopes.pop()):
            if before is None:
                del self.texts[key]
            else:  # defined twice, so the program is not well-formed
                self.texts[key] = before
            if base:
                self._live.discard(text)
                if old is None:
                    self._next.pop(base, None)
                else:
                    self._next[base] = old

    def define(self, key: Any, hint: str) -> str:
        """Give ``key`` a unique name that begins with ``hint``, and return it."""
        base = _NOT_IN_NAMES.sub("_", hint) or "v"
        if base[0].isdigit() or not base.isidentifier():
            base = "v_" + (base if base.isascii() else "x")
        text, old = base, self._next.get(base)
        if base in self._live or base in _RESERVED:
            number = 1 if old is None else old
            while f"{base}_{number}" in self._live:
                number += 1
            text = f"{base}_{number}"
            self._next[base] = number + 1
        self._live.add(text)
        self._scopes[self._into].append((key, self.texts.get(key), text, base, old))
        self.texts[key] = text
        return text

    def alias(self, key: Any, text: str) -> None:
        """Let ``key`` print as ``text`` in this scope, e.g. a data pointer as ``A.data``."""
        self._scopes[self._into].append((key, self.texts.get(key), text, "", None))
        self.texts[key] = text
