"""A schedule function with ``sample_*`` calls is a space: each call is a decision of the search.

The function is run once to count its decisions. A candidate runs it again with the choices of its row: for
``sample_categorical`` the number of the candidate, for the other calls the number of one of a few random draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...pages.short_repr import short_repr
from ...schedule import Schedule, ScheduleError
from ..cost.cost_features import Costs
from ..cost.machine_model import MachineModel
from ..program import BlockInfo, Program
from .schedule_rule import Decision, Group, Part, ScheduleRule

_DRAWS = 32
"""The number of random draws of a call that chooses sizes or places."""


class ScheduleFunction(ScheduleRule):
    """This rule lets ``function(schedule)`` schedule the whole program: ``tune(func, target, rules=[ScheduleFunction(f)])``.

    Nothing is inlined before.
    """

    name = "schedule_function"
    priority = 0
    in_order = True
    whole = True
    gpu = None

    __repr__ = short_repr("function")

    def __init__(self, function: Callable[[Any], object]) -> None:
        self.function = function

    def match(self, program: Program, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        return Group(block, tuple(free))

    def parts(self, program: Program, group: Group, machine: MachineModel) -> list[Part]:
        return [SampledPart(self.function, program, group)]


class SampledPart(Part):
    """This part has one decision for each ``sample_*`` call of a schedule function, named ``sample<n>``."""

    def __init__(self, function: Callable[[Any], object], program: Program, group: Group) -> None:
        self.function, self.group = function, group
        self.name = getattr(function, "__name__", "function")
        first = _Chooser(Schedule(program.func, seed=0), None)
        function(first)
        self.decisions = tuple([Decision(f"sample{n}", tuple(range(k))) for n, k in enumerate(first.options)])
        self.structure = tuple([d.name for d in self.decisions])

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        self.function(_Chooser(sch, [row[d.name] for d in self.decisions]))

    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        """Nothing is known of the candidates ahead; the cost model learns from their choices."""
        costs = Costs(rows).put(core_cycles=sum(block.flops for block in self.group.blocks))
        features = ("tile_a", "tile_b", "tile_c", "rows", "columns", "unroll", "body_size", "inner_trips")
        for feature, decision in zip(features, self.decisions, strict=False):
            costs.put(**{feature: columns[decision.name]})
        return costs


class _Chooser:
    """A Schedule whose sampling calls take the choices of a row; without ``choices`` it counts the options of each."""

    def __init__(self, sch: Schedule, choices: Sequence[int] | None) -> None:
        self._sch, self._choices = sch, choices
        self.options: list[int] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._sch, name)
        return self._sampled(name, found) if name.startswith("sample_") else found

    def _sampled(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def sample(*args: Any, **named: Any) -> Any:
            number = len(self.options)
            fixed = named.get("decision") is not None
            categories = args[0] if args else named.get("candidates", ())
            self.options.append(1 if fixed else len(categories) if name == "sample_categorical" else _DRAWS)
            if self._choices is not None and number >= len(self._choices):
                raise ScheduleError(
                    "the function samples more often than in its first run", hint="sample unconditionally"
                )
            choice = 0 if self._choices is None else self._choices[number]
            if fixed:
                return call(*args, **named)
            if name == "sample_categorical":
                return call(*args, **{**named, "decision": choice})
            self._sch.seed(choice)
            return call(*args, **named)

        return sample
