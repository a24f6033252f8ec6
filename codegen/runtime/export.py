"""Exports modules and models as files that need no Python.

The runtime (thread pool, scratch memory) is linked in. The files depend only on libc, pthreads and libm, and on the BLAS
library that they call, if any: a shared library names it and its folder. A shared
library needs a linker: the first one found among ``$CC``, cc, gcc, clang and ld.lld (for another architecture: its
cross compiler), else the one of the Python package ``ziglang``. No other export needs a tool.

A model becomes a shared library or one C file. Its entry is a function in LLVM IR, which finds the constants, and a workspace
when the caller gives none. It calls the function that runs the model, whose parameters are the exported ones without the workspace, with constants
and workspace (pointers) after the outputs and before the sizes. Constants are a symbol of the same library, or the pages
of a file that ``NAME_load`` maps.

Library and C file have the model's kernels, the function that calls them, and its constants; the library has the runtime as well. The
constants are a read-only section of the library, which the system maps and never copies, or a file beside it. The
library shows the entry alone; all other symbols are local to it, so that a program may link several models.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from string import Template
from typing import Any

from ...exported.library import DESCRIPTION
from ...pages.written_files import write_file
from ...tir.expr import DType, Var
from ..c.c_header import c_header, c_names, c_prototype
from ..c.c_source import CSource, c_source
from ..c.cxx_header import CxxFunction, cxx_header
from ..late_tables import BACKENDS, backend_of_suffix
from ..llvm.jit import CompiledCode, optimize_and_compile, undefined_symbols
from ..lowered import MISALIGNED, NOT_LOADED, OUT_OF_MEMORY, LoweredFunc, Param
from ..machine.blas import BlasLibrary
from ..machine.target import Target
from ..machine.target_text import arch_of, default_triple, gnu_name, system_of
from .archive import ArchiveError, Member, archive
from .description import described_function, description_ir
from .line_tables import with_line_tables
from .packages import checked_version, write_packages
from .runtime_ir import ALONE, IN_CODE, SHARED_STATE, has_nodes, is_mac, runtime_ir
from .wasm_module import wasm_module

SUFFIXES = (".o", ".so", ".s", ".ll")
"""The files that LLVM's code can become on a processor; the table of back ends has more."""
WASM = ".wasm"
"""The suffix of modules of WebAssembly."""


class ExportError(RuntimeError):
    """Raised when the file cannot be written: an unknown suffix, or no linker."""


def export_module(
    functions: Sequence[LoweredFunc],
    code: CompiledCode,
    path: Path,
    debug_info: bool = False,
    packing: Collection[str] = (),
    version: str | None = None,
) -> list[Path]:
    """Write ``path`` by its suffix. For ``.o``, ``.so``, ``.s`` and ``.c`` headers for C and C++ are written beside it, for
    ``.so`` also a ``.pc`` file for pkg-config and a package for CMake, which tell the ``version``. Returns the files written.
    The directory must exist.

    With ``debug_info`` the code has line tables, for ``objdump -dlS``, gdb and perf: they refer to the lowered programs,
    which are written to ``.tir`` beside. The machine code is the same. ``packing``: the functions that pack operands of others.
    """
    suffix, header = path.suffix, path.with_suffix(".h")
    checked_version(version)
    if version is not None and suffix != ".so":
        raise ExportError(f"cannot give {path.name!r} a version: shared libraries, .so, have one")
    if debug_info and suffix not in SUFFIXES:
        raise ExportError(f"cannot export {path.name!r} with line tables: only {', '.join(SUFFIXES)} have them")
    if suffix not in (*SUFFIXES, WASM):
        backend = backend_of_suffix(suffix)
        if backend is None:
            known = (*SUFFIXES, *[backend.suffix for backend in BACKENDS.values()], WASM)
            raise ExportError(f"cannot export to {path.name!r}: the suffix must be one of {', '.join(known)}")
        write_file(path, backend.emit(functions))
        if backend.header is None:
            return [path]
        write_file(header, backend.header(functions, header.name))
        own = suffix == ".c" and not any([f.target.is_freestanding or f.target.is_hls for f in functions])
        return [path, header, *([write_cxx(functions, header)] if own else [])]
    linked = WASM if code.target.is_wasm else ".so"
    if suffix in (WASM, ".so") and suffix != linked:
        raise ExportError(f"cannot export to {path.name!r}: {code.target.triple} makes {linked}")
    if suffix == WASM:
        write_file(path, wasm_module(code, [f.name for f in functions]))
        return [path]
    programs: list[Path] = []
    if debug_info:
        programs = [path.with_suffix(".tir")]
        code, text = with_line_tables(functions, code, programs[0])
        write_file(programs[0], text)
    whole = self_contained(code, shared=suffix == ".so")
    if suffix == ".ll":
        write_file(path, whole.optimized_ll())
        return [path, *programs]
    if suffix == ".s":
        write_file(path, whole.asm())
    elif suffix == ".o":
        write_file(path, whole.object)
    else:
        told = [described_function(f, f.params, f.name, is_packing=f.name in packing) for f in functions]
        described = optimize_and_compile(description_ir(told, code.target), code.target, 0)
        link_shared([whole.object, described.object], path, code.target)
    blas = called_blas([whole.object], code.target)
    write_file(header, c_header(functions, header.name, blas_notes(blas, linked=suffix == ".so")))
    written = [path, header, write_cxx(functions, header), *programs]
    if suffix != ".so":
        return written
    return [*written, *write_packages(path, [f.name for f in functions], version, blas)]


def blas_notes(blas: BlasLibrary | None, linked: bool) -> list[str]:
    """Returns the lines of a header about the BLAS library that the code calls."""
    if blas is None:
        return []
    how = f"The library needs {Path(blas.path).name}, from {Path(blas.path).parent}" if linked else f"Link {blas.path}"
    return [f"/* Calls {', '.join(blas.symbols.values())} of {blas.identity}. {how}. */"]


def write_cxx(functions: Iterable[CxxFunction | LoweredFunc], header: Path) -> Path:
    """Write the header for C++ beside the one for C; return it."""
    path = header.with_suffix(".hpp")
    told = [CxxFunction(one) if isinstance(one, LoweredFunc) else one for one in functions]
    write_file(path, cxx_header(told, header.name))
    return path


def self_contained(code: CompiledCode, shared: bool = False) -> CompiledCode:
    """Returns the same code with the runtime linked in (unused functions are removed). WebAssembly has none: an object
    leaves ``tw_alloc`` and ``tw_free`` to its program. ``shared``: for a shared library."""
    o = code.options
    runtime = () if code.target.is_wasm else (runtime_ir(code.target, IN_CODE, shared),)
    return optimize_and_compile(
        code.ir,
        code.target,
        o.opt_level,
        link=(*code.link, *runtime),
        loop_vectorize=o.loop_vectorize,
        slp_vectorize=o.slp_vectorize,
        loop_unroll=o.loop_unroll,
    )


def link_shared(objects: Sequence[bytes], path: Path, target: Target, shown: Sequence[str] = ()) -> None:
    """Write a shared library of object files, whose SONAME is the name of the file.

    It is never unloaded (``-z nodelete``), because threads of its pool run in it. With ``shown`` the other symbols are
    local to it.
    """
    command = _linker(target)
    mac = "darwin" in target.triple or "macos" in target.triple
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        sources = [Path(folder) / f"module{n}.o" for n in range(len(objects))]
        for source, code in zip(sources, objects, strict=True):
            source.write_bytes(code)
        driver = not re.search(r"\bld(\.lld)?$", command[0])
        linked = Path(folder) / path.name
        flags = ["-shared", "-o", str(linked), *map(str, sources)]
        options = ["-install_name", f"@rpath/{path.name}"] if mac else ["-z", "nodelete", "-soname", path.name]
        if shown and mac:
            options += [word for symbol in shown for word in ("-exported_symbol", f"_{symbol}")]
        elif shown:
            script = Path(folder) / "symbols"
            script.write_text(f"{{ global: {' '.join([f'{symbol};' for symbol in shown])} local: *; }};\n")
            options += [f"--version-script={script}"]
        flags += [word for option in options for word in ("-Xlinker", option)] if driver else options
        flags += ["-lm", "-lpthread"] if driver else []
        library = called_blas(objects, target)
        if library is not None:
            beside = ["-rpath", str(Path(library.path).parent)]
            flags += [
                library.path,
                *[word for option in beside for word in (("-Xlinker", option) if driver else (option,))],
            ]
        done = subprocess.run([*command, *flags], capture_output=True, text=True)
        if done.returncode:
            raise ExportError(f"{' '.join([*command, *flags])} failed:\n{done.stderr.strip()}")
        write_file(path, linked.read_bytes())
        path.chmod(0o755)


def called_blas(objects: Sequence[bytes], target: Target) -> BlasLibrary | None:
    """Returns the BLAS library that object files call, or None."""
    library = target.blas_library
    if library is None or not any(
        name in library.symbols.values() for code in objects for name in undefined_symbols(code)
    ):
        return None
    return library


def _linker(target: Target) -> list[str]:
    if target.kind != "native" and system_of(target.triple) not in ("unknown", system_of(default_triple())):
        raise ExportError(
            f"a shared library for {target.triple} is linked on a {system_of(target.triple)} system; export a .o and link it there"
        )
    native = target.arch == arch_of(default_triple())
    prefix = f"{gnu_name(target.triple)}-"
    names = ["cc", "gcc", "clang", "ld.lld", "ld"] if native else [f"{prefix}gcc", f"{prefix}ld", "ld.lld"]
    chosen = os.environ.get("CC", "").split() if native else []
    if chosen and shutil.which(chosen[0]):
        return chosen
    for name in names:
        found = shutil.which(name)
        if found:
            return [found]
    if importlib.util.find_spec("ziglang") is not None:
        cross = [] if native else ["-target", gnu_name(target.triple)]
        return [sys.executable, "-m", "ziglang", "cc", *cross]
    raise ExportError(
        f"a shared library needs a linker, and none of {', '.join(names)} is on the PATH; "
        "install one (pip install ziglang, or apt-get install binutils), or export a .o and link it elsewhere"
    )


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


_SPREAD = """
declare i32 @tw_spread(ptr, i64, i32)

define internal void @tw_spread_constants() nounwind {
  %rc = call i32 @tw_spread(ptr @$data, i64 $constants, i32 1)
  ret void
}

@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 65535, ptr @tw_spread_constants, ptr null }]
"""
"""What a library does when it is loaded: its constants, which are a section of its file, are spread over nodes if asked."""


def entry_ir(entry: Entry, target: Target, *, exported: bool = False) -> str:
    """Returns the module that defines ``name``, the variant without a workspace, and ``NAME_load`` for a file.

    ``exported``: for a library, which looks after its own constants.
    """
    params = [f"{p.llvm_type} %a{n}" for n, p in enumerate(entry.params)]
    arrays = [text for text, p in zip(params, entry.params, strict=True) if p.kind != "size"]
    sizes = [text for text, p in zip(params, entry.params, strict=True) if p.kind == "size"]
    passed = [*arrays, "ptr %constants", "ptr %memory", *sizes]
    types = ", ".join([text.split()[0] for text in passed])
    text = _FILE if entry.in_file else "@$data = external global i8, align 64\n"
    if exported and not entry.in_file and has_nodes(target):
        text += _SPREAD
    return Template(text + _ENTRY).substitute(
        triple=target.triple, name=entry.name, own=entry.own, inner=entry.inner, data=entry.data, types=types,
        params=", ".join([*params, "ptr %workspace"]), own_params=", ".join(params),
        own_passed=", ".join([*params, "ptr null"]), passed=", ".join(passed), bytes=max(entry.workspace, 1),
        constants=entry.constants, find=_FIND_MAPPED.replace("$not_loaded", str(NOT_LOADED)) if entry.in_file else _FIND_LINKED.replace("$data", entry.data),
        out_of_memory=OUT_OF_MEMORY, misaligned=MISALIGNED, private=2,
    )  # fmt: skip


_FIND_LINKED = "  %constants = getelementptr i8, ptr @$data, i64 0\n  br label %ready"
_FIND_MAPPED = """\
  %constants = load atomic ptr, ptr @tw_mapped acquire, align 8
  %absent = icmp eq ptr %constants, null
  br i1 %absent, label %not_loaded, label %ready
not_loaded:
  ret i32 $not_loaded"""

_ENTRY = """
declare i32 @$inner($types)
declare ptr @tw_alloc(i64)
declare void @tw_free(ptr)

define i32 @$name($params) nounwind {
entry:
$find
ready:
  %given = icmp ne ptr %workspace, null
  br i1 %given, label %look, label %ask
look:
  %address = ptrtoint ptr %workspace to i64
  %low = and i64 %address, 63
  %crooked = icmp ne i64 %low, 0
  br i1 %crooked, label %refuse_it, label %run
refuse_it:
  ret i32 $misaligned
ask:
  %block = call ptr @tw_alloc(i64 $bytes)
  %none = icmp eq ptr %block, null
  br i1 %none, label %refused, label %run
refused:
  ret i32 $out_of_memory
run:
  %memory = phi ptr [ %workspace, %look ], [ %block, %ask ]
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
declare i32 @tw_spread(ptr, i64, i32)

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
  br i1 %first, label %spread, label %again
spread:
  %spread_rc = call i32 @tw_spread(ptr %pages, i64 %length, i32 1)
  br label %fine
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


def export_library(library: LinkedLibrary, path: Path, version: str | None = None) -> list[Path]:
    """Write ``path``, a shared or static library, and what belongs to it. That is headers for C and C++, a ``.pc`` file, a
    package for CMake, and the constants where the entry says so. ``version``: what the packages tell, else Tilewright's.

    Returns the files written. :class:`ExportError` for another suffix, and when there is no linker.
    """
    if path.suffix not in (".so", ".a"):
        raise ExportError(
            f"cannot export a model to {path.name!r}: it becomes a shared library, .so, or a static one, .a"
        )
    checked_version(version)
    entry, target = library.entry, library.target
    static = path.suffix == ".a"
    if not static:
        _linker(target)  # where there is none, nothing is compiled
    elif is_mac(target):
        raise ExportError(
            f"cannot export a model for {target.triple} to {path.name!r}: a static library is made of ELF objects"
        )
    told = described_function(
        library.lowered, entry.params, entry.name, workspace=entry.workspace, weights=WEIGHTS if entry.in_file else ""
    )
    compiled = {
        "entry": entry_ir(entry, target, exported=True),
        "runtime": runtime_ir(target, ALONE, shared=not static),
    }
    if not static:
        compiled["description"] = description_ir([told], target)
    weights = path.with_suffix(WEIGHTS)
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        objects = [*library.objects, *[optimize_and_compile(text, target, 2).object for text in compiled.values()]]
        if entry.in_file:
            library.data.tofile(weights)
        else:
            raw = Path(folder) / "constants"
            library.data.tofile(raw)
            objects.append(optimize_and_compile(data_ir(entry.data, str(raw), target), target, cache=False).object)
        if static:
            try:
                write_file(path, archive([Member(f"{entry.name}_{n}.o", one) for n, one in enumerate(objects)]))
            except ArchiveError as error:
                raise ExportError(f"cannot export a model for {target.triple} to {path.name!r}: {error}") from None
        else:
            shown = [entry.name, *([f"{entry.name}_load"] if entry.in_file else []), DESCRIPTION, f"{SHARED_STATE}*"]
            link_shared(objects, path, target, shown)
    header = path.with_suffix(".h")
    blas = called_blas(objects, target)
    write_file(header, _header(library, header.name, blas_notes(blas, linked=not static)))
    shown_func = _with_workspace(library.lowered, entry.name, entry.params)
    cxx = write_cxx([CxxFunction(shown_func, entry.workspace, entry.in_file)], header)
    return [
        path,
        *([weights] if entry.in_file else []),
        header,
        cxx,
        *write_packages(path, [entry.name], version, blas),
    ]


def _with_workspace(run: LoweredFunc, name: str, params: Sequence[Param]) -> LoweredFunc:
    """Returns the exported function as headers show it: these parameters, and the workspace."""
    workspace = Param("scalar", Var("workspace", "handle"), DType("handle"))
    return replace(run, name=name, params=(*params, workspace))


def _header(library: LinkedLibrary, name: str, more: Sequence[str]) -> str:
    entry = library.entry
    shown = _with_workspace(library.lowered, entry.name, entry.params)
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
    return c_header([shown], name, [*notes, *more])


# Writes a model as one C file: its kernels, the function that calls them, its constants and its memory. On a
# microcontroller the constants are ``const`` arrays, which linkers place in flash, and the memory for intermediate
# results is static, of a size that the header states. Elsewhere the caller gives that memory, or the function takes
# it from the heap.


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

    def shown(self, name: str) -> LoweredFunc:
        """Returns the C function ``name`` as the header declares it."""
        if self.is_static:
            return replace(self.run, name=name, params=tuple(self.params))
        return _with_workspace(self.run, name, self.params)

    def texts(self, name: str) -> tuple[str, str]:
        """Returns the source and the header; ``name``: the C function."""
        made = self.body
        shown = self.shown(name)
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
            f"\n{head}  if ((uintptr_t)workspace % 16) return {MISALIGNED};\n"
            f"  uint8_t *memory = workspace ? workspace : malloc({size});\n  if (!memory) return {OUT_OF_MEMORY};\n"
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
    """Write the C file and its headers, for C++ as well but on microcontrollers; return the paths."""
    text, header_text = source.texts(name)
    header = path.with_suffix(".h")
    write_file(path, text)
    write_file(header, header_text)
    if source.is_static:
        return [path, header]
    return [path, header, write_cxx([CxxFunction(source.shown(name), source.workspace)], header)]
