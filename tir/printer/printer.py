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

import keyword
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ..expr import INDEX, CommReducer, Expr, IntImm, Var, is_const_int
from ..expr.base.deep_recursion import with_room
from ..stmt import BlockRealize, IRModule, PrimFunc, Stmt
from ..stmt.statement_walks import needs_root
from .printer_expr import ExprPrinter
from .printer_stmt import SPELLINGS, StmtPrinter

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


def is_sugared_root(stmt: Stmt) -> bool:
    """Return whether ``stmt`` is a root block that the text leaves out because the parser adds it again."""
    if type(stmt) is not BlockRealize:
        return False
    b = stmt.block
    extras = b.iter_vars or b.reads or b.writes or b.match_buffers or b.annotations or b.init is not None
    return (
        b.name_hint == "root"
        and not extras
        and is_const_int(stmt.predicate, 1)
        and needs_root(b.body, bool(b.alloc_buffers))
    )


class ProgramPrinter(StmtPrinter):
    """Prints statements, functions and modules."""

    def __init__(self, highlight: Mapping[Any, str] | Iterable[Any] = (), words: str = "block") -> None:
        super().__init__(highlight, words)
        self.bare_params: set[Var] = set()
        self.used_params: set[Var] = set()

    def stmt(self, s: Any) -> None:
        if isinstance(s, PrimFunc):
            self.func(s)
        elif isinstance(s, IRModule):
            self.module(s)
        else:
            super().stmt(s)

    def unknown_var(self, var: Var) -> str:
        if var in self.bare_params:
            self.used_params.add(var)
        return super().unknown_var(var)

    def func(self, f: PrimFunc, name: str | None = None) -> None:
        """Print a function; ``name`` is its name in a module."""
        start, plain = len(self.lines), self._plain_params(f)
        while True:
            self.bare_params, self.used_params = plain, set()
            self._func(f, plain, name)
            if not self.used_params:
                return
            plain = plain - self.used_params  # the pointer itself is used, so match_buffer declares the buffer
            del self.lines[start:]
            self.places = self.places and [place for place in self.places if place[0] < start]

    def _plain_params(self, f: PrimFunc) -> set[Var]:
        """Return the parameters whose buffers ``A: T.Buffer(...)`` describes completely."""
        pointers = Counter([b.data for b in f.buffer_map.values()])
        return {
            p
            for p, b in f.buffer_map.items()
            if p.dtype == "handle"
            and all(type(e) is IntImm for e in b.shape)
            and is_const_int(b.elem_offset, 0)
            and (b.elem_offset.dtype, b.scope, b.data_alignment, b.offset_factor) == (INDEX, "global", 64, 1)
            and not b.strides
            and not b.axis_separators
            and pointers[b.data] == 1
        }

    def _func(self, f: PrimFunc, plain: set[Var], name: str | None) -> None:
        self.names.enter()
        outer_loops, self.loops = self.loops, {}
        symbol = f.attrs.get("global_symbol")
        attrs = dict(f.attrs)
        shown = name if name is not None else symbol if _is_name(symbol) else "main"
        if symbol == shown:
            del attrs["global_symbol"]
        self.line("@T.prim_func" if "global_symbol" in f.attrs else "@T.prim_func(private=True)")
        params = []
        for p in f.params:
            if p in plain:
                b = f.buffer_map[p]
                args = self.buffer_args(b, explicit=True)
                params.append(f"{self.define_buffer(b)}: T.Buffer({args})")
            else:
                buffer = f.buffer_map.get(p)
                hint = f"var_{p.name}" if buffer is not None and p.name == buffer.name else p.name
                params.append(f"{self.names.define(p, hint)}: T.{p.dtype}")
        self.line(f"def {shown}({', '.join(params)}):", f)
        outer_head, self.head = self.head, len(self.lines)
        outer_scope, self.head_scope = self.head_scope, self.names.depth
        self.head_pointers = {f.buffer_map[p].data for p in plain}
        indent = self.indent
        self.indent = indent + "    "
        if attrs:
            self.line(f"T.func_attr({self.mapping(attrs)})")
        for p in f.params:
            if p in f.buffer_map and p not in plain:
                self.line(self.declare(f.buffer_map[p], "match_buffer", f"{self.names.texts[p]}, "), f.buffer_map[p])
        if is_sugared_root(f.body):
            self.line(f'# with T.{self.words["block"]}("root"):', f.body, f.body.block, "root")  # type: ignore[attr-defined]
            self._block_body(f.body.block)  # type: ignore[attr-defined]
        else:
            self.stmt(f.body)
        self.indent, self.head, self.loops = indent, outer_head, outer_loops
        self.head_scope = outer_scope
        self.names.leave()

    def module(self, m: IRModule) -> None:
        """Print a module: a class with its functions as methods."""
        self.line("@I.ir_module")
        self.line("class Module:")
        indent = self.indent
        self.indent = indent + "    "
        if m.attrs:
            self.line(f"I.module_attrs({self.mapping(m.attrs)})")
            self.lines.append("")
        for k, (name, f) in enumerate(m.functions.items()):
            if k:
                self.lines.append("")
            self.func(f, name)
        if not m.functions and not m.attrs:
            self.line("pass")
        self.indent = indent


def _is_name(symbol: Any) -> bool:
    return isinstance(symbol, str) and symbol.isidentifier() and not keyword.iskeyword(symbol)
