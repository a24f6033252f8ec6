"""Writes a model as one C file: its kernels, the function that calls them, its constants and its memory.

On a microcontroller the constants are ``const`` arrays, which linkers place in flash, and the memory for intermediate results
is static, of a size that the header states. Elsewhere the caller gives that memory, or the function takes it from the heap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ...tir.expr import DType, Var
from ..c.c_header import c_header, c_names, c_prototype
from ..c.c_source import CSource, c_source
from ..lowered import LoweredFunc, Param

_PER_LINE = 24


@dataclass(frozen=True)
class ModelSource:
    """The parts that a C file is written from. They are the kernels and the function that calls them, lowered, the
    parameters of the exported function, the bytes of the constants, and how many bytes intermediate results need."""

    kernels: Sequence[LoweredFunc]
    run: LoweredFunc
    params: Sequence[Param]
    constants: bytes
    workspace: int

    @property
    def is_static(self) -> bool:
        """Returns whether memory is static: there is no heap."""
        return self.run.target.is_freestanding

    @cached_property
    def body(self) -> CSource:
        """Returns the kernels and the function that calls them. EmitError for what C cannot say."""
        return c_source([*self.kernels, self.run], True, max(self.workspace, 1) if self.is_static else 0)

    @property
    def static_bytes(self) -> int:
        """Returns the bytes of static memory, or of the workspace where none is static."""
        return self.body.static_bytes if self.is_static else self.workspace

    def texts(self, name: str) -> tuple[str, str]:
        """Returns the source and the header; ``name``: the C function."""
        made = self.body
        memory = Param("scalar", Var("workspace", "handle"), DType("handle"))
        shown = replace(self.run, name=name, params=tuple(self.params) if self.is_static else (*self.params, memory))
        text = made.text + _constants(name, self.constants) + self._entry(shown, name)
        return text, c_header([shown], f"{name}.h", self._notes(name, made.static_bytes))

    def _entry(self, shown: LoweredFunc, name: str) -> str:
        names = c_names(self.params)
        sizes = [n for n, p in zip(names, self.params, strict=True) if p.kind == "size"]
        arrays = [n for n, p in zip(names, self.params, strict=True) if p.kind != "size"]

        def call(memory: str) -> str:
            return f"{self.run.name}({', '.join([*arrays, f'tw_{name}_constants.bytes', memory, *sizes])})"

        head = f"{c_prototype(shown)};\n{c_prototype(shown, restrict=True)} {{\n"
        size = max(self.workspace, 1)
        if self.is_static:
            place = f"static union {{ uint8_t bytes[{size}]; int64_t aligned; }} tw_{name}_workspace;\n"
            return f"{place}\n{head}  return {call(f'tw_{name}_workspace.bytes')};\n}}\n"
        return (
            f"\n{head}  uint8_t *memory = workspace ? workspace : malloc({size});\n  if (!memory) return -1;\n"
            f"  int32_t code = {call('memory')};\n  if (!workspace) free(memory);\n  return code;\n}}\n"
        )

    def _notes(self, name: str, static_bytes: int) -> list[str]:
        upper = name.upper()
        constants = f"#define {upper}_CONSTANT_BYTES {len(self.constants)}"
        if self.is_static:
            return [
                "/* Constants are read-only data, for flash. The workspace is static memory, for one call at a time. */",
                constants,
                f"#define {upper}_WORKSPACE_BYTES {static_bytes}",
            ]
        return [
            f"/* The workspace: {upper}_WORKSPACE_BYTES bytes, aligned to 16, for one call at a time; NULL: the function takes",
            "   memory itself. Several threads may call the function at the same time. */",
            constants,
            f"#define {upper}_WORKSPACE_BYTES {max(self.workspace, 1)}",
        ]


def _constants(name: str, data: bytes) -> str:
    lines = [",".join(map(str, data[at : at + _PER_LINE])) for at in range(0, len(data), _PER_LINE)]
    inside = ",\n".join(lines)
    kind = f"union {{ uint8_t bytes[{max(len(data), 1)}]; int64_t aligned; }}"
    return f"\nstatic const {kind} tw_{name}_constants = {{{{\n{inside or 0}\n}}}};\n"


def write_model_source(source: ModelSource, path: Path, name: str) -> list[Path]:
    """Write the C file and its header; return both paths."""
    text, header = source.texts(name)
    path.write_text(text)
    path.with_suffix(".h").write_text(header)
    return [path, path.with_suffix(".h")]
