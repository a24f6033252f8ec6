"""A schedule rule recognizes a group of blocks and offers parts of sketches for it.

A part is a recipe for one group of blocks with numbers left open, its decisions.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points

import numpy as np

from ...pages.short_repr import short_repr
from ...schedule import Schedule
from ..cost.cost_features import Costs
from ..cost.machine_model import MachineModel
from ..program import BlockInfo, Program


@dataclass(frozen=True)
class Group:
    """A group has the blocks that one recipe schedules together; ``anchor`` is the one with the most work."""

    anchor: BlockInfo
    blocks: tuple[BlockInfo, ...]

    __repr__ = short_repr()


class ScheduleRule(ABC):
    """A schedule rule offers recipes. Derive from it and :func:`register_rule` an instance, or pass rules to
    ``tune(rules=...)``.

    Rules are asked in the order of ``priority`` (smaller first), each about every block that no earlier group holds.
    """

    name: str = "rule"
    priority: int = 50
    in_order: bool = False
    """Whether the rule also takes blocks that keep the order of their loops (``BlockInfo.keeps_order``): scans, triangles."""

    fuses: bool = False
    """Whether the rule joins stages that other rules take apart: the space has both."""
    whole: bool = False
    """Whether the rule schedules the whole program, into which nothing is inlined before."""
    gpu: bool | None = False
    """Whether the rule is for GPUs; None: for all machines. A space asks the rules for its target."""

    __repr__ = short_repr("name")

    @abstractmethod
    def match(self, program: Program, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        """Returns the group that ``block`` anchors, made of blocks in ``free``; None when the rule does not take the
        block."""

    @abstractmethod
    def parts(self, program: Program, group: Group, machine: MachineModel) -> list[Part]:
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
