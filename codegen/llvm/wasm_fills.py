"""Writes out short fills and copies of WebAssembly, which an engine makes by a call of its runtime.

LLVM uses ``memory.fill`` and ``memory.copy`` for every size where the target has them. An engine calls a function for
each, which costs as much as a hundred stores of vectors.
"""

from __future__ import annotations

import re

LONGEST = 256
"""The bytes up to which a fill or a copy is written out."""

_POINTER = r"ptr (?P<{0}_words>[^%@,]*)(?P<{0}>[%@][\w.$-]+)"
_SIZE = r"i(?:32|64) (?P<size>\d+), i1 false\)"
_CALL = r"^ +(?:tail |notail )?call void @llvm\."
_FILL = re.compile(rf"{_CALL}memset\.p0\.i\d+\({_POINTER.format('to')}, i8 (?P<byte>-?\d+), {_SIZE}.*$", re.MULTILINE)
_COPY = re.compile(
    rf"{_CALL}mem(?:cpy|move)\.p0\.p0\.i\d+\({_POINTER.format('to')}, {_POINTER.format('of')}, {_SIZE}.*$", re.MULTILINE
)


def write_out_fills(text: str) -> str:
    """Return ``text``, LLVM IR as LLVM prints it, with loads and stores for short fills and copies.

    >>> print(write_out_fills("  call void @llvm.memset.p0.i64(ptr align 4 %p, i8 0, i64 20, i1 false)"))
      %fill.1 = freeze ptr %p
      %fill.2 = getelementptr inbounds nuw i8, ptr %fill.1, i32 16
      store <16 x i8> splat (i8 0), ptr %fill.1, align 4
      store <4 x i8> splat (i8 0), ptr %fill.2, align 4
    """
    made = 0

    def named(value: str, out: list[str]) -> str:
        nonlocal made
        made += 1
        out.append(f"  %fill.{made} = {value}")
        return f"%fill.{made}"

    def places(found: re.Match[str], end: str, out: list[str]) -> list[tuple[str, int, int]]:
        """Returns the pieces of a side: the address, the bytes, and the alignment."""
        said = re.search(r"align (\d+)", found[f"{end}_words"])
        align, base = int(said[1]) if said else 1, named(f"freeze ptr {found[end]}", out)
        pieces, at, left = [], 0, int(found["size"])
        for size in (16, 8, 4, 2, 1):
            while left >= size:
                place = named(f"getelementptr inbounds nuw i8, ptr {base}, i32 {at}", out) if at else base
                pieces.append((place, size, min(align, size)))
                at, left = at + size, left - size
        return pieces

    def fill(found: re.Match[str]) -> str:
        if int(found["size"]) > LONGEST:
            return found[0]
        out: list[str] = []
        for place, size, align in places(found, "to", out):
            out.append(f"  store <{size} x i8> splat (i8 {found['byte']}), ptr {place}, align {align}")
        return "\n".join(out)

    def copy(found: re.Match[str]) -> str:
        if int(found["size"]) > LONGEST:
            return found[0]
        out: list[str] = []
        values = [
            named(f"load <{n} x i8>, ptr {place}, align {align}", out) for place, n, align in places(found, "of", out)
        ]
        for value, (place, size, align) in zip(values, places(found, "to", out), strict=True):
            out.append(f"  store <{size} x i8> {value}, ptr {place}, align {align}")
        return "\n".join(out)

    return _COPY.sub(copy, _FILL.sub(fill, text))
