"""The exported function of a model, in LLVM IR. It finds the constants, and a workspace when the caller gives none.

It calls the function that runs the model, whose parameters are the exported ones without the workspace, with constants
and workspace (pointers) after the outputs and before the sizes. Constants are a symbol of the same library, or the pages
of a file that ``NAME_load`` maps.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from string import Template

from ..lowered import OUT_OF_MEMORY, Param
from ..machine.target import Target

NOT_LOADED = -3
"""The return value when the constants are in a file that was not loaded."""


@dataclass(frozen=True)
class Entry:
    """The exported function ``name`` with ``params`` (inputs, outputs, sizes).

    ``inner``: the symbol of the function that it calls; ``workspace`` and ``constants``: their sizes in bytes;
    ``in_file``: the constants are in a file.
    """

    name: str
    inner: str
    params: Sequence[Param]
    workspace: int
    constants: int
    in_file: bool = False

    @property
    def own(self) -> str:
        """Returns the symbol of the function that has no parameter for the workspace."""
        return f"tw_{self.name}_own"

    @property
    def data(self) -> str:
        """Returns the symbol of the constants."""
        return f"tw_{self.name}_constants"


def entry_ir(entry: Entry, target: Target) -> str:
    """Returns the module that defines ``name``, the variant without a workspace, and ``NAME_load`` for a file."""
    params = [f"{p.llvm_type} %a{n}" for n, p in enumerate(entry.params)]
    arrays = [text for text, p in zip(params, entry.params, strict=True) if p.kind != "size"]
    sizes = [text for text, p in zip(params, entry.params, strict=True) if p.kind == "size"]
    passed = [*arrays, "ptr %constants", "ptr %memory", *sizes]
    types = ", ".join([text.split()[0] for text in passed])
    text = _FILE if entry.in_file else "@$data = external global i8, align 64\n"
    return Template(text + _ENTRY).substitute(
        triple=target.triple, name=entry.name, own=entry.own, inner=entry.inner, data=entry.data, types=types,
        params=", ".join([*params, "ptr %workspace"]), own_params=", ".join(params),
        own_passed=", ".join([*params, "ptr null"]), passed=", ".join(passed), bytes=max(entry.workspace, 1),
        constants=entry.constants, find=_FIND_MAPPED if entry.in_file else _FIND_LINKED.replace("$data", entry.data),
        out_of_memory=OUT_OF_MEMORY, not_loaded=NOT_LOADED, private=2,
    )  # fmt: skip


_FIND_LINKED = "  %constants = getelementptr i8, ptr @$data, i64 0\n  br label %ready"
_FIND_MAPPED = """\
  %constants = load atomic ptr, ptr @tw_mapped acquire, align 8
  %absent = icmp eq ptr %constants, null
  br i1 %absent, label %not_loaded, label %ready
not_loaded:
  ret i32 -3"""

_ENTRY = """
declare i32 @$inner($types)
declare ptr @tw_alloc(i64)
declare void @tw_free(ptr)

define i32 @$name($params) nounwind {
entry:
$find
ready:
  %given = icmp ne ptr %workspace, null
  br i1 %given, label %run, label %ask
ask:
  %block = call ptr @tw_alloc(i64 $bytes)
  %none = icmp eq ptr %block, null
  br i1 %none, label %refused, label %run
refused:
  ret i32 $out_of_memory
run:
  %memory = phi ptr [ %workspace, %ready ], [ %block, %ask ]
  %code = call i32 @$inner($passed)
  br i1 %given, label %done, label %release
release:
  call void @tw_free(ptr %memory)
  br label %done
done:
  ret i32 %code
}

define i32 @$own($own_params) nounwind {
  %code = call i32 @$name($own_passed)
  ret i32 %code
}
"""

_FILE = """
@tw_mapped = internal global ptr null, align 8

declare i32 @open(ptr, i32, ...)
declare i32 @close(i32)
declare i64 @lseek(i32, i64, i32)
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @munmap(ptr, i64)

define i32 @${name}_load(ptr %path) nounwind {
entry:
  %known = load atomic ptr, ptr @tw_mapped acquire, align 8
  %loaded = icmp ne ptr %known, null
  br i1 %loaded, label %fine, label %open
open:
  %file = call i32 (ptr, i32, ...) @open(ptr %path, i32 0)
  %unopened = icmp slt i32 %file, 0
  br i1 %unopened, label %missing, label %measure
measure:
  %length = call i64 @lseek(i32 %file, i64 0, i32 2)
  %whole = icmp eq i64 %length, $constants
  br i1 %whole, label %map, label %damaged
map:
  %pages = call ptr @mmap(ptr null, i64 %length, i32 1, i32 $private, i32 %file, i64 0)
  %c0 = call i32 @close(i32 %file)
  %failed = icmp eq ptr %pages, inttoptr (i64 -1 to ptr)
  br i1 %failed, label %missing, label %keep
keep:
  %old = cmpxchg ptr @tw_mapped, ptr null, ptr %pages acq_rel acquire, align 8
  %first = extractvalue { ptr, i1 } %old, 1
  br i1 %first, label %fine, label %again
again:
  %m0 = call i32 @munmap(ptr %pages, i64 %length)
  br label %fine
damaged:
  %c1 = call i32 @close(i32 %file)
  ret i32 2
missing:
  ret i32 1
fine:
  ret i32 0
}
"""


def data_ir(symbol: str, path: str, target: Target) -> str:
    """Returns a module whose read-only section holds the bytes of the file ``path`` as the hidden symbol ``symbol``."""
    mac = "darwin" in target.triple or "macos" in target.triple
    name = f"_{symbol}" if mac else symbol
    section = "__TEXT,__const" if mac else '.rodata.tilewright,"a",@progbits'
    hidden = f".private_extern {name}" if mac else f".hidden {name}"
    lines = [f".section {section}", ".p2align 6", f".globl {name}", hidden, f"{name}:", f'.incbin "{path}"', ".byte 0"]
    asm = [re.sub(r'["\\]', lambda m: f"\\{ord(m[0]):02X}", line) for line in lines]
    return "\n".join([f'target triple = "{target.triple}"', *[f'module asm "{line}"' for line in asm], ""])
