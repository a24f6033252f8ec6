"""This module defines the parser's state: scopes, open blocks, conversions to expressions, errors with their place.

What a class of Python's ``ast`` or a word of ``T`` means is a function of the parser and the node, in :class:`Tables`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..arith import Analyzer
from ..expr import BufferLoad, Expr, IntImm, IterVar, Range, StringImm, Var, convert, plain
from ..stmt import Block, Buffer, Evaluate, SeqStmt, Stmt
from ..vocabulary import TypeWord, Word, type_word
from .parse_errors import ParseError, Source
from .parser_values import BUILTINS, BufferMethod, Frame, MetaVar, Namespace

Wrapper = Callable[[Stmt], Stmt]
"""Builds a statement around the statements that follow it in the same body."""


@dataclass(frozen=True)
class Tables:
    """Holds the functions that parse expressions and statements, by the class of the node, and words that make
    values."""

    expressions: Mapping[type, Parse]
    statements: Mapping[type, Parse]
    words: Mapping[str, Parse]


Parse = Callable[["Parser", Any], Any]
"""Returns what a node means: the value of an expression; the statement or the wrapper of a statement, or None."""


class Parser:
    """Keeps scopes of names and returns values of the kind that is asked for.

    ``outer`` looks up names that the text itself does not define. ``frames`` are the open blocks; the first is the
    function's.
    """

    def __init__(self, source: Source, outer: Callable[[str], Any], tables: Tables) -> None:
        self.source = source
        self.tables = tables
        self.frames: list[Frame] = []
        self.loops: dict[Var, Range] = {}
        self.roots: dict[Stmt, Block] = {}  # top-level blocks without axes, each in the form that it has as the root
        self.thread_tags: dict[Var, str] = {}  # of T.env_thread
        self.outer = outer
        self.scopes: list[dict[str, Any]] = [{}]
        self.analyzer: Analyzer | None = None
        self.named_sizes: dict[str, Var] = {}  # sizes that texts in shapes name, in this function
        self.size_dtypes: dict[str, str] = {}  # sizes that this function's body declares
        self.allocated: dict[Var, Buffer] = {}  # by pointer: what T.allocate made
        self.named_values: set[Var] = set()  # variables of LetStmt

    def error(self, message: str, node: ast.AST | None) -> ParseError:
        """Return a ParseError at ``node``."""
        return self.source.error(message, node)

    def lookup(self, name: str, node: ast.AST) -> Any:
        """Return the value of ``name``."""
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        value = self.outer(name)
        if value is NotImplemented:
            if name in BUILTINS:
                return BUILTINS[name]
            raise self.error(f"`{name}` is not defined here", node)
        if isinstance(value, IterVar):
            return value.var
        return BUILTINS["range"] if value is range else value

    def define(self, name: str, value: Any) -> None:
        """Define ``name`` in the innermost scope."""
        self.scopes[-1][name] = value

    def eval(self, node: ast.AST) -> Any:
        """Return the value of an expression: a Python value, an expression node, a buffer, a word of ``T`` …"""
        parse = self.tables.expressions.get(type(node))
        if parse is None:
            raise self.error(f"{type(node).__name__} has no meaning in TIR", node)
        return parse(self, node)

    def word(self, name: str, node: ast.Call) -> Any:
        """Return the value of a call of a word that is not a plain function."""
        parse = self.tables.words.get(name)
        if parse is None:
            raise self.error(f"T.{name} cannot stand here", node)
        return parse(self, node)

    def body(self, nodes: list[ast.stmt]) -> Stmt:
        """Parse a list of statements. A statement with a scope (a binding, an allocation) contains the rest of the
        list."""
        out: list[Stmt] = []
        scoped: list[tuple[int, Wrapper]] = []
        for node in nodes:
            parse = self.tables.statements.get(type(node))
            if parse is None:
                raise self.error(f"{type(node).__name__} has no meaning in TIR", node)
            made = parse(self, node)
            if isinstance(made, Stmt):
                out.append(made)
            elif made is not None:
                scoped.append((len(out), made))
        for start, wrap in reversed(scoped):
            out[start:] = [wrap(_sequence(out[start:]))]
        return _sequence(out)

    def nested(self, nodes: list[ast.stmt]) -> Stmt:
        """Parse a body in a scope of its own."""
        self.scopes.append({})
        out = self.body(nodes)
        self.scopes.pop()
        return out

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

    def guarded(self, node: ast.AST, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return ``f(*args)``; its errors are reported at ``node``."""
        try:
            return f(*args, **kwargs)
        except ParseError:
            raise
        except (TypeError, ValueError, IndexError, KeyError, AttributeError, ArithmeticError) as e:
            raise self.error(str(e) or type(e).__name__, node) from e

    def expr(self, node: ast.AST, dtype: str | None = None) -> Expr:
        """Return the value as an expression; a plain number takes ``dtype``, when given."""
        return self.as_expr(self.eval(node), node, dtype)

    def as_expr(self, value: Any, node: ast.AST, dtype: str | None = None) -> Expr:
        """Return ``value`` as an expression."""
        if isinstance(value, Expr):
            return value
        if isinstance(value, Buffer):
            if value.ndim == 0:
                return BufferLoad(value, ())
            raise self.error(f"buffer {value.name} has no value of its own; index it", node)
        if isinstance(value, MetaVar):
            value = value.value
        if value is None or isinstance(value, (Word, TypeWord, Namespace, BufferMethod, tuple, list, dict)):
            raise self.error(f"a value is needed, not {value!r}", node)
        return self.guarded(node, convert, value, dtype)

    def condition(self, node: ast.AST) -> Expr:
        """Return the value as a bool expression."""
        e = self.expr(node)
        if not e.dtype.is_bool:
            raise self.error(f"a condition must be bool, this is {e.dtype}", node)
        return e

    def number(self, node: ast.AST) -> int:
        """Return the value of a constant integer."""
        value = self.eval(node)
        if isinstance(value, IntImm):
            return value.value
        if not isinstance(value, int):
            raise self.error("a constant integer is needed", node)
        return value

    def string(self, node: ast.AST) -> str:
        """Return the value of a constant text."""
        value = self.eval(node)
        if isinstance(value, StringImm):
            return value.value
        if not isinstance(value, str):
            raise self.error("a text is needed", node)
        return value

    def dtype(self, node: ast.AST) -> str:
        """Return a data type, written as text or as a word such as ``T.int8``."""
        value = self.eval(node)
        name = value.dtype if isinstance(value, TypeWord) else value
        if not isinstance(name, str):
            raise self.error("a data type is needed", node)
        self.guarded(node, type_word, name)
        return name

    def items(self, nodes: list[ast.expr]) -> list[Any]:
        """Return the values of several expressions; ``*rest`` adds each of its items."""
        out: list[Any] = []
        for n in nodes:
            if isinstance(n, ast.Starred):
                value = self.eval(n.value)
                if not isinstance(value, (list, tuple, range)):
                    raise self.error("only a list or tuple can be spread with *", n)
                out.extend(value)
            else:
                out.append(self.eval(n))
        return out

    def keywords(self, node: ast.Call) -> dict[str, Any]:
        """Return the values of the keyword arguments."""
        if any(k.arg is None for k in node.keywords):
            raise self.error("** has no meaning in TIR", node)
        return {str(k.arg): self.eval(k.value) for k in node.keywords}

    def arguments(self, node: ast.Call, *names: str) -> dict[str, ast.expr]:
        """Return the argument expressions by name; ParseError for too many, unknown or repeated ones."""
        if len(node.args) > len(names):
            raise self.error(f"{len(node.args)} arguments, at most {len(names)}: {', '.join(names)}", node)
        out = dict(zip(names, node.args, strict=False))
        for k in node.keywords:
            if k.arg not in names or k.arg in out:
                known = "given twice" if k.arg in out else f"unknown; there are {', '.join(names)}"
                raise self.error(f"argument `{k.arg}` is {known}", k.value)
            out[k.arg] = k.value
        return out

    def unpack(self, target: ast.AST, value: Any) -> None:
        """Bind a target of names to a value."""
        if isinstance(target, ast.Name):
            self.define(target.id, value)
        elif isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (list, tuple)):
            if len(target.elts) != len(value):
                raise self.error(f"{len(value)} values for {len(target.elts)} names", target)
            for t, v in zip(target.elts, value, strict=True):
                self.unpack(t, v)
        else:
            raise self.error("names are needed here", target)


def _sequence(stmts: list[Stmt]) -> Stmt:
    flat: list[Stmt] = []
    for s in stmts:
        flat.extend(s.seq) if isinstance(s, SeqStmt) else flat.append(s)
    if not flat:
        return Evaluate(IntImm(0))
    return flat[0] if len(flat) == 1 else SeqStmt(tuple(flat))


def _plain(value: Any) -> Any:
    """Return int32 and bool constants of attributes as Python values."""
    if isinstance(value, IntImm) and value.dtype not in ("int32", "bool"):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return plain(value)
