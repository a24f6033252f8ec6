"""Divides a block into stages of one cycle each, and adds long sums as trees. It also finds the interval at which a
pipeline may start stages anew.

The method is modulo scheduling (B. R. Rau, "Iterative modulo scheduling", MICRO 1994): items get the earliest stage that
their operands, the ports of memories and earlier accesses allow; where a word or a register is needed by a later iteration
before this one has written it, the reader is moved to a later stage and all is placed again.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from .blocks import Bank, Item, Load, Store, Write
from .nets import LEAVES, LinearNets, Net, Nets, first_meeting

# How long operations of a circuit take, in delays of an adder.

DELAYS: dict[str, float] = {
    **dict.fromkeys(("cut", "low_bits", "shifted_left", "shifted_right", "copy"), 0.0),
    **dict.fromkeys(("and", "not", "bits_and", "bits_or", "bits_xor"), 0.3),
    "select": 0.5,
    **dict.fromkeys(("add", "sub", "less", "equal"), 1.0),
    **dict.fromkeys(("move_left", "move_right"), 1.5),
    "mul": 3.0,
    **dict.fromkeys(("quotient", "remainder"), 12.0),
}
"""How long operations take, by the word of a net."""

LEVELS = 6.0
"""How many delays of an adder follow each other in a cycle; a longer operation has a cycle of its own."""

MEMORY_DELAY = 1.0
"""When a memory's word is there in its cycle."""


# Keeps what a block needs, and adds long sums as trees, to which what comes last is added last.

_LATE = 1e6


def live(items: list[Item]) -> list[Item]:
    """Returns the items that stores and new values of registers need."""
    wanted: set[Item] = set()
    for item in reversed(items):
        if isinstance(item, Net) and item not in wanted:
            continue
        wanted.add(item)
        wanted.update(operands(item))
    return [item for item in items if item in wanted]


def operands(item: Item) -> tuple[Net, ...]:
    """Returns the nets that an item reads."""
    if isinstance(item, Store):
        return item.address, item.value, item.predicate
    return (item.value,) if isinstance(item, Write) else item.args


def balanced(items: list[Item], nets: Nets) -> list[Item]:
    """Returns the items with sums of more than two terms as trees.

    Integers may be added in any order, also modulo a power of two. Terms that are there early are added first; a
    register, and a word that the block itself wrote in the iteration before, come last, so that the next iteration
    can begin early.
    """
    return _Balancing(items, nets).run()


class _Balancing:
    def __init__(self, items: list[Item], nets: Nets) -> None:
        self.items, self.nets = items, nets
        self.uses = Counter([net for item in items for net in operands(item)])
        self.user = {net: item for item in items for net in operands(item)}
        self.stored = {item.bank for item in items if isinstance(item, Store)}
        self.now: dict[Net, Net] = {}
        self.time: dict[Net, float] = {}
        self.out: list[Item] = []

    def run(self) -> list[Item]:
        inner: set[Net] = set()
        terms: dict[Net, list[Net]] = {}
        for item in reversed(self.items):
            if isinstance(item, Net) and item.op == "add" and item not in inner:
                terms[item], through = self.terms(item)
                inner |= through
        for item in self.items:
            if isinstance(item, Store):
                item.address, item.value, item.predicate = [self.mapped(net) for net in operands(item)]
                item.loads = [self.mapped(net) for net in item.loads]
                self.out.append(item)
            elif isinstance(item, Write):
                item.value = self.mapped(item.value)
                self.out.append(item)
            elif item not in inner:
                self.net(item, terms.get(item, []))
        return self.out

    def mapped(self, net: Net) -> Net:
        return self.now.get(net, net)

    def terms(self, root: Net) -> tuple[list[Net], set[Net]]:
        """Return the terms of a sum, and the partial sums that nothing else uses."""
        user = self.user.get(root)
        cut = isinstance(user, Net) and user.op == "cut" and self.uses[root] == 1
        bits = user.detail if cut else 1 << 30  # type: ignore[union-attr]
        found: list[Net] = []
        through: set[Net] = set()
        todo = list(root.args)
        while todo:
            net = todo.pop()
            sum_of = net.args[0] if net.op == "cut" and net.detail >= bits else net
            if sum_of.op == "add" and self.uses[net] == 1 and (sum_of is net or self.uses[sum_of] == 1):
                through |= {net, sum_of}
                todo += sum_of.args
            else:
                found.append(net)
        return found, through

    def net(self, net: Net, terms: list[Net]) -> None:
        """Add a net with its new operands."""
        if len(terms) > 2:
            heap = [(self.ready(self.mapped(t)), n, self.mapped(t)) for n, t in enumerate(reversed(terms))]
            heapq.heapify(heap)
            count = len(heap)
            while len(heap) > 1:
                (_, _, a), (_, _, b) = heapq.heappop(heap), heapq.heappop(heap)
                made = self.nets.fresh("add", (a, b), a.low + b.low, a.high + b.high)
                self.added(made)
                count += 1
                heapq.heappush(heap, (self.ready(made), count, made))
            self.now[net] = heap[0][2]
            return
        args = tuple([self.mapped(a) for a in net.args])
        if args != net.args:
            made = self.nets.fresh(net.op, args, net.low, net.high, net.detail)
            if net.op == "load":
                net.detail.address = args[0]
            self.now[net] = net = made
        self.added(net)

    def added(self, net: Net) -> None:
        self.out.append(net)
        start = max([self.ready(a) for a in net.args], default=0.0)
        late = _LATE if net.op == "load" and net.detail.bank in self.stored else 0.0
        self.time[net] = max(start + (LEVELS if net.op == "load" else DELAYS[net.op]), late)

    def ready(self, net: Net) -> float:
        if net.op in LEAVES and net.op != "load":
            return _LATE if net.op == "register" else 0.0
        return self.time.get(net, 0.0)


# Divides a block into stages of one cycle each. It also finds the interval at which a pipeline may start them anew.

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
