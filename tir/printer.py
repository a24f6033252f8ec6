"""This module prints programs and statements as TVMScript, in time linear in the length of the text; :mod:`.parser` reads it.

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
from dataclasses import dataclass
from typing import Any

from .expr import INDEX, CommReducer, Expr, IntImm, IterVar, Var, is_const_int, pre_order
from .expr.deep_recursion import with_room
from .printer_expr import ExprPrinter, quote
from .stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
    Buffer,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    IRModule,
    LetStmt,
    MatchBufferRegion,
    PrimFunc,
    SeqStmt,
    Stmt,
    While,
    needs_root,
)

__all__ = ["script", "script_lines"]


_LOOP_WORDS = {"serial": "serial", "parallel": "parallel", "vectorized": "vectorized", "unrolled": "unroll"}
_AXIS_LETTERS = {"spatial": "S", "reduce": "R"}
_AXIS_WORDS = {"spatial": "spatial", "reduce": "reduce", "opaque": "opaque", "scan": "scan"}
SPELLINGS = {
    "block": {"block": "block", "block_attr": "block_attr", "alloc_buffer": "alloc_buffer"},
    "sblock": {"block": "sblock", "block_attr": "sblock_attr", "alloc_buffer": "sblock_alloc_buffer"},
}
"""The words for blocks in TVM up to 0.22, and in later versions of TVM."""
_SCOPED = (LetStmt, Allocate, AttrStmt, AssertStmt)


def same(a: Expr, b: Expr) -> bool:
    """Return whether two extents are the same object or equal constants of one type."""
    return a is b or (type(a) is IntImm and type(b) is IntImm and a.value == b.value and a.dtype == b.dtype)


@dataclass
class _Behind:
    """The place behind the declaration of a buffer: the number of the next line, its indentation, its scope of names."""

    line: int
    indent: str
    scope: int


class StmtPrinter(ExprPrinter):
    """Collects lines. ``highlight`` maps nodes (statements, blocks, loop variables, buffers) to texts."""

    def __init__(self, highlight: Mapping[Any, str] | Iterable[Any] = (), words: str = "block") -> None:
        super().__init__()
        self.words = SPELLINGS[words]
        self.lines: list[str] = []
        self.indent = ""
        self.loops: dict[Var, For] = {}
        self.head: int | None = None
        self.head_scope = 0
        self.head_pointers: set[Var] = set()  # of buffers that are parameters
        self.matched = 0  # the line behind those that match buffers to parameters
        self.matched_pointers: set[Var] = set()
        self.allocated: dict[Var, _Behind] = {}  # where views of allocated buffers are declared
        self.places: list[tuple[int, tuple[Any, ...]]] | None = None  # lines with their nodes, where they are asked for
        self.marks = dict(highlight) if isinstance(highlight, Mapping) else dict.fromkeys(highlight, "")

    # Lines

    def line(self, text: str, *nodes: Any) -> None:
        """Add one line, underlined when one of ``nodes`` is highlighted."""
        if self.places is not None:
            self.places.append((len(self.lines), nodes))
        self.lines.append(self.indent + text)
        for node in nodes:
            remark = self.marks.get(node) if self.marks else None
            if remark is not None:
                self.lines.append(f"{self.indent}#{'^' * max(len(text) - 1, 3)}{' ' + remark if remark else ''}")
                return

    def nested(self, body: Stmt) -> None:
        """Print ``body`` indented by one more step, in a scope of its own."""
        indent = self.indent
        self.indent = indent + "    "
        self.names.enter()
        self.stmt(body)
        self.names.leave()
        self.indent = indent

    # Variables and buffers that nothing declares

    def unknown_var(self, var: Var) -> str:
        with self.names.within(self.head_scope if self.head is not None else -1):
            name = super().unknown_var(var)
        self._declare_at_head(f"{name} = {declaration(var)}")
        return name

    def unknown_buffer(self, buffer: Buffer) -> str:
        pointer = self.names.texts.get(buffer.data)
        if (
            pointer is not None and buffer.data in self.matched_pointers
        ):  # statements in several scopes may use the view
            self.symbols(buffer, head=True)
            with self.names.within(self.head_scope):
                text = self.declare(buffer, "Buffer", explicit=True)
            self._insert(self.matched, text)
            self.matched += 1
            return self.names.texts[buffer]
        if pointer is not None and buffer.data not in self.head_pointers:  # a view of an allocated buffer
            behind = self.allocated.get(buffer.data)
            sizes = (*buffer.shape, *buffer.strides, buffer.elem_offset)
            if behind is not None and not any(type(n) is Var for e in sizes for n in pre_order(e)):
                with self.names.within(behind.scope):
                    text = self.declare(buffer, "Buffer", explicit=True)
                self._insert_line(behind.line, behind.indent + text)
                return self.names.texts[buffer]
            self.line(self.declare(buffer, "Buffer", explicit=True))
            return self.names.texts[buffer]
        if self.head is not None:
            self.symbols(buffer, head=True)
        with self.names.within(self.head_scope if self.head is not None else -1):
            name = self.define_buffer(buffer)
        self._declare_at_head(f"{name} = T.Buffer({self.buffer_args(buffer, explicit=True)})")
        return name

    def _declare_at_head(self, text: str) -> None:
        if self.head is not None:
            self._insert(self.head, text)
            self.head += 1
            self.matched += 1

    def _insert(self, at: int, text: str) -> None:
        """Add a line to those of the function's head."""
        first = self.lines[at - 1]
        step = first[: len(first) - len(first.lstrip())] + ("    " if first.endswith(":") else "")
        self._insert_line(at, step + text)

    def _insert_line(self, at: int, text: str) -> None:
        """Add a line before the one of this number."""
        self.lines.insert(at, text)
        if self.places is not None:
            self.places = [(n + (n >= at), nodes) for n, nodes in self.places]
        for behind in self.allocated.values():
            behind.line += behind.line >= at

    def _declare_views_here(self, buffer: Buffer, indent: str) -> None:
        """Let views of a buffer, whatever statements use them, be declared behind the last line, which declares the buffer."""
        self.allocated[buffer.data] = _Behind(len(self.lines), indent, self.names.depth)

    # Buffers

    def symbols(self, buffer: Buffer, head: bool = False) -> None:
        """Declare the sizes in a buffer's shape, strides and offset that have no name yet."""
        for e in (*buffer.shape, *buffer.strides, buffer.elem_offset):
            for n in pre_order(e):
                if type(n) is Var and n not in self.names.texts:
                    if head:
                        self.unknown_var(n)
                    else:
                        self.line(f"{self.names.define(n, n.name)} = {declaration(n)}")

    def buffer_args(self, buffer: Buffer, explicit: bool = False, extra: str = "", scope: str = "global") -> str:
        """Return the arguments of a buffer, such as ``(16, 16), "int8", scope="local"``.

        float32 is left out unless ``explicit``, and so is ``scope`` where it is the default.
        """
        shape = self.many(buffer.shape)
        out = [f"({shape},)" if len(buffer.shape) == 1 else f"({shape})"]
        if explicit or buffer.dtype != "float32":
            out.append(quote(buffer.dtype))
        data = self.names.texts.get(buffer.data)
        if data is not None and data != f"{self.names.texts.get(buffer)}.data":
            out.append(f"data={data}")
        if buffer.strides:
            strides = self.many(buffer.strides)
            out.append(f"strides=({strides}{',' if len(buffer.strides) == 1 else ''})")
        if not is_const_int(buffer.elem_offset, 0) or buffer.elem_offset.dtype != INDEX or buffer.offset_factor != 1:
            out.append(f"elem_offset={self.text(buffer.elem_offset)}")
        if not buffer.scope == scope == "global":
            out.append(f"scope={quote(buffer.scope)}")
        if buffer.data_alignment != 64:
            out.append(f"align={buffer.data_alignment}")
        if buffer.offset_factor != 1:
            out.append(f"offset_factor={buffer.offset_factor}")
        if buffer.axis_separators:
            out.append(f"axis_separators={list(buffer.axis_separators)}")
        return ", ".join(out) + extra

    def declare(
        self,
        buffer: Buffer,
        word: str,
        first: str = "",
        explicit: bool = False,
        extra: str = "",
        scope: str = "global",
    ) -> str:
        """Print ``A = T.word(first, shape, …)`` after lines for the symbols in it, and name the buffer in this
        scope."""
        self.symbols(buffer)
        shared = buffer.data in self.names.texts
        args = self.buffer_args(buffer, explicit, extra, scope)
        name = self.names.define(buffer, buffer.name)
        if not shared:
            self.names.alias(buffer.data, f"{name}.data")
        return f"{name} = T.{word}({first}{args})"

    # Statements

    def message(self, text: str) -> str:
        """Return what is printed of an assertion's message."""
        return text

    def stmt(self, s: Any) -> None:
        """Print ``s``; a chain of scoped statements is printed without further indentation."""
        while True:
            cls = type(s)
            if cls is LetStmt:
                value = self.text(s.value)
                name = self.names.define(s.var, s.var.name)
                self.line(f"{name}: T.{s.var.dtype} = {value}", s, s.var)
            elif cls is Allocate:
                notes = f", annotations={self.mapping(s.annotations)}" if s.annotations else ""
                self.line(self.declare(s.buffer, "decl_buffer", extra=notes), s, s.buffer)
                self._declare_views_here(s.buffer, self.indent)
            elif cls is AttrStmt:
                self.line(self._attr(s), s)
            elif cls is AssertStmt:
                self.line(f"assert {self.text(s.condition)}, {quote(self.message(s.message))}", s)
            else:
                break
            s = s.body
        if cls is SeqStmt:
            last = len(s.seq) - 1
            for k, item in enumerate(s.seq):
                if k < last and type(item) in _SCOPED:
                    self._with(item)
                else:
                    self.stmt(item)
        elif cls is BufferStore:
            self._store(s)
        elif cls is For:
            self._for(s)
        elif cls is BlockRealize:
            self._block(s.block, s)
        elif cls is IfThenElse:
            self._if(s)
        elif cls is While:
            self.line(f"while {self.text(s.condition)}:", s)
            self.nested(s.body)
        elif cls is Evaluate:
            self.line(f"T.evaluate({self.text(s.value)})", s)
        elif cls is Block:
            self._block(s, None)
        else:
            self.line(self.text(s), s)

    def _with(self, s: Any) -> None:
        cls = type(s)
        self.names.enter()
        if cls is LetStmt:
            value = self.text(s.value)
            name = self.names.define(s.var, s.var.name)
            dtype = "" if s.var.dtype == s.value.dtype else f", dtype={quote(s.var.dtype)}"
            self.line(f"with T.LetStmt({value}{dtype}) as {name}:", s, s.var)
        elif cls is Allocate:
            notes = f", annotations={self.mapping(s.annotations)}" if s.annotations else ""
            name, _, call = self.declare(s.buffer, "decl_buffer", extra=notes).partition(" = ")
            self.line(f"with {call} as {name}:", s, s.buffer)
            self._declare_views_here(s.buffer, self.indent + "    ")
        elif cls is AttrStmt:
            self.line(f"with {self._attr(s)}:", s)
        else:
            self.line(f"with T.Assert({self.text(s.condition)}, {quote(s.message)}):", s)
        self.nested(s.body)
        self.names.leave()

    def _attr(self, s: AttrStmt) -> str:
        node = s.node
        if isinstance(node, IterVar):
            if node.var not in self.names.texts:
                name = self.names.define(node.var, node.var.name)
                self.line(f"{name} = {declaration(node.var)}")
            text = self.text(node)
        else:
            text = self.value(node)
        return f"T.attr({text}, {quote(s.attr_key)}, {self.text(s.value)})"

    def _store(self, s: BufferStore) -> None:
        name = self.buffer_name(s.buffer)
        if s.predicate is None:
            self.line(f"{self.access(name, s.indices)} = {self.text(s.value)}", s)
        else:
            indices, value, predicate = self.many(s.indices), self.text(s.value), self.text(s.predicate)
            self.line(f"{name}.vstore([{indices}], {value}, predicate={predicate})", s)

    def _if(self, s: IfThenElse) -> None:
        chain = [s]
        while type(chain[-1].else_case) is IfThenElse:
            chain.append(chain[-1].else_case)
        texts = [self.text(link.condition) for link in chain]  # first, because they may declare views that they read
        for word, link, text in zip(["if"] + ["elif"] * len(chain), chain, texts, strict=False):
            self.line(f"{word} {text}:", link)
            self.nested(link.then_case)
        s = chain[-1]
        if s.else_case is not None:
            self.line("else:")
            self.nested(s.else_case)

    def _for(self, s: For) -> None:
        self.names.enter()
        loops = self._grid(s)
        if len(loops) > 1:
            extents = self.many([loop.extent for loop in loops])
            names = [self.names.define(loop.loop_var, loop.loop_var.name) for loop in loops]
            self.line(f"for {', '.join(names)} in T.grid({extents}):", *loops, *[loop.loop_var for loop in loops])
        else:
            domain = self._domain(s)
            name = self.names.define(s.loop_var, s.loop_var.name)
            self.line(f"for {name} in {domain}:", s, s.loop_var)
        for loop in loops:
            self.loops[loop.loop_var] = loop
        self.nested(loops[-1].body)
        self.names.leave()

    def _domain(self, s: For) -> str:
        if is_const_int(s.min, 0) and s.min.dtype == s.extent.dtype:
            args = self.text(s.extent)
        else:
            args = ", ".join(self.span(s.min, s.extent))
        if s.kind == "serial" and not s.annotations:
            return f"range({args})"
        notes = f", annotations={self.mapping(s.annotations)}" if s.annotations else ""
        if s.kind == "thread_binding":
            return f"T.thread_binding({args}, thread={quote(s.thread_binding or '')}{notes})"
        return f"T.{_LOOP_WORDS[s.kind]}({args}{notes})"

    def _grid(self, s: For) -> list[For]:
        """Return the loops from ``s`` inwards that print as one ``T.grid``."""
        loops: list[For] = []
        seen: set[Var] = set()
        node: Any = s
        while type(node) is For and node.kind == "serial" and not node.annotations and is_const_int(node.min, 0):
            if node.min.dtype != node.extent.dtype or node.loop_var in seen:
                break
            if type(node.extent) is not IntImm and any(n in seen for n in pre_order(node.extent) if type(n) is Var):
                break
            if (
                self.marks
                and loops
                and not self.marks.keys().isdisjoint((node, node.loop_var, loops[-1], loops[-1].loop_var))
            ):
                break
            loops.append(node)
            seen.add(node.loop_var)
            node = node.body
        return loops or [s]

    # Blocks

    def _block(self, b: Block, realize: BlockRealize | None) -> None:
        bare = ", no_realize=True" if realize is None else ""
        self.line(f"with T.{self.words['block']}({quote(b.name_hint)}{bare}):", b, realize, b.name_hint)
        indent = self.indent
        self.indent = indent + "    "
        self.names.enter()
        if realize is not None:
            self._axes(b, realize)
            if not is_const_int(realize.predicate, 1):
                self.line(f"T.where({self.text(realize.predicate)})")
        else:
            for axis in b.iter_vars:
                self.line(f"{self.names.define(axis.var, axis.var.name)} = {self._axis(axis)})")
        self.line(f"T.reads({', '.join([self.region(r) for r in b.reads])})")
        self.line(f"T.writes({', '.join([self.region(r) for r in b.writes])})")
        if b.annotations:
            self.line(f"T.{self.words['block_attr']}({self.mapping(b.annotations)})")
        self._block_body(b)
        self.names.leave()
        self.indent = indent

    def _block_body(self, b: Block) -> None:
        for buffer in b.alloc_buffers:
            self.line(self.declare(buffer, self.words["alloc_buffer"]), buffer)
            self._declare_views_here(buffer, self.indent)
        for match in b.match_buffers:
            self.line(self._match(match), match, match.buffer)
        if b.init is not None:
            self.line("with T.init():", b.init)
            self.nested(b.init)
        self.stmt(b.body)

    def _match(self, match: MatchBufferRegion) -> str:
        source = f"{self.region(match.source)}, "
        return self.declare(match.buffer, "match_buffer", source, True, scope=match.source.buffer.scope)

    def _axis(self, axis: IterVar) -> str:
        dom, word = axis.dom, _AXIS_WORDS.get(axis.kind, axis.kind)
        if is_const_int(dom.min, 0) and dom.min.dtype == dom.extent.dtype:
            return f"T.axis.{word}({self.text(dom.extent)}"
        return "T.axis.{}(({}, {})".format(word, *self.span(dom.min, dom.extent))

    def _axes(self, b: Block, realize: BlockRealize) -> None:
        run: list[tuple[IterVar, Expr]] = []
        values = realize.iter_values
        for k, axis in enumerate(b.iter_vars):
            if k >= len(values):  # not well-formed, but printed all the same
                self.line(f"{self.names.define(axis.var, axis.var.name)} = {self._axis(axis)})", axis.var)
                continue
            value = values[k]
            if self._is_remap(axis, value):
                run.append((axis, value))
            else:
                self._remap(run)
                run = []
                self._bind(axis, value)
        self._remap(run)

    def _is_remap(self, axis: IterVar, value: Expr) -> bool:
        loop = self.loops.get(value) if type(value) is Var else None
        return (
            loop is not None
            and axis.kind in _AXIS_LETTERS
            and axis.var.dtype == loop.loop_var.dtype
            and same(axis.dom.min, loop.min)
            and same(axis.dom.extent, loop.extent)
        )

    def _bind(self, axis: IterVar, value: Expr) -> None:
        text = self.text(value)
        call = self._axis(axis)
        dtype = "" if axis.var.dtype == value.dtype else f", dtype={quote(axis.var.dtype)}"
        self.line(f"{self.names.define(axis.var, axis.var.name)} = {call}, {text}{dtype})", axis.var)

    def _remap(self, run: list[tuple[IterVar, Expr]]) -> None:
        if len(run) == 1:
            self._bind(*run[0])
        elif run:
            values = self.many([value for _, value in run])
            names = [self.names.define(axis.var, axis.var.name) for axis, _ in run]
            letters = "".join([_AXIS_LETTERS[axis.kind] for axis, _ in run])
            text = f'{", ".join(names)} = T.axis.remap("{letters}", [{values}])'
            self.line(text, *[axis.var for axis, _ in run])


def declaration(var: Var) -> str:
    """Return the text that declares a variable, such as ``T.int32()``."""
    return f"T.{var.dtype}()"


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
        outer_matched, self.matched = (self.matched, self.matched_pointers), len(self.lines)
        self.matched_pointers = {b.data for p, b in f.buffer_map.items() if p not in plain}
        if is_sugared_root(f.body):
            self.line(f'# with T.{self.words["block"]}("root"):', f.body, f.body.block, "root")  # type: ignore[attr-defined]
            self._block_body(f.body.block)  # type: ignore[attr-defined]
        else:
            self.stmt(f.body)
        self.indent, self.head, self.loops = indent, outer_head, outer_loops
        self.head_scope = outer_scope
        self.matched, self.matched_pointers = outer_matched
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
