"""Reads the undefined symbols of an ELF object file (the ELF-64 symbol table, little endian).

LLVM may call library functions that the IR never names (memset, conversions of float16), and an unresolved symbol would
abort the process. The object's symbols are therefore checked before it is loaded.
"""

from __future__ import annotations

import struct

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMTAB = 2


def undefined_symbols(data: bytes) -> list[str]:
    """Returns the names of the undefined symbols in table order, or nothing for data that is not 64-bit little-endian
    ELF."""
    if data[:6] != b"\x7fELF\x02\x01":
        return []
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [_SECTION.unpack_from(data, table + size * i) for i in range(count)]
    names: dict[str, None] = {}
    for _, kind, _, _, offset, length, link, _, _, entry in sections:
        if kind != _SYMTAB:
            continue
        strings = sections[link][4]
        for at in range(offset + entry, offset + length, entry):  # the first entry is the null symbol
            name, _, _, section, _, _ = _SYMBOL.unpack_from(data, at)
            if section == 0 and name:
                start = strings + name
                names.setdefault(data[start : data.index(b"\0", start)].decode())
    names.pop("_GLOBAL_OFFSET_TABLE_", None)
    return list(names)
