"""Replaces masked stores of one known lane by plain stores of that lane, to avoid a bug of LLVM.

On AVX-512, LLVM 22.1 first combines a narrowing conversion with the masked store that follows it. Where the mask is a
constant with one lane, it then stores that lane before the conversion: eight bytes of an int64 instead of one of an
int8 (https://github.com/llvm/llvm-project/issues/179489). This replacement runs after LLVM's own passes, because these
find further constant masks.
"""

from __future__ import annotations

import re
from typing import Any

from ..machine.target import Target

_STORE = re.compile(
    r"^ +(?:tail |notail )?call void @llvm\.masked\.store\.\S+?\("
    r"<(?P<lanes>\d+) x (?P<element>\w+)> (?P<value>.+), "
    r"ptr (?P<attributes>(?:(?:align \d+|nonnull|noundef|captures\([^)]*\)|dereferenceable\(\d+\)) )*)(?P<place>.+), "
    r"<(?P=lanes) x i1> <(?P<mask>[^<>]*)>\).*$",
    re.MULTILINE,
)


def split_single_lane_stores(text: str) -> str:
    """Return ``text`` with plain stores for the masked stores whose constant mask has one lane.

    ``text`` is LLVM IR as LLVM prints it.

    The very same text is returned when there is no such store.

    >>> print(split_single_lane_stores(
    ...     "  call void @llvm.masked.store.v2i8.p0(<2 x i8> %v, ptr align 1 %p, <2 x i1> <i1 false, i1 true>)"))
      %single.1 = extractelement <2 x i8> %v, i64 1
      %single.2 = getelementptr i8, ptr %p, i64 1
      store i8 %single.1, ptr %single.2, align 1
    """
    names = 0

    def rewritten(found: re.Match[str]) -> str:
        nonlocal names
        on = [n for n, lane in enumerate(found["mask"].split(", ")) if lane in ("i1 true", "i1 1")]
        if len(on) != 1:
            return found[0]
        names += 2
        value, place, element = f"%single.{names - 1}", f"%single.{names}", found["element"]
        align = re.search(r"align (\d+)", found["attributes"])
        return (
            f"  {value} = extractelement <{found['lanes']} x {element}> {found['value']}, i64 {on[0]}\n"
            f"  {place} = getelementptr {element}, ptr {found['place']}, i64 {on[0]}\n"
            f"  store {element} {value}, ptr {place}, align {align[1] if align else 1}"
        )

    return _STORE.sub(rewritten, text)


def repair(module: Any, texts: tuple[str, ...], target: Target) -> str | None:
    """Returns the text of a module with plain stores of single lanes in place of masked ones. LLVM's AVX-512 back end
    would store too much; None stands for no change."""
    if not target.has("avx512f") or not any("@llvm.masked.store" in text for text in texts):
        return None
    before = str(module)
    after = split_single_lane_stores(before)
    return None if after == before else after
