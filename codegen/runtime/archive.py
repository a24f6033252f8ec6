"""Writes static libraries: archives of object files with an index of symbols, in the form that GNU and LLVM share.

The members are as the linker finds them: it takes those whose symbols are asked for and leaves out symbols that it already has. Two models that hold
the same kernel, whose symbol is made of its content, therefore share it in one program, and so they do the runtime.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_ORDINARY = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMTAB = 2


class ArchiveError(ValueError):
    """Raised for an object file that is not ELF of 64 bits, little-endian."""


@dataclass(frozen=True)
class Member:
    """An object file in an archive: its name there, and its bytes."""

    name: str
    data: bytes


def defined_symbols(data: bytes) -> list[str]:
    """Returns the symbols that an object file offers to others, global and weak ones, in its order."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise ArchiveError("a static library is made of ELF objects of 64 bits, little-endian; export a .so or .c")
    head = _ORDINARY.unpack_from(data)
    start, size, count = head[6], head[11], head[12]
    sections = [_SECTION.unpack_from(data, start + n * size) for n in range(count)]
    found = []
    for section in sections:
        if section[1] != _SYMTAB:
            continue
        names = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], _SYMBOL.size):
            name, info, _, where, _, _ = _SYMBOL.unpack_from(data, at)
            if info >> 4 in (1, 2) and where != 0:
                end = data.index(b"\0", names + name)
                found.append(data[names + name : end].decode())
    return found


def archive(members: Iterable[Member]) -> bytes:
    """Returns the bytes of a static library. Its times, owners and modes are always the same, so that equal members make
    equal files."""
    every = list(members)
    symbols = [(name, n) for n, one in enumerate(every) for name in defined_symbols(one.data)]
    long_names = "".join([f"{one.name}/\n" for one in every]).encode()
    texts = b"".join([name.encode() + b"\0" for name, _ in symbols])
    index_size = 4 + 4 * len(symbols) + len(texts)
    at = 8 + _padded(index_size) + _padded(len(long_names))
    offsets = []
    for one in every:
        offsets.append(at)
        at += _padded(len(one.data))
    if at >= 1 << 32:
        raise ArchiveError("a static library of more than 4 GiB; export the model with constants='beside'")
    index = struct.pack(f">{len(symbols) + 1}I", len(symbols), *[offsets[n] for _, n in symbols]) + texts
    parts = [b"!<arch>\n", *_entry("/", index), *_entry("//", long_names)]
    place = 0
    for one in every:
        parts += _entry(f"/{place}", one.data)
        place += len(one.name) + 2
    return b"".join(parts)


def _padded(size: int) -> int:
    return 60 + size + size % 2


def _entry(name: str, data: bytes) -> Sequence[bytes]:
    head = f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode()
    return [head, data, b"\n" if len(data) % 2 else b""]
