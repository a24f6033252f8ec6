"""A space holds the candidates of one function on one target: the sketches that schedule rules make.

The default schedule is the candidate that the analytic prior predicts to be fastest, without measurements.
"""

from __future__ import annotations

import itertools
import math
import os
import traceback
import warnings
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ...codegen.machine.target import Target
from ...pages.messages import short_repr
from ...schedule import Schedule, ScheduleError, TraceError
from ...schedule.trace import apply_instruction
from ...tir.expr.deep_recursion import with_room
from ...tir.stmt import PrimFunc
from ..canonical_form import (
    bring_into_canonical_form,
    compute_once,
    join_short_rows,
    turn_results,
    write_in_order,
)
from ..cost.axis_roles import dot_form, dot_roles, pays_packing, tile_product
from ..cost.gpu_model import GpuModel, type_on_matrix_units
from ..cost.machine_model import MachineModel
from ..program import BlockInfo, ProgramInfo, Use
from ..rules import Group, ScheduleRule, blocks_to_inline, cheaper_inlined, default_rules, paddings_to_inline
from ..rules.gpu_product_forms import in_parts, of_plain_bytes
from ..rules.schedule_rule import Decision, Part
from .sketch import RowTable, Sketch, cheapest_sums

_MAX_SKETCHES = 24
_MAX_PARTS = 64
"""The number of sketches of a space, and of the parts of all sketches together where more combinations exist."""

_GAIN = 1.05
"""What inlining leaves is brought into canonical form again where that is predicted to be so many times as fast. Axes that
blocks divide as they are written stay whole where that is."""

_FUSED_PRIORITY = 9
"""Rules of a smaller priority are asked before stages are fused: those of special instructions, and users' own."""


@dataclass
class Variant:
    """A function with some stages inlined (``base``), and its groups of blocks with the parts that may schedule each.
    ``left`` says which blocks no rule takes, and why. ``measured_only``: the analytic model does not choose it."""

    base: Schedule
    suffix: str
    groups: list[tuple[Group, list[RowTable]]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    measured_only: bool = False

    @property
    def seconds(self) -> float:
        """Returns the sum over the groups of the prior's seconds for the best row of any part."""
        return sum(min(float(table.seconds.min()) for table in tables) for _, tables in self.groups)


class Space:
    """A space has all candidates for ``func`` on ``target``: ``sketches``, each with rows of decisions.

    Args:
        func: The unscheduled function. Blocks whose extents are not constant stay as they are.
        target: For what it is scheduled.
        rules: Which schedule rules to ask; the registered ones by default. An exception in one becomes a RuntimeWarning.
        machine: The machine's figures; by default those of the target.
        avoid: Pairs of the name of a rule and of a block about which the rule is not asked.
        where: The values that decisions may take (:data:`Where`); ValueError for a decision that no part has.
        of: The function of symbolic sizes of which ``func`` is an example: axes are split where that applies to it as well.
    """

    def __init__(
        self, func: PrimFunc, target: Target | str, *, rules: Sequence[ScheduleRule] | None = None,
        machine: MachineModel | None = None, avoid: frozenset[tuple[str, str]] = frozenset(), where: Where | None = None,
        of: Schedule | None = None,
    ) -> None:  # fmt: skip
        self.func, self.of = func, of
        self.target = target = Target.of(target)
        self.machine = machine or MachineModel.of(target)
        self.avoid = avoid
        self.where: Where = where or {}
        self._names: dict[str, set[int]] = {}
        self._offered: dict[tuple[object, Group], list[RowTable]] = {}
        self._alike: dict[Hashable, RowTable] = {}
        self._guard = RuleGuard()
        self.rules = sorted(tuple(rules) if rules is not None else default_rules(), key=lambda r: r.priority)
        asked = self.rules = [rule for rule in self.rules if rule.gpu in (None, target.is_gpu)]
        base = Schedule(func, seed=0)
        whole = any(rule.whole for rule in asked)
        turned: list[str] = []
        whole_axes: list[Schedule] = []
        before = (
            ProgramInfo(base.func) if whole
            else bring_into_canonical_form(base, of, self._multiplied, turned, whole_axes)
        )  # fmt: skip
        canonical = base.copy()
        asked_for = [] if whole else blocks_to_inline(before)
        alone = [rule for rule in asked if rule.measured_only]
        asked = [rule for rule in asked if not rule.measured_only]
        apart = [rule for rule in asked if not rule.fuses]
        self.inlined, undivided = _inlined_in_form(base, before, asked_for, of, self._multiplied, turned)
        changed = undivided is not None
        again = undivided is not None and len(base.trace.insts) > len(undivided.trace.insts)
        gain = _GAIN
        if undivided is None and whole_axes and not target.is_gpu:
            (undivided,), again, gain = whole_axes, True, 1 / _GAIN
            _inline(undivided, blocks_to_inline(ProgramInfo(undivided.func)))
        self.program = write_in_order(base, of)
        self.variants = [self._group(Variant(base, ""), self.program, apart)]
        if undivided is not None and again:
            program = write_in_order(undivided, of)
            other = self._group(Variant(undivided, ""), program, apart)
            if len(other.left) <= len(self.left) and other.seconds <= gain * self.variants[0].seconds:
                self.variants, self.program, base, changed = [other], program, undivided, False
        if turned:
            plain = self._without_copies(of)
            ordered, base = plain.copy(), plain
            self.variants.append(self._group(Variant(plain, "_gathered"), write_in_order(plain, of), apart))
            if turn_results(ordered, of):
                self.variants.append(self._group(Variant(ordered, "_turned"), write_in_order(ordered, of), apart))
        self.variants += self._of_other_forms(apart, base)
        rows = base.copy()
        if not whole and not target.is_gpu and join_short_rows(rows, self.machine.lanes(4), of):
            self.variants.append(self._group(Variant(rows, "_joined"), ProgramInfo(rows.func), apart))
        self.variants += self._measured_only(alone, apart, base)
        masked = base.copy()
        if not whole and _inline(masked, paddings_to_inline(self.program)):
            self.variants.append(self._group(Variant(masked, "_masked"), ProgramInfo(masked.func), apart))
        if not whole:
            weighed = cheaper_inlined(before)
            once = blocks_to_inline(before, weighed)
            if once == asked_for:  # the same steps
                self.variants += self._fused(asked, base.copy())
            else:
                fused = canonical
                _inline(fused, once)
                if _changes(fused, before):
                    compute_once(fused, of)
                    if changed:
                        _in_form_again(fused, before, of, self._multiplied, turned)
                self.variants += self._fused(asked, fused, [b.name for b, inlined in weighed.items() if not inlined])
        if not avoid:  # else the names were checked before
            check_names(self.where, self._names)

    def _without_copies(self, of: Schedule | None) -> Schedule:
        """Returns the function with inputs that lie across others read as they lie, by gathered vectors."""
        base = Schedule(self.func, seed=0)
        before = bring_into_canonical_form(base, of, self._multiplied)
        _inlined_in_form(base, before, blocks_to_inline(before), of, self._multiplied, None)
        return base

    def __repr__(self) -> str:
        count = len(self.sketches)
        rows = sum(sketch.size for sketch in self.sketches)
        return f"Space({self.func.name} for {self.target}: {count} sketch{'' if count == 1 else 'es'}, {rows} rows)"

    @cached_property
    def sketches(self) -> list[Sketch]:
        """Returns the sketches; a group of fused stages that cannot be scheduled is left to other rules."""
        failed = {pair for variant in self.variants for pair in self._never_applies(variant)}
        if failed:
            return self.avoiding(failed).sketches
        return [sketch for variant in self.variants for sketch in self._combine(variant)]

    @property
    def size(self) -> int:
        """Returns how many rows all sketches have together, sensible or not."""
        return sum(sketch.size for sketch in self.sketches)

    def describe(self) -> str:
        """Returns the sketches as text: each with its decisions, how many candidates it has, and the analytic model's
        best."""
        lines = []
        for sketch in self.sketches:
            count = f"{sketch.sensible:,} of {sketch.size:,} rows are sensible"
            lines.append(f"{sketch.name}: {count}")
            best = sketch.best_rows(1)
            seconds = float(sketch.score(best)[1][0])
            for name, decision, value in zip(sketch.column_names, sketch.decisions, best[0], strict=True):
                lines.append(f"  {name}: {', '.join(map(str, decision.candidates))}; best: {value}")
            lines.append(f"  predicted: {seconds:.3g} s")
        return "\n".join([*lines, *[f"left as written: {reason}" for reason in self.left]])

    @property
    def groups(self) -> list[tuple[Group, list[RowTable]]]:
        """Returns the groups of blocks with their parts, in program order."""
        return self.variants[0].groups

    @property
    def left(self) -> list[str]:
        """Returns a line for each block that no rule takes, with the reason."""
        return self.variants[0].left

    def schedule(self, sketch: Sketch, row: Sequence[int]) -> Schedule:
        """Returns the schedule of a candidate; ScheduleError when its steps do not apply."""
        assert sketch.base is not None
        sch = sketch.base.copy()
        for table, decisions in sketch.steps(row):
            self.apply(sch, table, decisions)
        return sch

    def apply(self, sch: Schedule, table: RowTable, decisions: dict[str, int]) -> None:
        """Perform the steps of one part; ScheduleError when they do not apply, or when the rule's code raises an
        exception."""
        self._guard.apply(table.rule, table.part.apply, sch, decisions)

    def avoiding(self, pairs: Collection[tuple[str, str]]) -> Space:
        """Returns the space in which these rules are not asked about these blocks."""
        avoid = self.avoid | set(pairs)
        space = Space(
            self.func, self.target, rules=self.rules, machine=self.machine, avoid=avoid, where=self.where,
            of=self.of,
        )  # fmt: skip
        space._guard = self._guard
        return space

    def sketch(self, name: str) -> Sketch | None:
        """Returns the sketch of that name, or None."""
        return next((s for s in self.sketches if s.name == name), None)

    def best_rows(self, sketch: Sketch, count: int) -> np.ndarray:
        """Returns the rows that the analytic prior thinks best, best first."""
        return sketch.best_rows(count)

    def _fused(self, rules: Sequence[ScheduleRule], base: Schedule, stored: Sequence[str] = ()) -> list[Variant]:
        """Returns the function with its stages fused first, as each rule that fuses does it. Only stages that would be
        computed apart count, and those of ``stored``, which are cheaper stored than computed again. In ``base`` stages
        are inlined of which each element is computed once."""
        program = self.program if base.func is self.program.func else ProgramInfo(base.func)
        apart: dict[str, object] = {name: name for name in stored}
        apart.update({b.name: n for n, (group, _) in enumerate(self.variants[0].groups) for b in group.blocks})
        found: dict[tuple[tuple[str, ...], ...], Variant] = {}
        for rule in [rule for rule in rules if rule.fuses and len(program.blocks) > 1]:
            suffix = f"_fused{len(found) + 1}" if found else "_fused"
            others = [r for r in rules if not r.fuses]
            before = [r for r in others if r.priority < _FUSED_PRIORITY]
            variant = self._group(Variant(base, suffix), program, [*before, rule, *others[len(before) :]])
            joined = [group for group, tables in variant.groups if tables[0].rule == rule.name]
            if any(len({apart.get(b.name) for b in g.blocks} - {None}) > 1 for g in joined):
                found.setdefault(tuple([tuple([b.name for b in g.blocks]) for g in joined]), variant)
        return list(found.values())

    def _of_other_forms(self, apart: Sequence[ScheduleRule], base: Schedule) -> list[Variant]:
        """Returns the function with its products in the other forms that may be faster on a GPU."""
        if not self.target.is_gpu or not isinstance(self.machine, GpuModel) or self.of is not None:
            return []
        found, other = [], base.copy()
        name = of_plain_bytes(other, self.machine)
        if name:
            found.append(self._group(Variant(other, name), write_in_order(other), apart))
        for start, suffix in [(base, "_parts"), *[(v.base, f"{name}_parts") for v in found]]:
            split = start.copy()
            if in_parts(split, self.machine):
                found.append(self._group(Variant(split, suffix), write_in_order(split), apart))
        return [variant for variant in found if len(variant.left) <= len(self.left)]

    def _measured_only(
        self, alone: Sequence[ScheduleRule], apart: Sequence[ScheduleRule], base: Schedule
    ) -> list[Variant]:
        """Returns the function as each rule that takes part by measurement alone schedules its blocks, and other rules the rest."""
        found = []
        for rule in alone:
            variant = self._group(Variant(base, "", measured_only=True), self.program, [rule, *apart])
            if any(tables[0].rule == rule.name for _, tables in variant.groups):
                found.append(variant)
        return found

    def _group(self, variant: Variant, program: ProgramInfo, rules: Sequence[ScheduleRule]) -> Variant:
        """Ask each rule about each block that is still free; the groups in program order."""
        free = dict.fromkeys(program.blocks)
        for rule in rules:
            offered = tuple([b for b in free if rule.in_order or not b.keeps_order])
            for block in program.blocks:
                if block not in free or (block.keeps_order and not rule.in_order):
                    continue
                if (rule.name, block.name) in self.avoid:
                    continue
                group = self._guard.ask(rule.name, rule.match, program, block, offered)
                if group is None or not all(b in free and (rule.in_order or not b.keeps_order) for b in group.blocks):
                    continue
                tables = self._tables(rule, program, group)
                if tables:
                    variant.groups.append((group, tables))
                    for taken in group.blocks:
                        free.pop(taken, None)
                    offered = tuple([b for b in offered if b in free])
        order = {block: n for n, block in enumerate(program.blocks)}
        variant.groups.sort(key=lambda item: order[item[0].anchor])
        variant.left = [*program.left, *(f"block {block.name}: no schedule rule takes it" for block in free)]
        return variant

    def _multiplied(self, block: BlockInfo) -> bool | str:
        """Returns whether the target multiplies narrow numbers of ``block`` as they are, without converting them.

        A name is that of the type in which it multiplies all of them.
        """
        if self.target.is_gpu:
            return (isinstance(self.machine, GpuModel) and type_on_matrix_units(block, self.machine)) or True
        machine = self.machine
        roles = dot_roles(block)
        if roles is None or not pays_packing(block, roles):
            return False
        tiles = machine.multiplies_tiles(roles.dtype) and tile_product(block) is not None
        return tiles or dot_form(block, roles, machine) is not None

    def _tables(self, rule: ScheduleRule, program: ProgramInfo, group: Group) -> list[RowTable]:
        """Returns the rule's parts that have a sensible row. What another rule offered for the group is not made again."""
        key = rule.shares_parts(), group
        known = self._offered.get(key)
        if known is not None:
            return [table.under(rule.name) for table in known]
        tables = self._offered[key] = []
        for part in self._guard.ask(rule.name, rule.parts, program, group, self.machine) or ():
            for d in part.decisions:
                for name in (d.name, f"{part.name}.{d.name}"):
                    self._names.setdefault(name, set()).update(d.candidates)
            if not restricted(part, self.where):
                continue
            table = RowTable(part, self.machine, rule.name)
            alike = self._guard.ask(rule.name, part.likeness)
            if alike is not None:
                first = self._alike.setdefault((type(part), part.decisions, alike), table)
                if first is not table:
                    self._guard.ask(rule.name, table.take, first)
            if self._guard.ask(rule.name, table.usable):
                tables.append(table)
        return tables

    def _never_applies(self, variant: Variant) -> list[tuple[str, str]]:
        """Returns the rules that fuse, each with the block of a group for which their first candidate does not apply."""
        fusing = {rule.name for rule in self.rules if rule.fuses}
        failed = []
        for group, tables in variant.groups:
            if tables[0].rule in fusing:
                try:
                    self.apply(variant.base.copy(), tables[0], tables[0].decisions(tables[0].rows[0]))
                except ScheduleError:
                    failed.append((tables[0].rule, group.anchor.name))
        return failed

    def _combine(self, variant: Variant) -> list[Sketch]:
        """Returns every combination of the groups' parts; where there are many, those that the prior thinks best."""
        choices = [tables for _, tables in variant.groups]
        if not choices:
            return []
        if math.prod(len(tables) for tables in choices) <= _MAX_SKETCHES:
            combined = list(itertools.product(*choices))
        else:
            promised = [np.array([table.seconds.min() for table in tables]) for tables in choices]
            count = min(_MAX_SKETCHES, max(1, _MAX_PARTS // len(choices)))
            combined = [
                tuple(tables[n] for tables, n in zip(choices, numbers, strict=True))
                for numbers in cheapest_sums(promised, count)
            ]
        return [
            Sketch([t.part for t in tables], self.machine, variant.base, variant.suffix, tables) for tables in combined
        ]


def _changes(sch: Schedule, before: ProgramInfo) -> bool:
    """Returns whether reductions, or blocks with accesses that are not affine or backwards, read other arrays than in
    ``before``."""
    known = {b.name: {use.buffer for use in b.loads} for b in before.blocks}
    changed = [b for b in ProgramInfo(sch.func).blocks if {use.buffer for use in b.loads} != known.get(b.name)]
    return any(b.is_reduction or not all(use.affine and _is_upwards(use) for use in b.loads) for b in changed)


def _is_upwards(use: Use) -> bool:
    """Returns whether no index becomes smaller along an axis."""
    return all(factor >= 0 for dim in use.dims if dim is not None for factor in dim.values())


def _inlined_in_form(
    sch: Schedule,
    before: ProgramInfo,
    names: Sequence[str],
    of: Schedule | None,
    multiplied: Callable[[BlockInfo], bool | str],
    turned: list[str] | None,
) -> tuple[list[str], Schedule | None]:
    """Inline stages, and bring what that changes into canonical form again; return the names of those that were inlined.

    The second result is the schedule before its axes were divided again, None where inlining changed nothing.
    """
    inlined = _inline(sch, names)
    if not _changes(sch, before):
        return inlined, None
    compute_once(sch, of)
    undivided = sch.copy()
    return inlined + _in_form_again(sch, before, of, multiplied, turned), undivided


def _in_form_again(
    sch: Schedule,
    before: ProgramInfo,
    of: Schedule | None,
    multiplied: Callable[[BlockInfo], bool | str],
    turned: list[str] | None,
) -> list[str]:
    """Bring what inlining has left into canonical form again; return the names of the copies that are inlined, too."""
    steps, known = len(sch.trace.insts), {b.name for b in before.blocks}
    program = bring_into_canonical_form(sch, of, multiplied, turned)
    if len(sch.trace.insts) == steps:
        return []
    return _inline(sch, [name for name in blocks_to_inline(program) if name not in known])


def _inline(sch: Schedule, names: Sequence[str]) -> list[str]:
    """Inline the stages where possible, producers first; return the names of those that were inlined.

    All are inlined in one step; where that does not apply, each half of them is tried.
    """
    if not names:
        return []
    before = sch.copy()
    try:
        sch.compute_inline(*[sch.get_block(name) for name in names])
        return list(names)
    except ScheduleError:
        sch.restore(before)
    half = len(names) // 2
    return [*_inline(sch, names[:half]), *_inline(sch, names[half:])] if half else []


Where = Mapping[str, int | Collection[int]]
"""Allowed values by the name of a decision (``vectors``), or by those of a part and its decision (``tile_C_v1.vectors``)."""


def restricted(part: Part, where: Where) -> bool:
    """Limit the decisions of ``part`` to what ``where`` allows; False when a decision has no value left."""
    kept = []
    for decision in part.decisions:
        allowed = where.get(f"{part.name}.{decision.name}", where.get(decision.name))
        values = decision.candidates
        if allowed is not None:
            wanted = _wanted(allowed)
            values = tuple([v for v in values if v in wanted])
            if not values:
                return False
        kept.append(Decision(decision.name, values))
    part.decisions = tuple(kept)
    return True


def _wanted(allowed: int | Collection[int]) -> set[int]:
    return {allowed} if isinstance(allowed, int) else set(allowed)


def check_names(where: Where, known: Mapping[str, Collection[int]]) -> None:
    """Raise ValueError for a name that no part has. A decision that has none of its values in any part is an error as
    well. ``known``: the values by name. The name of a part and its decision may leave the part out."""
    for name, allowed in where.items():
        if name not in known:
            raise ValueError(f"where: no decision {name!r}; there are {', '.join(sorted(known))}")
        if "." not in name and not _wanted(allowed) & set(known[name]):
            there = ", ".join(map(str, sorted(known[name])))
            raise ValueError(f"where: {name!r} is never {allowed!r}; its values are {there}")


class RuleGuard:
    """A RuleGuard calls rules and their parts. An exception other than ScheduleError becomes a RuntimeWarning, one for
    each rule."""

    def __init__(self) -> None:
        self._reported: set[str] = set()

    def ask(self, rule: str, function: Callable[..., Any], *args: Any) -> Any:
        """Returns what ``function`` returns; None when it fails."""
        try:
            return function(*args)
        except Exception as error:
            self._report(rule, error)
            return None

    def apply(self, rule: str, function: Callable[..., Any], *args: Any) -> None:
        """Call ``function``; ScheduleError when it fails, whatever it raised."""
        try:
            function(*args)
        except ScheduleError:
            raise
        except Exception as error:
            raise ScheduleError(self._report(rule, error)) from error

    def _report(self, rule: str, error: Exception) -> str:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{os.path.basename(last.filename)}:{last.lineno}: {last.line}"
        what = f"the schedule rule {rule!r} failed: {type(error).__name__}: {error} ({where})"
        if rule not in self._reported:
            self._reported.add(rule)
            warnings.warn(f"{what}; the search goes on without it", RuntimeWarning, stacklevel=2)
        return what


@dataclass
class Follower:
    """A follower is a schedule of a function of symbolic sizes, which takes the steps of that at example sizes.

    ``refused`` says of the function that results why it is not wanted, or nothing.
    """

    schedule: Schedule
    refused: Callable[[PrimFunc], str] = lambda func: ""
    handles: dict[str, Any] = field(default_factory=dict)
    """The outputs of the steps by their names."""
    steps: int = 0

    def after(self, other: Schedule) -> Follower:
        """Returns a follower that took all steps of ``other``; ScheduleError where one does not apply, or is refused."""
        made = Follower(self.schedule.copy(), self.refused, dict(self.handles), len(other.trace.insts))
        for number in range(self.steps, made.steps):
            apply_instruction(made.schedule, other.trace.insts[number], number, made.handles)
        if reason := self.refused(made.schedule.func):
            raise ScheduleError(reason)
        return made


_TRIES = 4
"""The number of rows of each part that are tried."""


@dataclass
class DefaultSchedule:
    """A default schedule: ``parts`` schedule its groups of blocks, ``left`` says what stays as written, and why.

    ``space`` is the space that it comes from; ``failed`` are the rules, each with a block, none of whose candidates
    applied. ``follower`` took all its steps as well.
    """

    schedule: Schedule
    space: Space
    follower: Follower | None = None
    parts: list[Part] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    failed: set[tuple[str, str]] = field(default_factory=set)
    seconds: float = 0.0
    """What the model predicts for its parts together."""

    __repr__ = short_repr("origin")

    @property
    def part_names(self) -> tuple[str, ...]:
        """Returns the names of the parts."""
        return tuple([part.name for part in self.parts])

    @property
    def for_any_size(self) -> bool:
        """Returns whether rows that were chosen for large sizes serve small ones as well."""
        return all(part.for_any_size for part in self.parts)

    @property
    def origin(self) -> str:
        """Returns a sentence that says where the schedule comes from."""
        reasons = "; ".join(self.left[:3]) + ("; …" if len(self.left) > 3 else "")
        if not self.parts:
            return f"as written, not tuned: {reasons or 'there is nothing to schedule'}"
        if not self.schedule.trace.insts:
            return "as written, not tuned: the analytic model changes nothing"
        origin = "the analytic model's best schedule, not tuned"
        return f"{origin}; left as written: {reasons}" if self.left else origin


def choose_default(
    space: Space, follower: Schedule | None = None, refused: Callable[[PrimFunc], str] = lambda func: ""
) -> DefaultSchedule:
    """Schedule each group of blocks by the best row of its parts that applies.

    Groups are scheduled one after the other, so the time grows with the number of groups. Where no row applies, the rules
    of lower priority are asked about the block; a block that no rule takes stays as written. ``follower`` is a schedule of
    the same function of symbolic sizes: rows whose steps do not apply to it are left out, and those of which ``refused``
    says why what they make of it is not wanted. ScheduleError where the steps before, which bring the function into
    canonical form, do not apply.
    """
    best: DefaultSchedule | None = None
    first = None if follower is None else Follower(follower, refused)
    while True:
        found = []
        for variant in sorted([v for v in space.variants if not v.measured_only], key=lambda v: v.seconds):
            made = _apply_best(space, variant, first)
            found.append(made)
            if not made.failed:
                break
        made = min(found, key=lambda made: len(made.left))
        best = made if best is None or len(made.left) < len(best.left) else best
        if not made.failed:
            return best
        space = space.avoiding(made.failed)


def _apply_best(space: Space, variant: Variant, follower: Follower | None) -> DefaultSchedule:
    made = DefaultSchedule(variant.base.copy(), space, left=list(variant.left))
    if follower is not None:
        made.follower = follower.after(made.schedule)
    for group, tables in variant.groups:
        reason = ""
        for table, number in _ranked(tables, follower is not None):
            trial = made.schedule.copy()
            try:
                space.apply(trial, table, table.decisions(table.rows[number]))
                followed = None if made.follower is None else made.follower.after(trial)
            except (ScheduleError, TraceError) as error:
                reason = reason or str(error).split("\n")[0]
                continue
            made.schedule, made.follower = trial, followed
            made.parts.append(table.part)
            made.seconds += float(table.seconds[number])
            break
        else:
            names = ", ".join([block.name for block in group.blocks])
            made.left.append(f"block {names}: {reason}")
            made.failed.add((tables[0].rule, group.anchor.name))
    return made


def _ranked(tables: Sequence[RowTable], by_structure: bool) -> list[tuple[RowTable, int]]:
    """Returns the best few rows of each table, best first. ``by_structure``: then the best one of each value of each decision that
    the structure names."""
    rows = [(float(t.seconds[n]), k, int(n)) for k, t in enumerate(tables) for n in t.order[:_TRIES]]
    first = sorted(rows, key=lambda item: item[:1])
    more = []
    for k, t in enumerate(tables) if by_structure else ():
        main = [n for n, d in enumerate(t.part.decisions) if d.name in t.part.structure]
        places = {int(p) for n in main for p in np.unique(t.rows[t.order][:, n], return_index=True)[1]}
        more += [(float(t.seconds[n]), k, int(n)) for n in t.order[sorted(places)] if n not in t.order[:_TRIES]]
    return [(tables[k], n) for _, k, n in (*first, *sorted(more, key=lambda item: item[:1]))]


@with_room
def default_schedule(func: PrimFunc, target: Target | str, *, rules: Sequence[ScheduleRule] | None = None) -> Schedule:
    """Returns the schedule that the analytic prior thinks best, without measuring anything.

    Blocks that no rule takes (those of symbolic extents, for example), and those that no candidate applies to, stay as
    written.
    """
    return choose_default(Space(func, target, rules=rules)).schedule
