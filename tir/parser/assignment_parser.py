"""This module parses assignments: names for values, declarations, stores."""

from __future__ import annotations

import ast
from typing import Any

from ..expr import DType, Expr, IterVar, Var, convert
from ..stmt import Buffer, LetStmt, Stmt
from ..vocabulary import TypeWord, Word
from .access_parser import BUFFER_ARGS, parse_buffer, parse_buffer_view
from .block_parser import parse_alloc_buffer, parse_axis, parse_match_buffer, parse_remap
from .memory_statements import compose, parse_allocation, parse_store
from .older_spellings import parse_launch
from .parser_base import Parse, Parser, Wrapper
from .parser_values import BufferMethod, MetaVar


def _assign_statement(p: Parser, node: ast.Assign) -> Stmt | Wrapper | None:
    if len(node.targets) != 1:
        raise p.error("an assignment has one target", node)
    target = node.targets[0]
    if isinstance(target, ast.Subscript):
        return parse_store(p, target, p.eval(node.value), node)
    name = target.id if isinstance(target, ast.Name) else "v"
    if isinstance(node.value, ast.Call):
        func = p.eval(node.value.func)
        if isinstance(func, Word):
            return _parse_assign_word(p, func.name, target, name, node.value)
        if isinstance(func, BufferMethod) and func.name == "view":
            p.unpack(target, parse_buffer_view(p, func.buffer, name, node.value))
            return None
        if isinstance(func, TypeWord) and (not node.value.args or func.dtype == "handle"):
            p.unpack(target, _declared_size(p, name, DType(func.dtype)))
            return None
    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple) and _declares_sizes(p, node.value, target):
        return None
    return _bind(p, target, p.eval(node.value), node.value)


def _declares_sizes(p: Parser, values: ast.Tuple, target: ast.Tuple) -> bool:
    """Declare the sizes of ``n, m = T.int32(), T.int32()``; return false when the values are something else."""
    kinds = [p.eval(v.func) for v in values.elts if isinstance(v, ast.Call) and not v.args]
    if len(kinds) != len(values.elts) or not all(isinstance(k, TypeWord) for k in kinds):
        return False
    names = [t.id if isinstance(t, ast.Name) else "v" for t in target.elts]
    p.unpack(target, tuple([_declared_size(p, n, k.dtype) for n, k in zip(names, kinds, strict=False)]))
    return True


def _declared_size(p: Parser, name: str, dtype: DType) -> Var:
    """Return the variable of ``n = T.int32()``: a size that a shape has named before, or a new one."""
    known = p.named_sizes.get(name)
    return known if known is not None and known.dtype == dtype else Var(name, dtype)


def _parse_assign_word(p: Parser, word: str, target: ast.expr, name: str, call: ast.Call) -> Wrapper | None:
    if word == "axis.remap":
        parse_remap(p, target, call)
    elif word.startswith("axis."):
        p.unpack(target, parse_axis(p, word[5:], name, call))
    elif word == "alloc_buffer":
        p.unpack(target, parse_alloc_buffer(p, name, call))
    elif word == "match_buffer":
        p.unpack(target, parse_match_buffer(p, name, call))
    elif word == "Buffer":
        p.unpack(target, parse_buffer(p, name, p.arguments(call, *BUFFER_ARGS), call))
    elif word in ("decl_buffer", "allocate"):
        made, wrap = parse_allocation(p, word, name, call)
        p.unpack(target, made)
        return wrap
    elif word == "local_scalar":  # the following assignment defines the variable
        p.arguments(call, "dtype")
    elif word in ("var", "env_thread"):
        var = Var(name, p.word(word, call).dtype)
        if word == "env_thread" and call.args:
            p.thread_tags[var] = p.string(call.args[0])
        p.unpack(target, var)
    elif word == "launch_thread":
        var, wrap = parse_launch(p, call, name)
        p.unpack(target, var)
        return wrap
    else:
        return _bind(p, target, p.word(word, call), call)
    return None


def _bind(p: Parser, target: ast.expr, value: Any, node: ast.AST) -> Wrapper | None:
    if isinstance(value, MetaVar):
        p.unpack(target, value.value)
    elif isinstance(value, (Buffer, str, list, dict, IterVar)) or not isinstance(value, (Expr, int, float, tuple)):
        p.unpack(target, value)
    elif isinstance(value, tuple):
        if not isinstance(target, ast.Tuple):
            p.unpack(target, value)
            return None
        if len(target.elts) != len(value):
            raise p.error(f"{len(value)} values for {len(target.elts)} names", target)
        made = [_bind(p, t, v, node) for t, v in zip(target.elts, value, strict=True)]
        wrappers = [w for w in made if w is not None]
        return compose(wrappers) if wrappers else None
    elif isinstance(target, ast.Name):
        e = convert(value)
        _check_not_outer(p, target)
        var = Var(target.id, e.dtype)
        p.define(target.id, var)
        p.named_values.add(var)
        return lambda rest: LetStmt(var, e, rest)
    else:
        raise p.error("a name or an element of a buffer is needed here", target)
    return None


def _check_not_outer(p: Parser, target: ast.Name) -> None:
    """Raise ParseError when a name of an outer scope is assigned in a loop or branch. It would not change outside."""
    outer = next((s[target.id] for s in reversed(p.scopes[:-1]) if target.id in s), None)
    if isinstance(outer, Var) and outer in p.named_values and target.id not in p.scopes[-1]:
        raise p.error(
            f"`{target.id}` is a name for a value, which a loop or branch cannot change; "
            "use a buffer of one element, or another name",
            target,
        )


def _ann_assign_statement(p: Parser, node: ast.AnnAssign) -> Wrapper | None:
    if not isinstance(node.target, ast.Name):
        raise p.error("a name is needed here", node.target)
    annotation: ast.expr = node.annotation
    if isinstance(annotation, ast.Subscript) and isinstance(p.eval(annotation.value), Word):
        annotation = annotation.slice  # T.let[T.int32]
    kind = p.eval(annotation)
    if isinstance(kind, Word) and kind.name == "LetStmt" and node.value is not None:  # x: T.let = value
        kind = p.expr(node.value)
    if not isinstance(kind, (TypeWord, Expr)):
        raise p.error("a type such as T.int32 is needed", node.annotation)
    dtype = kind.dtype
    value = None if node.value is None else p.expr(node.value, dtype)
    var = Var(node.target.id, dtype)
    p.define(node.target.id, var)
    p.named_values.add(var)
    return None if value is None else lambda rest: LetStmt(var, value, rest)


def _aug_assign_statement(p: Parser, node: ast.AugAssign) -> Stmt:
    if not isinstance(node.target, ast.Subscript):
        raise p.error("only elements of buffers can be updated", node)
    load = ast.copy_location(ast.Subscript(node.target.value, node.target.slice, ast.Load()), node.target)
    value = p.eval(ast.copy_location(ast.BinOp(load, node.op, node.value), node))
    return parse_store(p, node.target, value, node)


ASSIGNMENTS: dict[type, Parse] = {
    ast.AnnAssign: _ann_assign_statement,
    ast.Assign: _assign_statement,
    ast.AugAssign: _aug_assign_statement,
}
"""The statements that assign, by their class."""
