"""This module defines ``ScheduleError``, which says what was asked, what prevents it, where, and what to try."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ..pages.html_text import user_traceback
from ..pages.messages import near_words
from ..tir.expr import Reason, Var
from ..tir.expr.node import IRNode, marked_text
from ..tir.stmt import PrimFunc
from .handles import BlockRV

T = TypeVar("T")
_CONTEXT = 6
_SHORT = 40
_LONG = 120


class ScheduleError(Exception):
    """A ``ScheduleError`` says that a step does not apply; the schedule is as it was before the call.

    ``problem`` says what is wrong, with the numbers; ``where`` are the loops or blocks to mark in the printed IR;
    ``hint`` says what would make the step legal. The schedule fills in ``primitive``, ``arguments`` and ``func``. The
    text is built only when it is read, so that a search that expects refusals does not pay for it.
    """

    def __init__(
        self,
        problem: str,
        *,
        where: IRNode | Iterable[IRNode] = (),
        hint: str = "",
        primitive: str = "",
        func: PrimFunc | None = None,
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.where: tuple[IRNode, ...] = (where,) if isinstance(where, IRNode) else tuple(where)
        self.hint = hint
        self.primitive = primitive
        self.arguments: Mapping[str, Any] = {}
        self.func = func

    def render(self) -> str:
        """Return the whole message.

        It contains the primitive and the problem, what was asked, the hint, and the IR with the marked lines (an
        excerpt when it is long).
        """
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

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows: the user's lines and the message, without the frames of the library."""
        return user_traceback(self, "ScheduleError")

    def __reduce__(self) -> Any:  # nodes compare by identity, so a copy elsewhere carries the text alone
        return type(self), (self.render(),)


def require(result: T | Reason) -> T:
    """Return the result of an analysis; ScheduleError with its text, nodes and hint when it is a reason."""
    if isinstance(result, Reason):
        raise ScheduleError(result.text, where=result.nodes, hint=result.hint)
    return result


class UnknownHandleError(ScheduleError, IndexError, KeyError):
    """This error reports a block, loop, buffer or function that does not exist. It is an IndexError and a KeyError,
    too."""


class BadArgumentError(ScheduleError, ValueError, TypeError):
    """This error reports an argument of a wrong type, or with a value that is wrong for every program."""


def unknown_handle(problem: str, *, where: IRNode | Iterable[IRNode] = (), hint: str = "") -> ScheduleError:
    """Return the ScheduleError for a handle, name or number of something that does not exist.

    It is an IndexError and a KeyError too.
    """
    return UnknownHandleError(problem, where=where, hint=hint)


def bad_argument(problem: str, *, where: IRNode | Iterable[IRNode] = (), hint: str = "") -> ScheduleError:
    """Return the ScheduleError for an argument that is wrong for every program; it is a ValueError and a TypeError
    too."""
    return BadArgumentError(problem, where=where, hint=hint)


def _shown(value: Any) -> str:
    """Return an argument as source text, with handles by name, cut when it is long."""
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


def _excerpt(func: PrimFunc, where: Sequence[IRNode]) -> list[str]:
    lines = marked_text(func, set(where)).splitlines()
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
    """Return the close matches of ``name``, or the first eight names when there are none."""
    names = list(dict.fromkeys(known))
    return near_words(name, names) or names[:8]


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint that lists the close matches of ``name``, or else at most eight of the known names."""
    names = list(dict.fromkeys(known))
    close = near_words(name, names)
    if close:
        return "did you mean " + " or ".join(repr(n) for n in close) + "?"
    if not names:
        return ""
    shown = ", ".join(repr(n) for n in names[:8])
    return f"there are {shown}" + (", ..." if len(names) > 8 else "")
