"""Divides a block into stages of one cycle each. It also finds the interval at which a pipeline may start them anew.

The method is modulo scheduling (B. R. Rau, "Iterative modulo scheduling", MICRO 1994): items get the earliest stage that
their operands, the ports of memories and earlier accesses allow; where a word or a register is needed by a later iteration
before this one has written it, the reader is moved to a later stage and all is placed again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..circuit.blocks import Item, Load, Store, Write
from ..circuit.linear_nets import LinearNets, first_meeting
from ..circuit.memories import Bank
from ..circuit.nets import LEAVES, Net
from .balanced_sums import operands
from .delays import DELAYS, LEVELS, MEMORY_DELAY

_ROUNDS = 12


@dataclass(frozen=True, slots=True)
class Carried:
    """``later`` of an iteration ``distance`` later is at least ``cycles`` cycles after ``first`` of this one."""

    first: Item
    later: Item
    cycles: int
    distance: int


@dataclass(slots=True, eq=False)
class Stages:
    """The stages of a block. ``at`` is when an item runs, ``ready`` when a net can be used: loads are ready a stage
    later. A stage is started anew every ``interval`` cycles."""

    items: list[Item]
    interval: int
    at: dict[Item, int] = field(default_factory=dict)
    ready: dict[Net, int] = field(default_factory=dict)
    last: dict[Net, int] = field(default_factory=dict)

    @property
    def depth(self) -> int:
        """The number of stages."""
        return max(self.at.values(), default=-1) + 1

    def copies(self, net: Net) -> int:
        """Return how many registers keep a net, one after the other, until its last use."""
        return -(-(self.last.get(net, 0) - self.ready[net]) // self.interval) if net in self.ready else 0


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What stands in the way of an interval, as a clause."""

    text: str


def placed(items: list[Item], interval: int = 0, carried: Sequence[Carried] = ()) -> Stages | Obstacle:
    """Returns the stages of a block; with an ``interval``, as those of a pipeline. An interval of 0 stands for a block
    that ends before it starts anew."""
    least: dict[Item, int] = {}
    because = ""
    for _ in range(_ROUNDS):
        made = _Placing(items, interval, least).run()
        if isinstance(made, Obstacle):
            return made
        broken = [c for c in (*carried, *_of_registers(made)) if interval and _slack(made, c) < 0]
        if not broken:
            made.interval = interval or max(made.depth, 1)
            return made
        because = _because(broken[0], made)
        for c in broken:
            wanted = made.at[c.first] + c.cycles - c.distance * interval
            movers = (
                [c.later] if c.later in made.at and not _is_register(c.later) else _users(items, c.later, made, wanted)
            )
            for mover in movers:
                least[mover] = max(least.get(mover, 0), wanted)
    return Obstacle(because)


def _slack(made: Stages, c: Carried) -> int:
    return made.at[c.later] + c.distance * made.interval - made.at[c.first] - c.cycles


def _is_register(item: Item) -> bool:
    return isinstance(item, Net) and item.op == "register"


def _users(items: list[Item], net: Item, made: Stages, wanted: int) -> list[Item]:
    return [item for item in items if net in operands(item) and made.at[item] < wanted and not isinstance(item, Write)]


def _because(c: Carried, made: Stages) -> str:
    if isinstance(c.first, Write):
        return f"the register {c.first.register.name} has its next value {made.at[c.first] + 1 - made.at[c.later]} cycles after it is read"
    name = c.first.bank.name if isinstance(c.first, Store) else c.first.detail.bank.name  # type: ignore[union-attr]
    span = made.at[c.first] + c.cycles - made.at[c.later]
    when = "the next iteration" if c.distance == 1 else f"the iteration {c.distance} later"
    return f"{when} may need the word of {name} that this one writes {span} cycles after reading"


def _of_registers(made: Stages) -> list[Carried]:
    """Returns the registers that the next iteration reads after this one has written them."""
    return [
        Carried(item, net, 1, 1)
        for item in made.items if isinstance(item, Write)
        for net in made.at if isinstance(net, Net) and net.op == "register" and net.detail is item.register
    ]  # fmt: skip


def carried_by(items: list[Item], counters: Sequence[Net], extents: Sequence[int], linear: LinearNets) -> list[Carried]:
    """Returns what iterations of a pipeline need of earlier ones in memory."""
    accesses: dict[Bank, list[Item]] = defaultdict(list)
    for item in items:
        if isinstance(item, Store):
            accesses[item.bank].append(item)
        elif isinstance(item, Net) and item.op == "load":
            accesses[item.detail.bank].append(item)
    found = []
    for group in accesses.values():
        stores = [item for item in group if isinstance(item, Store)]
        for store in stores:
            for other in group:
                address = other.address if isinstance(other, Store) else other.args[0]  # type: ignore[union-attr]
                after = first_meeting(linear, store.address, address, counters, extents)
                if after is not None:
                    found.append(Carried(store, other, 1, after))
                before = None if other in stores else first_meeting(linear, address, store.address, counters, extents)
                if before is not None:
                    found.append(Carried(other, store, 0, before))
    return found


class _Placing:
    """One round: every item at its earliest stage."""

    def __init__(self, items: list[Item], interval: int, least: dict[Item, int]) -> None:
        self.items, self.interval, self.least = items, interval, least
        self.made = Stages(items, interval)
        self.level: dict[Net, float] = {}
        self.taken: set[tuple[Bank, bool, int]] = set()

    def run(self) -> Stages | Obstacle:
        for item in self.items:
            stage, level = self.start(item)
            if isinstance(item, Net) and item.op != "load":
                delay = DELAYS[item.op]
                if level > 0 and level + delay > LEVELS:
                    stage, level = stage + 1, 0.0
                self.made.at[item] = self.made.ready[item] = stage
                self.level[item] = level + delay
            elif isinstance(item, Write):
                self.made.at[item] = stage
            else:
                bank = item.bank if isinstance(item, Store) else item.detail.bank
                free = self.free(bank, isinstance(item, Store), stage)
                if free is None:
                    return Obstacle(self.crowded(bank, isinstance(item, Store)))
                self.made.at[item] = stage = free
                if isinstance(item, Net):
                    self.made.ready[item], self.level[item] = stage + 1, MEMORY_DELAY
            self.use(item, stage)
        return self.made

    def start(self, item: Item) -> tuple[int, float]:
        """Return the first stage in which an item may run, and when in it its operands are there."""
        at = (self.least.get(item, 0), 0.0)
        for net in operands(item):
            if net.op in LEAVES and net.op != "load":
                seen = (self.made.at.get(net, 0), 0.0) if isinstance(item, Write) else (0, 0.0)
            else:
                seen = (self.made.ready[net], self.level[net])
            at = max(at, seen)
        if isinstance(item, Write):
            at = max(at, *[(n, 0.0) for net, n in self.made.at.items() if isinstance(net, Net)
                           and net.op == "register" and net.detail is item.register], at)  # fmt: skip
        if isinstance(item, Net):
            earlier = item.detail.after if isinstance(item.detail, Load) else ()
            after = [self.made.at[store] + 1 for store in earlier]
        elif isinstance(item, Store):
            after = [self.made.at[store] + 1 for store in item.stores]
            after += [self.made.at[net] for net in item.loads if net in self.made.at]
        else:
            after = []
        return max(at, *[(n, 0.0) for n in after], at)

    def free(self, bank: Bank, writes: bool, stage: int) -> int | None:
        """Return the first stage from ``stage`` on in which a port is free."""
        for n in range(stage, stage + (self.interval or len(self.items) + 1)):
            slot = n % self.interval if self.interval else n
            if (bank, writes, slot) not in self.taken:
                self.taken.add((bank, writes, slot))
                return n
        return None

    def crowded(self, bank: Bank, writes: bool) -> str:
        count = len([1 for item in self.items if writes and isinstance(item, Store) and item.bank is bank])
        count += len([1 for item in self.items if not writes and isinstance(item, Net) and item.op == "load"
                      and item.detail.bank is bank])  # fmt: skip
        return (
            f"{count} words of {bank.name} are {'written' if writes else 'read'} in an iteration, and it has one port "
            f"for that; {'pragma_array_partition divides it' if count > 1 else ''}"
        )

    def use(self, item: Item, stage: int) -> None:
        """Note when the operands of an item are used. Counters are there in the first stage, registers when they are
        first read."""
        for net in operands(item):
            if net.op == "counter":
                self.made.at[net] = self.made.ready[net] = 0
            elif net.op == "register" and net not in self.made.at:
                self.made.at[net] = self.made.ready[net] = stage
            elif net.op == "register":
                self.made.at[net] = self.made.ready[net] = min(stage, self.made.at[net])
            elif net.op in ("const", "stable"):
                continue
            self.made.last[net] = max(self.made.last.get(net, 0), stage)
