"""Rewrites instructions of an optimized module of which LLVM's back end would make wrong or slow code.

WebAssembly's code needs short fills written out, and offsets kept.
"""

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
_WASM_ACCESS = re.compile(rf"^  (?:{_NAME} = load [^,]+|store .+), ptr ({_NAME}), align")
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
    accessed = [found[1] for line in lines if (found := _WASM_ACCESS.match(line))]
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
        step, access = _STEP.match(line), _WASM_ACCESS.match(line)
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
