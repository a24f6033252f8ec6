"""This module prints any node as TVMScript, in time linear in the length of the text.

A function's text is valid Python and parses back to an equal function. Nodes smaller than a function print as they
would inside one. Other layers register the text of their nodes with
:func:`~.printer_expr.register_printer`.

>>> from tilewright.tir.expr import Var
>>> i = Var("i")
>>> print((i + 1) * 4)
(i + 1) * 4
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from ..expr import CommReducer, Expr
from ..expr.base.deep_recursion import with_room
from ..stmt import IRModule, PrimFunc, Stmt
from .printer_expr import ExprPrinter
from .printer_func import ProgramPrinter
from .printer_stmt import SPELLINGS

_T_HEADER = "# from tilewright.tir import script as T\n\n"
_I_HEADER = "# from tilewright.tir.script import ir as I\n# from tilewright.tir import script as T\n\n"


@with_room
def script(
    node: Any,
    *,
    highlight: Mapping[Any, str] | Iterable[Any] = (),
    header: bool = True,
    words: str | None = None,
) -> str:
    """Return ``node`` as text.

    ``words``: "block" for ``T.block``, ``T.block_attr``, ``T.alloc_buffer``, or "sblock" for ``T.sblock``,
    ``T.sblock_attr``, ``T.sblock_alloc_buffer``, as in TVM 0.27; the parser reads both. Without it the environment
    variable ``TILEWRIGHT_SCRIPT`` decides, else "block". ValueError for any other. ``highlight``: statements, blocks,
    loop variables, buffers or names of blocks whose lines are underlined with ``#^^^``; a mapping adds a text to each.
    ``header`` false leaves out the comment with the imports.
    """
    if isinstance(node, (Stmt, PrimFunc, IRModule)):
        printer = ProgramPrinter(highlight, _words(words))
        printer.stmt(node)
        text = "\n".join(printer.lines)
        if header and isinstance(node, IRModule):
            return _I_HEADER + text
        return _T_HEADER + text if header and isinstance(node, PrimFunc) else text
    return ExprPrinter().text(node)


@with_room
def script_lines(func: PrimFunc) -> tuple[str, dict[int, list[int]]]:
    """Return the text of ``func`` with its header, and the lines of each node. They are the numbers, from 1, of the
    lines that begin with the node, by its identity; several where the same node stands at several places.

    >>> from tilewright.tir.parser import parse
    >>> func = parse("@T.prim_func\\ndef main(A: T.Buffer((4,), 'float32')):\\n    for i in range(4):\\n        A[i] = 1.0")
    >>> text, lines = script_lines(func)
    >>> text.splitlines()[lines[id(func.body)][0] - 1]
    '    for i in range(4):'
    """
    printer = ProgramPrinter((), _words(None))
    printer.places = []
    printer.stmt(func)
    lines: dict[int, list[int]] = {}
    first = _T_HEADER.count("\n") + 1
    for number, nodes in printer.places:
        for node in nodes:
            lines.setdefault(id(node), []).append(first + number)
    return _T_HEADER + "\n".join(printer.lines), lines


@with_room
def node_text(node: Any, words: str | None = None, marks: Mapping[Any, str] | Iterable[Any] = ()) -> str:
    """Return the text of a node; ``words`` and ``marks`` are those of :func:`script`."""
    if isinstance(node, (Expr, CommReducer)):
        return ExprPrinter().text(node)
    return script(node, words=words, highlight=marks)


def _words(asked: str | None) -> str:
    words = asked if asked is not None else os.environ.get("TILEWRIGHT_SCRIPT") or "block"
    if words not in SPELLINGS:
        where = "words" if asked is not None else "TILEWRIGHT_SCRIPT"
        raise ValueError(f"{where} is {words!r}; there are {' and '.join(map(repr, SPELLINGS))}")
    return words
