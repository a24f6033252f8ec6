"""Moves masked accesses that a target makes lane by lane into functions, when a module has very many of them.

Where a machine has no instruction for a masked load, store, gather or scatter, such as those of bytes on x86, LLVM's
back end makes a branch for each lane. A few hundred of them are a function of ten thousand blocks, on which the register
allocator takes seconds. Each kind then becomes one function, which these places call: the call is short beside the
branches. This replacement runs after LLVM's own passes, which have moved what does not change out of loops.
"""

from __future__ import annotations

import re
from typing import Any

from ..machine.target import Target

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


def repair(module: Any, texts: tuple[str, ...], target: Target) -> str | None:
    """Returns the text of a module with shared functions for its accesses; None stands for no change."""
    kinds = [found for text in texts for found in _KIND.finditer(text)]
    if sum(int(found["lanes"]) for found in kinds if _lane_by_lane(found, target)) <= MOST_BRANCHES:
        return None
    before = str(module)
    after = share_scalarized(before, target)
    return None if after is before else after
