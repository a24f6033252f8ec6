"""This module parses blocks: axes, regions, predicates, buffers."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..analysis.access_regions import access_regions
from ..buffer import Buffer, BufferRegion, MatchBufferRegion
from ..constants import const, convert
from ..equal import plain
from ..expr import Expr, IntImm, Var
from ..ranges import IterVar, Range
from ..stmt import Block, BlockRealize, Stmt
from .expression_parser import ExprParser

BUFFER_ARGS = (
    "shape", "dtype", "data", "strides", "elem_offset", "scope", "align", "offset_factor", "buffer_type",
    "axis_separators",
)  # fmt: skip
_KINDS = {"S": "spatial", "R": "reduce", "O": "opaque", "C": "scan"}


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


class BlockParser(ExprParser):
    """Parses the declarations of a block. ``frames`` are the open blocks; the first is the function's."""

    def __init__(self, source: Any, outer: Any) -> None:
        super().__init__(source, outer)
        self.frames: list[Frame] = []
        self.loops: dict[Var, Range] = {}
        self.roots: dict[Stmt, Block] = {}  # top-level blocks without axes, each in the form that it has as the root
        self.thread_tags: dict[Var, str] = {}  # of T.env_thread

    def frame(self, node: ast.AST, what: str) -> Frame:
        """Return the innermost open block; ParseError outside all blocks."""
        if not self.frames or self.frames[-1].is_function:
            raise self.error(f"{what} belongs in a block", node)
        return self.frames[-1]

    def attributes(self, node: ast.expr) -> dict[str, Any]:
        """Parse a dict of attributes, with constants as Python values."""
        value = self.eval(node)
        if not isinstance(value, dict) or not all(isinstance(k, str) for k in value):
            raise self.error("a dict with texts as keys is needed", node)
        return {k: _plain(v) for k, v in value.items()}

    def block(self, call: ast.Call, body: Callable[[], Stmt]) -> Stmt:
        """Parse ``with T.block(name): body``."""
        args = self.arguments(call, "name", "no_realize")
        if "no_realize" in args and self.eval(args["no_realize"]):
            raise self.error("a block that is not realized is not a statement of a program", args["no_realize"])
        name = self.string(args["name"]) if "name" in args else ""
        may_be_root = len(self.frames) == 1 and not self.loops
        frame = Frame()
        self.frames.append(frame)
        self.scopes.append({})
        inner = body()
        self.scopes.pop()
        self.frames.pop()
        reads, writes = frame.reads, frame.writes
        found: Any = ((), ())
        if reads is None or writes is None:
            found = self._accesses(frame, inner)
        block = Block(
            tuple(frame.axes), found[0] if reads is None else reads, found[1] if writes is None else writes, name,
            inner, frame.init, tuple(frame.allocs), tuple(frame.matches), frame.annotations,
        )  # fmt: skip
        predicate = frame.predicate if frame.predicate is not None else IntImm(1, "bool")
        realize = BlockRealize(tuple(frame.values), predicate, block)
        if may_be_root and not frame.axes:
            self.roots[realize] = block.with_(reads=reads or (), writes=writes or ())
        return realize

    def _accesses(self, frame: Frame, body: Stmt) -> tuple[tuple[BufferRegion, ...], tuple[BufferRegion, ...]]:
        """Return the regions outside the block that it reads and writes; a matched buffer counts as its source
        region."""
        own = set(frame.allocs)
        sources = {m.buffer: m.source for m in frame.matches}
        out = []
        for regions in access_regions(body, frame.init):
            kept: dict[Buffer, BufferRegion] = {}
            for r in regions:
                r = sources.get(r.buffer, r)
                if r.buffer not in own:
                    kept.setdefault(r.buffer, r)
            out.append(tuple(kept.values()))
        return out[0], out[1]

    def block_init(self, call: ast.Call, body: Callable[[], Stmt]) -> None:
        """Parse ``with T.init(): body``."""
        frame = self.frame(call, "T.init")
        if frame.has_init:
            raise self.error("this block has an init already", call)
        frame.init, frame.has_init = body(), True

    def block_where(self, call: ast.Call) -> None:
        """Parse ``T.where(condition)``."""
        frame = self.frame(call, "T.where")
        if len(call.args) != 1 or call.keywords:
            raise self.error("write T.where(condition)", call)
        if frame.predicate is not None:
            raise self.error("this block has a T.where already", call)
        value = self.eval(call.args[0])
        frame.predicate = convert(value) if isinstance(value, bool) else self.condition(call.args[0])

    def _regions(self, call: ast.Call) -> tuple[BufferRegion, ...]:
        nodes: list[ast.expr] = []
        for n in call.args:
            nodes.extend(n.elts if isinstance(n, (ast.List, ast.Tuple)) else [n])
        return tuple([self.region(n) for n in nodes])

    def block_reads(self, call: ast.Call) -> None:
        """Parse ``T.reads(A[i, 0:4], …)``."""
        frame = self.frame(call, "T.reads")
        frame.reads = (frame.reads or ()) + self._regions(call)

    def block_writes(self, call: ast.Call) -> None:
        """Parse ``T.writes(C[i, j])``."""
        frame = self.frame(call, "T.writes")
        frame.writes = (frame.writes or ()) + self._regions(call)

    def block_block_attr(self, call: ast.Call) -> None:
        """Parse ``T.block_attr({…})``."""
        frame = self.frame(call, "T.block_attr")
        frame.annotations.update(self.attributes(self.arguments(call, "attrs")["attrs"]))

    def block_func_attr(self, call: ast.Call) -> None:
        """Parse ``T.func_attr({…})``."""
        if len(self.frames) != 1:
            raise self.error("T.func_attr belongs to the function, outside of its blocks", call)
        self.frames[0].annotations.update(self.attributes(self.arguments(call, "attrs")["attrs"]))

    # Axes

    def axis(self, kind: str, name: str, call: ast.Call) -> Var:
        """Parse ``vi = T.axis.spatial(16, value)``."""
        frame = self.frame(call, f"T.axis.{kind}")
        args = self.arguments(call, "dom", "binding", "dtype")
        if "dom" not in args or "binding" not in args:
            raise self.error(f"write T.axis.{kind}(domain, value)", call)
        value = self.eval(args["binding"])
        value = value.var if isinstance(value, IterVar) else value
        dtype = value.dtype if isinstance(value, Expr) else None
        dom = self._domain(args["dom"], dtype)
        binding = self.as_expr(value, args["binding"], dom.extent.dtype)
        var = Var(name, self.dtype(args["dtype"]) if "dtype" in args else dom.extent.dtype)
        frame.axes.append(IterVar(dom, var, kind))
        frame.values.append(binding)
        return var

    def _domain(self, node: ast.expr, dtype: str | None) -> Range:
        if isinstance(node, (ast.Tuple, ast.List)):
            if len(node.elts) != 2:
                raise self.error("a domain is an extent or (start, stop)", node)
            return self.span(node.elts[0], node.elts[1])
        value = self.eval(node)
        if isinstance(value, Range):
            return value
        extent = self.as_expr(value, node, dtype)
        return Range(const(0, extent.dtype), extent)

    def remap(self, target: ast.expr, call: ast.Call) -> None:
        """Parse ``vi, vk = T.axis.remap("SR", [i, k])``."""
        frame = self.frame(call, "T.axis.remap")
        args = self.arguments(call, "kinds", "bindings", "dtype")
        if "kinds" not in args or "bindings" not in args:
            raise self.error('write T.axis.remap("SR", [i, k])', call)
        kinds = self.string(args["kinds"])
        values = self.eval(args["bindings"])
        if not isinstance(values, (list, tuple)):
            raise self.error("a list of loop variables is needed", args["bindings"])
        targets = list(target.elts) if isinstance(target, (ast.Tuple, ast.List)) else [target]
        if not len(kinds) == len(values) == len(targets):
            raise self.error(f"{len(targets)} axes, {len(kinds)} kinds, {len(values)} loop variables", call)
        for t, k, v in zip(targets, kinds, values, strict=True):
            if k not in _KINDS:
                raise self.error(f"axis kind {k!r}; there are {', '.join(_KINDS)}", args["kinds"])
            if not isinstance(v, Var) or v not in self.loops:
                raise self.error(f"T.axis.remap takes loop variables; {v} is not one", args["bindings"])
            if not isinstance(t, ast.Name):
                raise self.error("an axis is a name", t)
            dom = self.loops[v]
            var = Var(t.id, v.dtype)
            frame.axes.append(IterVar(dom, var, _KINDS[k]))
            frame.values.append(v)
            self.define(t.id, var)

    # Buffers

    def alloc_buffer(self, name: str, call: ast.Call) -> Buffer:
        """Parse ``B = T.alloc_buffer((16,), "float32")``; the buffer belongs to the innermost block."""
        buffer = self.buffer(name, self.arguments(call, *BUFFER_ARGS), call)
        self.frames[-1].allocs.append(buffer)
        return buffer

    def match_buffer(self, name: str, call: ast.Call) -> Buffer:
        """Parse ``A = T.match_buffer(a, shape)`` of a parameter, or of a region in a block."""
        args = self.arguments(call, "param", *BUFFER_ARGS, "type")
        if "param" not in args:
            raise self.error("T.match_buffer needs a parameter or a region", call)
        param = args.pop("param")
        if isinstance(param, ast.Name):
            value = self.eval(param)
            if isinstance(value, Var):
                return self._match_param(name, value, param, args, call)
        source = self.region(param)
        buffer = self.buffer(name, args, call, source)
        self.frame(call, "T.match_buffer of a region").matches.append(MatchBufferRegion(buffer, source))
        return buffer

    def _match_param(self, name: str, var: Var, param: ast.expr, args: dict[str, ast.expr], call: ast.Call) -> Buffer:
        top = self.frames[0]
        if var.dtype != "handle":
            raise self.error(f"T.match_buffer takes a parameter of type T.handle, {var.name} is {var.dtype}", param)
        if var in top.params:
            raise self.error(f"{var.name} has a buffer already", param)
        buffer = self.buffer(name, args, call)
        top.params[var] = buffer
        return buffer


def _plain(value: Any) -> Any:
    """Return int32 and bool constants of attributes as Python values."""
    if isinstance(value, IntImm) and value.dtype not in ("int32", "bool"):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return plain(value)
