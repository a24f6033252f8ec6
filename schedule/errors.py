"""What a primitive says when it does not apply: what was asked, what is in the way, where, and what to try."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from ..tir.function import PrimFunc
from ..tir.node import Node

__all__ = ["ScheduleError", "nearest"]

_CONTEXT = 6
_SHORT = 40


class ScheduleError(Exception):
    """This step does not apply here; the schedule is as it was before the call.

    ``problem`` says what is wrong, with the numbers; ``where`` are the loops or blocks to mark in the printed IR;
    ``hint`` says what would make the step legal. ``primitive`` and ``func`` are filled in by the schedule. The text
    is made when it is asked for, so that a search which expects refusals does not pay for them.
    """

    def __init__(
        self,
        problem: str,
        *,
        where: Node | Iterable[Node] = (),
        hint: str = "",
        primitive: str = "",
        func: PrimFunc | None = None,
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.where: tuple[Node, ...] = (where,) if isinstance(where, Node) else tuple(where)
        self.hint = hint
        self.primitive = primitive
        self.func = func

    def render(self) -> str:
        """The whole message: primitive and problem, the hint, and the IR with the marked lines (an excerpt when long)."""
        lines = [f"{self.primitive}: {self.problem}" if self.primitive else self.problem]
        if self.hint:
            lines.append(f"hint: {self.hint}")
        if self.func is not None and self.where:
            lines += ["", *_excerpt(self.func, self.where)]
        return "\n".join(lines)

    __str__ = render

    def __reduce__(self) -> Any:  # nodes compare by identity, so a copy elsewhere carries the text alone
        return ScheduleError, (self.render(),)


def _excerpt(func: PrimFunc, where: Sequence[Node]) -> list[str]:
    from ..tir.printer import script  # late: the printer is only needed once something went wrong

    lines = script(func, highlight=set(where)).splitlines()
    if len(lines) <= _SHORT:
        return lines
    marked = [i for i, line in enumerate(lines) if "^^^" in line]
    keep = {i for m in marked for i in range(m - _CONTEXT, m + _CONTEXT + 1)}
    out: list[str] = []
    for i, line in enumerate(lines):
        if i in keep:
            out.append(line)
        elif not out or out[-1] != "    ...":
            out.append("    ...")
    return out


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint that names what is there: close matches of ``name`` first, else all (at most eight)."""
    names = list(dict.fromkeys(known))
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(repr(n) for n in close) + "?"
    if not names:
        return ""
    shown = ", ".join(repr(n) for n in names[:8])
    return f"there are {shown}" + (", ..." if len(names) > 8 else "")
