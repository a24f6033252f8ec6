"""Stages of a random program that reduce: pooling, rows, matrix products, convolutions, pairs of results."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import te
from tilewright.schedule import register_reducer
from tilewright.tir.expr import Add, FloatImm, IntImm, Max, Reduce, max_, min_

from .elementwise_stages import LIMITS, Maker, Stage, constant, copy, flatten, one_of, pad, scale, stencil, upscale

_WORK = 1500
"""Iterations of one stage at most."""

argmax = te.comm_reducer(
    lambda x, y: (
        te.select(te.any(x[1] > y[1], te.all(x[1] == y[1], x[0] < y[0])), x[0], y[0]),
        te.select(x[1] > y[1], x[1], y[1]),
    ),
    lambda ti, tv: (te.const(-1, ti), te.min_value(tv)),
    name="argmax",
)
"""The first of the largest: whatever the order, the same."""

sum_and_max = te.comm_reducer(
    lambda x, y: (x[0] + y[0], te.max(x[1], y[1])),
    lambda a, b: (te.const(0, a), te.min_value(b)),
    name="sum_and_max",
)


def _complex_product(x: Any, y: Any) -> Any:
    return x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]


def _number(e: Any) -> Any:
    """The value of a constant, of float16 and bfloat16 as well."""
    return e.value if isinstance(e, (IntImm, FloatImm)) else None


complex_product = te.comm_reducer(
    _complex_product, lambda a, b: (te.const(1, a), te.const(0, b)), name="complex_product"
)
register_reducer(
    "complex product of the fuzzer", 2, _complex_product, lambda s: _number(s[0]) == 1 and _number(s[1]) == 0
)


def _kind(rng: np.random.Generator, s: Stage, count: int) -> tuple[Any, int] | None:
    """A sum, maximum or minimum of ``count`` elements, and the largest magnitude of the result."""
    reduce = one_of(rng, (te.sum, te.max, te.min))
    if s.dtype == "bool":
        return None
    if reduce is te.sum:
        return (reduce, s.bound * count) if s.holds(s.bound * count) else None
    return reduce, s.bound if count else 1 << 60  # over nothing: the identity, and nothing may be computed with that


def _pool(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    if not s.dims:
        return None
    d, window, step = int(rng.integers(len(s.dims))), int(rng.integers(2, 4)), int(rng.integers(1, 3))
    found = _kind(rng, s, window)
    if s.shape[d] < window or found is None:
        return None
    reduce, bound = found
    dims = [(e - window) // step + 1 if k == d else e for k, e in enumerate(s.dims)]
    r = te.reduce_axis((0, window), name="w")

    def at(*i: Any) -> Any:
        return reduce(s.tensor[tuple([v * step + r if k == d else v for k, v in enumerate(i)])], axis=r)

    return s.made(dims, at, name, bound)


def _reduce(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    if not s.dims or (len(s.dims) == 1 and rng.random() < 0.7):
        return None
    d = int(rng.integers(len(s.dims)))
    found = _kind(rng, s, s.shape[d])
    if found is None:
        return None
    reduce, bound = found
    some = rng.random() < 0.15
    if some and reduce is not te.sum:
        bound = 1 << 60  # perhaps over nothing
    r = te.reduce_axis((0, s.dims[d]), name="k")

    def at(*i: Any) -> Any:
        index = [*i[:d], r, *i[d:]]
        return reduce(s.tensor[tuple(index)], axis=r, where=(r.var % 2 == 1) if some else None)

    return s.made([e for k, e in enumerate(s.dims) if k != d], at, name, bound)


def _pair(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> list[Stage] | None:
    """Two results of one reduction: the place and the value of the largest, or the sum and the largest."""
    if not s.dims:
        return None
    d = int(rng.integers(len(s.dims)))
    count = s.shape[d]
    r = te.reduce_axis((0, s.dims[d]), name="k")
    which = bool(rng.integers(2))
    if s.dtype == "bool" or count == 0 or (not which and not s.holds(s.bound * count)):
        return None

    def at(*i: Any) -> Any:
        value = s.tensor[(*i[:d], r, *i[d:])]
        if which:
            return argmax((te.cast("int32", r.var), value), axis=r)
        return sum_and_max((value, value), axis=r)

    pair = te.compute(tuple([e for k, e in enumerate(s.dims) if k != d]), at, name=name)
    first = count if which else s.bound * count
    return [Stage(pair[0], first, s.sizes), Stage(pair[1], s.bound, s.sizes)]


def _complex(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> list[Stage] | None:
    """The two parts of a product of complex numbers, which a user's reduction combines; each part needs both."""
    fitting = [o for o in stages if o.dtype == s.dtype and o.dims == s.dims]
    if not s.dims or s.dtype == "bool" or s.dtype.startswith("uint"):
        return None
    o, d, unit = one_of(rng, [None, *fitting]), int(rng.integers(len(s.dims))), rng.random() < 0.5
    # a number of magnitude 1 turns what there is, so that any count of them is exact
    bound = 1 if unit else (2 * max(s.bound, 1 if o is None else o.bound)) ** min(s.shape[d], 64)
    if not s.holds(bound) or s.shape[d] == 0:
        return None
    zero, one = constant(s.dtype, 0), constant(s.dtype, 1)
    r = te.reduce_axis((0, s.dims[d]), name="k")

    def at(*i: Any) -> Any:
        place = (*i[:d], r, *i[d:])
        x, y = s.tensor[place], one if o is None else o.tensor[place]
        if unit:  # 1, -1 or i
            x, y = te.select(x > zero, one, te.select(x < zero, zero - one, zero)), te.select(x.equal(zero), one, zero)
        return complex_product((x, y), axis=r)

    pair = te.compute(tuple([e for k, e in enumerate(s.dims) if k != d]), at, name=name)
    return [Stage(pair[0], bound, s.sizes), Stage(pair[1], bound, s.sizes)]


def _matmul(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    if len(s.dims) != 2:
        return None
    fitting = [o for o in stages if len(o.dims) == 2 and o.dtype == s.dtype and o.dims[1] == s.dims[1]]
    o = one_of(rng, fitting)
    depth = s.shape[1]
    bound = s.bound * o.bound * depth
    to = "float32" if s.dtype.is_float else "int32"  # sums of narrow types are wider
    wide = s.dtype in ("int8", "uint8", "float16", "bfloat16") and (rng.random() < 0.7 or not s.holds(bound))
    if bound > LIMITS[to if wide else s.dtype] or s.shape[0] * o.shape[0] * depth > _WORK:
        return None
    r = te.reduce_axis((0, s.dims[1]), name="k")

    def at(i: Any, j: Any) -> Any:
        a, b = s.tensor[i, r], o.tensor[j, r]
        return te.sum(te.cast(to, a) * te.cast(to, b) if wide else a * b, axis=r)

    return s.made((s.dims[0], o.dims[0]), at, name, bound)


def _conv(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    weights = [o for o in stages[:2] if len(o.dims) == 1 and 0 < o.shape[0] <= 5 and o.dtype == s.dtype]
    if len(s.dims) != 2 or not weights:
        return None
    w = weights[0]
    taps = w.shape[0]
    bound = s.bound * w.bound * taps * 3
    if s.shape[0] < 3 or s.shape[1] < taps or not s.holds(bound):
        return None
    x, y = te.reduce_axis((0, 3), name="x"), te.reduce_axis((0, w.dims[0]), name="y")
    dims = (s.dims[0] - 2, s.dims[1] - w.dims[0] + 1)
    if (s.shape[0] - 2) * (s.shape[1] - taps + 1) * 3 * taps > _WORK:
        return None
    return s.made(dims, lambda i, j: te.sum(s.tensor[i + x, j + y] * w.tensor[y], axis=[x, y]), name, bound)


def _epilogue(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    """What is added to a sum (or compared with an extreme), the same way or another."""
    reduced = [o for o in stages if getattr(o.tensor.op, "body", None) and isinstance(o.tensor.op.body[0], Reduce)]
    reduced = [o for o in reduced if o.tensor.op.num_outputs == 1]
    if not reduced:
        return None
    s = reduced[-1] if rng.random() < 0.7 else one_of(rng, reduced)
    combine = s.tensor.op.body[0].combiner.result[0]
    o = one_of(rng, [None, *[o for o in stages if o is not s and o.dtype == s.dtype and o.dims == s.dims]])
    if not s.holds(s.bound + (3 if o is None else o.bound)):
        return None
    fixed = constant(s.dtype, int(rng.integers(-3, 4)))

    def at(*i: Any) -> Any:
        other = fixed if o is None else o.tensor[i]
        if isinstance(combine, Add):
            return s.tensor[i] + other
        return max_(s.tensor[i], other) if isinstance(combine, Max) else min_(s.tensor[i], other)

    return s.made(s.dims, at, name, s.bound + (3 if o is None else o.bound))


REDUCTIONS: tuple[Maker, ...] = (
    _pool, _pool, _reduce, _reduce, _pair, _complex, _matmul, _matmul, _conv, _epilogue,
)  # fmt: skip

WINDOWS: tuple[Maker, ...] = (stencil, stencil, upscale, upscale, _pool, _pool, _conv, pad, scale)
"""For programs whose stages read several elements around a place: tiles that overlap."""

SUMS: tuple[Maker, ...] = (_reduce, _matmul, _matmul, _epilogue, _epilogue, _epilogue, _complex, scale, copy, flatten)
"""For programs that reduce and go on with the result."""
