"""What a target triple says: the processor, the system, and what of the generated code they can run.

Little-endian processors with 32 or 64 bits of address are generated for. The runtime (threads, scratch memory) needs a
POSIX system with 64 bits.
"""

from __future__ import annotations

import platform
import re
import sys

_PROCESSORS = {
    64: r"x86_64|aarch64|riscv64|ppc64le|powerpc64le|loongarch64|wasm64",
    32: r"i[3-9]86|x86|arm(v\w+)?|thumb(v\w+)?|riscv32|wasm32",
}
"""Processors by the bits of an address; big-endian ones (``armeb``) and accelerators are none of them."""
_SYSTEMS = {
    "linux": "linux", "darwin": "darwin", "macos": "darwin", "ios": "darwin", "windows": "windows", "win32": "windows",
    "mingw": "windows", "freebsd": "freebsd", "netbsd": "netbsd", "openbsd": "openbsd", "wasi": "wasi",
}  # fmt: skip


def arch_of(triple: str) -> str:
    """``x86_64``, ``aarch64``, or the triple's own word for another processor."""
    word = triple.split("-")[0].lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(word, word)


def system_of(triple: str) -> str:
    """``linux``, ``darwin``, ``windows`` …; of a triple that names none, ``unknown``."""
    rest = triple.lower().partition("-")[2]
    return next((system for word, system in _SYSTEMS.items() if word in rest), "unknown")


def address_bits(triple: str) -> int | None:
    """64 or 32; None for a processor that no code is generated for."""
    arch = arch_of(triple)
    if arch.endswith("eb"):  # armv7eb
        return None
    bits = next((bits for bits, words in _PROCESSORS.items() if re.fullmatch(words, arch)), None)
    return 32 if bits == 64 and triple.endswith(("x32", "ilp32", "gnuabin32")) else bits


def has_runtime(triple: str) -> bool:
    """Whether threads and scratch memory are there."""
    return address_bits(triple) == 64 and system_of(triple) not in ("windows", "wasi") and "wasm" not in triple


def default_triple() -> str:
    """This machine's triple, as Python knows it."""
    machine = platform.machine().lower() or "x86_64"
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    system = {"linux": "unknown-linux-gnu", "darwin": "apple-darwin", "win32": "pc-windows-msvc"}
    return f"{machine}-{system.get(sys.platform, 'unknown-unknown')}"
