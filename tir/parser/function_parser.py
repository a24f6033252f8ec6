"""This module parses functions and modules, macros, and spellings of older TVM versions.

These are the spellings::

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

from ..expr import Expr, IterVar, Range, Var
from ..stmt import AttrStmt, BlockRealize, Buffer, For, IRModule, LetStmt, PrimFunc, Stmt, needs_root, root_block
from ..vocabulary import BufferWord, TypeWord
from .block_parser import BUFFER_ARGS, parse_buffer, parse_domain, parse_span
from .parser_base import Frame, Namespace, ParseError, Parser

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


def is_macro(node: ast.FunctionDef) -> bool:
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


_OPTIONS = ("private", "check_well_formed", "s_tir")


def parse_module(p: Parser, tree: ast.Module) -> PrimFunc | IRModule:
    """Parse a whole text: one class, or one or more functions."""
    functions: dict[str, PrimFunc] = {}
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            _import(p, node)
        elif isinstance(node, ast.ClassDef):
            return parse_class(p, node)
        elif isinstance(node, ast.FunctionDef) and is_macro(node):
            p.define(node.name, Macro(node))
        elif isinstance(node, ast.FunctionDef):
            functions[node.name] = parse_function(p, node, _options(p, node))
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            raise p.error("a function under @T.prim_func or a class under @I.ir_module is needed", node)
    if not functions:
        raise p.error("there is no function here", tree.body[0] if tree.body else None)
    return next(iter(functions.values())) if len(functions) == 1 else IRModule(functions)


def _import(p: Parser, node: ast.Import | ast.ImportFrom) -> None:
    for alias in node.names:
        if alias.name in ("script", "tir", "s_tir", "tirx"):
            p.define(alias.asname or alias.name, Namespace("T"))
        elif alias.name == "ir":
            p.define(alias.asname or alias.name, Namespace("I"))


def _decorator(p: Parser, node: ast.ClassDef | ast.FunctionDef, word: str) -> ast.expr:
    for decorator in node.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        if (isinstance(target, ast.Attribute) and target.attr == word) or (
            isinstance(target, ast.Name) and target.id == word
        ):
            return decorator
    raise p.error(f"`{node.name}` lacks the decorator {'@T.' if word == 'prim_func' else '@I.'}{word}", node)


def _options(p: Parser, node: ast.FunctionDef) -> dict[str, Any]:
    decorator = _decorator(p, node, "prim_func")
    if not isinstance(decorator, ast.Call):
        return {}
    options = p.keywords(decorator)
    for name in options:
        if name not in _OPTIONS:
            raise p.error(f"T.prim_func has no option `{name}`; there are {', '.join(_OPTIONS)}", decorator)
    return options


def parse_class(p: Parser, node: ast.ClassDef) -> IRModule:
    """Parse ``@I.ir_module class Module: …``."""
    _decorator(p, node, "ir_module")
    functions: dict[str, PrimFunc] = {}
    attrs: dict[str, Any] = {}
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and is_macro(item):
            p.define(item.name, Macro(item))
        elif isinstance(item, ast.FunctionDef):
            functions[item.name] = parse_function(p, item, _options(p, item))
        elif isinstance(item, ast.Expr) and isinstance(item.value, ast.Call):
            call = item.value
            word = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            if word == "module_global_infos":  # devices of Relax's tensors, unused here
                continue
            if word != "module_attrs" or not call.args:
                raise p.error("a module holds functions and I.module_attrs({...})", item)
            attrs.update(p.attributes(call.args[0]))
        elif not isinstance(item, ast.Pass) and not (
            isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant)
        ):
            raise p.error("a module holds functions and I.module_attrs({...})", item)
    return IRModule(functions, attrs)


def parse_function(p: Parser, node: ast.FunctionDef, options: dict[str, Any]) -> PrimFunc:
    """Parse ``@T.prim_func def main(A: T.Buffer(…), n: T.int32): …``."""
    frame = Frame(is_function=True)
    p.frames, p.loops, p.roots = [frame], {}, {}
    depth = len(p.scopes)
    p.scopes.append({})
    a = node.args
    if a.vararg or a.kwarg or a.kwonlyargs or a.posonlyargs or a.defaults:
        raise p.error("parameters are plain names with types", node)
    p.named_sizes, p.size_dtypes = {}, _sizes_declared(p, node.body)
    is_buffer = {arg: _is_buffer_type(p, arg.annotation) for arg in a.args}
    vars_of = {arg: _parse_parameter(p, arg, frame) for arg in sorted(a.args, key=lambda arg: is_buffer[arg])}
    params = [vars_of[arg] for arg in a.args]  # sizes first: a shape may name a later parameter
    if not options.get("private", False):
        frame.annotations["global_symbol"] = node.name
    body = p.body(node.body)
    del p.scopes[depth:]
    p.frames = []
    if needs_root(body, bool(frame.allocs)):
        body = root_block("root", body, tuple(frame.allocs))
    elif body in p.roots:  # the only statement; the root has only its declarations
        body = BlockRealize((), body.predicate, p.roots[body])  # type: ignore[attr-defined]
    buffer_map = {v: frame.params[v] for v in params if v in frame.params}
    return PrimFunc(tuple(params), body, buffer_map, frame.annotations)


def _parse_parameter(p: Parser, arg: ast.arg, frame: Frame) -> Var:
    node = arg.annotation
    if node is None:
        raise p.error(f"parameter `{arg.arg}` has no type; write T.Buffer(...), T.handle or T.int32", arg)
    buffer = _parse_buffer_type(p, arg.arg, node)
    if buffer is not None:
        var = Var(f"{arg.arg}_handle", "handle")
        frame.params[var] = buffer
        p.define(arg.arg, buffer)
        return var
    kind = p.eval(node)
    if not isinstance(kind, (TypeWord, Expr)):
        raise p.error("a parameter's type is T.Buffer(...), T.handle or a scalar type such as T.int32", node)
    var = Var(arg.arg, kind.dtype)
    p.define(arg.arg, var)
    return var


def _sizes_declared(p: Parser, body: list[ast.stmt]) -> dict[str, str]:
    """Return names and types of ``n = T.int64()`` and ``n, m = T.int64(), T.int64()`` at the top of a function."""
    out: dict[str, str] = {}
    for stmt in body:
        if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
            continue
        target, value = stmt.targets[0], stmt.value
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = list(zip(target.elts, value.elts, strict=False))
        for t, v in pairs:
            if isinstance(t, ast.Name) and isinstance(v, ast.Call) and not v.args and not v.keywords:
                kind = _value_or_none(p, v.func)
                if isinstance(kind, TypeWord):
                    out[t.id] = kind.dtype
    return out


def _value_or_none(p: Parser, node: ast.expr) -> Any:
    """Return the value of an expression; None when names in it are not defined yet."""
    try:
        return p.eval(node)
    except ParseError:
        return None


def _is_buffer_type(p: Parser, node: ast.expr | None) -> bool:
    head = node.func if isinstance(node, ast.Call) else node.value if isinstance(node, ast.Subscript) else None
    return head is not None and isinstance(_value_or_none(p, head), BufferWord)


def _parse_buffer_type(p: Parser, name: str, node: ast.expr) -> Buffer | None:
    if isinstance(node, ast.Call) and isinstance(p.eval(node.func), BufferWord):
        return parse_buffer(p, name, p.arguments(node, *BUFFER_ARGS), node)
    if isinstance(node, ast.Subscript) and isinstance(p.eval(node.value), BufferWord):
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return parse_buffer(p, name, dict(zip(("shape", "dtype"), items, strict=False)), node)
    return None
