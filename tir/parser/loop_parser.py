"""This module parses loops."""

from __future__ import annotations

import ast
from typing import Any

from ..expr import DType, IntImm, Range, Var, const, plain
from ..stmt import For, Stmt, While
from ..vocabulary import Word
from .access_parser import parse_span
from .parser_base import Parse, Parser

_LOOPS = {
    "serial": "serial", "parallel": "parallel", "vectorized": "vectorized", "unroll": "unrolled",
    "thread_binding": "thread_binding",
}  # fmt: skip


def _for_statement(p: Parser, node: ast.For) -> Stmt:
    if node.orelse:
        raise p.error("a loop has no else", node.orelse[0])
    call = node.iter
    func = p.eval(call.func) if isinstance(call, ast.Call) else None
    if isinstance(call, ast.Call):
        if isinstance(func, Word) and func.name == "grid":
            return _parse_grid(p, node, call)
        if isinstance(func, Word) and func.name in _LOOPS:
            return _parse_loop(p, node, call, _LOOPS[func.name])
        if isinstance(call.func, ast.Name) and call.func.id == "range":
            return _parse_loop(p, node, call, "serial")
    raise p.error("a loop runs over range, T.grid, T.serial, T.parallel, T.vectorized, T.unroll …", call)


def _while_statement(p: Parser, node: ast.While) -> Stmt:
    if node.orelse:
        raise p.error("a loop has no else", node.orelse[0])
    condition = p.condition(node.test)
    p.scopes.append({})
    body = p.body(node.body)
    p.scopes.pop()
    return While(condition, body)


def _parse_grid(p: Parser, node: ast.For, call: ast.Call) -> Stmt:
    extents = [p.as_expr(e, call) for e in p.items(call.args)]
    targets = list(node.target.elts) if isinstance(node.target, (ast.Tuple, ast.List)) else [node.target]
    if len(targets) != len(extents) or call.keywords or not extents:
        raise p.error(f"{len(targets)} loop variables for {len(extents)} extents", node.target)
    p.scopes.append({})
    loops = []
    for target, extent in zip(targets, extents, strict=True):
        loops.append((_loop_variable(p, target, extent.dtype), Range(const(0, extent.dtype), extent)))
        p.loops[loops[-1][0]] = loops[-1][1]
    body = p.body(node.body)
    p.scopes.pop()
    for var, r in reversed(loops):
        body = For(var, r.min, r.extent, "serial", body)
    return body


def _loop_variable(p: Parser, target: ast.expr, dtype: DType) -> Var:
    if not isinstance(target, ast.Name):
        raise p.error("a loop variable is a name", target)
    if not dtype.is_int:
        raise p.error(f"a loop's extent is an integer, this is {dtype}", target)
    var = Var(target.id, dtype)
    p.define(target.id, var)
    return var


def _parse_loop(p: Parser, node: ast.For, call: ast.Call, kind: str) -> Stmt:
    positional, rest = list(call.args), {k.arg: k.value for k in call.keywords}
    thread: str | None = None
    if kind == "thread_binding":
        tag = rest.pop("thread", None)
        if tag is None and len(positional) > 1:
            tag = positional.pop()
        if tag is None:
            raise p.error('write T.thread_binding(4, thread="threadIdx.x")', call)
        thread = p.string(tag)
    bounds = [positional.pop(0) if positional else rest.pop(name, None) for name in ("start", "stop")]
    annotations, step = rest.pop("annotations", None), rest.pop("step", None)
    if step is None and len(positional) == 1:
        step = positional.pop()
    unroll = rest.pop("unroll", None)
    if positional or rest or all(b is None for b in bounds):
        raise p.error("a loop takes (stop) or (start, stop), step=, unroll= and annotations=", call)
    if bounds[0] is None or bounds[1] is None:
        only = bounds[0] if bounds[0] is not None else bounds[1]
        extent = p.expr(only)  # type: ignore[arg-type]
        r = Range(const(0, extent.dtype) if extent.dtype.is_int else IntImm(0), extent)
    else:
        r = parse_span(p, *bounds)  # type: ignore[arg-type]
    notes = {} if annotations is None else p.attributes(annotations)
    if unroll is not None:  # one word for two annotations in newer TVM
        wanted = plain(p.eval(unroll))
        notes.update({"disable_unroll": True} if wanted is False else {"pragma_unroll": wanted})
    by = 1 if step is None else p.number(step)
    if by < 1:
        raise p.error("the step of a loop must be positive", step)
    p.scopes.append({})
    if by > 1:
        return _parse_strided(p, node, kind, r, by, thread, notes)
    var = _loop_variable(p, node.target, r.extent.dtype)
    p.loops[var] = r
    body = p.body(node.body)
    p.scopes.pop()
    return For(var, r.min, r.extent, kind, body, thread, notes)


def _parse_strided(
    p: Parser, node: ast.For, kind: str, r: Range, by: int, thread: str | None, notes: dict[str, Any]
) -> Stmt:
    """Parse ``range(start, stop, step)`` as a loop ``var`` over the trip count.

    The name in the text has the value ``start + var * step``.
    """
    var = _loop_variable(p, node.target, r.extent.dtype)
    steps = (r.extent + (by - 1)) // by
    zero = const(0, r.extent.dtype)
    p.loops[var] = Range(zero, steps)
    p.unpack(node.target, r.min + var * by)
    body = p.body(node.body)
    p.scopes.pop()
    return For(var, zero, steps, kind, body, thread, notes)


LOOPS: dict[type, Parse] = {ast.For: _for_statement, ast.While: _while_statement}
"""The loops, by their class."""
