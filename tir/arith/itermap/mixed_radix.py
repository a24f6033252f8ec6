"""This module defines numbers in a mixed radix, of which index maps consist (see :mod:`.iter_map`)."""

from __future__ import annotations

from dataclasses import dataclass

from ...expr import Expr, IntImm, Var


@dataclass(frozen=True, slots=True, eq=False)
class IterMark:
    """Represents a number in ``[0, extent)``: a loop variable minus its start, or a sum of digits."""

    source: Var | IterSum
    extent: Expr


@dataclass(frozen=True, slots=True, eq=False)
class IterSplit:
    """Represents a digit: ``mark // lower_factor % extent * scale``."""

    mark: IterMark
    lower_factor: Expr
    extent: Expr
    scale: Expr


@dataclass(frozen=True, slots=True, eq=False)
class IterSum:
    """Represents the sum of the digits ``args`` and of ``base``, which contains no loop variable."""

    args: tuple[IterSplit, ...]
    base: Expr


@dataclass(frozen=True, slots=True, eq=False)
class IterMap:
    """Represents an analyzed index map.

    Binding i is ``indices[i]``, which has one digit at most after joining; it takes ``extents[i]`` values from
    ``mins[i]`` on. ``errors`` are texts; there are none when the map is quasi-affine and surjective.
    """

    indices: tuple[IterSum, ...]
    errors: tuple[str, ...]
    injective: bool

    @property
    def surjective(self) -> bool:
        """Whether the values form a box in which every combination is reached."""
        return not self.errors

    @property
    def bijective(self) -> bool:
        """Whether each combination of values is reached by exactly one iteration."""
        return not self.errors and self.injective

    @property
    def extents(self) -> tuple[Expr, ...]:
        """How many values each binding takes."""
        return tuple([s.args[0].extent if s.args else IntImm(1, s.base.dtype) for s in self.indices])

    @property
    def mins(self) -> tuple[Expr, ...]:
        """The least value of each binding."""
        return tuple([s.base for s in self.indices])
