"""Integers in hardware: a net is an exact integer between two ends, and has as many wires as these need.

Arithmetic on nets never overflows, as index arithmetic of programs; data of a type is cut to it by :meth:`Nets.cut`,
where its ends leave the type. The maker folds constants, decides comparisons that the ends decide, and makes equal nets
once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from ..tir.expr import DType, max_value, min_value

LEAVES = frozenset(("const", "stable", "register", "counter", "load"))
"""The nets without a circuit of their own: constants, registers (those that may change while a block runs, those that do
not, the counters of a pipeline), and what memories return."""


@dataclass(frozen=True, slots=True, eq=False)
class Net:
    """A net is the result of ``op`` on other nets, an integer from ``low`` to ``high``. ``detail`` is what ``op`` needs
    besides: a number of bits, a type, the name of a register, a load."""

    op: str
    args: tuple[Net, ...]
    low: int
    high: int
    detail: Any
    number: int

    @property
    def name(self) -> str:
        """The name of the wires."""
        return f"net{self.number}"

    @property
    def signed(self) -> bool:
        """Returns whether the number is in two's complement."""
        return self.low < 0

    @property
    def width(self) -> int:
        """The number of wires."""
        return width_of(self.low, self.high)

    @property
    def value(self) -> int | None:
        """The number that a constant is."""
        return self.low if self.op == "const" else None


def width_of(low: int, high: int) -> int:
    """Returns the bits that integers from ``low`` to ``high`` need.

    >>> width_of(0, 0), width_of(0, 255), width_of(-128, 127), width_of(-1, 200)
    (1, 8, 8, 9)
    """
    if low >= 0:
        return max(1, high.bit_length())
    return max((~low).bit_length(), high.bit_length() if high > 0 else 0) + 1


def ends_of(dtype: DType) -> tuple[int, int]:
    """Returns the least and the greatest value of an integer type, or of bool."""
    return (0, 1) if dtype.is_bool else (int(min_value(dtype)), int(max_value(dtype)))


def _quotient(a: int, b: int) -> int:
    q = abs(a) // abs(b) if b else 0
    return q if (a < 0) == (b < 0) else -q


FOLDS: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "quotient": _quotient,
    "remainder": lambda a, b: a - _quotient(a, b) * b if b else 0,
    "less": lambda a, b: int(a < b),
    "equal": lambda a, b: int(a == b),
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "not": lambda a: 1 - a,
    "select": lambda c, a, b: a if c else b,
}
"""What operations on constants are."""


class Nets:
    """A maker of nets. Registers and constants exist once; the others once in each block (:meth:`new_block`)."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._kept: dict[Any, Net] = {}
        self._known: dict[Any, Net] = {}
        self.made: list[Any] = []
        """The nets of this block in the order in which they were made; writers add their effects."""

    def new_block(self) -> list[Any]:
        """Begin a block, and return what was made in the last one."""
        made, self.made, self._known = self.made, [], {}
        return made

    def const(self, value: int) -> Net:
        """Return a constant."""
        return self.leaf("const", None, value, value)

    def leaf(self, op: str, detail: Any, low: int, high: int) -> Net:
        """Return a net that blocks share: a constant or a register."""
        key = (op, detail, low, high)
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = Net(op, (), low, high, detail, next(self._numbers))
        return found

    def load(self, detail: Any, low: int, high: int) -> Net:
        """Return what an access to memory returns, anew in each call."""
        net = Net("load", (detail.address,), low, high, detail, next(self._numbers))
        self.made.append(net)
        return net

    def fresh(self, op: str, args: tuple[Net, ...], low: int, high: int, detail: Any = None) -> Net:
        """Return a net that stands in no list yet."""
        return Net(op, args, low, high, detail, next(self._numbers))

    def make(self, op: str, args: tuple[Net, ...], low: int, high: int, detail: Any = None) -> Net:
        """Return the net of an operation. Constants are folded, and so is what has one value only."""
        fold = FOLDS.get(op)
        if fold is not None and all([a.op == "const" for a in args]):
            return self.const(fold(*[a.low for a in args]))
        if low == high:
            return self.const(low)
        key = (op, tuple([a.number for a in args]), low, high, detail)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Net(op, args, low, high, detail, next(self._numbers))
            self.made.append(found)
        return found

    # -- exact arithmetic --------------------------------------------------------------------------------------------

    def add(self, a: Net, b: Net) -> Net:
        """Return a + b."""
        if b.value == 0:
            return a
        return b if a.value == 0 else self.make("add", (a, b), a.low + b.low, a.high + b.high)

    def sub(self, a: Net, b: Net) -> Net:
        """Return a - b."""
        return a if b.value == 0 else self.make("sub", (a, b), a.low - b.high, a.high - b.low)

    def mul(self, a: Net, b: Net) -> Net:
        """Return a * b; by powers of two it is wires only."""
        if a.value is not None:
            a, b = b, a
        factor = b.value
        if factor == 1:
            return a
        if factor is not None and factor > 0 and factor & (factor - 1) == 0:
            return self.make("shifted_left", (a,), a.low * factor, a.high * factor, factor.bit_length() - 1)
        ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
        return self.make("mul", (a, b), min(ends), max(ends))

    def truncdiv(self, a: Net, b: Net) -> Net:
        """Return the quotient rounded to zero; by zero it is 0."""
        reach = max(abs(a.low), abs(a.high))
        return self.make("quotient", (a, b), -reach if a.signed or b.signed else 0, reach)

    def truncmod(self, a: Net, b: Net) -> Net:
        """Return the remainder with the sign of ``a``; by zero it is 0."""
        reach = min(max(abs(b.low), abs(b.high)) - 1, max(abs(a.low), abs(a.high)))
        return self.make("remainder", (a, b), -max(reach, 0) if a.signed else 0, max(reach, 0))

    def floordiv(self, a: Net, b: Net) -> Net:
        """Return the quotient rounded down; by zero it is 0. Powers of two are wires only."""
        divisor = b.value
        if divisor is not None and a.value is not None:
            return self.const(a.value // divisor if divisor else 0)
        if divisor is not None and divisor > 0 and divisor & (divisor - 1) == 0:
            return self.shifted_right(a, divisor.bit_length() - 1)
        quotient = self.truncdiv(a, b)
        if not a.signed and not b.signed:
            return quotient
        return self.select(self._rounds(a, b), self.sub(quotient, self.const(1)), quotient)

    def floormod(self, a: Net, b: Net) -> Net:
        """Return the remainder with the sign of ``b``; by zero it is 0."""
        divisor = b.value
        if divisor is not None and a.value is not None:
            return self.const(a.value % divisor if divisor else 0)
        if divisor is not None and divisor > 0 and divisor & (divisor - 1) == 0:
            if 0 <= a.low and a.high < divisor:
                return a
            return self.make("low_bits", (a,), 0, divisor - 1, divisor.bit_length() - 1)
        remainder = self.truncmod(a, b)
        if not a.signed and not b.signed:
            return remainder
        low, high = min(b.low + 1, 0), max(b.high - 1, 0)
        chosen = self.select(self._rounds(a, b), self.add(remainder, b), remainder)
        return self.narrowed(chosen, low, high)

    def _rounds(self, a: Net, b: Net) -> Net:
        """Return whether a division that rounds down differs from one that rounds to zero."""
        zero = self.const(0)
        rest = self.no(self.equal(self.truncmod(a, b), zero))
        return self.both(rest, self.no(self.equal(self.less(a, zero), self.less(b, zero))))

    def narrowed(self, a: Net, low: int, high: int) -> Net:
        """Return ``a``, of which more is known: it is from ``low`` to ``high``."""
        low, high = max(low, a.low), min(high, a.high)
        return a if (low, high) == (a.low, a.high) else self.make("cut", (a,), low, high, width_of(low, high))

    def minimum(self, a: Net, b: Net) -> Net:
        """Return the smaller of two."""
        return self.narrowed(self.select(self.less(a, b), a, b), -(1 << 99), min(a.high, b.high))

    def maximum(self, a: Net, b: Net) -> Net:
        """Return the larger of two."""
        return self.narrowed(self.select(self.less(a, b), b, a), max(a.low, b.low), 1 << 99)

    # -- truth -------------------------------------------------------------------------------------------------------

    def less(self, a: Net, b: Net) -> Net:
        """Return whether a < b."""
        if a.high < b.low or a.low >= b.high:
            return self.const(int(a.high < b.low))
        return self.make("less", (a, b), 0, 1)

    def equal(self, a: Net, b: Net) -> Net:
        """Return whether a == b."""
        if a is b or a.high < b.low or a.low > b.high:
            return self.const(int(a is b))
        if a.value is not None and b.value is not None:
            return self.const(int(a.value == b.value))
        return self.make("equal", (a, b), 0, 1)

    def no(self, a: Net) -> Net:
        """Return whether ``a`` is 0; it is a truth value."""
        return a.args[0] if a.op == "not" else self.make("not", (a,), 0, 1)

    def both(self, a: Net, b: Net) -> Net:
        """Return a and b, two truth values."""
        if a.value is not None:
            a, b = b, a
        if b.value is not None or a is b:
            return a if a is b or b.value else b
        return self.make("and", (a, b), 0, 1)

    def either(self, a: Net, b: Net) -> Net:
        """Return a or b, two truth values."""
        return self.no(self.both(self.no(a), self.no(b)))

    def select(self, test: Net, yes: Net, no: Net) -> Net:
        """Return one of two."""
        if test.value is not None or yes is no:
            return yes if test.value or yes is no else no
        if (yes.value, no.value) == (1, 0):
            return test
        return self.make("select", (test, yes, no), min(yes.low, no.low), max(yes.high, no.high))

    # -- bits --------------------------------------------------------------------------------------------------------

    def cut(self, a: Net, dtype: DType) -> Net:
        """Return ``a`` as a value of ``dtype``: the lowest bits, where it does not fit."""
        low, high = ends_of(dtype)
        if low <= a.low and a.high <= high:
            return a
        if a.value is not None:
            rest = a.value & ((1 << dtype.bits) - 1)
            return self.const(rest - (1 << dtype.bits) if rest > high else rest)
        while a.op == "cut" and a.detail >= dtype.bits:  # the lowest bits are the same
            a = a.args[0]
        return self.make("cut", (a,), low, high, dtype.bits)

    def shifted_right(self, a: Net, bits: int) -> Net:
        """Return a // 2**bits."""
        if a.value is not None:
            return self.const(a.value >> bits)
        return a if bits == 0 else self.make("shifted_right", (a,), a.low >> bits, a.high >> bits, bits)

    def moved(self, a: Net, n: Net, dtype: DType, left: bool) -> Net:
        """Return a shift of a value of ``dtype``. A distance that the type does not have gives 0, or -1 for negative
        numbers shifted to the right."""
        bits, (low, high) = dtype.bits, ends_of(dtype)
        sign = self.select(self.less(a, self.const(0)), self.const(-1), self.const(0))
        beyond = self.const(0) if left else sign
        if n.value is not None:
            if not 0 <= n.value < bits:
                return beyond
            return self.cut(self.mul(a, self.const(1 << n.value)), dtype) if left else self.shifted_right(a, n.value)
        inside = self.both(self.no(self.less(n, self.const(0))), self.less(n, self.const(bits)))
        distance = self.make("low_bits", (n,), 0, (1 << bits.bit_length()) - 1, bits.bit_length())
        if left:
            return self.select(inside, self.make("move_left", (a, distance), low, high, bits), beyond)
        return self.select(inside, self.make("move_right", (a, distance), min(a.low, 0), max(a.high, 0)), beyond)

    def bitwise(self, op: str, a: Net, b: Net, dtype: DType) -> Net:
        """Return ``and``, ``or`` or ``xor`` of the bits of two values of ``dtype``."""
        low, high = ends_of(dtype)
        if not a.signed and not b.signed:
            low, high = 0, (1 << max(a.width, b.width)) - 1
        if op == "and":
            tops = [x.high for x in (a, b) if not x.signed]
            low, high = (0, min(tops)) if tops else (low, high)
        if a.value is not None and b.value is not None:
            folded = {"and": a.value & b.value, "or": a.value | b.value, "xor": a.value ^ b.value}[op]
            return self.cut(self.const(folded), dtype)
        return self.make(f"bits_{op}", (a, b), low, high)

    def bit(self, a: Net, index: int) -> Net:
        """Return one bit of the number in two's complement."""
        return self.floormod(self.shifted_right(a, index), self.const(2))


# Compares addresses: nets as sums of other nets with constant factors.

Linear = tuple[dict[Net, int], int]
"""Factors by net, and a constant."""


class LinearNets:
    """A memo of nets as linear sums."""

    def __init__(self) -> None:
        self._known: dict[Net, Linear] = {}

    def of(self, net: Net) -> Linear:
        """Return a net as a sum."""
        found = self._known.get(net)
        if found is None:
            found = self._known[net] = self._of(net)
        return found

    def _of(self, net: Net) -> Linear:
        if net.value is not None:
            return {}, net.value
        if net.op in ("add", "sub"):
            return combined(self.of(net.args[0]), self.of(net.args[1]), 1 if net.op == "add" else -1)
        if net.op == "shifted_left":
            return combined(({}, 0), self.of(net.args[0]), 1 << net.detail)
        if net.op == "mul" and net.args[1].value is not None:
            return combined(({}, 0), self.of(net.args[0]), net.args[1].value)
        return {net: 1}, 0

    def same(self, a: Net, b: Net) -> bool | None:
        """Return whether two addresses are equal, or None where this is not known."""
        if a is b:
            return True
        terms, rest = combined(self.of(a), self.of(b), -1)
        if not terms:
            return rest == 0
        low, high = ends((terms, rest))
        return False if low > 0 or high < 0 else None


def combined(a: Linear, b: Linear, factor: int) -> Linear:
    """Returns a + factor * b."""
    terms = dict(a[0])
    for net, times in b[0].items():
        terms[net] = terms.get(net, 0) + factor * times
    return {net: times for net, times in terms.items() if times}, a[1] + factor * b[1]


def ends(a: Linear) -> tuple[int, int]:
    """Returns the least and the greatest value of a sum."""
    low = high = a[1]
    for net, times in a[0].items():
        low += times * (net.low if times > 0 else net.high)
        high += times * (net.high if times > 0 else net.low)
    return low, high


def first_meeting(linear: LinearNets, a: Net, b: Net, counters: Sequence[Net], extents: Sequence[int]) -> int | None:
    """Returns the least number of iterations of a nest, from 1, after which ``b`` may have the value of ``a``.

    None: never, as far as 64 iterations. ``counters`` run over ``extents``, the last one fastest. Both addresses run over
    the nest at the same time; parts that do not depend on the counters do not change.
    """
    mine, other = linear.of(a), linear.of(b)
    moving = {net for terms in (mine[0], other[0]) for net in terms if _moves(net)}
    gap = combined(mine, other, -1)
    if not moving <= set(counters) or any([net not in moving for net in gap[0]]):
        low, high = _gap_ends(mine, other)
        return None if low > 0 or high < 0 else 1
    if gap[0]:  # the counters have other factors in the other address
        low, high = _gap_ends(mine, other)
        return None if low > 0 or high < 0 else 1
    factors = [other[0].get(net, 0) for net in counters]
    total = 1
    for extent in extents:
        total *= extent
    for distance in range(1, min(64, total - 1) + 1):
        if gap[1] in _reached(distance, factors, extents):
            return distance
    return None


def _moves(net: Net) -> bool:
    """Returns whether a net may differ between iterations."""
    return net.op not in ("const", "stable") and (
        net.op in ("counter", "load", "register") or any(map(_moves, net.args))
    )


def _gap_ends(a: Linear, b: Linear) -> tuple[int, int]:
    """Returns the ends of a - b in different iterations; only what stays the same cancels."""
    fixed = combined(
        ({net: times for net, times in a[0].items() if not _moves(net)}, a[1]),
        ({net: times for net, times in b[0].items() if not _moves(net)}, b[1]), -1,
    )  # fmt: skip
    low, high = ends(fixed)
    for terms, sign in ((a[0], 1), (b[0], -1)):
        one, two = ends(({net: sign * times for net, times in terms.items() if _moves(net)}, 0))
        low, high = low + one, high + two
    return low, high


def _reached(distance: int, factors: Sequence[int], extents: Sequence[int]) -> set[int]:
    """Returns by how much a linear address can change in so many iterations of a nest."""
    found = {(0, 0)}  # the change so far, and the carry into the next counter
    for place, (factor, extent) in enumerate(reversed(list(zip(factors, extents, strict=True)))):
        weight = 1
        for inner in list(reversed(extents))[:place]:
            weight *= inner
        digit = distance // weight if place == len(extents) - 1 else distance // weight % extent
        after = set()
        for change, carry in found:
            step = digit + carry
            if step < extent:
                after.add((change + factor * step, 0))
            if step and place < len(extents) - 1:
                after.add((change + factor * (step - extent), 1))
        found = after
    return {change for change, carry in found if carry == 0}
