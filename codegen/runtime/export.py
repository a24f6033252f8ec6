"""Exports modules as files that need no Python: objects, shared libraries, assembly, LLVM IR, C, each with a C header.

The runtime (thread pool, scratch memory) is linked in. The files depend only on libc, pthreads and libm. A shared
library needs a linker: the first one found among ``$CC``, cc, gcc, clang and ld.lld (for another architecture: its
cross compiler), else the one of the Python package ``ziglang``. No other export needs a tool.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ... import __version__
from ...pages.written_files import write_file
from ..c.c_header import c_header
from ..late_tables import BACKENDS, backend_of_suffix
from ..llvm.jit import CompiledCode, optimize_and_compile
from ..lowered import LoweredFunc
from ..machine.target import Target
from ..machine.target_text import arch_of, default_triple, gnu_name, system_of
from .line_tables import with_line_tables
from .runtime_ir import runtime_ir
from .wasm_module import wasm_module

SUFFIXES = (".o", ".so", ".s", ".ll")
"""The files that LLVM's code can become on a processor; the table of back ends has more."""
WASM = ".wasm"
"""The suffix of modules of WebAssembly."""


class ExportError(RuntimeError):
    """Raised when the file cannot be written: an unknown suffix, or no linker."""


def export_module(
    functions: Sequence[LoweredFunc], code: CompiledCode, path: Path, debug_info: bool = False
) -> list[Path]:
    """Write ``path`` by its suffix. For ``.o``, ``.so``, ``.s`` and ``.c`` a header ``.h`` is written beside it, for
    ``.so`` also a ``.pc`` file for pkg-config. Returns the files written. The directory must exist.

    With ``debug_info`` the code has line tables, for ``objdump -dlS``, gdb and perf: they refer to the lowered programs,
    which are written to ``.tir`` beside. The machine code is the same.
    """
    suffix, header = path.suffix, path.with_suffix(".h")
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
        return [path, header]
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
    whole = self_contained(code)
    if suffix == ".ll":
        write_file(path, whole.optimized_ll())
        return [path, *programs]
    if suffix == ".s":
        write_file(path, whole.asm())
    elif suffix == ".o":
        write_file(path, whole.object)
    else:
        link_shared([whole.object], path, code.target)
    write_file(header, c_header(functions, header.name))
    written = [path, header, *programs]
    if suffix != ".so":
        return written
    package = path.with_suffix(".pc")
    write_file(package, pkg_config(path, [f.name for f in functions]))
    return [*written, package]


def pkg_config(library: Path, functions: Sequence[str]) -> str:
    """Returns the pkg-config description of a shared library. The directory is that of the ``.pc`` file, so the files
    may be moved together; ``pkg-config --cflags --libs NAME`` finds them with ``PKG_CONFIG_PATH`` set to it. The version is
    Tilewright's, because the library itself has none."""
    name = library.stem
    plain = re.fullmatch(r"lib([\w.+-]+)", name)
    linked = f"-l{plain[1]}" if plain else "-l:" + re.sub(r"([^\w.+-])", r"\\\1", library.name)
    return "\n".join([
        "prefix=${pcfiledir}",
        "libdir=${prefix}",
        "includedir=${prefix}",
        "",
        f"Name: {name}",
        f"Description: Kernels made by Tilewright: {', '.join(functions)}",
        f"Version: {__version__}",
        "Cflags: -I${includedir}",
        f"Libs: -L${{libdir}} {linked}",
        "Libs.private: -lm -lpthread",
        "",
    ])  # fmt: skip


def self_contained(code: CompiledCode) -> CompiledCode:
    """Returns the same code with the runtime linked in (unused functions are removed). WebAssembly has none: an object
    leaves ``tw_alloc`` and ``tw_free`` to its program."""
    o = code.options
    runtime = () if code.target.is_wasm else (runtime_ir(code.target, exported=True),)
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
        done = subprocess.run([*command, *flags], capture_output=True, text=True)
        if done.returncode:
            raise ExportError(f"{' '.join([*command, *flags])} failed:\n{done.stderr.strip()}")
        write_file(path, linked.read_bytes())
        path.chmod(0o755)


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
