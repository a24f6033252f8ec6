"""The space of schedules of one function on one target: the sketches that the rules make, and how to build a candidate."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from ..codegen.target import Target
from ..schedule import Schedule, ScheduleError
from ..tir.function import PrimFunc
from .machine import MachineModel
from .program import BlockInfo, Program
from .rules import Group, ScheduleRule, blocks_to_inline, default_rules, paddings_to_inline
from .sketch import Part, Sketch

__all__ = ["Space"]

_MAX_SKETCHES = 24

Groups = list[tuple[Group, list[Part]]]


class Space:
    """All candidates for ``func`` on ``target``: ``sketches``, each with rows of decisions.

    Args:
        func: the unscheduled function; extents must be constant.
        rules: which schedule rules to ask; the registered ones by default.
    """

    def __init__(
        self, func: PrimFunc, target: Target, *, rules: Sequence[ScheduleRule] | None = None,
        machine: MachineModel | None = None,
    ) -> None:  # fmt: skip
        self.func = func
        self.target = target
        self.machine = machine or MachineModel.of(target)
        self.rules = asked = tuple(rules) if rules is not None else default_rules()
        base = Schedule(func, seed=0)
        self.inlined = _inline(base, blocks_to_inline(Program(base.func)))
        self.program = Program(base.func)
        self.groups = self._group(self.program, asked)
        self.sketches = self._combine(self.groups, base, "")
        masked = base.copy()
        if self.program.regular and _inline(masked, paddings_to_inline(self.program)):
            self.sketches += self._combine(self._group(Program(masked.func), asked), masked, "_masked")

    def __repr__(self) -> str:
        return f"Space({', '.join(map(repr, self.sketches))})"

    @property
    def size(self) -> int:
        """How many rows all sketches have together, sensible or not."""
        return sum(sketch.size for sketch in self.sketches)

    def schedule(self, sketch: Sketch, row: Sequence[int]) -> Schedule:
        """The schedule of a candidate; ScheduleError when its steps do not apply."""
        assert sketch.base is not None
        sch = sketch.base.copy()
        sketch.apply(sch, row)
        return sch

    def sketch(self, name: str) -> Sketch | None:
        """The sketch of that name, or None."""
        return next((s for s in self.sketches if s.name == name), None)

    def best_rows(self, sketch: Sketch, count: int, rng: np.random.Generator | None = None) -> np.ndarray:
        """The rows that the analytic prior thinks best, best first."""
        rows = sketch.all_rows() if sketch.size <= 200_000 else sketch.sample(50_000, rng or np.random.default_rng(0))
        if len(rows) == 0:
            return rows
        order = np.argsort(sketch.score(rows)[1], kind="stable")
        return rows[order[:count]]

    def _group(self, program: Program, rules: Sequence[ScheduleRule]) -> Groups:
        """Ask each rule about each block that is still free; the groups in program order."""
        groups: Groups = []
        free: list[BlockInfo] = list(program.blocks) if program.regular else []
        for rule in sorted(rules, key=lambda r: r.priority):
            for block in program.blocks:
                if block not in free:
                    continue
                group = rule.match(program, block, tuple(free))
                if group is None or not set(group.blocks) <= set(free):
                    continue
                parts = rule.parts(program, group, self.machine)
                if parts:
                    groups.append((group, parts))
                    free = [b for b in free if b not in group.blocks]
        order = {block: n for n, block in enumerate(program.blocks)}
        return sorted(groups, key=lambda item: order[item[0].anchor])

    def _combine(self, groups: Groups, base: Schedule, suffix: str) -> list[Sketch]:
        """Every combination of the groups' parts; with many groups, of their most promising ones."""
        choices = [parts for _, parts in groups]
        keep = max(len(parts) for parts in choices) if choices else 1
        while keep > 1 and int(np.prod([min(keep, len(parts)) for parts in choices], dtype=np.float64)) > _MAX_SKETCHES:
            keep -= 1
        if any(len(parts) > keep for parts in choices):
            choices = [sorted(parts, key=self._promise)[:keep] for parts in choices]
        return [Sketch(parts, self.machine, base, suffix) for parts in itertools.product(*choices)]

    def _promise(self, part: Part) -> float:
        sketch = Sketch([part], self.machine)
        rows = sketch.all_rows() if sketch.size <= 50_000 else sketch.sample(5_000, np.random.default_rng(0))
        return float(sketch.score(rows)[1].min()) if len(rows) else float("inf")


def _inline(sch: Schedule, names: Sequence[str]) -> list[str]:
    """Inline the stages; the names of those that could be."""
    done = []
    for name in names:
        before = sch.copy()
        try:
            sch.compute_inline(sch.get_block(name))
            done.append(name)
        except ScheduleError:
            sch.restore(before)
    return done
