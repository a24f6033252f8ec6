"""Line tables: which line of a printed program an instruction comes from, as DWARF that debuggers and profilers read.

An instruction names its line by ``!dbg !DILocation(line: …, scope: …)``; the scope is the function's ``DISubprogram``.
LLVM makes the section ``.debug_line`` of them. The machine code does not depend on them. :func:`with_line_tables` gives the
lowered programs as one text, and code whose instructions name lines of it.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...tir.printer import script_lines
from ...tir.stmt import Stmt
from ..llvm.emit import TABLES, LlvmEmitter, module_text
from ..llvm.function_builder import FunctionBuilder
from ..llvm.jit import CompiledCode, optimize_and_compile
from ..llvm.llvm_scope import LlvmUnit
from ..lowered import LoweredFunc

DWARF_VERSION = 4
"""The newest version that old binutils, gdb and perf read."""


@dataclass
class SourceLines:
    """The lines of a function's statements in a text file ``name`` in ``folder``.

    ``first``: the line where the function begins; ``lines``: by the identity of a statement, the lines that begin with
    it, in the order of the text.
    """

    name: str
    folder: str
    first: int
    lines: Mapping[int, list[int]]
    _used: dict[int, int] = field(default_factory=dict)

    def take(self, s: Stmt) -> int | None:
        """Return the line of a statement that is emitted now; None for one without a line of its own.

        A statement that stands at several places is emitted in the order of the text.
        """
        found = self.lines.get(id(s))
        if found is None:
            return None
        turn = self._used.get(id(s), 0)
        self._used[id(s)] = turn + 1
        return found[min(turn, len(found) - 1)]

    def subprogram(self, name: str, line: int, node: Callable[[str], str]) -> str:
        """Return the text of a function's metadata; ``node`` gives the name of a metadata node."""
        file = node(self._file())
        kind = node(f"!DISubroutineType(types: {node('!{null}')})")
        return (
            f"distinct !DISubprogram(name: {_quoted(name)}, scope: {file}, file: {file}, line: {line}, type: {kind}, "
            f"scopeLine: {line}, spFlags: DISPFlagDefinition, unit: {node(self._unit(node))})"
        )

    def module_metadata(self, node: Callable[[str], str]) -> list[str]:
        """Return the named metadata of a module with line tables."""
        flags = [
            node(f'!{{i32 7, !"Dwarf Version", i32 {DWARF_VERSION}}}'),
            node('!{i32 2, !"Debug Info Version", i32 3}'),
        ]
        return [f"!llvm.dbg.cu = !{{{node(self._unit(node))}}}", f"!llvm.module.flags = !{{{', '.join(flags)}}}"]

    def _file(self) -> str:
        return f"!DIFile(filename: {_quoted(self.name)}, directory: {_quoted(self.folder)})"

    def _unit(self, node: Callable[[str], str]) -> str:
        return (
            f"distinct !DICompileUnit(language: DW_LANG_C99, file: {node(self._file())}, "
            'producer: "Tilewright", isOptimized: true, runtimeVersion: 0, emissionKind: FullDebug)'
        )


class LocatedBuilder(FunctionBuilder):
    """A builder whose instructions say which line of the printed program they come from.

    ``scope``: the function's metadata; ``line``: the line of the statement that is emitted now.
    """

    def __init__(self, header: str, declarations: dict[str, str], scope: str, line: int) -> None:
        super().__init__(header, declarations)
        self.scope, self.line = scope, line

    @property
    def _location(self) -> str:
        return f", !dbg !DILocation(line: {self.line}, scope: {self.scope})"

    def emit(self, text: str) -> str:
        return super().emit(text + self._location)

    def do(self, text: str) -> None:
        super().do(text + self._location)

    def text(self) -> str:
        self.header += f" !dbg {self.scope}"
        return super().text()


class LocatedUnit(LlvmUnit):
    """The parts that the functions of one module with line tables share."""

    def __init__(self, lowered: LoweredFunc, source: SourceLines) -> None:
        super().__init__(lowered, TABLES)
        self.source = source

    def builder(self, header: str, name: str, caller: FunctionBuilder | None = None) -> FunctionBuilder:
        line = caller.line if isinstance(caller, LocatedBuilder) else self.source.first
        return LocatedBuilder(header, self.declarations, self.node(self.source.subprogram(name, line, self.node)), line)

    def named_metadata(self) -> list[str]:
        return self.source.module_metadata(self.node)


class LocatedEmitter(LlvmEmitter):
    """An emitter of functions with line tables."""

    unit: LocatedUnit

    def stmt(self, s: Stmt) -> None:
        fn, line = self.fn, self.unit.source.take(s)
        if line is None or not isinstance(fn, LocatedBuilder):
            super().stmt(s)
            return
        before, fn.line = fn.line, line
        super().stmt(s)
        fn.line = before


def emit_located(lowered: LoweredFunc, source: SourceLines) -> str:
    """Return the LLVM IR module of ``lowered`` with line tables; the machine code is that without them."""
    return module_text(lowered, LocatedUnit(lowered, source), LocatedEmitter)


def _quoted(text: str) -> str:
    """Returns a string of LLVM IR.

    >>> _quoted('k "1".tir')
    '"k \\\\221\\\\22.tir"'
    """
    plain = [chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:02X}" for b in os.fsencode(text)]
    return f'"{"".join(plain)}"'


def modules_with_lines(functions: Sequence[LoweredFunc], path: Path) -> tuple[list[str], str]:
    """Returns the LLVM IR of each function, whose instructions name lines of one text at ``path``, and that text."""
    texts: list[str] = []
    modules: list[str] = []
    above = 0
    for function in functions:
        text, places = script_lines(function.func)
        lines = {node: [above + n for n in found] for node, found in places.items()}
        first = lines[id(function.func)][0]
        source = SourceLines(path.name, os.path.abspath(path.parent), first, lines)
        modules.append(emit_located(function, source))
        texts.append(text)
        above += text.count("\n") + 1
    return modules, "\n".join(texts) + "\n"


def with_line_tables(functions: Sequence[LoweredFunc], code: CompiledCode, path: Path) -> tuple[CompiledCode, str]:
    """Returns the code of ``functions`` with line tables for a text at ``path``, and the text. No file is written."""
    modules, text = modules_with_lines(functions, path)
    options = dataclasses.asdict(code.options)
    located = optimize_and_compile(modules[0], code.target, link=tuple(modules[1:]), cache=False, **options)
    return located, text
