"""This module defines the base of the parser: scopes, conversions to expressions, errors with their place."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from ..arith import Analyzer
from ..buffer import Buffer
from ..constants import convert
from ..expr import BufferLoad, Expr, IntImm, StringImm, Var
from ..ranges import IterVar
from ..vocabulary import TypeWord, Word, type_word
from .errors import ParseError, Source
from .parser_values import BUILTINS, BufferMethod, MetaVar, Namespace


class ParserBase:
    """Keeps scopes of names and returns values of the kind that is asked for.

    ``outer`` looks up names that the text itself does not define.
    """

    def __init__(self, source: Source, outer: Callable[[str], Any]) -> None:
        self.source = source
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
        method = getattr(self, "_" + type(node).__name__, None)
        if method is None:
            raise self.error(f"{type(node).__name__} has no meaning in TIR", node)
        return method(node)

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
        return self.guarded(node, convert, value, dtype)  # type: ignore[no-any-return]

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
