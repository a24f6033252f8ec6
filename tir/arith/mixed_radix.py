"""Numbers written in a mixed radix: what an index map is made of (see :mod:`.iter_map`)."""

from __future__ import annotations

from dataclasses import dataclass

from ..expr import Expr, IntImm, Var


@dataclass(frozen=True, slots=True, eq=False)
class IterMark:
    """A number in ``[0, extent)``: a loop variable less its start, or a sum of digits."""

    source: Var | IterSum
    extent: Expr


@dataclass(frozen=True, slots=True, eq=False)
class IterSplit:
    """``mark // lower_factor % extent * scale``"""

    mark: IterMark
    lower_factor: Expr
    extent: Expr
    scale: Expr


@dataclass(frozen=True, slots=True, eq=False)
class IterSum:
    """The digits ``args`` added up, and ``base``, which has no loop variable in it."""

    args: tuple[IterSplit, ...]
    base: Expr


@dataclass(frozen=True, slots=True, eq=False)
class IterMap:
    """What was found: each binding as ``indices[i]`` (one digit at most, after putting digits together), the number of
    its values ``extents[i]`` from ``mins[i]`` on, and ``errors`` in words, empty when the map is quasi-affine and
    surjective."""

    indices: tuple[IterSum, ...]
    errors: tuple[str, ...]
    injective: bool

    @property
    def surjective(self) -> bool:
        """Whether the values form a full box."""
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
