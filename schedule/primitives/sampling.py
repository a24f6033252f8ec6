"""This module defines the sampling primitives: random tile sizes and choices, which a search may change.

Each returns its decision, which the trace keeps, and its outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import comb, prod
from typing import Any

import numpy as np

from ...tir.analysis.tree import tree_of
from ...tir.expr import IntImm, Var
from ...tir.stmt import For, PrimFunc
from ..errors import ScheduleError, bad_argument
from ..primitive import primitive
from ..require.block_preconditions import find_loop


@primitive(kind="sample")
def sample_perfect_tile(
    func: PrimFunc,
    loop: Var,
    n: int,
    max_innermost_factor: int = 16,
    decision: Sequence[int] | None = None,
    *,
    rng: np.random.Generator,
) -> tuple[list[int], list[Any]]:
    """Factor a loop's extent into ``n`` tile sizes whose product is the extent.

    The innermost size is at most ``max_innermost_factor``; all such factorizations are equally likely.

    Returns ``n`` numbers for :meth:`split`, outermost first. ``decision`` fixes them. A loop whose extent is not a constant
    is not tiled: as in TVM the decision is ``[-1, 1, ..., 1]``; the sizes are None, which leaves it to :meth:`split`, and
    ones.

        v0, v1 = sch.sample_perfect_tile(i, n=2)      # extent 12: one of [12, 1], [6, 2], [4, 3], [3, 4], [2, 6], [1, 12]
        i0, i1 = sch.split(i, [v0, v1])
    """
    target = _checked(func, loop, n, max_innermost_factor)
    if not isinstance(target.extent, IntImm):
        return _undivided(target, n, decision)
    extent = _constant_extent(target)
    if decision is not None:
        sizes = _as_sizes(target, n, decision)
        if prod(sizes) != extent:
            raise ScheduleError(
                f"the decision {sizes} makes {prod(sizes)} iterations, loop {loop.name} has {extent}",
                where=target,
                hint="the product of the sizes has to be the extent",
            )
    else:
        sizes = _draw_factorization(extent, n, max_innermost_factor, rng)
    return sizes, list(sizes)


@primitive(kind="sample")
def sample_partitioned_tile(
    func: PrimFunc,
    loop: Var,
    n: int,
    partition_pos: int = 0,
    innerpart_factor: int = 1,
    decision: Sequence[int] | None = None,
    *,
    rng: np.random.Generator,
) -> tuple[list[int], list[Any]]:
    """Factor a loop's extent into ``n`` tile sizes of which the inner ones have a product divisible by
    ``innerpart_factor``.

    The inner sizes are those from ``partition_pos`` on.

    Returns ``n`` numbers for :meth:`split`, outermost first: a factorization of the quotient, spread over all of them,
    and one of ``innerpart_factor`` over the inner ones. ``decision`` fixes them. A loop whose extent is not a constant is
    not tiled, as by :func:`sample_perfect_tile`; ``innerpart_factor`` then has to be 1.

        v0, v1, v2 = sch.sample_partitioned_tile(i, n=3, partition_pos=1, innerpart_factor=8)      # v1 * v2 == 8 * m
    """
    target = _checked(func, loop, n, 1)
    if not 0 <= partition_pos < n or innerpart_factor < 1:
        raise ScheduleError(
            f"partition_pos {partition_pos} with innerpart_factor {innerpart_factor} does not part {n} tile sizes",
            where=target,
            hint="partition_pos is a position among the sizes, innerpart_factor at least 1",
        )
    if not isinstance(target.extent, IntImm) and innerpart_factor == 1:
        return _undivided(target, n, decision)
    extent = _constant_extent(target)
    if extent % innerpart_factor:
        raise ScheduleError(
            f"the {extent} iterations of loop {loop.name} are not a multiple of innerpart_factor {innerpart_factor}",
            where=target,
            hint="choose a factor that divides the extent",
        )
    if decision is not None:
        sizes = _as_sizes(target, n, decision)
        if prod(sizes) != extent or prod(sizes[partition_pos:]) % innerpart_factor:
            raise ScheduleError(
                f"the decision {sizes} makes {prod(sizes)} of {extent} iterations of loop {loop.name}, the inner part "
                f"{prod(sizes[partition_pos:])}, to be a multiple of {innerpart_factor}",
                where=target,
                hint="the product of the sizes has to be the extent",
            )
        return sizes, list(sizes)
    sizes = _draw_factorization(extent // innerpart_factor, n, extent, rng)
    inner = _draw_factorization(innerpart_factor, n - partition_pos, innerpart_factor, rng)
    sizes = [s * (1 if i < partition_pos else inner[i - partition_pos]) for i, s in enumerate(sizes)]
    return sizes, list(sizes)


@primitive(kind="sample")
def sample_tile(
    func: PrimFunc,
    loop: Var,
    n: int,
    max_innermost_factor: int = 64,
    decision: Sequence[int] | None = None,
    *,
    rng: np.random.Generator,
) -> tuple[list[int], list[Any]]:
    """Choose ``n`` tile sizes that cover a loop's extent and need not divide it.

    The innermost size is at most ``max_innermost_factor``; the outermost is ``ceildiv(extent, product of the others)``.
    Sizes such as 1, 2, 3, 4, 6, 8, 12, 16 … and the extent's divisors are drawn, evenly on a logarithmic scale. Returns
    ``n`` numbers for :meth:`split`, outermost first.
    """
    target = _checked(func, loop, n, max_innermost_factor)
    extent = _constant_extent(target)
    if decision is not None:
        sizes = _as_sizes(target, n, decision)
        if sizes[0] != -(-extent // prod(sizes[1:])):
            raise ScheduleError(
                f"the decision {sizes} does not fit the {extent} iterations of loop {loop.name}: its outermost size "
                f"would be {-(-extent // prod(sizes[1:]))}",
                where=target,
                hint="the outermost size follows from the others, rounded up",
            )
        return sizes, list(sizes)
    inner: list[int] = []
    left, limit = extent, max_innermost_factor
    for _ in range(n - 1):
        choices = [s for s in _pleasant(extent) if s <= min(left, limit)]
        inner.insert(0, choices[int(rng.integers(len(choices)))])
        left, limit = -(-left // inner[0]), extent
    sizes = [left, *inner]
    return sizes, list(sizes)


@primitive(kind="sample")
def sample_categorical(
    func: PrimFunc,
    candidates: Sequence[int | float | IntImm],
    probs: Sequence[float],
    decision: int | None = None,
    *,
    rng: np.random.Generator,
) -> tuple[int, int | float]:
    """Choose one of the candidates with the given probabilities; ``decision`` is the position of the chosen one."""
    values = [c.value if isinstance(c, IntImm) else c for c in candidates]
    weights = np.asarray([float(p) for p in probs])
    if len(values) != len(weights) or not values:
        raise ScheduleError(
            f"{len(values)} candidates with {len(weights)} probabilities",
            hint="give one probability for each candidate",
        )
    if weights.min() < 0 or abs(weights.sum() - 1.0) > 1e-4:
        raise ScheduleError(
            f"the probabilities {list(map(float, weights))} do not sum up to 1", hint="divide each by their sum"
        )
    if decision is None:
        decision = int(rng.choice(len(values), p=weights / weights.sum()))
    if isinstance(decision, bool) or not isinstance(decision, int) or not 0 <= decision < len(values):
        raise ScheduleError(
            f"the decision {decision!r} is not a position among {len(values)} candidates", hint="positions count from 0"
        )
    return decision, values[decision]


_MOST_LOOPS = 1024
"""The largest number of loops for one split; more would be a mistake, and take long."""


def _checked(func: PrimFunc, loop: Var, n: int, max_innermost: int) -> For:
    target = find_loop(tree_of(func), loop)
    if not 1 <= n <= _MOST_LOOPS:
        raise bad_argument(
            f"a loop is split into at least one loop and at most {_MOST_LOOPS}, not {n}", where=target,
            hint="n is the number of loops",
        )  # fmt: skip
    if max_innermost < 1:
        raise bad_argument(
            f"max_innermost_factor is at least 1, not {max_innermost}", where=target, hint="choose 1 or more"
        )
    return target


def _constant_extent(loop: For) -> int:
    if not isinstance(loop.extent, IntImm):
        raise ScheduleError(
            f"the extent {loop.extent} of loop {loop.loop_var.name} is not a constant, so its tile sizes cannot be drawn",
            where=loop,
            hint="split it by a constant factor",
        )
    if loop.extent.value < 1:
        raise ScheduleError(
            f"loop {loop.loop_var.name} has {loop.extent.value} iterations",
            where=loop,
            hint="sample tiles of loops that run at least once",
        )
    return loop.extent.value


def _undivided(loop: For, n: int, decision: Sequence[int] | None) -> tuple[list[int], list[Any]]:
    """Return the one decision for a loop of unknown extent, and its sizes: one left to ``split``, and ones."""
    only = [-1] + [1] * (n - 1)
    if decision is not None and [d.value if isinstance(d, IntImm) else d for d in decision] != only:
        raise ScheduleError(
            f"the decision {list(decision)} tiles loop {loop.loop_var.name}, whose extent {loop.extent} is not a constant",
            where=loop,
            hint=f"the only decision for it is {only}; split it by a constant factor",
        )
    return only, [None, *only[1:]]


def _as_sizes(loop: For, n: int, decision: Sequence[int]) -> list[int]:
    sizes = [s.value if isinstance(s, IntImm) else s for s in decision]
    if len(sizes) != n or any(isinstance(s, bool) or not isinstance(s, int) or s < 1 for s in sizes):
        raise ScheduleError(
            f"the decision {sizes} is not a list of {n} positive sizes",
            where=loop,
            hint="give one size per loop, each at least 1",
        )
    return sizes


# -- factorizations ------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _factor(x: int) -> tuple[tuple[int, int], ...]:
    """Return the prime factors of ``x`` with their exponents."""
    out: list[tuple[int, int]] = []
    p = 2
    while p * p <= x:
        if x % p == 0:
            exponent = 0
            while x % p == 0:
                x //= p
                exponent += 1
            out.append((p, exponent))
        p += 1
    return tuple(out + ([(x, 1)] if x > 1 else []))


def _divisors(x: int) -> list[int]:
    out = [1]
    for p, exponent in _factor(x):
        out = [d * p**e for d in out for e in range(exponent + 1)]
    return sorted(out)


def count_factorizations(x: int, n: int) -> int:
    """Return the number of ways to write ``x`` as an ordered product of ``n`` positive numbers."""
    return prod(comb(exponent + n - 1, n - 1) for _, exponent in _factor(x)) if n else int(x == 1)


def _draw_factorization(extent: int, n: int, max_innermost: int, rng: np.random.Generator) -> list[int]:
    """Return an ordered factorization; all with a small enough last factor are equally likely.

    The last factor is drawn in proportion to the number of factorizations of the quotient; then each prime's exponent
    is distributed over the other factors uniformly (stars and bars).
    """
    last = [d for d in _divisors(extent) if d <= max_innermost] if n > 1 else [extent]
    weights = np.array([count_factorizations(extent // d, n - 1) for d in last], dtype=float)
    innermost = last[int(rng.choice(len(last), p=weights / weights.sum()))]
    sizes = [1] * (n - 1) + [innermost]
    for p, exponent in _factor(extent // innermost):
        bars = np.sort(rng.choice(exponent + n - 2, size=n - 2, replace=False)) if n > 2 else np.array([], dtype=int)
        marks = [-1, *map(int, bars), exponent + n - 2]
        for place, (a, b) in enumerate(zip(marks, marks[1:], strict=False)):
            sizes[place] *= p ** (b - a - 1)
    return sizes


@lru_cache(maxsize=256)
def _pleasant(extent: int) -> tuple[int, ...]:
    """Return the sizes to draw from, up to the extent. They are 1, 2, 3, 4, 6, 8, 12, 16, 24 …, and the divisors."""
    found = set(_divisors(extent))

    def powers(base: int) -> Iterator[int]:
        while base <= extent:
            yield base
            base *= 2

    return tuple(sorted({*found, *powers(1), *powers(3)}))
