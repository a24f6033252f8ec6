"""The printer: any node as TVMScript, in time linear in the size of the text.

A function's text is valid Python and parses back to an equal function. Nodes smaller than a function print as they
would inside one. Other layers teach the printer their nodes with :func:`register_printer`.

>>> from tilewright.tir.expr import Var
>>> i = Var("i")
>>> print((i + 1) * 4)
(i + 1) * 4
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .depth import with_room
from .expr import CommReducer, Expr
from .function import IRModule, PrimFunc
from .node import set_renderer
from .printer_expr import ATOM, ExprPrinter, register_printer
from .printer_func import ProgramPrinter
from .stmt import Stmt

__all__ = ["ATOM", "ExprPrinter", "ProgramPrinter", "register_printer", "script"]

_T_HEADER = "# from tilewright.tir import script as T\n\n"
_I_HEADER = "# from tilewright.tir.script import ir as I\n# from tilewright.tir import script as T\n\n"


@with_room
def script(node: Any, *, highlight: Mapping[Any, str] | Iterable[Any] = (), header: bool = True) -> str:
    """``node`` as text.

    ``highlight``: statements, blocks, loop variables, buffers or names of blocks whose lines are underlined with
    ``#^^^``; a mapping adds a remark to each. ``header`` false leaves out the comment with the imports.
    """
    if isinstance(node, (Stmt, PrimFunc, IRModule)):
        printer = ProgramPrinter(highlight)
        printer.stmt(node)
        text = "\n".join(printer.lines)
        if header and isinstance(node, IRModule):
            return _I_HEADER + text
        return _T_HEADER + text if header and isinstance(node, PrimFunc) else text
    return ExprPrinter().text(node)


@with_room
def _render(node: Any) -> str:
    return ExprPrinter().text(node) if isinstance(node, (Expr, CommReducer)) else script(node)


set_renderer(_render)
