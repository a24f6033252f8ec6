"""This module makes the default schedule: the one that the analytic prior predicts to be fastest, without
measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...codegen.machine.target import Target
from ...pages.short_repr import short_repr
from ...schedule import Schedule, ScheduleError
from ...tir.expr.deep_recursion import with_room
from ...tir.stmt import PrimFunc
from ..rules import ScheduleRule
from .search_space import Space, Variant
from .sketch import RowTable

_TRIES = 4
"""The number of rows of each part that are tried."""


@dataclass
class DefaultSchedule:
    """A default schedule: ``scheduled`` counts its groups of blocks, ``left`` says what stays as written, and why.

    ``space`` is the space that it comes from; ``failed`` are the rules, each with a block, none of whose candidates
    applied.
    """

    schedule: Schedule
    space: Space
    scheduled: int = 0
    left: list[str] = field(default_factory=list)
    failed: set[tuple[str, str]] = field(default_factory=set)

    __repr__ = short_repr("origin")

    @property
    def origin(self) -> str:
        """Returns a sentence that says where the schedule comes from."""
        reasons = "; ".join(self.left[:3]) + ("; …" if len(self.left) > 3 else "")
        if self.scheduled == 0:
            return f"as written, not tuned: {reasons or 'there is nothing to schedule'}"
        if not self.schedule.trace.insts:
            return "as written, not tuned: the analytic model changes nothing"
        origin = "the analytic model's best schedule, not tuned"
        return f"{origin}; left as written: {reasons}" if self.left else origin


def choose_default(space: Space) -> DefaultSchedule:
    """Schedule each group of blocks by the best row of its parts that applies.

    Groups are scheduled one after the other, so the time grows with the number of groups. Where no row applies, the rules
    of lower priority are asked about the block; a block that no rule takes stays as written.
    """
    best: DefaultSchedule | None = None
    while True:
        found = []
        for variant in sorted(space.variants, key=lambda v: v.seconds):
            made = _apply_best(space, variant)
            found.append(made)
            if not made.failed:
                break
        made = min(found, key=lambda made: len(made.left))
        best = made if best is None or len(made.left) < len(best.left) else best
        if not made.failed:
            return best
        space = space.avoiding(made.failed)


def _apply_best(space: Space, variant: Variant) -> DefaultSchedule:
    made = DefaultSchedule(variant.base.copy(), space, left=list(variant.left))
    for group, tables in variant.groups:
        reason = ""
        for table, number in _ranked(tables):
            trial = made.schedule.copy()
            try:
                space.apply(trial, table, table.decisions(table.rows[number]))
            except ScheduleError as error:
                reason = reason or str(error).split("\n")[0]
                continue
            made.schedule = trial
            made.scheduled += 1
            break
        else:
            names = ", ".join([block.name for block in group.blocks])
            made.left.append(f"block {names}: {reason}")
            made.failed.add((tables[0].rule, group.anchor.name))
    return made


def _ranked(tables: Sequence[RowTable]) -> list[tuple[RowTable, int]]:
    """Returns the best few rows of each table, best first."""
    rows = [(float(t.seconds[n]), k, int(n)) for k, t in enumerate(tables) for n in t.order[:_TRIES]]
    return [(tables[k], n) for _, k, n in sorted(rows, key=lambda item: item[:1])]


@with_room
def default_schedule(func: PrimFunc, target: Target | str, *, rules: Sequence[ScheduleRule] | None = None) -> Schedule:
    """Returns the schedule that the analytic prior thinks best, without measuring anything.

    Blocks that no rule takes (those of symbolic extents, for example), and those that no candidate applies to, stay as
    written.
    """
    return choose_default(Space(func, target, rules=rules)).schedule
