"""Stages of a random program that choose by values: truth values, masks by data, gathers, numbers that all share."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import te

from .elementwise_stages import Maker, Stage, constant, one_of


def _comparison(rng: np.random.Generator, s: Stage, stages: list[Stage]) -> Any:
    """A function of the indices of ``s`` that says whether something holds there."""
    alike = [o for o in stages if o.dims == s.dims and o.dtype == s.dtype and o.dtype != "bool"]
    lengths = [o for o in stages if o.dims == s.dims[: len(o.dims)] and o.dtype.is_int and s.dims]
    kind, sign = int(rng.integers(4)), int(rng.integers(6))
    n, limit = int(rng.integers(2, 4)), int(rng.integers(0, 6))
    a = one_of(rng, alike) if alike else None
    b = one_of(rng, [*alike, None])
    length = one_of(rng, lengths) if lengths else None

    def compare(x: Any, y: Any) -> Any:
        return (x < y, x <= y, x > y, x >= y, x.equal(y), x != y)[sign]

    def at(*i: Any) -> Any:
        if kind == 0 and a is not None:
            return compare(a.tensor[i], constant(a.dtype, limit - 3) if b is None or b is a else b.tensor[i])
        if kind == 1 and length is not None:  # beside a loaded length, as masks of sequences are
            return compare(te.cast(i[-1].dtype, length.tensor[i[: len(length.dims)]]), i[-1])
        if i:
            return compare(i[0] + i[-1] if kind == 2 else i[-1] % n, limit)
        return te.const(bool(limit % 2), "bool")

    return at


def _test(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage:
    """A stage of truth values."""
    x, y, kind = _comparison(rng, s, stages), _comparison(rng, s, stages), int(rng.integers(5))

    def at(*i: Any) -> Any:
        if kind < 2:
            return x(*i)
        return (te.all(x(*i), y(*i)), te.any(x(*i), y(*i)), te.not_(x(*i)))[kind - 2]

    return s.made(s.dims, at, name, 1)


def _truth(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    """Whether any, or all, of a dimension are true; or the truth values as numbers."""
    if s.dtype != "bool":
        return None
    to = one_of(rng, ("int32", "uint8", "float32"))
    if not s.dims or rng.random() < 0.4:
        return s.made(s.dims, lambda *i: te.cast(to, s.tensor[i]), name, 1)
    d, reduce = int(rng.integers(len(s.dims))), one_of(rng, (te.any, te.all))
    r = te.reduce_axis((0, s.dims[d]), name="k")
    dims = [e for k, e in enumerate(s.dims) if k != d]
    return s.made(dims, lambda *i: reduce(s.tensor[(*i[:d], r, *i[d:])], axis=r), name, 1)


def _masked(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage:
    """One value or another, by what a stage holds."""
    masks = [o for o in stages if o.dtype == "bool" and o.dims == s.dims]
    mask = one_of(rng, masks) if masks and rng.random() < 0.6 else None
    others = [o for o in stages if o.dtype == s.dtype and o.dims == s.dims and o is not s]
    o = one_of(rng, [*others, None])
    fill = constant(s.dtype, int(rng.integers(-2, 3)))
    choose, test = one_of(rng, (te.select, te.if_then_else)), _comparison(rng, s, stages)

    def at(*i: Any) -> Any:
        here = test(*i) if mask is None else mask.tensor[i]
        return choose(here, s.tensor[i], fill if o is None else o.tensor[i])

    return s.made(s.dims, at, name, max(s.bound, 2, 0 if o is None else o.bound))


def _gather_twice(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    """The elements at the places that a stage names at the places that it names."""
    names = [o for o in stages if len(o.dims) == 1 and o.dtype.is_int]
    if len(s.dims) != 1 or s.shape[0] == 0 or not names:
        return None
    o = one_of(rng, names)
    if o.shape[0] == 0:
        return None

    def inside(e: Any, end: Any) -> Any:
        return te.max(te.min(te.cast("int32", e), te.cast("int32", end) - 1), 0)

    def at(i: Any) -> Any:
        return s.tensor[inside(o.tensor[inside(o.tensor[i], o.tensor.shape[0])], s.tensor.shape[0])]

    return s.made(o.dims, at, name, s.bound)


def _point(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    """A stage without dimensions: a constant, or one element."""
    if 0 in s.shape:
        return None
    if rng.random() < 0.4 or s.dtype == "bool":
        return s.made((), lambda: constant("float32" if s.dtype == "bool" else s.dtype, 2), name, 2)
    place = [int(rng.integers(n)) if isinstance(e, int) else 0 for e, n in zip(s.dims, s.shape, strict=True)]
    return s.made((), lambda: s.tensor[tuple(place)] if place else s.tensor[()], name, s.bound)


def _shared(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    """What all elements share, added: a stage without dimensions, a size, or a number given with the call."""
    points = [o for o in stages if not o.dims and o.dtype == s.dtype and o is not s]
    numbers = list(s.sizes)
    if (not points and not numbers) or s.dtype == "bool":
        return None
    if points and (not numbers or rng.random() < 0.5):
        o = one_of(rng, points)
        return (
            s.made(s.dims, lambda *i: s.tensor[i] + o.tensor[()], name, s.bound + o.bound)
            if s.holds(s.bound + o.bound)
            else s.made(s.dims, lambda *i: te.max(s.tensor[i], o.tensor[()]), name, max(s.bound, o.bound))
        )
    number = one_of(rng, numbers)
    if not s.holds(s.bound + 17):
        return None
    return s.made(s.dims, lambda *i: s.tensor[i] + te.cast(s.dtype, te.max(number, 0)), name, s.bound + 17)


def _one(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    """A reduction over one element, perhaps beside another axis."""
    if not s.dims or s.dtype == "bool":
        return None
    reduce = one_of(rng, (te.sum, te.max, te.min))
    r, k = te.reduce_axis((0, 1), name="one"), te.reduce_axis((0, s.dims[-1]), name="k")
    if rng.random() < 0.5:
        return s.made(s.dims, lambda *i: reduce(s.tensor[(*i[:-1], i[-1] + r)], axis=r), name, s.bound)
    bound = s.bound * max(s.shape[-1], 1)
    if not s.holds(bound) or s.shape[-1] == 0 or (reduce is te.sum and s.dtype.is_float and bound > 255):
        return None
    axes = [r, k] if rng.random() < 0.5 else [k, r]
    return s.made(s.dims[:-1], lambda *i: reduce(s.tensor[(*i, k + r)], axis=axes), name, bound)


CONDITIONS: tuple[Maker, ...] = (
    _test, _test, _truth, _masked, _masked, _gather_twice, _point, _shared, _shared, _one,
)  # fmt: skip
"""For programs that choose, gather, and share numbers."""
