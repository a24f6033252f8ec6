"""Stages of a random program over triangles, and recurrences: reductions with ends that other axes give, and scans."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import te

from .elementwise_stages import Maker, Stage, one_of


def _triangle(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    """A reduction along a dimension up to the place of the element, from it, or from half of it."""
    if not s.dims or s.dtype == "bool":
        return None
    d, kind, reduce = int(rng.integers(len(s.dims))), int(rng.integers(4)), one_of(rng, (te.sum, te.max, te.min))
    if reduce is not te.sum:
        kind %= 3  # no row is empty: nothing may be computed with the identity
    bound = s.bound * (s.shape[d] if reduce is te.sum else 1)
    if not s.holds(bound):
        return None
    end = s.dims[d]

    def at(*i: Any) -> Any:
        here = i[d]
        ends = ((0, here + 1), (here, end), (here // 2, here + 1), (0, here))[kind]
        k = te.reduce_axis(ends, name="k")
        return reduce(s.tensor[(*i[:d], k, *i[d + 1 :])], axis=k)

    return s.made(s.dims, at, name, bound)


def _corner(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    """A sum over two axes, of which the second begins at the first."""
    if len(s.dims) != 2 or not s.holds(s.bound * s.shape[0] * s.shape[1]) or s.shape[0] * s.shape[1] > 60:
        return None
    if 0 in s.shape:
        return None
    last = te.cast("int32", s.tensor.shape[1]) - 1

    def at(i: Any) -> Any:
        j = te.reduce_axis((0, i + 1), name="j")
        k = te.reduce_axis((te.min(j.var, last), s.dims[1]), name="k")
        return te.sum(s.tensor[j, k], axis=[j, k])

    return s.made(s.dims[:1], at, name, s.bound * s.shape[0] * s.shape[1])


def _scan(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    """A recurrence along the first dimension: from the step before, the two before, or its neighbours in another order."""
    if not s.dims or s.dtype == "bool" or s.shape[0] == 0:
        return None
    kind, back = int(rng.integers(4)), 2 if s.shape[0] > 2 and rng.random() < 0.4 else 1
    bound = s.bound * s.shape[0] if kind < 2 else s.bound
    if not s.holds(bound) or (kind == 1 and s.dtype.startswith("uint")):
        return None
    state = te.placeholder(s.dims, s.dtype, name=f"{name}_state")
    first = te.compute((back, *s.dims[1:]), lambda *i: s.tensor[i], name=f"{name}_first")

    def at(t: Any, *i: Any) -> Any:
        turned = tuple([s.dims[-1] - 1 - v if k == len(i) - 1 and kind == 3 else v for k, v in enumerate(i)])
        before, x = state[(t - back, *turned)], s.tensor[(t, *i)]
        return (before + x, x - before, te.max(before, x), te.min(state[(t - 1, *i)], before))[kind]

    update = te.compute(tuple(s.dims), at, name=f"{name}_step")
    return Stage(te.scan(first, update, state, name=name), bound, s.sizes)


def _running(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    """A sum over the first of a row, as many as another stage says: a row may have none."""
    lengths = [o for o in stages if o.dims == s.dims[:1] and o.dtype.is_int]
    if len(s.dims) != 2 or s.shape[1] == 0 or not lengths or not s.holds(s.bound * s.shape[1]):
        return None
    o = one_of(rng, lengths)
    most = te.cast("int32", s.tensor.shape[1])

    def at(i: Any) -> Any:
        k = te.reduce_axis((0, te.max(te.min(te.cast("int32", o.tensor[i]), most), 0)), name="k")
        return te.sum(s.tensor[i, k], axis=k)

    return s.made(s.dims[:1], at, name, s.bound * s.shape[1])


RECURRENCES: tuple[Maker, ...] = (_triangle, _triangle, _corner, _scan, _scan, _running)
"""For programs whose stages have ends that depend on axes, and order."""
