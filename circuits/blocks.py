"""A circuit has two kinds of parts: blocks of operations, and the loops and branches around them. Blocks have no loops,
and run in stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .memories import Bank
from .nets import Net


@dataclass(slots=True, eq=False)
class Load:
    """A word that is read; ``after`` are the stores that come before and may concern the same word."""

    bank: Bank
    address: Net
    after: list[Store] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Store:
    """A word that is written where ``predicate`` holds. ``loads`` and ``stores`` come before and may concern the same
    word."""

    bank: Bank
    address: Net
    value: Net
    predicate: Net
    loads: list[Net] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Register:
    """A register keeps an integer between blocks."""

    name: str
    low: int
    high: int


@dataclass(slots=True, eq=False)
class Write:
    """A new value of a register."""

    register: Register
    value: Net


Item = Net | Store | Write


@dataclass(slots=True, eq=False)
class OperationBlock:
    """A block runs its ``items``, each after those before it that it needs."""

    items: list[Item] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Counter:
    """The counter of a loop, from ``low`` to ``last``, which are numbers or registers that hold them. ``empty`` holds
    whether a loop with registers has no iterations."""

    register: Register
    low: int | Register
    last: int | Register
    empty: Register | None = None


@dataclass(slots=True, eq=False)
class CircuitLoop:
    """A loop runs ``body`` for each value of its counter."""

    counter: Counter
    body: Sequence[Region]


@dataclass(slots=True, eq=False)
class Pipeline:
    """A pipeline starts ``block`` anew every ``interval`` cycles, or as often as possible where that is 0. It does so
    for all values of its counters, the last of which runs fastest."""

    counters: Sequence[Counter]
    block: OperationBlock
    interval: int
    name: str


@dataclass(slots=True, eq=False)
class Branch:
    """A branch runs one of two sequences, as a register says."""

    test: Register
    yes: Sequence[Region]
    no: Sequence[Region]


Region = OperationBlock | CircuitLoop | Pipeline | Branch
