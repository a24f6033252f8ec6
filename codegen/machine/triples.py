"""Target triples: the processor, the system, and the kinds of generated code that they can run.

Code is generated for little-endian processors with 32-bit or 64-bit addresses. The runtime (threads, scratch memory)
needs a 64-bit POSIX system.
"""

from __future__ import annotations

import platform
import re
import sys

_PROCESSORS = {
    64: r"x86_64|aarch64|riscv64|ppc64le|powerpc64le|loongarch64|wasm64",
    32: r"i[3-9]86|x86|arm(v\w+)?|thumb(v[\w.]+)?|riscv32|wasm32",
}
"""Processors by the bits of an address, without big-endian ones (``armeb``) and accelerators."""
_SYSTEMS = {
    "linux": "linux", "darwin": "darwin", "macos": "darwin", "ios": "darwin", "windows": "windows", "win32": "windows",
    "mingw": "windows", "freebsd": "freebsd", "netbsd": "netbsd", "openbsd": "openbsd", "wasi": "wasi",
}  # fmt: skip

MICROCONTROLLERS = {
    "cortex-m0": "thumbv6m", "cortex-m0plus": "thumbv6m", "cortex-m3": "thumbv7m", "cortex-m4": "thumbv7em",
    "cortex-m7": "thumbv7em", "cortex-m23": "thumbv8m.base", "cortex-m33": "thumbv8m.main",
    "cortex-m55": "thumbv8.1m.main", "cortex-m85": "thumbv8.1m.main",
}  # fmt: skip
"""The processors of microcontrollers by the names of their CPUs."""


def microcontroller(cpu: str) -> str | None:
    """Returns the triple of a microcontroller's CPU, or None for another name."""
    arch = MICROCONTROLLERS.get(cpu)
    return None if arch is None else f"{arch}-none-eabi"


def usual_features(triple: str) -> tuple[str, ...]:
    """Returns the features that every system for the processor requires: those of RV64GC under Linux."""
    if arch_of(triple) == "riscv64" and system_of(triple) == "linux":
        return ("+m", "+a", "+f", "+d", "+c")
    return ()


def full_triple(triple: str) -> str:
    """Returns a triple with its vendor, which LLVM does not add: it reads the third word as the system."""
    words = triple.split("-")
    if len(words) == 3 and words[1] in _SYSTEMS:
        words.insert(1, "unknown")
    return "-".join(words)


def gnu_name(triple: str) -> str:
    """Returns the name of a Linux machine by which Debian's cross tools begin, and which Zig knows."""
    arch = arch_of(triple)
    if re.fullmatch(r"arm(v\w+)?|thumb(v\w+)?", arch):
        return f"arm-linux-gnueabi{'' if triple.endswith('eabi') else 'hf'}"
    return f"{arch}-linux-gnu"


def is_freestanding(triple: str) -> bool:
    """Returns whether programs run without an operating system, as on microcontrollers: ``…-none-eabi``."""
    return "-none-" in triple and triple.endswith(("eabi", "eabihf", "elf"))


def arch_of(triple: str) -> str:
    """Returns ``x86_64``, ``aarch64``, or the triple's own word for another processor."""
    word = triple.split("-")[0].lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(word, word)


def system_of(triple: str) -> str:
    """Returns ``linux``, ``darwin``, ``windows`` …, or ``unknown`` for a triple without a system."""
    rest = triple.lower().partition("-")[2]
    return next((system for word, system in _SYSTEMS.items() if word in rest), "unknown")


def address_bits(triple: str) -> int | None:
    """Returns 64 or 32, or None for a processor without code generation."""
    arch = arch_of(triple)
    if arch.endswith("eb"):  # armv7eb
        return None
    bits = next((bits for bits, words in _PROCESSORS.items() if re.fullmatch(words, arch)), None)
    return 32 if bits == 64 and triple.endswith(("x32", "ilp32", "gnuabin32")) else bits


def has_runtime(triple: str) -> bool:
    """Returns whether threads and scratch memory are available."""
    return address_bits(triple) == 64 and system_of(triple) not in ("windows", "wasi") and "wasm" not in triple


def default_triple() -> str:
    """Returns this machine's triple, as Python reports it."""
    machine = platform.machine().lower() or "x86_64"
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    system = {"linux": "unknown-linux-gnu", "darwin": "apple-darwin", "win32": "pc-windows-msvc"}
    return f"{machine}-{system.get(sys.platform, 'unknown-unknown')}"
