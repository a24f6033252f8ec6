"""This module parses statements: sequences, branches, calls, ``with``.

Other statements are parsed in :mod:`.assignment_parser`, :mod:`.loop_parser` and :mod:`.block_parser`.
"""

from __future__ import annotations

import ast

from ..expr import Call, Expr, IntImm, Var, plain
from ..stmt import AssertStmt, AttrStmt, Buffer, Evaluate, IfThenElse, LetStmt, Stmt
from ..vocabulary import Word
from .access_parser import consecutive_indices, parse_index_list
from .block_parser import BLOCK_WORDS, parse_alloc_buffer, parse_block, parse_init
from .memory_statements import compose, parse_allocation, parse_buffer_store
from .older_spellings import (
    Macro,
    expand_macro,
    is_macro,
    parse_bind_axis,
    parse_launch,
    parse_older_block,
    parse_older_let,
)
from .parser_base import Parse, Parser, Wrapper
from .parser_values import BufferMethod


def _function_def_statement(p: Parser, node: ast.FunctionDef) -> None:
    if not is_macro(p, node):
        raise p.error("a function inside a function is a macro, under @T.macro or @T.inline", node)
    p.define(node.name, Macro(node))


def _return_statement(p: Parser, node: ast.Return) -> Stmt | None:
    if node.value is None:
        return None
    value = p.expr(node.value)
    return Evaluate(Call("tir.ret", (value,), value.dtype))


def _expr_statement(p: Parser, node: ast.Expr) -> Stmt | Wrapper | None:
    call = node.value
    if isinstance(call, ast.Constant) and isinstance(call.value, str):
        return None  # a docstring
    if isinstance(call, ast.Call):
        func = p.eval(call.func)
        if isinstance(func, BufferMethod) and func.name == "vstore":
            args = p.arguments(call, "begin", "value", "predicate")
            indices = parse_index_list(p, args["begin"], func.buffer, call)
            predicate = p.expr(args["predicate"]) if "predicate" in args else None
            value = p.eval(args["value"])
            lanes = value.dtype.lanes if isinstance(value, Expr) else 1
            if lanes > 1 and all(i.dtype.lanes == 1 for i in indices):  # consecutive elements, as in TVM
                indices = consecutive_indices(func.buffer, indices, lanes)
            return parse_buffer_store(p, func.buffer, indices, value, predicate, call)
        if isinstance(func, Macro):
            return expand_macro(p, func, call, p.body)
        if isinstance(func, Word):
            return _parse_word_statement(p, func.name, call)
    return Evaluate(p.expr(call))


def _parse_word_statement(p: Parser, word: str, call: ast.Call) -> Stmt | Wrapper | None:
    if word in BLOCK_WORDS:
        BLOCK_WORDS[word](p, call)
        return None
    if word == "alloc_buffer":
        parse_alloc_buffer(p, "buffer", call)
        return None
    if word == "launch_thread":
        return parse_launch(p, call, "v")[1]
    if word == "LetStmt":
        return _parse_let_statement(p, call)
    if word == "evaluate":
        args = p.arguments(call, "value")
        return Evaluate(p.expr(args["value"]))
    if word == "attr":
        return _parse_attr(p, call)
    if word == "Assert":
        condition, message = _parse_assertion(p, call)
        return lambda rest: AssertStmt(condition, message, rest)
    if word == "buffer_store":
        args = p.arguments(call, "buffer", "value", "indices", "predicate")
        buffer = p.eval(args["buffer"])
        if not isinstance(buffer, Buffer):
            raise p.error("a buffer is needed", args["buffer"])
        indices = parse_index_list(p, args["indices"], buffer, call)
        predicate = p.expr(args["predicate"]) if "predicate" in args else None
        return parse_buffer_store(p, buffer, indices, p.eval(args["value"]), predicate, call)
    return Evaluate(p.as_expr(p.word(word, call), call))


def _parse_let_statement(p: Parser, call: ast.Call) -> Wrapper | None:
    """Parse ``T.Bind(value, var=x)``, and the older ``T.bind(axis, value)``."""
    if len(call.args) == 2:
        parse_bind_axis(p, call)
        return None
    var, value = _parse_let_parts(p, call, "v")
    return lambda rest: LetStmt(var, value, rest)


def _parse_let_parts(p: Parser, call: ast.Call, name: str) -> tuple[Var, Expr]:
    args = p.arguments(call, "value", "dtype", "var")
    value = p.expr(args["value"])
    if "var" not in args:
        return Var(name, p.dtype(args["dtype"]) if "dtype" in args else value.dtype), value
    var = p.eval(args["var"])
    if not isinstance(var, Var):
        raise p.error("var= needs a variable", args["var"])
    return var, value


def _parse_attr(p: Parser, call: ast.Call) -> Wrapper:
    """Parse ``T.attr(node, key, value)``, or ``T.attr({key: value})`` without a node."""
    if len(call.args) == 1 and isinstance(call.args[0], ast.Dict):
        items = [(p.string(k), p.expr(v)) for k, v in zip(call.args[0].keys, call.args[0].values, strict=True) if k]
        return compose([lambda rest, k=k, v=v: AttrStmt(0, k, v, rest) for k, v in items])  # type: ignore[misc]
    args = p.arguments(call, "node", "attr_key", "value")
    if len(args) != 3:
        raise p.error("write T.attr(node, key, value)", call)
    node = p.eval(args["node"])
    if isinstance(node, IntImm):
        node = plain(node)
    key, value = p.string(args["attr_key"]), p.expr(args["value"])
    return lambda rest: AttrStmt(node, key, value, rest)


def _parse_assertion(p: Parser, call: ast.Call) -> tuple[Expr, str]:
    args = p.arguments(call, "condition", "message")
    if len(args) != 2:
        raise p.error("write T.Assert(condition, message)", call)
    return p.condition(args["condition"]), p.string(args["message"])


def _assert_statement(p: Parser, node: ast.Assert) -> Wrapper:
    condition = p.condition(node.test)
    message = "" if node.msg is None else _parse_message(p, node.msg)
    return lambda rest: AssertStmt(condition, message, rest)


def _parse_message(p: Parser, node: ast.expr) -> str:
    value = p.eval(node)
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], list):  # ("RuntimeError", ["…"])
        return "".join([str(part) for part in value[1]])
    return p.string(node)


def _if_statement(p: Parser, node: ast.If) -> Stmt | None:
    test = p.eval(node.test)
    if not isinstance(test, Expr):  # the condition is a Python value, known when the program is built
        chosen = node.body if test else node.orelse
        return p.nested(chosen) if chosen else None
    chain = [(p.condition(node.test), p.nested(node.body))]
    while len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
        following = node.orelse[0]
        if not isinstance(p.eval(following.test), Expr):
            break
        node = following
        chain.append((p.condition(node.test), p.nested(node.body)))
    out = p.nested(node.orelse) if node.orelse else None
    for condition, then in reversed(chain):
        out = IfThenElse(condition, then, out)
    return out


def _with_statement(p: Parser, node: ast.With) -> Stmt | None:
    return _parse_with(p, node.items, node)


def _parse_with(p: Parser, items: list[ast.withitem], node: ast.With) -> Stmt | None:
    if not items:
        return p.body(node.body)
    item, call = items[0], items[0].context_expr
    func = p.eval(call.func) if isinstance(call, ast.Call) else None
    if not isinstance(func, Word) or not isinstance(call, ast.Call):
        raise p.error("`with` takes T.block, T.init, T.LetStmt, T.decl_buffer, T.attr, T.Assert …", call)
    word = func.name
    if word == "init":
        parse_init(p, call, lambda: p.nested(node.body))
        return None
    if word == "block" and call.args and isinstance(call.args[0], (ast.List, ast.Tuple)):
        inner = lambda: _parse_with(p, items[1:], node) or Evaluate(IntImm(0))  # noqa: E731
        return parse_older_block(p, call, item.optional_vars, inner, parse_block)
    if word == "block":
        return parse_block(p, call, lambda: _parse_with(p, items[1:], node) or Evaluate(IntImm(0)))
    p.scopes.append({})
    wrap = _parse_with_word(p, word, item, call)
    body = _parse_with(p, items[1:], node) or Evaluate(IntImm(0))
    p.scopes.pop()
    return wrap(body)


def _parse_with_word(p: Parser, word: str, item: ast.withitem, call: ast.Call) -> Wrapper:
    target = item.optional_vars
    name = target.id if isinstance(target, ast.Name) else "v"
    if word == "LetStmt" and len(call.args) == 2 and isinstance(call.args[0], ast.Name) and target is None:
        return parse_older_let(p, call)
    if word == "LetStmt":
        var, value = _parse_let_parts(p, call, name)
        if target is not None:
            p.unpack(target, var)
        return lambda rest: LetStmt(var, value, rest)
    if word in ("decl_buffer", "alloc_buffer", "allocate"):
        made, wrapper = parse_allocation(p, word, name, call)
        if target is not None:
            p.unpack(target, made)
        return wrapper
    if word == "attr":
        return _parse_attr(p, call)
    if word == "Assert":
        condition, message = _parse_assertion(p, call)
        return lambda rest: AssertStmt(condition, message, rest)
    if word == "launch_thread":
        var, wrap = parse_launch(p, call, name)
        if target is not None:
            p.unpack(target, var)
        return wrap
    raise p.error(f"`with T.{word}` has no meaning", call)


STATEMENTS: dict[type, Parse] = {
    ast.Assert: _assert_statement,
    ast.Expr: _expr_statement,
    ast.FunctionDef: _function_def_statement,
    ast.If: _if_statement,
    ast.Pass: lambda p, node: None,
    ast.Return: _return_statement,
    ast.With: _with_statement,
}
"""The other statements, by their class."""
