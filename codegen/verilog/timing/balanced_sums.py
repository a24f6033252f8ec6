"""Keeps what a block needs, and adds long sums as trees, to which what comes last is added last."""

from __future__ import annotations

import heapq
from collections import Counter

from ..circuit.blocks import Item, Store, Write
from ..circuit.nets import LEAVES, Net, Nets
from .delays import DELAYS, LEVELS

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
