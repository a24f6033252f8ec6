"""What a primitive says when it does not apply: what was asked, what is in the way, where, and what to try."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..tir.expr import Var
from ..tir.function import PrimFunc
from ..tir.node import Node
from .handles import BlockRV

_CONTEXT = 6
_SHORT = 40
_LONG = 120


class ScheduleError(Exception):
    """This step does not apply here; the schedule is as it was before the call.

    ``problem`` says what is wrong, with the numbers; ``where`` are the loops or blocks to mark in the printed IR;
    ``hint`` says what would make the step legal. ``primitive``, ``arguments`` and ``func`` are filled in by the schedule. The text
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
        self.arguments: Mapping[str, Any] = {}
        self.func = func

    def render(self) -> str:
        """Return the whole message: primitive and problem, what was asked, the hint, and the IR with the marked lines
        (an excerpt when long)."""
        lines = [f"{self.primitive}: {self.problem}" if self.primitive else self.problem]
        if self.primitive and self.arguments:
            asked = [
                ", ".join(map(_shown, value)) if name.startswith("*") else f"{name}={_shown(value)}"
                for name, value in self.arguments.items()
            ]
            lines.append(f"asked: {self.primitive}({', '.join(asked)})")
        if self.hint:
            lines.append(f"hint: {self.hint}")
        if self.func is not None and self.where:
            lines += ["", *_excerpt(self.func, self.where)]
        return "\n".join(lines)

    __str__ = render

    def __reduce__(self) -> Any:  # nodes compare by identity, so a copy elsewhere carries the text alone
        return type(self), (self.render(),)


class _UnknownHandle(ScheduleError, IndexError, KeyError):
    """A block, loop, buffer or function that is not there: Python's errors for a wrong index or key."""


class _BadArgument(ScheduleError, ValueError, TypeError):
    """An argument of a wrong type, or one that means nothing whatever the program is: Python's errors for these."""


def unknown_handle(problem: str, *, where: Node | Iterable[Node] = (), hint: str = "") -> ScheduleError:
    """Return the ScheduleError for a handle, name or number of something that is not there; an IndexError and a
    KeyError too."""
    return _UnknownHandle(problem, where=where, hint=hint)


def bad_argument(problem: str, *, where: Node | Iterable[Node] = (), hint: str = "") -> ScheduleError:
    """Return the ScheduleError for an argument that is wrong for any program; a ValueError and a TypeError too."""
    return _BadArgument(problem, where=where, hint=hint)


def _shown(value: Any) -> str:
    """Return an argument as one would write it, handles by name; cut when long."""
    if isinstance(value, BlockRV):
        text = repr(value.name)
    elif isinstance(value, Var):
        text = value.name
    elif isinstance(value, tuple) and len(value) == 1:
        text = f"({_shown(value[0])},)"
    elif isinstance(value, (list, tuple)):
        inside = ", ".join([_shown(v) for v in value])
        text = f"[{inside}]" if isinstance(value, list) else f"({inside})"
    elif isinstance(value, (str, int, float, dict, type(None))):
        text = repr(value)
    else:
        text = getattr(value, "__name__", str(value))
    return text if len(text) <= _LONG else text[: _LONG - 3] + "..."


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


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """Return the close matches of ``name``, else the first eight."""
    names = list(dict.fromkeys(known))
    return difflib.get_close_matches(name, names, n=3, cutoff=0.5) or names[:8]


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint that names what is there: close matches of ``name`` first, else all (at most eight)."""
    names = list(dict.fromkeys(known))
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(repr(n) for n in close) + "?"
    if not names:
        return ""
    shown = ", ".join(repr(n) for n in names[:8])
    return f"there are {shown}" + (", ..." if len(names) > 8 else "")
