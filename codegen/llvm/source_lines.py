"""Line tables: which line of a printed program an instruction comes from, as DWARF that debuggers and profilers read.

An instruction names its line by ``!dbg !DILocation(line: …, scope: …)``; the scope is the function's ``DISubprogram``.
LLVM makes the section ``.debug_line`` of them. The machine code does not depend on them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ...tir.stmt import Stmt

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


def _quoted(text: str) -> str:
    """Returns a string of LLVM IR.

    >>> _quoted('k "1".tir')
    '"k \\\\221\\\\22.tir"'
    """
    plain = [chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:02X}" for b in text.encode()]
    return f'"{"".join(plain)}"'
