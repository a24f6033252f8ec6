"""Compiled code with line tables: the lowered programs as one text, and code whose instructions name lines of it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from ...tir.printer import script_lines
from ..llvm.emit import emit
from ..llvm.jit import CompiledCode, optimize_and_compile
from ..llvm.source_lines import SourceLines
from ..lowered import LoweredFunc
from .call_services import register_service


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
        modules.append(emit(function, source))
        texts.append(text)
        above += text.count("\n") + 1
    return modules, "\n".join(texts) + "\n"


def with_line_tables(functions: Sequence[LoweredFunc], code: CompiledCode, path: Path) -> tuple[CompiledCode, str]:
    """Returns the code of ``functions`` with line tables for a text at ``path``, and the text. No file is written."""
    modules, text = modules_with_lines(functions, path)
    options = dataclasses.asdict(code.options)
    located = optimize_and_compile(modules[0], code.target, link=tuple(modules[1:]), cache=False, **options)
    return located, text


register_service("line_tables", with_line_tables)
