"""Compares addresses: nets as sums of other nets with constant factors."""

from __future__ import annotations

from collections.abc import Sequence

from .nets import Net

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
