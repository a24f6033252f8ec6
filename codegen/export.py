"""Modules as files that need no Python: objects, shared libraries, assembly, LLVM IR, C, each with a C header.

The runtime (thread pool, scratch memory) is linked in; what remains to be found are libc, pthreads and libm. A shared
library needs a linker: the first of ``$CC``, cc, gcc, clang, ld.lld, ld that is there (for another architecture: its
cross compiler). Nothing else here needs a tool.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .llvm.jit import CompiledCode, optimize_and_compile
from .lowered import LoweredFunc, Param
from .runtime.ir import runtime_ir
from .target import Target

__all__ = ["ExportError", "c_header", "c_prototype", "export_module"]

SUFFIXES = (".o", ".so", ".s", ".ll", ".c")


class ExportError(RuntimeError):
    """The file cannot be written: an unknown suffix, or no linker."""


def export_module(functions: Sequence[LoweredFunc], code: CompiledCode, path: Path) -> list[Path]:
    """Write ``path`` by its suffix, and for ``.o``, ``.so``, ``.s`` and ``.c`` a header ``.h`` beside it. Returns the
    files written. The directory must exist."""
    suffix = path.suffix
    if suffix not in SUFFIXES:
        raise ExportError(f"cannot export to {path.name!r}: the suffix must be one of {', '.join(SUFFIXES)}")
    header = path.with_suffix(".h")
    if suffix == ".c":
        from .c.emit import emit_c  # late: not needed for the others

        path.write_text(emit_c(list(functions)))
        header.write_text(c_header(functions, header.name))
        return [path, header]
    whole = self_contained(code)
    if suffix == ".ll":
        path.write_text(whole.optimized_ll())
        return [path]
    if suffix == ".s":
        path.write_text(whole.asm())
    elif suffix == ".o":
        path.write_bytes(whole.object)
    else:
        link_shared(whole.object, path, code.target)
    header.write_text(c_header(functions, header.name))
    return [path, header]


def self_contained(code: CompiledCode) -> CompiledCode:
    """The same code with the runtime linked in (only what it uses stays)."""
    o = code.options
    return optimize_and_compile(
        code.ir,
        code.target,
        o.opt_level,
        link=(*code.link, runtime_ir(code.target, exported=True)),
        loop_vectorize=o.loop_vectorize,
        slp_vectorize=o.slp_vectorize,
        loop_unroll=o.loop_unroll,
    )


def link_shared(object_code: bytes, path: Path, target: Target) -> None:
    """A shared library of one object file. It is never unloaded (``-z nodelete``): its pool's threads run in it."""
    command = _linker(target)
    mac = "darwin" in target.triple or "macos" in target.triple
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        source = Path(folder) / "module.o"
        source.write_bytes(object_code)
        driver = not re.search(r"\bld(\.lld)?$", command[0])
        flags = ["-shared", "-o", str(path), str(source)]
        if driver:
            flags += ["-lm", "-lpthread"]
        if not mac:
            flags += ["-Wl,-z,nodelete"] if driver else ["-z", "nodelete"]
        done = subprocess.run([*command, *flags], capture_output=True, text=True)
    if done.returncode:
        raise ExportError(f"{' '.join([*command, *flags])} failed:\n{done.stderr.strip()}")


def _linker(target: Target) -> list[str]:
    native = not target.missing_here() or target.missing_here()[0].find("processor") < 0
    prefix = f"{target.arch}-linux-gnu-"
    names = ["cc", "gcc", "clang", "ld.lld", "ld"] if native else [f"{prefix}gcc", f"{prefix}ld", "ld.lld"]
    chosen = os.environ.get("CC", "").split() if native else []
    if chosen and shutil.which(chosen[0]):
        return chosen
    for name in names:
        found = shutil.which(name)
        if found:
            return [found]
    raise ExportError(
        f"a shared library needs a linker, and none of {', '.join(names)} is on the PATH; "
        "install one (e.g. apt-get install binutils), or export a .o and link it elsewhere"
    )


def c_prototype(func: LoweredFunc) -> str:
    """``int32_t f(const float* A, float* B, int64_t n)``."""
    parameters = ", ".join(
        f"{p.c_type}{'' if p.c_type.endswith('*') else ' '}{name}".replace("*", "* ")
        for p, name in zip(func.params, c_names(func.params), strict=True)
    )
    return f"int32_t {func.name}({parameters or 'void'})"


def c_names(params: Sequence[Param]) -> list[str]:
    """A distinct C identifier for each parameter, its own name where that is one."""
    out: list[str] = []
    for p in params:
        name = re.sub(r"\W", "_", p.name, flags=re.ASCII)
        name = name if re.match(r"[A-Za-z_]", name) and name not in _KEYWORDS else f"_{name}"
        base, n = name, 1
        while name in out:
            name, n = f"{base}_{n}", n + 1
        out.append(name)
    return out


_KEYWORDS = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool "
    "class new delete this template typename namespace operator private public protected virtual".split()
)


def c_header(functions: Sequence[LoweredFunc], name: str) -> str:
    """A header for C and C++ that declares the functions and says what each argument is."""
    guard = "TILEWRIGHT_" + re.sub(r"\W", "_", name, flags=re.ASCII).upper()
    lines = [
        "/* Made by Tilewright. Every function returns 0 for success. Arrays are row-major without gaps and aligned to",
        "   their elements; written arrays must not overlap any other. float16 and bfloat16 are uint16_t bits. */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "#include <stdint.h>",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
    ]
    for func in functions:
        lines.append("/*")
        for p, cname in zip(func.params, c_names(func.params), strict=True):
            lines.append(f"   {cname}: {_meaning(p)}")
        lines += ["*/", f"{c_prototype(func)};", ""]
    lines += ["#ifdef __cplusplus", "}", "#endif", "#endif", ""]
    return "\n".join(lines)


def _meaning(p: Param) -> str:
    if p.kind == "size":
        return "a size that the shapes above name"
    if p.buffer is None:
        return p.dtype
    shape = ", ".join(map(str, p.buffer.shape))
    strides = f", strides [{', '.join(map(str, p.buffer.strides))}]" if p.buffer.strides else ""
    return f"{p.dtype}[{shape}]{strides}, {'written' if p.writes else 'read'}"
