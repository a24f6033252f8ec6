"""Rewrites instructions of an optimized module of which LLVM's back end would make wrong or slow code."""

from __future__ import annotations

import re
from typing import Any

from ..machine.target import Target

# Replaces masked stores of one known lane by plain stores of that lane, to avoid a bug of LLVM.
#
# On AVX-512, LLVM 22.1 first combines a narrowing conversion with the masked store that follows it. Where the mask is a
# constant with one lane, it then stores that lane before the conversion: eight bytes of an int64 instead of one of an
# int8 (https://github.com/llvm/llvm-project/issues/179489). This replacement runs after LLVM's own passes, because these
# find further constant masks.

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


def repair_single_lane_stores(module: Any, texts: tuple[str, ...], target: Target) -> str | None:
    """Returns the text of a module with plain stores of single lanes in place of masked ones. LLVM's AVX-512 back end
    would store too much; None stands for no change."""
    if not target.has("avx512f") or not any("@llvm.masked.store" in text for text in texts):
        return None
    before = str(module)
    after = split_single_lane_stores(before)
    return None if after == before else after


# Divides vectors of a few bytes as vectors of 16-bit integers, to avoid a bug of LLVM.
#
# On AVX2, LLVM 22.1 divides up to eight bytes by constants with products in a wider vector whose other lanes are not
# defined. When a shuffle and a product of bytes follow, it takes all lanes for such lanes, and the product for zero. This
# replacement runs after LLVM's own passes, which would narrow the division again.

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


def repair_byte_divisions(module: Any, texts: tuple[str, ...], target: Target) -> str | None:
    """Returns the text of a module without divisions of a few bytes by constants; None stands for no change."""
    if not target.has("avx2") or not any(" x i8>" in text and _ANY_DIVISION.search(text) for text in texts):
        return None
    before = str(module)
    after = widen_byte_divisions(before)
    return None if after == before else after


# Moves masked accesses that a target makes lane by lane into functions, when a module has very many of them.
#
# Where a machine has no instruction for a masked load, store, gather or scatter, such as those of bytes on x86, LLVM's
# back end makes a branch for each lane. A few hundred of them are a function of ten thousand blocks, on which the register
# allocator takes seconds. Each kind then becomes one function, which these places call: the call is short beside the
# branches. This replacement runs after LLVM's own passes, which have moved what does not change out of loops.

MOST_BRANCHES = 1024
"""The number of lanes with branches up to which a module keeps them in place."""
MOST_LANES = 4096
"""The same for lanes of constant masks, which have no branches."""

_ACCESS = re.compile(
    r"call (?P<result>void|<\d+ x \w+>) @llvm\.masked\.(?P<op>gather|scatter|load|store)\.v(?P<lanes>\d+)(?P<type>[a-z]+\d+)"
    r"\.(?P<rest>\w+)\((?P<args>.*)\)(?= |,|$)",
    re.MULTILINE,
)
_KIND = re.compile(r"@llvm\.masked\.(?P<op>gather|scatter|load|store)\.v(?P<lanes>\d+)(?P<type>[a-z]+\d+)\.")
_ALIGN = re.compile(r" align (\d+) ")


def share_scalarized(text: str, target: Target) -> str:
    """Return ``text`` with masked accesses that the target makes lane by lane as calls of functions at its end.

    ``text`` is LLVM IR as LLVM prints it. The very same text is returned when there are few of them.
    """
    branches = lanes = 0
    for found in _ACCESS.finditer(text):
        if _lane_by_lane(found, target):
            if _constant_mask(found):
                lanes += int(found["lanes"])
            else:
                branches += int(found["lanes"])
    if branches <= MOST_BRANCHES and lanes <= MOST_LANES:
        return text
    functions: dict[str, str] = {}

    def call(found: re.Match[str]) -> str:
        constant = _constant_mask(found)
        if not _lane_by_lane(found, target) or (lanes <= MOST_LANES if constant else branches <= MOST_BRANCHES):
            return found[0]
        place = _ALIGN.search(found["args"])
        align = f"align {place[1]} " if place else ""
        whole = "splat (i1 true)" in found["args"]
        intrinsic = f"{found['op']}.v{found['lanes']}{found['type']}.{found['rest']}"
        name = f"tw.masked.{intrinsic}{'.all' if whole else ''}.{place[1] if place else 1}"
        functions.setdefault(name, _function(name, f"llvm.masked.{intrinsic}", found, align, whole))
        return f"call {found['result']} @{name}({found['args']})"

    changed = _ACCESS.sub(call, text)
    return changed + "".join(functions.values())


def _function(name: str, intrinsic: str, found: re.Match[str], align: str, whole: bool) -> str:
    lanes = found["lanes"]
    data, mask = f"<{lanes} x {_element(found['type'])}>", f"<{lanes} x i1>"
    where = f"<{lanes} x ptr>" if found["op"] in ("gather", "scatter") else "ptr"
    active = f"{mask} splat (i1 true)" if whole else f"{mask} %m"
    if found["result"] == "void":
        args = f"{data} %v, {where} {align}%p, {active}"
        body, taken = f"  call void @{intrinsic}({args})\n  ret void", f"{data} %v, {where} %p, {mask} %m"
    else:
        args = f"{where} {align}%p, {active}, {data} %v"
        body = f"  %r = call {data} @{intrinsic}({args})\n  ret {data} %r"
        taken = f"{where} %p, {mask} %m, {data} %v"
    return f"\ndefine internal {found['result']} @{name}({taken}) noinline nounwind {{\n{body}\n}}\n"


def _element(suffix: str) -> str:
    return {"f16": "half", "bf16": "bfloat", "f32": "float", "f64": "double"}.get(suffix, suffix)


def _constant_mask(found: re.Match[str]) -> bool:
    mask = re.search(rf"<{found['lanes']} x i1> (%?)", found["args"])
    return mask is not None and not mask[1]


def _lane_by_lane(found: re.Match[str], target: Target) -> bool:
    """Returns whether the back end makes an access of this kind code for each lane."""
    wide = int(re.sub(r"\D", "", found["type"])) >= 32
    if found["op"] in ("load", "store"):
        return not (target.has("avx512bw") or (target.has("avx") and wide))
    if found["op"] == "gather":
        return not (wide and (target.has("avx2") or target.has("avx512f")))
    return not (wide and target.has("avx512f"))


def repair_scalarized_accesses(module: Any, texts: tuple[str, ...], target: Target) -> str | None:
    """Returns the text of a module with shared functions for its accesses; None stands for no change."""
    kinds = [found for text in texts for found in _KIND.finditer(text)]
    if sum(int(found["lanes"]) for found in kinds if _lane_by_lane(found, target)) <= MOST_BRANCHES:
        return None
    before = str(module)
    after = share_scalarized(before, target)
    return None if after is before else after
