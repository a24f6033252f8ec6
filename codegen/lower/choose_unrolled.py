"""Chooses the loops to unroll by the number of stores that result, as TVM's pragmas of these names ask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...tir.expr import IntImm
from ...tir.stmt import AttrStmt, BufferStore, Evaluate, For, PrimFunc, Stmt, While
from .loop_annotations import UNROLL_EXPLICIT, UNROLL_STEPS, steps_number

_DEEPEST = 8
"""The greatest depth of nested loops that are chosen, TVM's ``auto_max_depth``."""


def choose_unrolled(func: PrimFunc) -> PrimFunc:
    """Mark loops as unrolled where ``pragma_auto_unroll_max_step = n`` on a loop or a block around them allows it.

    A serial loop that holds no loops other than unrolled ones is unrolled when that makes at most n stores and calls.
    The innermost pragma counts.

    Before::

        for i in T.serial(64, annotations={"pragma_auto_unroll_max_step": 16}):
            for j, k in T.grid(4, 3): B[i, j] = B[i, j] + A[i, j, k]

    After::

        for i in range(64):
            for j in T.unroll(4):
                for k in T.unroll(3): B[i, j] = B[i, j] + A[i, j, k]

    A vector loop counts as one of its iterations. With ``pragma_unroll_explicit = 0``, loops that would be unrolled
    stay loops. TVM leaves such loops to the compiler of the code that it prints; here LLVM gets no hint.
    """
    return func.with_body(_Chooser(0, True).visit(func.body)[0])


@dataclass(slots=True)
class _Size:
    """The size of a statement: its stores and calls, the loops that remain around them, and the unrolled loops."""

    steps: int = 0
    loops: int = 0
    unrolled: int = 0


@dataclass(frozen=True, slots=True)
class _Chooser:
    """The walk that chooses loops, with the pragmas in force."""

    most: int
    explicit: bool

    def visit(self, s: Stmt) -> tuple[Stmt, _Size]:
        """Return ``s`` with its loops chosen, and its size."""
        if isinstance(s, AttrStmt) and s.attr_key in (UNROLL_STEPS, UNROLL_EXPLICIT):
            return self.under({s.attr_key: s.value}, s.attr_key).visit(s.body)
        if isinstance(s, For):
            if UNROLL_STEPS in s.annotations or UNROLL_EXPLICIT in s.annotations:
                rest = {k: v for k, v in s.annotations.items() if k not in (UNROLL_STEPS, UNROLL_EXPLICIT)}
                return self.under(s.annotations, f"loop {s.loop_var.name}").loop(s.with_(annotations=rest))
            return self.loop(s)
        size = _Size(int(isinstance(s, (BufferStore, Evaluate))))

        def child(c: Any) -> Any:
            if not isinstance(c, Stmt):
                return c
            new, part = self.visit(c)
            size.steps += part.steps
            size.loops, size.unrolled = max(size.loops, part.loops), max(size.unrolled, part.unrolled)
            return new

        new = s.map_children(child)
        size.loops += isinstance(s, While)
        return new, size  # type: ignore[return-value]

    def under(self, pragmas: Mapping[str, Any], place: str) -> _Chooser:
        """Return the pragmas in force inside a statement that has some of its own."""
        most = steps_number(pragmas.get(UNROLL_STEPS, self.most), UNROLL_STEPS, place)
        return _Chooser(
            most, bool(steps_number(pragmas.get(UNROLL_EXPLICIT, int(self.explicit)), UNROLL_EXPLICIT, place))
        )

    def loop(self, s: For) -> tuple[Stmt, _Size]:
        """Return a loop, unrolled where its size allows it, and its size."""
        body, size = self.visit(s.body)
        s = s if body is s.body else s.with_(body=body)
        if s.kind == "vectorized":
            return s, size
        trip_count = s.extent.value if isinstance(s.extent, IntImm) else -1
        fits = self.most and s.kind == "serial" and trip_count >= 0 and not size.loops and size.unrolled <= _DEEPEST
        if s.kind == "unrolled" or (fits and trip_count * size.steps <= self.most):
            kind = "unrolled" if self.explicit else "serial"
            return s if s.kind == kind else s.with_(kind=kind), _Size(
                trip_count * size.steps, size.loops, size.unrolled + 1
            )
        return s, _Size(size.steps, size.loops + 1, size.unrolled)
