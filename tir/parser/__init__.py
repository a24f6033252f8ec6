"""This package parses TVMScript text by walking Python's ``ast``; the text is never executed.

>>> func = parse('''
... @T.prim_func
... def double(A: T.Buffer((16,), "float32")):
...     for i in range(16):
...         A[i] = A[i] * 2.0
... ''')
>>> print(func.body)
for i in range(16):
    A[i] = A[i] * T.float32(2.0)
"""

from __future__ import annotations

import ast
import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..expr.deep_recursion import in_room, with_room
from ..stmt import IRModule, PrimFunc
from .expression_parser import EXPRESSIONS, WORDS
from .function_parser import parse_module
from .parser_base import USUAL_OPERATORS, Namespace, ParseError, Parser, ParserTables, Source, check_text
from .statement_parser import STATEMENTS

__all__ = ["ParseError", "parse", "parse_expression", "parse_source"]

_TABLES = ParserTables(EXPRESSIONS, STATEMENTS, WORDS)
_KNOWN = {"T": Namespace("T"), "Ts": Namespace("T"), "I": Namespace("I"), "tvm": Namespace("tvm")}


def parse(text: str, extra_vars: Mapping[str, Any] | None = None, *, filename: str = "<text>") -> PrimFunc | IRModule:
    """Return the function or module that ``text`` describes.

    ``extra_vars`` are names that the text may use besides ``T`` and ``I``: sizes, or functions that build expressions.
    Text from a file or a database is safe to parse: only words of ``T`` and values of ``extra_vars`` can be called, and
    size and nesting are limited. Raises :class:`ParseError` with line, column and an excerpt.
    """
    names = dict(_KNOWN)
    names.update(extra_vars or {})
    source = Source(text, filename)
    operators = check_text(source)

    def outer(name: str) -> Any:
        return names.get(name, NotImplemented)

    return in_room(parse_source, source, outer) if operators > USUAL_OPERATORS else parse_source(source, outer)


def parse_expression(text: str, names: Mapping[str, Any]) -> Any:
    """Return the value of a Python expression over ``names`` and ``T``. It is a node, a number, a text, or a tuple of
    these.

    Raises :class:`ParseError` like :func:`parse`, whose limits hold here too.

    >>> from tilewright.tir.expr import Var
    >>> parse_expression("i // 4, i % 4", {"i": Var("i")})
    (i // 4, i % 4)
    """
    source = Source(text)
    check_text(source)
    known = {**_KNOWN, **names}
    try:
        tree = ast.parse(text.strip(), mode="eval")
        return Parser(source, lambda name: known.get(name, NotImplemented), _TABLES).eval(tree.body)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        raise e if isinstance(e, ParseError) else ParseError(f"not an expression: {e}", source, 1, 0) from None


def parse_source(source: Source, outer: Callable[[str], Any]) -> PrimFunc | IRModule:
    """Return what :func:`parse` does, without limits; ``outer(name)`` returns the value of a name or
    ``NotImplemented``."""
    with collection_paused():
        return _parsed(source, outer)


@with_room
def _parsed(source: Source, outer: Callable[[str], Any]) -> PrimFunc | IRModule:
    try:
        tree = ast.parse(source.text)
    except SyntaxError as e:
        raise ParseError(f"not valid Python: {e.msg}", source, e.lineno or 1, max((e.offset or 1) - 1, 0)) from None
    except (ValueError, RecursionError, MemoryError) as e:
        raise ParseError(f"not valid Python: {e}", source, 1, 0) from None
    try:
        return parse_module(Parser(source, outer, _TABLES), tree)
    except RecursionError:
        raise ParseError("the text is nested too deeply", source, 1, 0) from None


@contextmanager
def collection_paused(collect: bool = False) -> Iterator[None]:
    """Pause the search for cyclic garbage inside the ``with``.

    The collector would visit all nodes built so far each time their number has grown by a quarter, so that a function
    ten times as long would take more than ten times as long to parse. ``collect``: at the end, look once through what was
    made inside and is alive.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
        if collect:
            gc.collect(0)
