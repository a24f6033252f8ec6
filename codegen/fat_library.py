"""Exports several versions of functions, for different x86 processors, in one shared library that picks one at load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..pages.written_files import write_file
from .c.c_header import c_header
from .llvm.emit import emit
from .llvm.jit import optimize_and_compile
from .lowered import NO_VERSION, LoweredFunc
from .machine.target import Target
from .machine.target_text import TargetError
from .runtime.export import called_blas, link_shared, write_cxx
from .runtime.module import Module
from .runtime.packages import checked_version, write_packages
from .runtime.runtime_ir import ALONE, SHARED_STATE, runtime_ir

_CPUID = {
    "sse3": (1, "c", 0), "ssse3": (1, "c", 9), "fma": (1, "c", 12), "sse4.1": (1, "c", 19), "sse4.2": (1, "c", 20),
    "movbe": (1, "c", 22), "popcnt": (1, "c", 23), "avx": (1, "c", 28), "f16c": (1, "c", 29), "sse2": (1, "d", 26),
    "bmi": (7, "b", 3), "avx2": (7, "b", 5), "bmi2": (7, "b", 8), "avx512f": (7, "b", 16), "avx512dq": (7, "b", 17),
    "avx512ifma": (7, "b", 21), "avx512cd": (7, "b", 28), "avx512bw": (7, "b", 30), "avx512vl": (7, "b", 31),
    "avx512vbmi": (7, "c", 1), "avx512vbmi2": (7, "c", 6), "avx512vnni": (7, "c", 11), "avx512bitalg": (7, "c", 12),
    "avx512vpopcntdq": (7, "c", 14), "lzcnt": (0x80000001, "c", 5),
}  # fmt: skip
"""Where ``cpuid`` tells a feature: the leaf, the register, the bit (Intel's manual, volume 2A, CPUID)."""


def export_fat(versions: Sequence[Module], path: Path | str, *, version: str | None = None) -> list[Path]:
    """Write a shared library of modules with the same functions, the most demanding processor last. Headers
    and packages are written as :meth:`Module.export` does, for ``version``.

    When the library is loaded it picks the last version that the processor and the system can run;
    ``int32_t NAME_version(void)``, with the first function's name, returns its number. A function without a version
    returns -9. Returns the files written. :class:`TargetError` for targets that are not x86-64, and for features that
    it cannot ask the processor for; ValueError when the functions differ.
    """
    path = Path(path)
    checked_version(version)
    if not versions:
        raise ValueError("a fat library has at least one version")
    functions = list(versions[0]._lowered.values())
    base = versions[0].target
    wanted = [(f.name, [p.llvm_type for p in f.params]) for f in functions]
    objects = []
    for n, module in enumerate(versions):
        _check(module.target)
        own = list(module._lowered.values())
        if [(f.name, [p.llvm_type for p in f.params]) for f in own] != wanted:
            raise ValueError(f"version {n} has other functions than the first: {', '.join(f.name for f in own)}")
        texts = [emit(replace(f, name=f"{f.name}__{n}")) for f in own]
        objects.append(optimize_and_compile(texts[0], module.target, link=tuple(texts[1:])).object)
    chooser = _chooser(functions, [module.target for module in versions])
    objects += [optimize_and_compile(text, base, 2).object for text in (chooser, runtime_ir(base, ALONE, shared=True))]
    link_shared(objects, path, base, [*[f.name for f in functions], f"{functions[0].name}_version", f"{SHARED_STATE}*"])
    header = path.with_suffix(".h")
    note = f"/* Which version the library picked: {', '.join(f'{n}: {m.target.mcpu}' for n, m in enumerate(versions))}; -1: none. */"
    write_file(header, c_header(functions, header.name, [note, f"int32_t {functions[0].name}_version(void);"]))
    return [
        path,
        header,
        write_cxx(functions, header),
        *write_packages(path, [f.name for f in functions], version, called_blas(objects, base)),
    ]


def _check(target: Target) -> None:
    unknown = sorted(f for f in target.describe()["features"] if f not in _CPUID)
    if target.arch != "x86_64" or target.kind == "native":
        raise TargetError(f"a fat library has versions for x86-64 processors by name, llvm -mcpu=…, not for {target}")
    if unknown:
        raise TargetError(f"a fat library cannot ask the processor for {', '.join(unknown)}, which {target} has")


def _chooser(functions: Sequence[LoweredFunc], targets: Sequence[Target]) -> str:
    """Returns the functions that call the version which was picked, and what picks it when the library is loaded."""
    parts = [
        "@tw_version = internal global i32 -1",
        "@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 101, ptr @tw_pick, ptr null }]",
        _pick(targets),
        f"define i32 @{functions[0].name}_version() {{\n  %v = load i32, ptr @tw_version\n  ret i32 %v\n}}",
    ]
    for f in functions:
        types = [p.llvm_type for p in f.params]
        named = ", ".join(f"{t} %a{n}" for n, t in enumerate(types))
        cases = " ".join(f"i32 {n}, label %v{n}" for n in range(len(targets)))
        lines = [
            f"define i32 @{f.name}({named}) {{",
            "  %v = load i32, ptr @tw_version",
            f"  switch i32 %v, label %none [ {cases} ]",
        ]
        for n in range(len(targets)):
            parts.append(f"declare i32 @{f.name}__{n}({', '.join(types)})")
            lines += [f"v{n}:", f"  %r{n} = call i32 @{f.name}__{n}({named})", f"  ret i32 %r{n}"]
        parts.append("\n".join([*lines, "none:", f"  ret i32 {NO_VERSION}", "}"]))
    return "\n\n".join(parts) + "\n"


def _pick(targets: Sequence[Target]) -> str:
    """Returns the function that picks the version for the processor. It asks for the features, and for the registers
    that the system saves (XCR0)."""
    lines = ["define internal void @tw_pick() nounwind {"]
    cpuid = 'call { i32, i32, i32, i32 } asm "cpuid", "={ax},={bx},={cx},={dx},{ax},{cx},~{dirflag},~{fpsr},~{flags}"'
    for leaf in (1, 7, 0x80000001):
        lines.append(f"  %l{leaf} = {cpuid}(i32 {leaf}, i32 0)")
        lines += [f"  %{r}{leaf} = extractvalue {{ i32, i32, i32, i32 }} %l{leaf}, {n}" for n, r in enumerate("abcd")]
    # without OSXSAVE (leaf 1, ecx, bit 27) the system saves no vector registers, and xgetbv does not exist
    lines += ["  %os = and i32 %c1, 134217728", "  %has = icmp ne i32 %os, 0", "  br i1 %has, label %ask, label %look", "ask:",
              '  %x = call { i32, i32 } asm "xgetbv", "={ax},={dx},{cx},~{dirflag},~{fpsr},~{flags}"(i32 0)',
              "  %low = extractvalue { i32, i32 } %x, 0", "  br label %look", "look:",
              "  %saved = phi i32 [ 0, %0 ], [ %low, %ask ]"]  # fmt: skip
    chosen = "-1"
    for n, target in enumerate(targets):
        features = target.describe()["features"]
        registers = 0xE6 if "avx512f" in features else 6 if "avx" in features else 0
        bits: dict[str, int] = {"saved": registers}
        for leaf, register, bit in [_CPUID[f] for f in features]:
            bits[f"{register}{leaf}"] = bits.get(f"{register}{leaf}", 0) | 1 << bit
        right = "true"
        for m, (name, mask) in enumerate(bits.items()):
            signed = mask - (1 << 32) if mask >> 31 else mask
            lines += [f"  %m{n}_{m} = and i32 %{name}, {signed}", f"  %e{n}_{m} = icmp eq i32 %m{n}_{m}, {signed}",
                      f"  %t{n}_{m} = and i1 {right}, %e{n}_{m}"]  # fmt: skip
            right = f"%t{n}_{m}"
        lines.append(f"  %pick{n} = select i1 {right}, i32 {n}, i32 {chosen}")
        chosen = f"%pick{n}"
    return "\n".join([*lines, f"  store i32 {chosen}, ptr @tw_version", "  ret void", "}"])
