"""Code objects of AMD's GPUs: linked by LLVM's linker, and what they say of their kernels.

A code object is an ELF file. Its note ``AMDGPU`` is MessagePack, in the form of the AMDGPU back end's manual ("Code Object V5
Metadata"): the arguments of kernels, the registers and the memory that they take.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..launch.launch_form import GpuError

CHOICE = "TILEWRIGHT_LLD"
"""The variable of the environment that names a linker."""


@dataclass(frozen=True)
class CodeObjectReport:
    """What a code object says of one kernel: registers of a thread and of a wavefront, and memory in bytes.

    ``scratch_bytes`` are those of a thread in memory instead of registers; ``vector_spills`` and ``scalar_spills`` the registers
    that are kept there meanwhile; ``accumulation_registers`` are among the vector registers of GFX90A and GFX940.
    """

    kernel: str
    vector_registers: int
    scalar_registers: int
    accumulation_registers: int
    shared_bytes: int
    scratch_bytes: int
    vector_spills: int
    scalar_spills: int
    wavefront: int
    threads: int
    argument_bytes: int


def code_object_reports(code: bytes) -> list[CodeObjectReport]:
    """Returns what an object or a linked code object says of its kernels. ValueError for other files."""
    for name, kind, words in _notes(code):
        if name == b"AMDGPU" and kind == _METADATA:
            kernels = _unpacked(words, 0)[0]["amdhsa.kernels"]
            return [_report(kernel) for kernel in kernels]
    raise ValueError("this is no code object: it has no note of the kind AMDGPU")


def _report(kernel: dict[str, Any]) -> CodeObjectReport:
    numbers = ("vgpr_count", "sgpr_count", "agpr_count", "group_segment_fixed_size", "private_segment_fixed_size",
               "vgpr_spill_count", "sgpr_spill_count", "wavefront_size", "max_flat_workgroup_size", "kernarg_segment_size")  # fmt: skip
    return CodeObjectReport(kernel[".name"], *[int(kernel.get(f".{name}", 0)) for name in numbers])


# ELF: sections of notes

_METADATA, _NOTE = 32, 7
_SECTION = struct.Struct("<IIQQQQIIQQ")


def _notes(code: bytes) -> Iterator[tuple[bytes, int, bytes]]:
    """Yields the name, the kind and the bytes of the notes of a 64-bit ELF file."""
    if code[:6] != b"\x7fELF\x02\x01":
        return
    (table,) = struct.unpack_from("<Q", code, 40)
    size, count = struct.unpack_from("<HH", code, 58)
    for n in range(count):
        _, kind, _, _, start, length, *_ = _SECTION.unpack_from(code, table + size * n)
        at, end = start, start + length
        while kind == _NOTE and at + 12 <= end:
            name_size, word_size, note = struct.unpack_from("<III", code, at)
            at += 12
            name = code[at : at + name_size].rstrip(b"\0")
            at += -(-name_size // 4) * 4
            yield name, note, code[at : at + word_size]
            at += -(-word_size // 4) * 4


# MessagePack, https://github.com/msgpack/msgpack/blob/master/spec.md: what LLVM writes of it

_NUMBERS = {0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
_COUNTS = {0xD9: ">B", 0xDA: ">H", 0xDB: ">I", 0xDC: ">H", 0xDD: ">I", 0xDE: ">H", 0xDF: ">I"}


def _unpacked(words: bytes, at: int) -> tuple[Any, int]:
    """Returns the value that begins at a byte, and where the next one begins."""
    head, at = words[at], at + 1
    if head <= 0x7F:
        return head, at
    if head >= 0xE0:
        return head - 0x100, at
    if head in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[head], at
    if head in _NUMBERS:
        return struct.unpack_from(_NUMBERS[head], words, at)[0], at + struct.calcsize(_NUMBERS[head])
    if head in _COUNTS:
        count = struct.unpack_from(_COUNTS[head], words, at)[0]
        at += struct.calcsize(_COUNTS[head])
        kind = "text" if head <= 0xDB else "list" if head <= 0xDD else "map"
    elif head <= 0xBF:
        kind = "map" if head <= 0x8F else "list" if head <= 0x9F else "text"
        count = head & (0x1F if kind == "text" else 0x0F)
    else:
        raise ValueError(f"the metadata of the code object has a value of the unknown kind {head:#x}")
    if kind == "text":
        return words[at : at + count].decode(), at + count
    values = []
    for _ in range(count * (2 if kind == "map" else 1)):
        value, at = _unpacked(words, at)
        values.append(value)
    return (dict(zip(values[::2], values[1::2], strict=True)) if kind == "map" else values), at


# linking


def find_lld() -> list[str] | None:
    """Returns the command of LLVM's linker of ELF files, or None when there is none.

    It is ``TILEWRIGHT_LLD``, ``ld.lld`` on the PATH (with a version behind it as well), ROCm's, or that of the Python package
    ziglang.
    """
    if named := os.environ.get(CHOICE, "").split():
        return named
    places = [*os.environ.get("PATH", "").split(os.pathsep), "/opt/rocm/llvm/bin", "/opt/rocm/lib/llvm/bin"]
    found = [shutil.which("ld.lld", path=os.pathsep.join(places)), *_versions(places)]
    if path := next((path for path in found if path), None):
        return [path]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "ld.lld"]
    return None


def _versions(places: list[str]) -> list[str]:
    """Returns linkers with a version in their names, the newest first."""
    paths = [path for place in places if place for path in Path(place).glob("ld.lld-*")]
    known = {path: re.fullmatch(r"ld\.lld-(\d+)", path.name) for path in paths}
    return [
        str(path) for path, name in sorted(known.items(), key=lambda item: -int(item[1][1]) if item[1] else 0) if name
    ]


def linked_code_object(made: bytes) -> bytes:
    """Returns the code object of an object file: what ``hipModuleLoadData`` takes. GpuError where no linker is here, or it fails."""
    linker = find_lld()
    if linker is None:
        raise GpuError(
            "a code object is linked by LLVM's linker, and no ld.lld is here: pip install ziglang or apt-get install lld "
            f"brings one, or {CHOICE} names it; or export a .o and link it elsewhere: ld.lld -shared k.o -o k.hsaco"
        )
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        source, out = Path(folder, "kernels.o"), Path(folder, "kernels.hsaco")
        source.write_bytes(made)
        command = [*linker, "-shared", "--no-undefined", str(source), "-o", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not out.exists():
            raise GpuError(f"{' '.join(command)} failed: {done.stderr.strip() or done.stdout.strip()}")
        return out.read_bytes()
