"""This module defines structural equality, a matching hash, and the keys of workloads and programs.

Two programs are equal when they differ only in names: of variables and buffers, of blocks, and of the function
(``global_symbol``). In attributes a constant node and the Python number of the same value are equal.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import struct
from functools import cache
from typing import Any

from .buffer import Buffer, BufferRegion, MatchBufferRegion
from .deep_recursion import with_room
from .expr import BinaryOp, CommReducer, Expr, FloatImm, IntImm, IterVar, Let, Range, Reduce, StringImm, Var
from .function import IRModule, PrimFunc
from .node import Node
from .printer import script
from .printer_func import ProgramPrinter
from .printer_names import Names
from .stmt import Allocate, AttrStmt, Block, BlockRealize, For, LetStmt, Stmt


@with_room
def structural_equal(a: Any, b: Any, map_free_vars: bool = False) -> bool:
    """Return whether ``a`` and ``b`` (nodes, regions, ranges) are equal up to renaming.

    Variables and buffers that neither side defines must be the same objects, unless ``map_free_vars`` lets them
    correspond as well.
    """
    return _Comparison(map_free_vars).run(a, b)


@with_room
def assert_structural_equal(a: Any, b: Any, map_free_vars: bool = False) -> None:
    """Raise AssertionError, with the first difference marked in both texts, unless the two are structurally equal."""
    comparison = _Comparison(map_free_vars)
    if comparison.run(a, b):
        return
    texts = []
    for node, spot in ((a, comparison.spots[0]), (b, comparison.spots[1])):
        texts.append(script(node, highlight={spot: "differs here"} if spot is not None else ()))
    raise AssertionError(
        f"not structurally equal, first at {comparison.where}: {comparison.what}\n"
        f"--- left\n{texts[0]}\n--- right\n{texts[1]}"
    )


def structural_hash(node: Any) -> int:
    """Return a hash of 64 bits that is the same for equal nodes and in every process."""
    digest = hashlib.sha256(canonical_text(node, block_names=False).encode()).digest()
    return int.from_bytes(digest[:8], "big")


def workload_key(func: PrimFunc | IRModule) -> str:
    """Return the key of a workload: the SHA-256 of the canonical text in hex. It does not depend on names, like TVM's
    hash.

    Programs that differ in the names of blocks, variables, buffers or the function have one workload key.
    """
    return hashlib.sha256(canonical_text(func, block_names=False).encode()).hexdigest()


def program_key(func: PrimFunc | IRModule) -> str:
    """Return the key of a program in a database: a :func:`workload_key` that depends on the names of blocks as well.

    A trace finds its blocks by their names, so a record belongs to the program that it was made for.
    """
    return hashlib.sha256(canonical_text(func).encode()).hexdigest()


@with_room
def canonical_text(node: Any, block_names: bool = True) -> str:
    """Return the printed text with variables ``v0, v1, …`` and buffers ``b0, b1, …`` in the order in which they
    appear."""
    printer = _CanonicalPrinter(block_names)
    if isinstance(node, (Stmt, PrimFunc, IRModule)):
        printer.stmt(node)
        return "\n".join(printer.lines)
    return printer.text(node)


def plain(value: Any) -> Any:
    """Return the value of an attribute in Python's own types: numbers for constants, lists for tuples."""
    if isinstance(value, IntImm):
        return bool(value.value) if value.dtype.is_bool else value.value
    if isinstance(value, FloatImm):
        return value.value
    if isinstance(value, StringImm):
        return value.value
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if hasattr(value, "items"):
        return {str(k): plain(v) for k, v in value.items()}
    return value


class _CanonicalNames(Names):
    def define(self, key: Any, hint: str) -> str:
        kind = "b" if isinstance(key, Buffer) else "v"
        number = self._next.get(kind, 0)
        self._next[kind] = number + 1
        text = f"{kind}{number}"
        self._scopes[self._into].append((key, self.texts.get(key), text, "", None))
        self.texts[key] = text
        return text


class _CanonicalPrinter(ProgramPrinter):
    def __init__(self, block_names: bool) -> None:
        super().__init__()
        self.names = _CanonicalNames()
        self.block_names = block_names

    def value(self, value: Any) -> str:
        return super().value(plain(value))

    def mapping(self, items: Any) -> str:
        return super().mapping(dict(sorted((str(k), v) for k, v in items.items())))

    def func(self, f: PrimFunc, name: str | None = None) -> None:
        attrs = {k: v for k, v in f.attrs.items() if k != "global_symbol"}
        super().func(PrimFunc(f.params, f.body, f.buffer_map, attrs), name or "main")

    def module(self, m: IRModule) -> None:
        super().module(IRModule(dict(sorted(m.functions.items())), m.attrs))

    def _block(self, b: Block, realize: BlockRealize | None) -> None:
        super()._block(b if self.block_names else b.with_(name_hint=""), realize)


@cache
def _fields(cls: Any) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(cls))


class _Comparison:
    """Compares two programs; it records which variables and buffers of the left side correspond to which of the
    right."""

    def __init__(self, map_free_vars: bool) -> None:
        self.map_free = map_free_vars
        self.in_func = False
        self.to_right: dict[Any, Any] = {}
        self.to_left: dict[Any, Any] = {}
        self.path: list[str] = []
        self.open: list[tuple[Any, Any]] = []
        self.where = self.what = ""
        self.spots: tuple[Any, Any] = (None, None)

    def run(self, a: Any, b: Any) -> bool:
        return self.same(a, b)

    def fail(self, what: str) -> bool:
        if not self.what:
            self.what = what
            self.where = "".join(self.path).lstrip(".") or "the top"
            if self.open:
                self.spots = self.open[-1]
        return False

    def at(self, step: str, a: Any, b: Any) -> bool:
        self.path.append(step)
        out = self.same(a, b)
        self.path.pop()
        return out

    # Correspondence

    def bind(self, a: Any, b: Any) -> None:
        """Let ``a`` on the left correspond to ``b`` on the right from here on."""
        old = self.to_right.get(a)
        if old is not None:
            self.to_left.pop(old, None)
        old = self.to_left.get(b)
        if old is not None:
            self.to_right.pop(old, None)
        self.to_right[a], self.to_left[b] = b, a

    def define(self, a: Var, b: Var) -> bool:
        if a.dtype != b.dtype:
            return self.fail(f"variable {a.name} is {a.dtype}, {b.name} is {b.dtype}")
        self.bind(a, b)
        return True

    def var(self, a: Var, b: Var) -> bool:
        mapped = self.to_right.get(a)
        if mapped is not None:
            return mapped is b or self.fail(f"variable {a.name} corresponds to {_name(mapped)}, not to {b.name}")
        if b in self.to_left:
            return self.fail(f"{b.name} corresponds to {_name(self.to_left[b])}, not to {a.name}")
        if self.map_free:
            return self.define(a, b)
        return a is b or self.fail(f"free variables {a.name} and {b.name} are different variables")

    def buffer(self, a: Buffer, b: Buffer) -> bool:
        mapped = self.to_right.get(a)
        if mapped is not None:
            return mapped is b or self.fail(f"buffer {a.name} corresponds to {_name(mapped)}, not to {b.name}")
        if b in self.to_left:
            return self.fail(f"buffer {b.name} corresponds to {_name(self.to_left[b])}, not to {a.name}")
        if self.map_free or self.in_func:  # inside a function this is another view, declared where it is used first
            return self.define_buffer(a, b)
        return a is b or self.fail(f"free buffers {a.name} and {b.name} are different buffers")

    def define_buffer(self, a: Buffer, b: Buffer, symbols: bool = False) -> bool:
        """Compare the declarations, then let the buffers correspond. With ``symbols`` sizes may be new variables."""
        free, self.map_free = self.map_free, self.map_free or symbols
        for name in ("dtype", "scope", "data_alignment", "offset_factor", "axis_separators"):
            if getattr(a, name) != getattr(b, name):
                return self.fail(f"buffer {a.name}: {name} {getattr(a, name)!r} against {getattr(b, name)!r}")
        out = (
            self.at(".shape", a.shape, b.shape)
            and self.at(".strides", a.strides, b.strides)
            and self.at(".elem_offset", a.elem_offset, b.elem_offset)
        )
        self.map_free = free
        if not out:
            return False
        if a.data in self.to_right or b.data in self.to_left:
            if not self.at(".data", a.data, b.data):
                return False
        else:
            self.bind(a.data, b.data)
        self.bind(a, b)
        return True

    # Comparison

    def same(self, a: Any, b: Any) -> bool:
        depth = len(self.open), len(self.path)
        while True:
            cls = type(a)
            if cls is not type(b):
                return self.fail(f"{_kind(a)} against {_kind(b)}")
            if cls is Var:
                return self.var(a, b)
            if cls is IntImm:
                same = a.value == b.value and a.dtype == b.dtype
                return same or self.fail(f"{a} ({a.dtype}) against {b} ({b.dtype})")
            if isinstance(a, BinaryOp):
                return self.at(".a", a.a, b.a) and self.at(".b", a.b, b.b)
            if cls is FloatImm:
                same = a.dtype == b.dtype and _same_float(a.value, b.value)
                return same or self.fail(f"{a} against {b}")
            if cls is tuple or cls is list:
                return self.items(a, b)
            if cls is Buffer:
                return self.buffer(a, b)
            if isinstance(a, Stmt):
                self.open.append((a, b))
            next_pair = self.node(a, b)
            if isinstance(next_pair, bool):
                if next_pair:
                    del self.open[depth[0] :], self.path[depth[1] :]
                return next_pair
            self.path.append(".body")
            a, b = next_pair

    def items(self, a: Any, b: Any) -> bool:
        if len(a) != len(b):
            return self.fail(f"{len(a)} items against {len(b)}")
        return all(self.at(f"[{k}]", x, y) for k, (x, y) in enumerate(zip(a, b, strict=True)))

    def node(self, a: Any, b: Any) -> bool | tuple[Any, Any]:
        """Compare two nodes of one class. A returned pair of bodies remains to be compared."""
        cls = type(a)
        if cls is For:
            return (
                self.field("kind", a, b)
                and self.field("thread_binding", a, b)
                and self.at(".min", a.min, b.min)
                and self.at(".extent", a.extent, b.extent)
                and self.attrs(".annotations", a.annotations, b.annotations)
                and self.define(a.loop_var, b.loop_var)
                and (a.body, b.body)
            )
        if cls is LetStmt or cls is Let:
            return self.at(".value", a.value, b.value) and self.define(a.var, b.var) and (a.body, b.body)
        if cls is Allocate:
            return (
                self.attrs(".annotations", a.annotations, b.annotations)
                and self.define_buffer(a.buffer, b.buffer)
                and (a.body, b.body)
            )
        if cls is Block:
            return self.block(a, b)
        if cls is AttrStmt and isinstance(a.node, IterVar) and isinstance(b.node, IterVar):
            # a thread axis, whose variable is defined here
            same = self.axis(a.node, b.node) and self.field("attr_key", a, b) and self.at(".value", a.value, b.value)
            return same and (a.body, b.body)
        if cls is PrimFunc:
            return self.func(a, b)
        if cls is IRModule:
            return self.module(a, b)
        if cls is CommReducer:
            pairs = zip((*a.lhs, *a.rhs), (*b.lhs, *b.rhs), strict=False)
            return (
                len(a.lhs) == len(b.lhs)
                and all([self.define(x, y) for x, y in pairs])
                and self.at(".result", a.result, b.result)
                and self.at(".identity_element", a.identity_element, b.identity_element)
            )
        if cls is Reduce and (len(a.axis) != len(b.axis) or not all(map(self.axis, a.axis, b.axis))):
            return self.fail("the reduction axes differ")
        return self.fields(a, b)

    def field(self, name: str, a: Any, b: Any) -> bool:
        x, y = getattr(a, name), getattr(b, name)
        return x == y or self.fail(f"{name} {x!r} against {y!r}")

    def fields(self, a: Any, b: Any) -> bool:
        if isinstance(a, Node) or dataclasses.is_dataclass(a):
            cls: Any = type(a)
            for name in _fields(cls):
                self.path.append("." + name)
                if not self.value(getattr(a, name), getattr(b, name)):
                    return False
                self.path.pop()
            return True
        return bool(a == b) or self.fail(f"{a!r} against {b!r}")

    def value(self, x: Any, y: Any) -> bool:
        if isinstance(x, (Expr, Stmt, tuple, list, Buffer, Range, BufferRegion, MatchBufferRegion)):
            return self.same(x, y)
        if hasattr(x, "items") and hasattr(y, "items"):
            return self.attrs("", x, y)
        if isinstance(x, (Node, IterVar)) or dataclasses.is_dataclass(x):
            return type(x) is type(y) and self.same(x, y)
        return x is y or (type(x) is type(y) and _same_value(x, y)) or self.fail(f"{x!r} against {y!r}")

    def attrs(self, step: str, a: Any, b: Any, skip: str = "") -> bool:
        left = {k: plain(v) for k, v in a.items() if k != skip}
        right = {k: plain(v) for k, v in b.items() if k != skip}
        if left.keys() != right.keys():
            return self.fail(f"{step.lstrip('.') or 'keys'} {sorted(left)} against {sorted(right)}")
        for k in left:
            self.path.append(f"{step}[{k!r}]")
            if not self.value(left[k], right[k]):
                return False
            self.path.pop()
        return True

    def axis(self, a: IterVar, b: IterVar) -> bool:
        return (
            self.field("kind", a, b)
            and self.field("thread_tag", a, b)
            and self.at(".dom.min", a.dom.min, b.dom.min)
            and self.at(".dom.extent", a.dom.extent, b.dom.extent)
            and self.define(a.var, b.var)
        )

    def block(self, a: Block, b: Block) -> bool | tuple[Any, Any]:
        for name in ("iter_vars", "reads", "writes", "alloc_buffers", "match_buffers"):
            x, y = getattr(a, name), getattr(b, name)
            if len(x) != len(y):
                return self.fail(f"block {a.name_hint}: {len(x)} {name} against {len(y)}")
        if (a.init is None) != (b.init is None):
            return self.fail(f"block {a.name_hint}: only one side has an init")
        same = (
            all(map(self.axis, a.iter_vars, b.iter_vars))
            and self.at(".reads", a.reads, b.reads)
            and self.at(".writes", a.writes, b.writes)
            and all(map(self.define_buffer, a.alloc_buffers, b.alloc_buffers))
            and all(map(self.match, a.match_buffers, b.match_buffers))
            and self.attrs(".annotations", a.annotations, b.annotations)
            and (a.init is None or self.at(".init", a.init, b.init))
        )
        return same and (a.body, b.body)

    def match(self, a: MatchBufferRegion, b: MatchBufferRegion) -> bool:
        return self.at(".source", a.source, b.source) and self.define_buffer(a.buffer, b.buffer, symbols=True)

    def func(self, a: PrimFunc, b: PrimFunc) -> bool | tuple[Any, Any]:
        if len(a.params) != len(b.params):
            return self.fail(f"{len(a.params)} parameters against {len(b.params)}")
        self.open.append((a, b))
        self.in_func = True
        if not self.attrs(".attrs", a.attrs, b.attrs, skip="global_symbol"):
            return False
        if not all(map(self.define, a.params, b.params)):
            return False
        for p, q in zip(a.params, b.params, strict=True):
            x, y = a.buffer_map.get(p), b.buffer_map.get(q)
            if (x is None) != (y is None):
                return self.fail(f"parameter {p.name} is a buffer on one side only")
            if x is not None and y is not None and not self.define_buffer(x, y, symbols=True):
                return False
        return a.body, b.body

    def module(self, a: IRModule, b: IRModule) -> bool:
        if a.functions.keys() != b.functions.keys():
            return self.fail(f"functions {sorted(a.functions)} against {sorted(b.functions)}")
        return self.attrs(".attrs", a.attrs, b.attrs) and all(
            self.at(f"[{name!r}]", f, b.functions[name]) for name, f in a.functions.items()
        )


def _same_value(x: Any, y: Any) -> bool:
    return _same_float(x, y) if isinstance(x, float) else bool(x == y)


def _same_float(x: float, y: float) -> bool:
    if math.isnan(x) or math.isnan(y):
        return math.isnan(x) and math.isnan(y)
    return struct.pack("d", x) == struct.pack("d", y)


def _name(x: Any) -> str:
    return getattr(x, "name", repr(x))


def _kind(x: Any) -> str:
    text = str(x) if isinstance(x, Expr) else ""
    return f"{type(x).__name__}{f' {text}' if text and len(text) < 60 else ''}"
