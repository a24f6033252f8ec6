"""Applies what WebAssembly's code needs to the text of an optimized module: short fills written out, offsets kept."""

from __future__ import annotations

import re
from typing import Any

from ..machine.target import Target


def repair(module: Any, texts: tuple[str, ...], target: Target) -> str | None:
    """Returns the text of a module for WebAssembly after all repairs; None for no change."""
    if not target.is_wasm:
        return None
    before = str(module)
    after = keep_offsets(write_out_fills(before))
    return None if after == before else after


# Writes out short fills and copies of WebAssembly, which an engine makes by a call of its runtime.
#
# LLVM uses ``memory.fill`` and ``memory.copy`` for every size where the target has them. An engine calls a function for
# each, which costs as much as a hundred stores of vectors.

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


# Lets WebAssembly's loads and stores carry their constant offsets, where LLVM would add them to the address.
#
# An instruction of WebAssembly adds its offset without wrapping around 2^32, so LLVM uses it only for sums that are known
# not to wrap. Its reduction of induction variables forgets what it knew. So the first address that a block's accesses share
# is frozen: it is no induction variable any more. Sums of this address and positive constants do not wrap, because the block
# accesses the address itself: all of them lie in one buffer.

_NAME = r"%[\w.$-]+"
_STEP = re.compile(rf"^  ({_NAME}) = getelementptr i8, ptr ({_NAME}), i32 (-?\d+)$")
_ACCESS = re.compile(rf"^  (?:{_NAME} = load [^,]+|store .+), ptr ({_NAME}), align")
_BLOCK = re.compile(r"^(?:[\w.$-]+:|define )")


def keep_offsets(text: str) -> str:
    """Return ``text``, LLVM IR as LLVM prints it, whose blocks step without wrapping from addresses that they access.

    The very same text is returned when there is no such address.

    >>> print(keep_offsets('''loop:
    ...   %a = getelementptr float, ptr %p, i32 %i
    ...   %x = load float, ptr %a, align 4
    ...   %b = getelementptr i8, ptr %a, i32 16
    ...   %y = load float, ptr %b, align 4'''))
    loop:
      %a = getelementptr float, ptr %p, i32 %i
      %a.first0 = getelementptr i8, ptr %a, i32 0
      %a.still0 = freeze ptr %a.first0
      %x = load float, ptr %a.still0, align 4
      %b = getelementptr nuw i8, ptr %a.still0, i32 16
      %y = load float, ptr %b, align 4
    """
    lines = text.split("\n")
    starts = [n for n, line in enumerate(lines) if _BLOCK.match(line)] + [len(lines)]
    out = lines[: starts[0]]
    for number, (first, end) in enumerate(zip(starts, starts[1:], strict=False)):
        out += _rewritten(lines[first:end], number)
    return text if out == lines else "\n".join(out)


def _firsts(lines: list[str]) -> dict[str, int]:
    """Returns the smallest step that a block accesses from each address from which it steps further."""
    steps = {found[1]: (found[2], int(found[3])) for line in lines if (found := _STEP.match(line))}
    accessed = [found[1] for line in lines if (found := _ACCESS.match(line))]
    out: dict[str, int] = {}
    for base, by in (steps.get(name, (name, 0)) for name in accessed):
        out[base] = min(by, out.get(base, by))
    known = {*steps.values(), *((name, 0) for name in accessed)}
    return {base: first for base, first in out.items() if any(b == base and by > first for b, by in known)}


def _rewritten(lines: list[str], number: int) -> list[str]:
    """Returns the lines of a block, with the shared addresses frozen."""
    firsts, still, out = _firsts(lines), dict[str, str](), list[str]()

    def begun(base: str) -> str:
        if base not in still:
            still[base] = f"{base}.still{number}"
            out.append(f"  {base}.first{number} = getelementptr i8, ptr {base}, i32 {firsts[base]}")
            out.append(f"  {still[base]} = freeze ptr {base}.first{number}")
        return still[base]

    for line in lines:
        step, access = _STEP.match(line), _ACCESS.match(line)
        if step and step[2] in firsts and int(step[3]) >= firsts[step[2]]:
            by = int(step[3]) - firsts[step[2]]
            line = f"  {step[1]} = getelementptr nuw i8, ptr {begun(step[2])}, i32 {by}"
        elif access and access[1] in firsts:
            place = begun(access[1])
            if firsts[access[1]] < 0:
                here = f"{access[1]}.here{number}.{len(out)}"
                out.append(f"  {here} = getelementptr nuw i8, ptr {place}, i32 {-firsts[access[1]]}")
                place = here
            line = line.replace(f", ptr {access[1]}, align", f", ptr {place}, align")
        out.append(line)
    return out
