"""A schedule rule recognizes a group of blocks and offers parts of sketches for it.

A part is a recipe for one group of blocks with numbers left open, its decisions.

A schedule function with ``sample_*`` calls is a space too (:class:`ScheduleFunction`): each call is a decision of the search. The
function is run once to count its decisions. A candidate runs it again with the choices of its row: for ``sample_categorical``
the number of the candidate, for the other calls the number of one of a few random draws.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any

import numpy as np

from ...pages.messages import short_repr
from ...schedule import Schedule, ScheduleError
from ..cost.cost_features import Costs
from ..cost.machine_model import MachineModel
from ..program import BlockInfo, ProgramInfo


@dataclass(frozen=True)
class Group:
    """A group has the blocks that one recipe schedules together; ``anchor`` is the one with the most work."""

    anchor: BlockInfo
    blocks: tuple[BlockInfo, ...]

    __repr__ = short_repr()


class ScheduleRule(ABC):
    """A schedule rule offers recipes. Derive from it and :func:`register_rule` an instance, or pass rules to
    ``tune(rules=...)``.

    Rules are asked in the order of ``priority`` (smaller first), each about every block that no earlier group holds. Where
    stages are fused, rules of a priority below 9 are asked before the rules that fuse, and keep their blocks; all others
    are asked after them. Those below 9 are the rules of special instructions; give a rule of your own 0 to 8 if its blocks are
    not to be fused.
    """

    name: str = "rule"
    priority: int = 50
    in_order: bool = False
    """Whether the rule also takes blocks that keep the order of their loops (``BlockInfo.keeps_order``): scans, triangles."""

    fuses: bool = False
    """Whether the rule joins stages that other rules take apart: the space has both."""
    whole: bool = False
    """Whether the rule schedules the whole program, into which nothing is inlined before."""
    measured_only: bool = False
    """Whether the rule's parts are candidates beside those of the other rules, of which only a measurement says whether they are
    faster: the analytic model never chooses them."""
    gpu: bool | None = False
    """Whether the rule is for GPUs; None: for all machines. A space asks the rules for its target."""

    __repr__ = short_repr("name")

    def shares_parts(self) -> object:
        """Returns a key that rules with the same parts for a group share. By default it is the rule itself."""
        return self

    @abstractmethod
    def match(self, program: ProgramInfo, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        """Returns the group that ``block`` anchors, made of blocks in ``free``; None when the rule does not take the
        block."""

    @abstractmethod
    def parts(self, program: ProgramInfo, group: Group, machine: MachineModel) -> list[Part]:
        """Returns the recipes for the group, alternatives of one another; an empty sequence when it finds none."""


_registered: list[ScheduleRule] = []


def register_rule(rule: ScheduleRule) -> ScheduleRule:
    """Let every later tuning use ``rule``; a rule of the same name is replaced."""
    _registered[:] = [r for r in _registered if r.name != rule.name]
    _registered.append(rule)
    return rule


def default_rules() -> tuple[ScheduleRule, ...]:
    """Returns the registered rules, in the order in which they are asked. Installed packages add theirs through the
    entry point group ``tilewright.rules`` (each a :class:`ScheduleRule`, or a class or function that makes one)."""
    _load_plugins()
    return tuple(sorted(_registered, key=lambda r: r.priority))


@cache
def _load_plugins() -> None:
    """Register what installed packages offer, once; a broken one is reported and left out."""
    for entry in entry_points(group="tilewright.rules"):
        try:
            made = entry.load()
            rule = made if isinstance(made, ScheduleRule) else made()
            if not isinstance(rule, ScheduleRule):
                raise TypeError(f"{type(rule).__name__} is not a ScheduleRule")
            register_rule(rule)
        except Exception as error:
            package = entry.dist.name if entry.dist is not None else entry.value
            message = f"the schedule rule {entry.name!r} of {package} is left out: {type(error).__name__}: {error}"
            warnings.warn(message, RuntimeWarning, stacklevel=3)


@dataclass(frozen=True)
class Decision:
    """A decision is a number to be chosen: its name and its possible values, in order (neighbours give similar
    schedules)."""

    name: str
    candidates: tuple[int, ...]

    __repr__ = short_repr()

    def __post_init__(self) -> None:
        if not self.candidates:
            raise ValueError(f"decision {self.name} has no candidates")


class Part(ABC):
    """A part schedules one group of blocks. Schedule rules make instances of subclasses.

    ``name`` names the recipe, ``decisions`` are the numbers that it leaves open. ``structure`` names the decisions with
    the largest influence (a register tile, for example), so that a batch can have candidates with different values of
    them.
    """

    name: str
    decisions: tuple[Decision, ...]
    structure: tuple[str, ...] = ()
    for_any_size: bool = False
    """Whether rows for large sizes serve small ones as well, where threads beyond the end of a size only stop."""

    __repr__ = short_repr("name", "decisions")

    @abstractmethod
    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        """Perform the primitives on ``sch``; ScheduleError when they do not apply."""

    @abstractmethod
    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        """Returns the costs of ``rows`` candidates whose decisions are ``columns`` (float64 arrays by name)."""

    def mask(self, columns: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        """Returns which of the candidates are sensible, as a bool array; all of them unless overridden."""
        return np.ones(rows, dtype=bool)

    def likeness(self) -> Hashable | None:
        """Returns on what :meth:`costs` and :meth:`mask` depend besides the machine.

        Parts of one class, of the same decisions and of one likeness have the same rows at the same costs, which are
        found once. None, unless overridden: each part is costed on its own.
        """
        return None


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

    def match(self, program: ProgramInfo, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        return Group(block, tuple(free))

    def parts(self, program: ProgramInfo, group: Group, machine: MachineModel) -> list[Part]:
        return [SampledPart(self.function, program, group)]


class SampledPart(Part):
    """This part has one decision for each ``sample_*`` call of a schedule function, named ``sample<n>``."""

    def __init__(self, function: Callable[[Any], object], program: ProgramInfo, group: Group) -> None:
        self.function, self.group = function, group
        self.name = getattr(function, "__name__", "function")
        first = _RowChooser(Schedule(program.func, seed=0), None)
        function(first)
        self.decisions = tuple([Decision(f"sample{n}", tuple(range(k))) for n, k in enumerate(first.options)])
        self.structure = tuple([d.name for d in self.decisions])

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        self.function(_RowChooser(sch, [row[d.name] for d in self.decisions]))

    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        """Nothing is known of the candidates ahead; the cost model learns from their choices."""
        costs = Costs(rows).put(core_cycles=sum(block.flops for block in self.group.blocks))
        features = ("tile_a", "tile_b", "tile_c", "rows", "columns", "unroll", "body_size", "inner_trips")
        for feature, decision in zip(features, self.decisions, strict=False):
            costs.put(**{feature: columns[decision.name]})
        return costs


class _RowChooser:
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
