"""Brings the statements of a kernel into a form without jumps, before they are read.

What follows an ``if`` that may jump moves into its branches, so that ``continue`` is the end of a branch:

    if c: continue          if c: pass
    rest              →     else: rest

``break`` sets a flag, which the loop asks before its next iteration (:func:`flag_of`). ``return`` in a loop sets a flag of the
function as well, and the statements after the loop ask it. Each ``return`` of a value assigns it to one name, which is returned at
the end. Where both branches of an ``if`` go on, what follows is read in each of them.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence

Stmts = list[ast.stmt]


def without_jumps(body: Sequence[ast.stmt]) -> tuple[Stmts, str]:
    """Return the same statements with one ``return`` at most, at their end, and the name of its value."""
    rewriting = _Jumps(body)
    return rewriting.function(list(body)), rewriting.result


def flag_of(loop: ast.For | ast.While) -> str | None:
    """Return the name of the flag that ends a loop when it is set, None where nothing leaves it."""
    return getattr(loop, "flag", None)


def is_unrolled(loop: ast.For | ast.While) -> bool:
    """Return whether a loop is written out when the kernel is compiled, by the name of what it runs over."""
    call = loop.iter if isinstance(loop, ast.For) else None
    function = call.func if isinstance(call, ast.Call) else None
    word = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return word == "static_range"


def _returns(node: ast.AST) -> bool:
    return any(isinstance(n, ast.Return) for n in ast.walk(node))


def _leaves(node: ast.AST, kinds: tuple[type[ast.stmt], ...]) -> bool:
    """Returns whether a ``break`` or ``continue`` within a statement is one of the loop around the statement."""
    if isinstance(node, kinds):
        return True
    inside = () if isinstance(node, (ast.For, ast.While)) else ast.iter_child_nodes(node)
    return any(_leaves(child, kinds) for child in inside)


def _may_jump(s: ast.stmt) -> bool:
    return _returns(s) or _leaves(s, (ast.Break, ast.Continue))


class _Jumps:
    """The rewriting of one function."""

    def __init__(self, body: Sequence[ast.stmt]) -> None:
        self.taken = {n.id for s in body for n in ast.walk(s) if isinstance(n, ast.Name)}
        self.result = self.fresh("result")
        self.returned = self.fresh("returned")
        self.has_value = any(isinstance(n, ast.Return) and n.value is not None for s in body for n in ast.walk(s))

    def fresh(self, word: str) -> str:
        """Return a name that the function does not have."""
        name, n = word, 1
        while name in self.taken:
            name, n = f"{word}_{n}", n + 1
        self.taken.add(name)
        return name

    def function(self, body: Stmts) -> Stmts:
        inner = body[:-1] if body and isinstance(body[-1], ast.Return) else body
        jumps = (ast.Return, ast.Break, ast.Continue)
        if not any(isinstance(n, jumps) for s in inner for n in ast.walk(s)):
            return body
        loops = [n for s in body for n in ast.walk(s) if isinstance(n, (ast.For, ast.While))]
        in_loops = [n for loop in loops for n in ast.walk(loop) if isinstance(n, ast.Return)]
        last = body[-1]
        out = self.block(body if inner is not body else [*body, _at(ast.Return(None), last)], None)
        if in_loops:
            out.insert(0, _assigned(self.returned, ast.Constant(False), in_loops[0]))
        if self.has_value:
            out.append(_at(ast.Return(ast.Name(self.result, ast.Load())), in_loops[0] if in_loops else last))
        return out

    def block(self, stmts: Stmts, flag: str | None) -> Stmts:
        """Return statements without jumps. ``flag``: that of the loop around, None outside of loops."""
        out: Stmts = []
        for n, s in enumerate(stmts):
            rest = stmts[n + 1 :]
            if isinstance(s, (ast.Return, ast.Break, ast.Continue)):
                return out + self.jump(s, flag)
            if isinstance(s, ast.If) and _may_jump(s):
                body = self.block([*s.body, *copy.deepcopy(rest)], flag) or [_at(ast.Pass(), s)]
                return [*out, _at(ast.If(s.test, body, self.block([*s.orelse, *rest], flag)), s)]
            if not isinstance(s, (ast.For, ast.While)):
                out.append(s)
                continue
            returns = _returns(s)
            out += self.loop(s)
            if returns:
                value = ast.Name(self.result, ast.Load()) if self.has_value and flag is None else None
                leave = _at(ast.Return(value) if flag is None else ast.Break(), s)
                asked = _at(ast.If(ast.Name(self.returned, ast.Load()), [leave], []), s)
                return out + self.block([asked, *rest], flag)
        return out

    def jump(self, s: ast.Return | ast.Break | ast.Continue, flag: str | None) -> Stmts:
        """Return what a jump assigns. Nothing follows it in its branch."""
        out: Stmts = []
        if isinstance(s, ast.Return):
            if self.has_value and not (isinstance(s.value, ast.Name) and s.value.id == self.result):
                out.append(_assigned(self.result, ast.Constant(None) if s.value is None else s.value, s))
            if flag is not None:
                out.append(_assigned(self.returned, ast.Constant(True), s))
        if flag is not None and not isinstance(s, ast.Continue):
            out.append(_assigned(flag, ast.Constant(True), s))
        return out

    def loop(self, s: ast.For | ast.While) -> Stmts:
        ends = any(_leaves(part, (ast.Break,)) or _returns(part) for part in s.body)
        flag = self.fresh("left") if ends else ""
        body = self.block(s.body, flag) or [_at(ast.Pass(), s)]
        if not ends:
            s.body = body
            return [s]
        if is_unrolled(s):
            body = [_at(ast.If(ast.UnaryOp(ast.Not(), ast.Name(flag, ast.Load())), body, []), s)]
        s.body = body
        s.flag = flag  # type: ignore[union-attr]
        return [_assigned(flag, ast.Constant(False), s), s]


def _at(node: ast.stmt, like: ast.stmt) -> ast.stmt:
    """Returns a new statement that stands where another one stands."""
    return ast.fix_missing_locations(ast.copy_location(node, like))


def _assigned(name: str, value: ast.expr, like: ast.stmt) -> ast.stmt:
    return _at(ast.Assign([ast.Name(name, ast.Store())], value), like)
