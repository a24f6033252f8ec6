"""This module reads which lines of the program LLVM IR and assembly name."""

from __future__ import annotations

import re

_LOC = re.compile(r"^\s+\.loc\s+\d+\s+(\d+)")
_LABEL = re.compile(r"^[\w.$@]+:")
_OWN_LABEL = re.compile(r"^\.?L?(tmp|func_|BB_END|sec_|debug|info|line_|cu_)|^\.L(tmp|func_|sec_|debug|info|line|cu)")
_LOCATION = re.compile(r"^(!\d+) = !DILocation\(line: (\d+)")
_ATTACHED = re.compile(r", !dbg (!\d+|!DILocation\(line: (\d+), scope: !\d+\))")
_SUBPROGRAM = re.compile(r" !dbg !\d+(?= \{)")

Lines = tuple[list[str], list[list[int]]]
"""Lines of text, and for each of them the lines of the program from which it comes."""


def assembly_lines(text: str) -> Lines:
    """Returns labels and instructions with the lines of the last ``.loc`` above them; directives are left out.

    >>> assembly_lines("f:\\n\\t.loc\\t1 7 0\\n\\tretq\\n.Lfunc_end0:\\n\\t.section\\t.debug_line\\n\\tnop\\n")
    (['f:', '    retq'], [[], [7]])
    """
    lines: list[str] = []
    links: list[list[int]] = []
    current: list[int] = []
    code = True
    for line in text.splitlines():
        located = _LOC.match(line)
        if located:
            current = [int(located[1])] if int(located[1]) else []
        elif re.match(r"\s+\.(text|section)\b", line):
            code = ".text" in line
        elif _LABEL.match(line):
            name = line.split(":")[0]
            if code and not _OWN_LABEL.match(name):
                current = current if name.startswith(".") else []
                lines.append(line.expandtabs(4).rstrip())
                links.append([])
        elif code and line[:1] == "\t" and line[1:2] not in ("", ".", "#"):
            lines.append(re.sub(r"^\t(\S+)\t", lambda found: f"    {found[1]:<12} ", line).expandtabs(4).rstrip())
            links.append(current)
    return lines, links


def ir_lines(text: str) -> Lines:
    """Returns the functions of LLVM IR without metadata, with the lines that their instructions name.

    >>> ir_lines("  ret i32 0, !dbg !3\\n!3 = !DILocation(line: 7, scope: !2)\\n")
    (['  ret i32 0'], [[7]])
    """
    places = {found[1]: int(found[2]) for line in text.splitlines() if (found := _LOCATION.match(line))}
    lines: list[str] = []
    links: list[list[int]] = []
    for line in text.splitlines():
        if line.startswith("!"):
            continue
        found = _ATTACHED.search(line)
        number = 0 if found is None else int(found[2]) if found[2] else places.get(found[1], 0)
        lines.append(_SUBPROGRAM.sub("", _ATTACHED.sub("", line)))
        links.append([number] if number else [])
    while lines and not lines[-1].strip():
        lines.pop()
        links.pop()
    return lines, links
