"""This module parses spellings of older TVM versions, and macros.

with T.block([16, 16, T.reduce_axis(0, 8)], "C") as [vi, vj, vk]:     axes in the head of a block
    T.bind(vi, i)                                                      or none bound: loops of their own
tx = T.launch_thread("threadIdx.x", 4)                                 threads to the end of the body
with T.let(x, value): ...                                              a name for a value
body(A, i)                                                             the body of a function under @T.macro, here
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..expr import IterVar, Range, Var
from ..stmt import AttrStmt, BlockRealize, For, LetStmt, Stmt
from .access_parser import parse_domain, parse_span
from .parser_base import Parser

_AXES = {"reduce_axis": "reduce", "range": "spatial", "scan_axis": "scan", "opaque_axis": "opaque"}


@dataclass(frozen=True)
class Macro:
    """Represents a function under ``@T.macro``; its body replaces each call."""

    node: ast.FunctionDef


def parse_older_block(
    p: Parser, call: ast.Call, target: ast.expr | None, body: Callable[[], Stmt], block: Callable[..., Stmt]
) -> Stmt:
    """Parse ``with T.block([16, 16], "C") as [vi, vj]: body``; ``block`` parses a block of today."""
    head = call.args[0]
    doms = head.elts if isinstance(head, (ast.List, ast.Tuple)) else [head]
    names = target.elts if isinstance(target, (ast.List, ast.Tuple)) else [] if target is None else [target]
    if len(names) != len(doms):
        raise p.error(f"{len(doms)} axes, {len(names)} names", call)
    free: list[tuple[Var, IterVar]] = []

    def with_axes() -> Stmt:
        frame = p.frames[-1]
        for name, node in zip(names, doms, strict=True):
            if not isinstance(name, ast.Name):
                raise p.error("an axis is a name", name)
            axis = _parse_older_axis(p, name.id, node)
            loop = Var(f"{name.id}_loop", axis.var.dtype)
            free.append((loop, axis))
            frame.axes.append(axis)
            frame.values.append(loop)
            p.define(name.id, axis.var)
        return body()

    rest = ast.copy_location(ast.Call(call.func, call.args[1:], call.keywords), call)
    made = block(p, rest, with_axes)
    assert isinstance(made, BlockRealize)
    open_loops = [(loop, axis) for loop, axis in free if any(v is loop for v in made.iter_values)]
    if open_loops and len(open_loops) != len(free):
        raise p.error(f"axis {open_loops[0][1].var.name} is not bound, others are", call)
    out: Stmt = made
    for loop, axis in reversed(open_loops):
        out = For(loop, axis.dom.min, axis.dom.extent, "serial", out)
    return out


def _parse_older_axis(p: Parser, name: str, node: ast.expr) -> IterVar:
    kind = "spatial"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _AXES:
        kind = _AXES[node.func.attr]
        if len(node.args) == 2:
            dom = parse_span(p, node.args[0], node.args[1])
        elif len(node.args) == 1:
            dom = parse_domain(p, node.args[0], None)
        else:
            raise p.error(f"write T.{node.func.attr}(start, stop)", node)
    else:
        dom = parse_domain(p, node, None)
    return IterVar(dom, Var(name, dom.extent.dtype), kind)


def parse_bind_axis(p: Parser, call: ast.Call) -> None:
    """Parse ``T.bind(vi, value)``."""
    frame = p.frame(call, "T.bind")
    if len(call.args) != 2:
        raise p.error("write T.bind(axis, value)", call)
    axis = p.eval(call.args[0])
    for number, iv in enumerate(frame.axes):
        if iv.var is axis:
            frame.values[number] = p.expr(call.args[1], iv.var.dtype)
            return
    raise p.error("the first argument is an axis of this block", call.args[0])


def parse_launch(p: Parser, call: ast.Call, name: str) -> tuple[Var, Callable[[Stmt], Stmt]]:
    """Return the variable of ``T.launch_thread("threadIdx.x", 4)``, and a wrapper for the statements that follow.

    The argument may also be a variable of T.env_thread.
    """
    args = p.arguments(call, "thread", "extent")
    if len(args) != 2:
        raise p.error('write T.launch_thread("threadIdx.x", 4)', call)
    extent = p.expr(args["extent"])
    thread = p.eval(args["thread"])
    if isinstance(thread, Var):
        var, tag = thread, p.thread_tags.get(thread)
        if tag is None:
            raise p.error("this is not a variable of T.env_thread", args["thread"])
    else:
        var, tag = Var(name, extent.dtype), p.string(args["thread"])
    axis = IterVar(Range.from_extent(extent), var, "thread", tag)
    p.loops[var] = axis.dom
    return var, lambda rest: AttrStmt(axis, "thread_extent", extent, rest)


def parse_older_let(p: Parser, call: ast.Call) -> Callable[[Stmt], Stmt]:
    """Return the wrapper of ``with T.let(x, value)``."""
    name = call.args[0]
    assert isinstance(name, ast.Name)
    value = p.expr(call.args[1])
    var = Var(name.id, value.dtype)
    p.define(name.id, var)
    return lambda rest: LetStmt(var, value, rest)


def is_macro(p: Parser, node: ast.FunctionDef) -> bool:
    """Return whether a function is decorated with ``@T.macro`` or ``@T.inline``."""
    targets = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
    return any(isinstance(t, ast.Attribute) and t.attr in ("macro", "inline") for t in targets)


def expand_macro(p: Parser, macro: Macro, call: ast.Call, body: Callable[[list[ast.stmt]], Stmt]) -> Stmt:
    """Return the body of the macro with its parameters replaced by the arguments."""
    args = macro.node.args
    names = [a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
    given: dict[str, Any] = {}
    defaults = dict(zip(names[len(names) - len(args.defaults) :], args.defaults, strict=True))
    for name, node in p.arguments(call, *names).items():
        given[name] = p.eval(node)
    for name in names:
        if name not in given:
            if name not in defaults:
                raise p.error(f"the macro {macro.node.name} needs {name}", call)
            given[name] = p.eval(defaults[name])
    if len(p.scopes) > 200:
        raise p.error(f"the macro {macro.node.name} calls itself", call)
    p.scopes.append(given)
    out = body(macro.node.body)
    p.scopes.pop()
    return out
