"""Divides vectors of a few bytes as vectors of 16-bit integers, to avoid a bug of LLVM.

On AVX2, LLVM 22.1 divides up to eight bytes by constants with products in a wider vector whose other lanes are not
defined. When a shuffle and a product of bytes follow, it takes all lanes for such lanes, and the product for zero. This
replacement runs after LLVM's own passes, which would narrow the division again.
"""

from __future__ import annotations

import re
from typing import Any

from ..machine.target import Target

_DIVISION = re.compile(
    r"^ +(?P<name>%\S+) = (?P<op>[us](?:div|rem))(?: exact)? <(?P<lanes>[2-8]) x i8> "
    r"(?P<value>[^\s,]+|splat \([^)]*\)|<[^>]*>), (?P<by>splat \([^)]*\)|<[^>]*>)(?P<place>, !.*)?$",
    re.MULTILINE,
)
_ANY_DIVISION = re.compile(r" = [us](?:div|rem) ")
_BYTE = re.compile(r"i8 (-?\d+)")


def widen_byte_divisions(text: str) -> str:
    """Return ``text`` with divisions of up to eight bytes by constants as divisions of as many 16-bit integers.

    ``text`` is LLVM IR as LLVM prints it.

    The very same text is returned when there is no such division.

    >>> print(widen_byte_divisions("  %q = udiv <8 x i8> %v, splat (i8 3)"))
      %wide.1 = zext <8 x i8> %v to <8 x i16>
      %wide.2 = udiv <8 x i16> %wide.1, splat (i16 3)
      %q = trunc <8 x i16> %wide.2 to <8 x i8>
    """
    names = 0

    def rewritten(found: re.Match[str]) -> str:
        nonlocal names
        names += 2
        signed, lanes, place = found["op"][0] == "s", found["lanes"], found["place"] or ""
        by = _BYTE.sub(lambda n: f"i16 {int(n[1]) if signed else int(n[1]) % 256}", found["by"])
        value, made = f"%wide.{names - 1}", f"%wide.{names}"
        return (
            f"  {value} = {'sext' if signed else 'zext'} <{lanes} x i8> {found['value']} to <{lanes} x i16>{place}\n"
            f"  {made} = {found['op']} <{lanes} x i16> {value}, {by}{place}\n"
            f"  {found['name']} = trunc <{lanes} x i16> {made} to <{lanes} x i8>{place}"
        )

    return _DIVISION.sub(rewritten, text)


def repair(module: Any, texts: tuple[str, ...], target: Target) -> str | None:
    """Returns the text of a module without divisions of a few bytes by constants; None stands for no change."""
    if not target.has("avx2") or not any(" x i8>" in text and _ANY_DIVISION.search(text) for text in texts):
        return None
    before = str(module)
    after = widen_byte_divisions(before)
    return None if after == before else after
