"""Collects the blocks of a function while it is emitted: its registers, its loads and stores in their order."""

from __future__ import annotations

import re
from collections.abc import Callable

from .blocks import Block, Load, Region, Register, Store, Write
from .linear_nets import LinearNets
from .memories import Bank
from .nets import Net, Nets


class CircuitBuilder:
    """The circuit so far. ``regions`` is the sequence that is being built."""

    def __init__(self) -> None:
        self.nets = Nets()
        self.linear = LinearNets()
        self.regions: list[Region] = []
        self.registers: list[Register] = []
        self.predicates: list[Net] = []
        """The conditions around the statement, each of which contains those before it."""
        self.before_block_ends: list[Callable[[], None]] = []
        self._history: dict[Bank, list[Net | Store]] = {}
        self._words: dict[Net, Net] = {}
        """What a load found, with the stores before it that it need not wait for."""
        self._made_in: dict[Net, Block] = {}
        self._kept: dict[Net, Register] = {}
        self._block = Block()
        self._names: set[str] = set()

    # -- names and registers -----------------------------------------------------------------------------------------

    def fresh(self, hint: str) -> str:
        """Return a name that nothing else has."""
        base = "".join([ch if ch.isascii() and (ch.isalnum() or ch == "_") else "_" for ch in hint]) or "x"
        if not base[0].isalpha() or re.match(r"(net|block|copy)\d", base):
            base = f"x{base}"
        name, n = base, 1
        while name in self._names:
            name, n = f"{base}_{n}", n + 1
        self._names.add(name)
        return name

    def reserve(self, *names: str) -> None:
        """Take names."""
        self._names.update(names)

    def register(self, hint: str, low: int, high: int) -> Register:
        """Return a new register."""
        made = Register(self.fresh(hint), low, high)
        self.registers.append(made)
        return made

    def stable(self, register: Register) -> Net:
        """Return what a register holds that does not change while a block runs."""
        return self.nets.leaf("stable", register, register.low, register.high)

    # -- blocks ------------------------------------------------------------------------------------------------------

    def end_block(self) -> Block:
        """End the block, which becomes the next region of the sequence unless nothing is in it."""
        for end in self.before_block_ends:
            end()
        block = self._block
        block.items.extend(self.nets.new_block())
        for item in block.items:
            if isinstance(item, Net):
                self._made_in[item] = block
        if block.items:
            self.regions.append(block)
        self._block, self._history = Block(), {}
        return block

    def usable(self, net: Net) -> Net:
        """Return a net for use in this block; one of another block is kept in a register."""
        block = self._made_in.get(net)
        return net if block is None else self.stable(self.kept(net))

    def kept(self, net: Net) -> Register:
        """Return the register that keeps a net until blocks after its own."""
        found = self._kept.get(net)
        if found is None:
            found = self._kept[net] = self.register("kept", net.low, net.high)
            write = Write(found, net)
            block = self._made_in.get(net)
            (self.nets.made if block is None else block.items).append(write)
        return found

    def write(self, register: Register, value: Net) -> None:
        """Give a register its next value at the end of the block."""
        self.nets.made.append(Write(register, value))

    # -- memory ------------------------------------------------------------------------------------------------------

    def load(self, bank: Bank, address: Net) -> Net:
        """Return the word at an address. It comes from a store or a load before, where one is known to have it, or from
        the memory."""
        choices: list[tuple[Net, Net]] = []
        after: list[Store] = []
        found: Net | None = None
        for entry in reversed(self._history.get(bank, [])):
            same = self.linear.same(address, entry.detail.address if isinstance(entry, Net) else entry.address)
            if isinstance(entry, Store) and same is not False:
                if same is None or after:
                    after.append(entry)
                elif entry.predicate.value:
                    found = entry.value
                    break
                else:
                    choices.append((entry.predicate, entry.value))
            elif isinstance(entry, Net) and same and not after:
                found = self._words[entry]
                break
        loaded = None
        if found is None:
            found = loaded = self.nets.load(Load(bank, address, after), bank.low, bank.high)
            self._history.setdefault(bank, []).append(found)
        for predicate, value in reversed(choices):
            found = self.nets.select(predicate, value, found)
        if loaded is not None:
            self._words[loaded] = found
        return found

    def store(self, bank: Bank, address: Net, value: Net, predicate: Net) -> None:
        """Write a word where ``predicate`` holds. A store before to the same word, which nothing reads, is left out."""
        if predicate.value == 0:
            return
        history = self._history.setdefault(bank, [])
        made = Store(bank, address, value, predicate)
        later: list[Load] = []
        for entry in reversed(list(history)):
            if isinstance(entry, Net):
                later.append(entry.detail)
                if self.linear.same(address, entry.detail.address) is not False:
                    made.loads.append(entry)
                continue
            same = self.linear.same(address, entry.address)
            if same and not made.stores and not any([entry in load.after for load in later]):
                made.value = self.nets.select(made.predicate, made.value, entry.value)
                made.predicate = self.nets.either(made.predicate, entry.predicate)
                history.remove(entry)
                self.nets.made.remove(entry)
                made.loads += entry.loads
                made.stores += entry.stores
                break
            if same is not False:
                made.stores.append(entry)
        history.append(made)
        self.nets.made.append(made)
