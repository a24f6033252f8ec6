"""This module parses blocks: axes, regions, predicates, buffers."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from ..analysis.access_regions import access_regions
from ..expr import Expr, IntImm, IterVar, Var, convert
from ..stmt import Block, BlockRealize, Buffer, BufferRegion, MatchBufferRegion, Stmt
from .access_parser import BUFFER_ARGS, parse_buffer, parse_domain, parse_region
from .parser_base import Frame, Parse, Parser

_KINDS = {"S": "spatial", "R": "reduce", "O": "opaque", "C": "scan"}


def parse_block(p: Parser, call: ast.Call, body: Callable[[], Stmt]) -> Stmt:
    """Parse ``with T.block(name): body``."""
    args = p.arguments(call, "name", "no_realize")
    if "no_realize" in args and p.eval(args["no_realize"]):
        raise p.error("a block that is not realized is not a statement of a program", args["no_realize"])
    name = p.string(args["name"]) if "name" in args else ""
    may_be_root = len(p.frames) == 1 and not p.loops
    frame = Frame()
    p.frames.append(frame)
    p.scopes.append({})
    inner = body()
    p.scopes.pop()
    p.frames.pop()
    reads, writes = frame.reads, frame.writes
    found: Any = ((), ())
    if reads is None or writes is None:
        found = _accesses(p, frame, inner)
    block = Block(
        tuple(frame.axes), found[0] if reads is None else reads, found[1] if writes is None else writes, name,
        inner, frame.init, tuple(frame.allocs), tuple(frame.matches), frame.annotations,
    )  # fmt: skip
    predicate = frame.predicate if frame.predicate is not None else IntImm(1, "bool")
    realize = BlockRealize(tuple(frame.values), predicate, block)
    if may_be_root and not frame.axes:
        p.roots[realize] = block.with_(reads=reads or (), writes=writes or ())
    return realize


def _accesses(p: Parser, frame: Frame, body: Stmt) -> tuple[tuple[BufferRegion, ...], tuple[BufferRegion, ...]]:
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


def parse_init(p: Parser, call: ast.Call, body: Callable[[], Stmt]) -> None:
    """Parse ``with T.init(): body``."""
    frame = p.frame(call, "T.init")
    if frame.has_init:
        raise p.error("this block has an init already", call)
    frame.init, frame.has_init = body(), True


def parse_where(p: Parser, call: ast.Call) -> None:
    """Parse ``T.where(condition)``."""
    frame = p.frame(call, "T.where")
    if len(call.args) != 1 or call.keywords:
        raise p.error("write T.where(condition)", call)
    if frame.predicate is not None:
        raise p.error("this block has a T.where already", call)
    value = p.eval(call.args[0])
    frame.predicate = convert(value) if isinstance(value, bool) else p.condition(call.args[0])


def _parse_regions(p: Parser, call: ast.Call) -> tuple[BufferRegion, ...]:
    nodes: list[ast.expr] = []
    for n in call.args:
        nodes.extend(n.elts if isinstance(n, (ast.List, ast.Tuple)) else [n])
    return tuple([parse_region(p, n) for n in nodes])


def parse_reads(p: Parser, call: ast.Call) -> None:
    """Parse ``T.reads(A[i, 0:4], …)``."""
    frame = p.frame(call, "T.reads")
    frame.reads = (frame.reads or ()) + _parse_regions(p, call)


def parse_writes(p: Parser, call: ast.Call) -> None:
    """Parse ``T.writes(C[i, j])``."""
    frame = p.frame(call, "T.writes")
    frame.writes = (frame.writes or ()) + _parse_regions(p, call)


def parse_block_attr(p: Parser, call: ast.Call) -> None:
    """Parse ``T.block_attr({…})``."""
    frame = p.frame(call, "T.block_attr")
    frame.annotations.update(p.attributes(p.arguments(call, "attrs")["attrs"]))


def parse_func_attr(p: Parser, call: ast.Call) -> None:
    """Parse ``T.func_attr({…})``."""
    if len(p.frames) != 1:
        raise p.error("T.func_attr belongs to the function, outside of its blocks", call)
    p.frames[0].annotations.update(p.attributes(p.arguments(call, "attrs")["attrs"]))


def parse_axis(p: Parser, kind: str, name: str, call: ast.Call) -> Var:
    """Parse ``vi = T.axis.spatial(16, value)``."""
    frame = p.frame(call, f"T.axis.{kind}")
    args = p.arguments(call, "dom", "binding", "dtype")
    if "dom" not in args or "binding" not in args:
        raise p.error(f"write T.axis.{kind}(domain, value)", call)
    value = p.eval(args["binding"])
    value = value.var if isinstance(value, IterVar) else value
    dtype = value.dtype if isinstance(value, Expr) else None
    dom = parse_domain(p, args["dom"], dtype)
    binding = p.as_expr(value, args["binding"], dom.extent.dtype)
    var = Var(name, p.dtype(args["dtype"]) if "dtype" in args else dom.extent.dtype)
    frame.axes.append(IterVar(dom, var, kind))
    frame.values.append(binding)
    return var


def parse_remap(p: Parser, target: ast.expr, call: ast.Call) -> None:
    """Parse ``vi, vk = T.axis.remap("SR", [i, k])``."""
    frame = p.frame(call, "T.axis.remap")
    args = p.arguments(call, "kinds", "bindings", "dtype")
    if "kinds" not in args or "bindings" not in args:
        raise p.error('write T.axis.remap("SR", [i, k])', call)
    kinds = p.string(args["kinds"])
    values = p.eval(args["bindings"])
    if not isinstance(values, (list, tuple)):
        raise p.error("a list of loop variables is needed", args["bindings"])
    targets = list(target.elts) if isinstance(target, (ast.Tuple, ast.List)) else [target]
    if not len(kinds) == len(values) == len(targets):
        raise p.error(f"{len(targets)} axes, {len(kinds)} kinds, {len(values)} loop variables", call)
    for t, k, v in zip(targets, kinds, values, strict=True):
        if k not in _KINDS:
            raise p.error(f"axis kind {k!r}; there are {', '.join(_KINDS)}", args["kinds"])
        if not isinstance(v, Var) or v not in p.loops:
            raise p.error(f"T.axis.remap takes loop variables; {v} is not one", args["bindings"])
        if not isinstance(t, ast.Name):
            raise p.error("an axis is a name", t)
        dom = p.loops[v]
        var = Var(t.id, v.dtype)
        frame.axes.append(IterVar(dom, var, _KINDS[k]))
        frame.values.append(v)
        p.define(t.id, var)


def parse_alloc_buffer(p: Parser, name: str, call: ast.Call) -> Buffer:
    """Parse ``B = T.alloc_buffer((16,), "float32")``; the buffer belongs to the innermost block."""
    buffer = parse_buffer(p, name, p.arguments(call, *BUFFER_ARGS), call)
    p.frames[-1].allocs.append(buffer)
    return buffer


def parse_match_buffer(p: Parser, name: str, call: ast.Call) -> Buffer:
    """Parse ``A = T.match_buffer(a, shape)`` of a parameter, or of a region in a block."""
    args = p.arguments(call, "param", *BUFFER_ARGS, "type")
    if "param" not in args:
        raise p.error("T.match_buffer needs a parameter or a region", call)
    param = args.pop("param")
    if isinstance(param, ast.Name):
        value = p.eval(param)
        if isinstance(value, Var):
            return _parse_match_param(p, name, value, param, args, call)
    source = parse_region(p, param)
    buffer = parse_buffer(p, name, args, call, source)
    p.frame(call, "T.match_buffer of a region").matches.append(MatchBufferRegion(buffer, source))
    return buffer


def _parse_match_param(
    p: Parser, name: str, var: Var, param: ast.expr, args: dict[str, ast.expr], call: ast.Call
) -> Buffer:
    top = p.frames[0]
    if var.dtype != "handle":
        raise p.error(f"T.match_buffer takes a parameter of type T.handle, {var.name} is {var.dtype}", param)
    if var in top.params:
        raise p.error(f"{var.name} has a buffer already", param)
    buffer = parse_buffer(p, name, args, call)
    top.params[var] = buffer
    return buffer


BLOCK_WORDS: dict[str, Parse] = {
    "where": parse_where,
    "reads": parse_reads,
    "writes": parse_writes,
    "block_attr": parse_block_attr,
    "func_attr": parse_func_attr,
}
"""The words that are statements of a block."""
