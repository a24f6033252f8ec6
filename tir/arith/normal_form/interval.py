"""This module defines intervals of integers, of which an end may be unknown."""

from __future__ import annotations

from typing import NamedTuple

from ...expr import max_value, min_value


class Interval(NamedTuple):
    """Represents the integers from ``lo`` to ``hi``, both included; an end of None is unknown.

    The results of arithmetic contain every value that the operation may have for values of its operands.

    >>> Interval(-3, 5).times(Interval(2, 4)), Interval(None, 7).divided(Interval(2, 2))
    (Interval(lo=-12, hi=20), Interval(lo=None, hi=3))
    """

    lo: int | None
    hi: int | None

    def negated(self) -> Interval:
        """Return the interval of ``-x``."""
        return Interval(None if self.hi is None else -self.hi, None if self.lo is None else -self.lo)

    def plus(self, other: Interval) -> Interval:
        """Return the interval of ``x + y``."""
        return Interval(
            None if self.lo is None or other.lo is None else self.lo + other.lo,
            None if self.hi is None or other.hi is None else self.hi + other.hi,
        )

    def minus(self, other: Interval) -> Interval:
        """Return the interval of ``x - y``."""
        return self.plus(other.negated())

    def times(self, other: Interval) -> Interval:
        """Return the interval of ``x * y``."""
        (alo, ahi), (blo, bhi) = self, other
        if alo is not None and ahi is not None and blo is not None and bhi is not None:
            products = (alo * blo, alo * bhi, ahi * blo, ahi * bhi)
            return Interval(min(products), max(products))
        if ahi is not None and ahi < 0:
            return self.negated().times(other).negated()
        if bhi is not None and bhi < 0:
            return self.times(other.negated()).negated()
        if alo is None or blo is None or alo < 0 or blo < 0:
            return EVERYTHING
        return Interval(alo * blo, None if ahi is None or bhi is None else ahi * bhi)

    def divided(self, other: Interval) -> Interval:
        """Return the interval of ``x // y``, which rounds down; unknown unless all divisors are positive."""
        (lo, hi), (least, most) = self, other
        if least is None or least < 1 or (most is not None and most < least):  # no divisors: the code never runs
            return EVERYTHING
        if lo is not None:
            lo = lo // least if lo < 0 else 0 if most is None else lo // most
        if hi is not None:
            hi = hi // least if hi >= 0 else -1 if most is None else hi // most
        return Interval(lo, hi)

    def remainder(self, other: Interval) -> Interval:
        """Return the interval of ``x % y`` where the quotient is rounded down; unknown unless all divisors are
        positive."""
        (lo, hi), (least, most) = self, other
        if least is None or least < 1:
            return EVERYTHING
        if lo is None or lo < 0 or hi is None:
            return Interval(0, None if most is None else most - 1)
        if hi < least:
            return self
        return Interval(0, hi if most is None else min(hi, most - 1))

    def truncated(self, other: Interval) -> Interval:
        """Return the interval of the quotient rounded towards zero, whose magnitude is at most that of the dividend."""
        (lo, hi), (least, most) = self, other
        if least is None or least < 1:
            return self._mirrored()
        if lo is not None:
            lo = -(-lo // least) if lo < 0 else 0 if most is None else lo // most
        if hi is not None:
            hi = hi // least if hi >= 0 else 0 if most is None else -(-hi // most)
        return Interval(lo, hi)

    def truncated_remainder(self, other: Interval) -> Interval:
        """Return the interval of the remainder of that quotient, which has the sign of the dividend."""
        (lo, hi), (least, most) = self, other
        below = None if least is None or most is None else max(abs(least), abs(most), 1) - 1
        lo = 0 if lo is not None and lo >= 0 else lo if below is None else -below if lo is None else max(lo, -below)
        hi = 0 if hi is not None and hi <= 0 else hi if below is None else below if hi is None else min(hi, below)
        return Interval(lo, hi)

    def _mirrored(self) -> Interval:
        """Return the smallest interval around zero that has these numbers."""
        if self.lo is None or self.hi is None:
            return EVERYTHING
        most = max(abs(self.lo), abs(self.hi))
        return Interval(-most, most)

    def minimum(self, other: Interval) -> Interval:
        """Return the interval of ``min(x, y)``."""
        return Interval(
            None if self.lo is None or other.lo is None else min(self.lo, other.lo),
            other.hi if self.hi is None else self.hi if other.hi is None else min(self.hi, other.hi),
        )

    def maximum(self, other: Interval) -> Interval:
        """Return the interval of ``max(x, y)``."""
        return self.negated().minimum(other.negated()).negated()

    def union(self, other: Interval) -> Interval:
        """Return the least interval that contains both."""
        return Interval(
            None if self.lo is None or other.lo is None else min(self.lo, other.lo),
            None if self.hi is None or other.hi is None else max(self.hi, other.hi),
        )

    def meet(self, other: Interval) -> Interval:
        """Return the values that lie in both."""
        return Interval(
            other.lo if self.lo is None else self.lo if other.lo is None else max(self.lo, other.lo),
            other.hi if self.hi is None else self.hi if other.hi is None else min(self.hi, other.hi),
        )

    def fits(self, dtype: str) -> bool:
        """Return whether both ends are known and values of the integer type ``dtype``."""
        return (
            self.lo is not None and self.hi is not None and min_value(dtype) <= self.lo and self.hi <= max_value(dtype)
        )

    def unless_wrapped(self, dtype: str) -> Interval:
        """Return the interval where the type ``dtype`` holds all of it, else an unknown one: its values may wrap."""
        return self if self.fits(dtype) else EVERYTHING


EVERYTHING = Interval(None, None)


def interval_of(dtype: str) -> Interval:
    """Return the values of an integer type."""
    return Interval(int(min_value(dtype)), int(max_value(dtype)))
