"""Exports a model as a shared library: its kernels, the function that calls them, the runtime, and the constants.

The constants are a read-only section of the library, which the system maps and never copies, or a file beside it. The
library shows the entry alone; all other symbols are local to it, so that a program may link several models.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...tir.expr import DType, Var
from ..c.c_header import c_header
from ..llvm.jit import optimize_and_compile
from ..lowered import LoweredFunc, Param
from ..machine.target import Target
from .entry_ir import Entry, data_ir, entry_ir
from .export import ExportError, link_shared, pkg_config
from .runtime_ir import runtime_ir

WEIGHTS = ".weights"
"""The suffix of a file of constants."""


@dataclass(frozen=True)
class LinkedLibrary:
    """The parts that are linked to a library. They are object files, the function that runs the model as it is lowered,
    the exported entry, and the bytes of the constants (a NumPy array of uint8)."""

    objects: Sequence[bytes]
    lowered: LoweredFunc
    entry: Entry
    data: Any

    @property
    def target(self) -> Target:
        """Returns the machine that the code is for."""
        return self.lowered.target


def export_library(library: LinkedLibrary, path: Path) -> list[Path]:
    """Write ``path`` (a shared library), a C header, a ``.pc`` file, and the constants where the entry says so.

    Returns the files written. :class:`ExportError` for another suffix, and when there is no linker.
    """
    if path.suffix != ".so":
        raise ExportError(f"cannot export a model to {path.name!r}: it becomes a shared library, .so")
    entry, target = library.entry, library.target
    compiled = [entry_ir(entry, target), runtime_ir(target, alone=True)]
    weights = path.with_suffix(WEIGHTS)
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        objects = [*library.objects, *[optimize_and_compile(text, target, 2).object for text in compiled]]
        if entry.in_file:
            library.data.tofile(weights)
        else:
            raw = Path(folder) / "constants"
            library.data.tofile(raw)
            objects.append(optimize_and_compile(data_ir(entry.data, str(raw), target), target, cache=False).object)
        shown = [entry.name, *([f"{entry.name}_load"] if entry.in_file else [])]
        link_shared(objects, path, target, shown)
    header, package = path.with_suffix(".h"), path.with_suffix(".pc")
    header.write_text(_header(library, header.name))
    package.write_text(pkg_config(path, [entry.name]))
    return [path, *([weights] if entry.in_file else []), header, package]


def _header(library: LinkedLibrary, name: str) -> str:
    entry = library.entry
    workspace = Param("scalar", Var("workspace", "handle"), DType("handle"))
    shown = replace(library.lowered, name=entry.name, params=(*entry.params, workspace))
    notes = [
        f"/* The workspace: {entry.name.upper()}_WORKSPACE_BYTES bytes, aligned to 64, for one call at a time; NULL: the",
        "   function takes memory itself. Several threads may call the function at the same time. */",
        f"#define {entry.name.upper()}_WORKSPACE_BYTES {max(entry.workspace, 1)}",
    ]
    if entry.in_file:
        notes += [
            f"/* Maps the constants, the file of {entry.constants} bytes that came with the library; to be called before",
            "   anything else. 0 for success, 1: the file cannot be read, 2: it is another file. */",
            f"int32_t {entry.name}_load(const char* path);",
        ]
    return c_header([shown], name, notes)
