"""The text of targets: kinds, options with values, flags, and triples.

A triple says the processor and the system, and with them which generated code they can run.

Code is generated for little-endian processors with 32-bit or 64-bit addresses. The runtime (threads, scratch memory)
needs a 64-bit POSIX system.
"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...pages import did_you_mean


class TargetOption(NamedTuple):
    """An option of a target's text. ``kinds`` are the kinds of targets that take it; all of them when it is empty."""

    name: str
    value: str
    """What stands after the equals sign; an empty text for an option without a value."""
    meaning: str
    kinds: tuple[str, ...] = ()

    @property
    def written(self) -> str:
        """Return the option as texts have it: ``-mcpu=NAME``."""
        return f"-{self.name}={self.value}" if self.value else f"-{self.name}"


TARGET_OPTIONS = (
    TargetOption("mtriple", "TRIPLE", "processor and system in LLVM's words: aarch64-linux-gnu (not with native)"),
    TargetOption("mcpu", "NAME", "model of the processor: skylake, cortex-m7, sm_90 (also -arch; not with native)"),
    TargetOption("mattr", "+A,-B", "features of the processor to add and to take away: +avx2,-amx-tile"),
    TargetOption("num-cores", "N", "threads that a kernel may use; without it all cores of this machine, 1 elsewhere"),
    TargetOption("vector-width", "BITS", "width of vectors: 256; without it the widest of the processor"),
    TargetOption("winograd", "TILE", "largest tile of Winograd's convolutions in networks: 4 (default), 2, 0 for none"),
    TargetOption("libs", "cblas", "libraries whose functions programs may call: cblas", ("native", "llvm", "c")),
    TargetOption(
        "blas", "LIBRARY", "that library: numpy (default), scipy, scipy-openblas64, or a path", ("native", "llvm", "c")
    ),
    TargetOption("openmp", "", "parallel loops become those of OpenMP", ("c",)),
    TargetOption("vector-extensions", "", "vectors become the vector types of GCC and Clang", ("c",)),
    TargetOption("hls", "", "C for high-level synthesis, with its pragmas", ("c",)),
)
"""All options of targets. The parser takes them from here, and ``tilewright tune --target help`` prints them."""

FLAGS = tuple([option.name for option in TARGET_OPTIONS if not option.value])
"""The options without a value."""


class TargetError(ValueError):
    """Raised when the text does not describe a target, or the target cannot do what was requested."""


def spelled(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns options with the names that texts have."""
    return {str(name).lstrip("-").replace("_", "-"): value for name, value in options.items()}


def split_options(text: str, words: list[str]) -> dict[str, Any]:
    """Returns the options of the target ``text``, of which ``words`` are those behind the kind."""
    words, out = list(words), dict[str, Any]()
    while words:
        word = words.pop(0)
        match = re.fullmatch(r"--?([A-Za-z][\w-]*)(?:=(.*))?", word)
        if match is None:
            raise TargetError(f"target {text!r}: {word!r} is not an option; options look like -mcpu=skylake")
        name, value = match[1].replace("_", "-"), match[2]
        if name in FLAGS and value is None:
            out[name] = True
            continue
        if value is None and words and not words[0].startswith("-"):
            value = words.pop(0)
        if not value:
            known = {option.name: option for option in TARGET_OPTIONS}
            hint = f"; write {known[name].written}" if name in known else did_you_mean(name, known, prefix="-")
            raise TargetError(f"target {text!r}: option -{name} has no value{hint}")
        out[name] = value
    return out


def positive(value: Any, name: str) -> int:
    """Returns a number of at least 1; TargetError names the option."""
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = 0
    if number < 1:
        raise TargetError(f"{name}={value}: a whole number of at least 1 is needed")
    return number


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
